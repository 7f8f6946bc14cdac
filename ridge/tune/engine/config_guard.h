// The guard of a configuration's candidates: which reference each is compared with, for how long,
// and how a device gets memory for it.
#pragma once

#include <cstdint>
#include <string>

#include "ridge/tune/engine/part_meter.h"

namespace ridge {

class ConfigGuard {
 public:
  /// `program` is the path of ridge; the budget is that of the loop. `meter` says what a step of
  /// the best so far takes on batches in memory.
  ConfigGuard(std::string program, double budget_seconds, const PartMeter& meter)
      : program_(std::move(program)), budget_seconds_(budget_seconds), meter_(meter) {}

  /// The configuration as it is.
  void begin(const OpenConfig& subject);
  /// Seconds that the guard of one more change of the class takes.
  double seconds(SemanticClass semantic_class) const;
  /// Judges the numbers of `candidate` beside those of `best`. Both may be ended to make room on a
  /// device, and are open again where it passes.
  GuardAnswer judge(SemanticClass semantic_class,
                    OpenConfig& best,
                    OpenConfig& candidate,
                    int64_t until_ns);
  /// The change that was judged last was kept.
  void keep(SemanticClass semantic_class);
  /// Judges the rest of `best` when a change is taken out: each change was only compared with what
  /// was kept before it.
  GuardOutcome judge_rest(RestClasses classes,
                          OpenConfig& best,
                          OpenConfig& without,
                          int64_t until_ns);

 private:
  GuardRequest request(SemanticClass semantic_class,
                       std::string reference,
                       const OpenConfig& candidate,
                       int64_t until_ns) const;
  GuardAnswer ask(const GuardRequest& request,
                  OpenConfig& best,
                  OpenConfig& candidate,
                  int64_t until_ns);

  std::string program_;
  double budget_seconds_;
  const PartMeter& meter_;
  std::string subject_config_, subject_hash_;
  /// The best that made the updates of the user's configuration, once one was kept that does not,
  /// and seconds of a step of it; and the same of the best beside the candidate that was judged
  /// last.
  std::string own_config_, last_config_;
  double own_step_seconds_ = 0, last_step_seconds_ = 0;
  double last_seconds_ = 0;  ///< The last guard took so long; 0: there was none.
};

GuardOutcome outcome_of(GuardAnswer answer);
/// Whether the states have the same bits, with what to say of it.
GuardAnswer compare_bits(const std::string& hash, const std::string& expected);

}  // namespace ridge
