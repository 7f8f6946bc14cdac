// Classes 1 and 2: one step at a time, from states along the reference's trajectory.
#include <algorithm>
#include <cmath>
#include <utility>

#include "ridge/tune/engine/guard/guard.h"
#include "ridge/tune/engine/guard/judgement.h"
#include "ridge/tune/engine/guard/tensors.h"
#include "ridge/tune/engine/guard/update.h"

namespace ridge {
namespace {

// Step numbers at which the schedule does something of its own: the start, within and at the end of
// the warm-up, early and late in the decay, the last step.
std::vector<int64_t> points_of(const GuardOptions& o) {
  const int64_t warmup = std::min(o.schedule.warmup, o.total_steps - 1);
  const int64_t rest = o.total_steps - warmup;
  std::vector<int64_t> points = {
      0, warmup / 2, warmup, warmup + rest / 4, warmup + rest * 3 / 4, o.total_steps - 1};
  std::sort(points.begin(), points.end());
  points.erase(std::unique(points.begin(), points.end()), points.end());
  return points;
}

// Nothing can be compared with a reference that diverges.
void check_finite(double loss, int64_t step) {
  if (!std::isfinite(loss))
    throw UserError(
        fmt::format("guard: the loss of the program as it is was {} in step {}", loss, step),
        "lower optimizer.lr or set optimizer.clip");
}

class StepGuard {
 public:
  StepGuard(const GuardVariants& variants, const GuardData& data, const GuardOptions& options)
      : variants_(variants),
        options_(options),
        dataset_(*data.dataset),
        trajectory_(snapshot_of(variants.reference)),
        trajectory_batches_(data, 0),
        // Another epoch: the states were not fitted to these batches in this order.
        batches_(data, 0, 1) {
    for (Compared& compared : compared_tensors(variants.reference, options.optimizer)) {
      const int64_t elements = trajectory_.at(compared.buffer).elements();
      tensors_.push_back({std::move(compared), elements});
    }
    precision_ = variants.candidate.precision();
    rules_.loses_precision =
        options.semantic_class == SemanticClass::kPrecision && !precision_.is_f32();
    rules_.tests = tensors_.size() * static_cast<size_t>(options.rounds);
  }
  StepGuard(const StepGuard&) = delete;
  StepGuard& operator=(const StepGuard&) = delete;

  GuardReport run() {
    GuardReport report;
    const std::vector<int64_t> points = points_of(options_);
    for (int64_t round = 0; round < options_.rounds; ++round) {
      for (size_t i = 0; i < points.size(); ++i) {
        point(points[i], [this](int64_t) -> const data::Batch& { return batches_.next_full(); });
        // The smaller batch at the end of an epoch goes through graphs of its own.
        if (i + 1 == points.size() && batches_.has_smaller())
          point(points[0],
                [&](int64_t k) -> const data::Batch& { return batches_.last_of(epoch_ + k); });
        advance();
      }
      epoch_ += options_.batches;
      report = judge();
      if (!report.failures.empty() || report.undecided == 0) break;
    }
    return report;
  }

 private:
  // All batches of one state and step number.
  void point(int64_t step, const auto& batch_of) {
    ++points_;
    for (MeasuredTensor& tensor : tensors_) tensor.groups.push_back({.step = step});
    StateSnapshot previous;
    for (int64_t k = 0; k < options_.batches; ++k) {
      const data::Batch& batch = batch_of(k);
      const GuardedStep at{variants_, trajectory_, batch, step};
      const StateSnapshot controlled = control(batch, step);
      for (Variant* variant : {&variants_.candidate, &variants_.oracle, &variants_.reference}) {
        restore(*variant, trajectory_);
        const double loss = variant->step(batch, step);
        if (variant == &variants_.reference) check_finite(loss, step);
      }
      measure(previous, controlled);
      previous = compared(variants_.reference);
      if (k > 0) continue;
      add(flag_failures(at));
      add(leftover_failures(at));
      std::vector<UpdateError> errors = moment_errors(at, options_.optimizer);
      if (can_match_moments(options_.optimizer))
        for (UpdateError& error : update_errors(at, options_.optimizer))
          errors.push_back(std::move(error));
      add_updates(errors);
      if (points_ > 1) continue;
      add(overflow_failures(at));
      add(scale_failures(at));
    }
  }

  // What rounding a step's parameters and data does to it, in the oracle's arithmetic.
  StateSnapshot control(const data::Batch& batch, int64_t step) {
    if (!rules_.loses_precision) return {};
    StateSnapshot rounded = trajectory_;
    for (const StateEntry& entry : variants_.reference.entries())
      if (entry.role == StateRole::kParameter)
        rounded[entry.name] = ridge::rounded(trajectory_.at(entry.name), precision_);
    restore(variants_.oracle, rounded);
    variants_.oracle.step(RoundedBatch(dataset_, batch, precision_).batch(), step);
    return compared(variants_.oracle);
  }

  // The buffers that tensors are made from.
  StateSnapshot compared(const Variant& variant) const {
    StateSnapshot snapshot;
    for (const MeasuredTensor& tensor : tensors_)
      snapshot.emplace(tensor.compared.buffer, variant.read(tensor.compared.buffer));
    return snapshot;
  }

  void measure(const StateSnapshot& previous, const StateSnapshot& control) {
    for (MeasuredTensor& tensor : tensors_) {
      const std::string& name = tensor.compared.buffer;
      const Tensor reference = variants_.reference.read(name);
      const Tensor candidate = variants_.candidate.read(name);
      const Tensor oracle = variants_.oracle.read(name);
      add_batch(tensor.groups.back(),
                tensor.compared,
                {.before = trajectory_.at(name),
                 .reference = reference,
                 .candidate = candidate,
                 .oracle = oracle,
                 .previous = find(previous, name),
                 .control = find(control, name)});
    }
  }

  static const Tensor* find(const StateSnapshot& snapshot, const std::string& name) {
    const auto at = snapshot.find(name);
    return at == snapshot.end() ? nullptr : &at->second;
  }

  void advance() {
    restore(variants_.reference, trajectory_);
    for (int64_t i = 0; i < options_.stride; ++i, ++trajectory_step_)
      check_finite(variants_.reference.step(trajectory_batches_.next(), trajectory_step_),
                   trajectory_step_);
    trajectory_ = snapshot_of(variants_.reference);
  }

  // Only where it showed first.
  void add(const std::vector<GuardFailure>& failures) {
    for (const GuardFailure& failure : failures)
      if (std::none_of(failures_.begin(), failures_.end(), [&](const GuardFailure& known) {
            return known.test == failure.test && known.tensor == failure.tensor;
          }))
        failures_.push_back(failure);
  }

  // Keeps the step at which a tensor was nearest to its limit or farthest beyond it.
  void add_updates(const std::vector<UpdateError>& errors) {
    updates_.resize(errors.size());
    for (size_t i = 0; i < errors.size(); ++i)
      if (updates_[i].tensor.empty() ||
          errors[i].error * updates_[i].limit > updates_[i].error * errors[i].limit)
        updates_[i] = errors[i];
  }

  GuardReport judge() const {
    GuardReport report;
    report.points = points_;
    report.failures = failures_;
    for (const MeasuredTensor& tensor : tensors_)
      report.tensors.push_back(judge_tensor(tensor, rules_, report.failures));
    for (const UpdateError& update : updates_) add_row(update, report);
    for (const GuardRow& row : report.tensors)
      report.undecided += row.verdict == GuardVerdict::kCannotTell ? 1 : 0;
    std::sort(report.failures.begin(), report.failures.end(), [](const auto& a, const auto& b) {
      return std::make_pair(-excess(a), a.tensor) < std::make_pair(-excess(b), b.tensor);
    });
    report.passed = report.failures.empty();
    report.text = text_of(report);
    return report;
  }

  static void add_row(const UpdateError& update, GuardReport& report) {
    GuardRow row{.tensor = update.tensor, .error = update.error, .error_limit = update.limit};
    if (update.error > update.limit) {
      row.verdict = GuardVerdict::kFailed;
      report.failures.push_back(
          {GuardTest::kUpdate, row.tensor, update.step, update.error, update.limit});
    } else if (update.share < 0.5) {
      row.verdict = GuardVerdict::kCannotTell;
    }
    report.tensors.push_back(std::move(row));
  }

  static std::string text_of(const GuardReport& report) {
    if (report.passed)
      return fmt::format(
          "{} tensors agree in steps from {} states{}",
          report.tensors.size(),
          report.points,
          report.undecided == 0 ? "" : fmt::format("; {} cannot be told", report.undecided));
    return describe(report.failures[0]) +
           (report.failures.size() == 1 ? ""
                                        : fmt::format(", and {} more", report.failures.size() - 1));
  }

  GuardVariants variants_;
  const GuardOptions& options_;
  const data::Dataset& dataset_;
  StateSnapshot trajectory_;  ///< The reference's state, where the next point starts.
  int64_t trajectory_step_ = 0;
  GuardBatches trajectory_batches_, batches_;
  int64_t epoch_ = 1;
  Rounding precision_;  ///< Of the candidate.
  JudgementRules rules_;
  std::vector<MeasuredTensor> tensors_;
  std::vector<UpdateError> updates_;
  std::vector<GuardFailure> failures_;  ///< Of the exact tests.
  int64_t points_ = 0;
};

}  // namespace

GuardReport guard_steps(const GuardVariants& variants,
                        const GuardData& data,
                        const GuardOptions& options) {
  check(options.batches >= 2, "guard: {} batches a state; at least 2 show noise", options.batches);
  check(options.rounds >= 1, "guard: {} rounds; at least 1", options.rounds);
  const StateSnapshot start = snapshot_of(variants.reference);
  GuardReport report = StepGuard(variants, data, options).run();
  restore(variants.reference, start);
  return report;
}

}  // namespace ridge
