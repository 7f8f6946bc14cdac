// The process in which one variant of a configuration runs (worker_pipe.h):
//
//   {"open": "CONFIG TOML", "epoch": 0}      {"facts": {...}}
//   {"run": 20, "kind": "train"}             {"block": {"seconds": 0.31, ...}}
//   {"rewind": true}                         {"rewound": true}
//   {"fewest_parts": true}                   {"fewest_parts": 4}
//   {"hash": true}                           {"hash": "8c1f..."}
//   {"timeline": 3}                          {"timeline": {"step_ms": 31.2, ...}}
//   {"guard": "CONFIG TOML",                 {"guard": {"passed": true, ...}}
//    "reference": "CONFIG TOML",
//    "class": "precision", "most_steps": 300}
//                                            {"error": "what is wrong; the fix"}
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>

#include "ridge/tune/engine/engine_variant.h"
#include "ridge/tune/engine/guard/configs.h"
#include "ridge/tune/worker_pipe.h"

namespace ridge {

/// The worker's side: answers the requests of `in` until it ends.
void serve_variant(std::istream& in, std::ostream& out);

/// The other side. The process ends with this object.
class WorkerProcess final : public Runner {
 public:
  /// Starts the program and opens the variant. All members throw VariantFailed and TrialStopped;
  /// UserError where no process can be started.
  WorkerProcess(const WorkerOptions& options, const std::string& config_toml, int64_t epoch);
  /// Starts the program without a variant: for guard().
  explicit WorkerProcess(const WorkerOptions& options);

  const VariantFacts& facts() const { return facts_; }
  Block run(int64_t steps) override { return run(steps, StepKind::kTrain); }
  Block run(int64_t steps, StepKind kind);
  void rewind() override;
  std::string state_hash();
  /// EngineVariant::fewest_parts() of the variant.
  int64_t fewest_parts();
  /// One of `steps` steps, as EngineVariant::timeline() has it.
  StepTimeline timeline(int64_t steps);
  GuardAnswer guard(const GuardRequest& request);
  /// RssAnon of the variant's memory after the last block; 0 before.
  int64_t measured_bytes() const { return measured_bytes_; }
  int process_id() const { return pipe_.process_id(); }
  void work_until(int64_t until_ns) { pipe_.work_until(until_ns); }
  /// Ends the process, and all memory of it: facts() stay.
  void end() { pipe_.end(); }
  bool is_running() const { return pipe_.is_running(); }

 private:
  WorkerPipe pipe_;
  VariantFacts facts_;
  int64_t measured_bytes_ = 0;
};

}  // namespace ridge
