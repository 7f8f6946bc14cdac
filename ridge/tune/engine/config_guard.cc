#include "ridge/tune/engine/config_guard.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ridge/base/clock.h"

namespace ridge {
namespace {

// A guard may take this share of the budget, as if every step took as long as the reference's.
constexpr double kGuardShare = 0.15;

// Only whole runs tell of a trajectory, and the longer they are the more. The second number leaves
// the proof its time, should steps take longer than it seems.
constexpr double kTrajectoryShare = 0.3, kTrajectoryCare = 0.7;

double seconds_until(int64_t until_ns) { return static_cast<double>(until_ns - now_ns()) * 1e-9; }

// Reference, candidate, and an oracle whose numbers are twice as long.
bool has_room(const OpenConfig& best, const OpenConfig& candidate) {
  const int64_t needed = candidate.facts().planned_bytes + 3 * best.facts().planned_bytes;
  return candidate.facts().free_device_bytes.value_or(needed) >= needed;
}

}  // namespace

GuardOutcome outcome_of(GuardAnswer answer) {
  GuardOutcome outcome{.passed = answer.passed, .can_tell = answer.can_tell};
  if (answer.margin > 0) {
    outcome.margin = answer.margin;
    outcome.power = answer.power;
  }
  outcome.text = std::move(answer.text);
  return outcome;
}

GuardAnswer compare_bits(const std::string& hash, const std::string& expected) {
  GuardAnswer answer{.passed = hash == expected};
  answer.text = answer.passed
                    ? fmt::format("same bits of the state after {} steps", kHashSteps)
                    : fmt::format("the state after {} steps has other bits: {}, expected {}",
                                  kHashSteps,
                                  hash,
                                  expected);
  return answer;
}

void ConfigGuard::begin(const OpenConfig& subject) {
  subject_config_ = subject.resolved().toml;
  subject_hash_ = subject.state_hash();
}

double ConfigGuard::seconds(SemanticClass semantic_class) const {
  if (semantic_class == SemanticClass::kBitIdentical) return 0;
  return last_seconds_ > 0 ? last_seconds_ : kGuardShare * budget_seconds_;
}

GuardAnswer ConfigGuard::ask(const GuardRequest& request,
                             OpenConfig& best,
                             OpenConfig& candidate,
                             int64_t until_ns) {
  const bool makes_room = !has_room(best, candidate);
  if (makes_room) {
    best.worker().end();
    candidate.worker().end();
  }
  const int64_t start = now_ns();
  WorkerProcess worker(WorkerOptions{.program = program_,
                                     .answer_seconds = std::max(0.1, seconds_until(until_ns)),
                                     .deadline_ns = until_ns});
  GuardAnswer answer = worker.guard(request);
  last_seconds_ = static_cast<double>(now_ns() - start) * 1e-9;
  if (makes_room && answer.passed) {
    best.revive();
    candidate.revive();
  }
  return answer;
}

// Step after step towards other updates would wear out any margin: their reference is always what
// made those of the user's configuration.
GuardRequest ConfigGuard::request(SemanticClass semantic_class,
                                  std::string reference,
                                  const OpenConfig& candidate,
                                  int64_t until_ns) const {
  double step_seconds = meter_.costs().compute;
  double seconds = kGuardShare * budget_seconds_;
  if (semantic_class == SemanticClass::kTrajectory) {
    seconds = std::clamp(
        kTrajectoryCare * seconds_until(until_ns), 0.0, kTrajectoryShare * budget_seconds_);
    if (!own_config_.empty()) {
      reference = own_config_;
      step_seconds = own_step_seconds_;
    }
  }
  return {.reference = std::move(reference),
          .candidate = candidate.resolved().toml,
          .semantic_class = semantic_class,
          .most_steps = std::llround(seconds / step_seconds)};
}

GuardAnswer ConfigGuard::judge(SemanticClass semantic_class,
                               OpenConfig& best,
                               OpenConfig& candidate,
                               int64_t until_ns) {
  last_config_ = best.resolved().toml;
  last_step_seconds_ = meter_.costs().compute;
  return ask(request(semantic_class, last_config_, candidate, until_ns), best, candidate, until_ns);
}

void ConfigGuard::keep(SemanticClass semantic_class) {
  if (semantic_class != SemanticClass::kTrajectory || !own_config_.empty()) return;
  own_config_ = last_config_;
  own_step_seconds_ = last_step_seconds_;
}

GuardOutcome ConfigGuard::judge_rest(RestClasses classes,
                                     OpenConfig& best,
                                     OpenConfig& without,
                                     int64_t until_ns) {
  const bool drops_bits = classes.dropped == SemanticClass::kBitIdentical;
  if (!drops_bits && classes.left != SemanticClass::kBitIdentical) {
    GuardRequest rest = request(classes.left, subject_config_, without, until_ns);
    rest.reference = subject_config_;
    return outcome_of(ask(rest, best, without, until_ns));
  }
  GuardAnswer answer =
      compare_bits(without.state_hash(), drops_bits ? best.state_hash() : subject_hash_);
  if (answer.passed)
    answer.text.clear();
  else if (!drops_bits)
    answer.text = "without it the state has other bits than that of the configuration as it is";
  return outcome_of(std::move(answer));
}

}  // namespace ridge
