// The runs that the guard compares: how many go on at a time, and how each starts. Importing its
// packages is most of what the start of a program takes. So, beside the first run of the program as
// it is, a process of it imports them (attach::WarmParent) and is forked for the runs after that.
// The first that is forked is of the program as it is, too, and has to have the bits of the one
// that was started anew: else no run of this program is forked any more. Programs that are timed
// are never forked: where the memory of processes lies differs by their starts, and what is proven
// should hold for any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ridge/tune/pytorch/program_meter.h"
#include "ridge/tune/pytorch/reference.h"

namespace ridge {

/// How long runs may take.
struct GuardRunLimits {
  /// The time, by now_ns(), at which all runs are stopped.
  int64_t until_ns = 0;
  /// Seconds that a run of the program as it is takes while others go on.
  double usual_seconds = 0;
};

class GuardRuns {
 public:
  /// `target` must outlive it.
  GuardRuns(const ForeignTarget& target, size_t at_once) : target_(target), at_once_(at_once) {}
  ~GuardRuns();
  GuardRuns(const GuardRuns&) = delete;
  GuardRuns& operator=(const GuardRuns&) = delete;

  /// Each run has so many steps of the program as it is; one with larger batches has as many
  /// samples in fewer. `facts` and `notes`, which gets how runs were started, must outlive it.
  void begin(const ProgramImports& imports,
             const attach::ProcessFacts& facts,
             int64_t steps,
             std::vector<std::string>& notes);
  /// Their records, in order. VariantFailed where a run fails that was started anew, TrialStopped
  /// with stop_requested() or at the limit.
  std::vector<attach::RunRecord> record(const ForeignReference::Runs& runs,
                                        const GuardRunLimits& limits);
  /// Seconds of a run that is forked; nothing where none is, or not yet.
  std::optional<double> forked_seconds() const;
  /// Runs by now that were forked.
  int64_t forked() const { return forked_; }

 private:
  enum class Trust : uint8_t {
    kNever,    ///< No run is forked.
    kWanted,   ///< The parent is started beside the first run.
    kUntried,  ///< The parent is there, or imports.
    kTrusted,  ///< The first run that was forked had the bits of the one that was not.
  };
  enum class Way : uint8_t { kAnew, kForked, kLater };
  struct Run;
  struct Recording;

  Way way_of(const ForeignRun& run, const Recording& recording) const;
  void start(Recording& recording, Way way);
  void look_at_parent(double usual_seconds);
  void open_parent();
  bool is_importing() const;
  void poll(Recording& recording, Run& run);
  void ended(Recording& recording, Run& run, attach::RunRecord record);
  void failed(Recording& recording, Run& run, const VariantFailed& failure);
  void compare_control(Recording& recording);
  void give_up(const std::string& why);

  const ForeignTarget& target_;
  size_t at_once_;
  int64_t steps_ = 0, forked_ = 0;
  const attach::ProcessFacts* facts_ = nullptr;
  std::vector<std::string>* notes_ = nullptr;
  std::string imports_;
  Trust trust_ = Trust::kNever;
  std::unique_ptr<ForeignProgram> parent_;
  int64_t parent_begun_ns_ = 0;
  ForeignRecipe parent_recipe_;  ///< The variables that it was started with.
  std::optional<attach::RunRecord> reference_, control_;
  std::vector<double> seconds_;  ///< Seconds of runs that were forked.
};

}  // namespace ridge
