// Programs that train: the first steps, before errors can have grown. Batches are the same, and
// losses lie no farther from those of the program as it is than a few times what controls show.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "ridge/tune/pytorch/guard/parts.h"

namespace ridge {
namespace {

using attach::RunRecord;

// After three steps a program may have made anything of a rounding.
constexpr size_t kFirstSteps = 3;
// The loss of a control is one number, which can be close by chance: so many roundings of a loss
// are always allowed, and in bf16 such a share of the spread of the losses.
constexpr double kRoundings = 32, kCoarseLoss = 0.01;
// The same of a norm of all gradients.
constexpr double kFineNorm = 1e-4, kCoarseNorm = 0.01;
// First losses of a program whose own repeat differs by as much of their spread show nothing.
constexpr double kSaysNothing = 0.05;

// Rounding is amplified as often as the sizes of a change and of a control differ. In f32 a change
// of the order of sums, as channels last and a compiler make it, moves a sum of thousands of
// products by some ten units in the last place, where a control moves each parameter by one. In
// bf16 a control moves all parameters by a whole unit, and what layers compute by half of one,
// which is more than rounding does.
constexpr double kFineFactor = 30, kCoarseFactor = 4.5;
// A rounding turns the sign of an activation here and there, and a ReLU makes a thousand times as
// much of that: in a second step that happens in one run of two, and the control may be the other
// one. In bf16 there are so many that all runs have some, and a step adds its own to those of the
// parameters that it begins with.
constexpr double kFineGrowth = 10, kCoarseGrowth = 1.5;
// The last place of a parameter or a loss, which are f32 at the finest.
constexpr double kRounding = 0x1p-23;
// Not all rounding is that of a sum: Adam's first corrections, 1 - 0.999^t in f32, move all updates
// by 3e-5 of themselves. And sums in bf16 are rounded one way more often than the other.
constexpr double kFineBias = 1e-4, kCoarseBias = 5e-3;
// One activation whose sign turned is in a deep network up to half a percent of one tensor's
// gradient, in a first step, too, and of all tensors' median nothing.
constexpr double kLeastMove = 1e-2;

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

size_t hashed_steps(const RunRecord& run) { return run.batch_hashes.size(); }

/// Inputs of a step that follow from no computation: of these controls have the same.
struct Inputs {
  size_t number = 0;
  bool has_number = false;   ///< Controls are called with as many.
  std::vector<bool> stands;  ///< One each.
};

Inputs inputs_of(const RunRecord& baseline, const ForeignRuns& controls, size_t step) {
  const std::vector<std::string> words = words_of(baseline.batch_hashes[step]);
  Inputs inputs{words.size(), true, std::vector<bool>(words.size(), true)};
  for (const RunRecord& control : controls) {
    if (step >= hashed_steps(control)) continue;
    const std::vector<std::string> others = words_of(control.batch_hashes[step]);
    if (others.size() != words.size()) return {words.size(), false, {}};
    for (size_t i = 0; i < words.size(); ++i)
      inputs.stands[i] = inputs.stands[i] && words[i] == others[i];
  }
  return inputs;
}

Shown compare_batches(const ForeignBaseline& baseline,
                      const ForeignRuns& candidates,
                      const ForeignRuns& controls) {
  const RunRecord& first = baseline.seeds[0];
  int64_t compared = 0;
  for (size_t step = 0; step < hashed_steps(first); ++step) {
    const Inputs inputs = inputs_of(first, controls, step);
    if (!inputs.has_number) continue;
    const auto standing = std::ranges::count(inputs.stands, true);
    if (standing > 0) ++compared;
    for (size_t i = 0; i < candidates.size(); ++i) {
      if (step >= hashed_steps(baseline.seeds[i]) || step >= hashed_steps(candidates[i])) continue;
      const std::vector<std::string> before = words_of(baseline.seeds[i].batch_hashes[step]);
      const std::vector<std::string> after = words_of(candidates[i].batch_hashes[step]);
      if (before.size() != inputs.number) continue;
      if (after.size() != before.size())
        return {false,
                fmt::format("step {} calls modules with {} tensors, and not with {}",
                            step + 1,
                            after.size(),
                            before.size())};
      for (size_t k = 0; k < before.size(); ++k)
        if (inputs.stands[k] && before[k] != after[k])
          return {false, fmt::format("the batch of step {} is another one", step + 1)};
    }
  }
  if (compared == 0) return {true, "batches were not seen"};
  return {true, fmt::format("batches of {} steps are the same", compared)};
}

size_t steps_of(const std::vector<double>& a, const std::vector<double>& b) {
  return std::min({a.size(), b.size(), kFirstSteps});
}

/// The largest distance of a control, up to a step: a small one may be so by chance.
template <typename Share>
double largest(const std::vector<double>& baseline,
               const ForeignRuns& controls,
               std::vector<double> RunRecord::* numbers,
               size_t step,
               const Share& share) {
  double most = 0;
  for (const RunRecord& control : controls)
    for (size_t i = 0; i <= step && i < steps_of(baseline, control.*numbers); ++i) {
      const double here = share((control.*numbers)[i], baseline[i]);
      if (std::isfinite(here)) most = std::max(most, here);
    }
  return most;
}

/// The one that lies farthest out in its own measure.
struct Worst {
  double share = 0, allowed = 0;
  bool passes() const { return share <= allowed; }
  void add(double new_share, double new_allowed) {
    if (allowed != 0 && new_share * allowed <= share * new_allowed) return;
    share = new_share;
    allowed = new_allowed;
  }
};

Shown compare_losses(const ForeignBaseline& baseline,
                     const ForeignRuns& candidates,
                     const ControlRuns& controls,
                     double spread) {
  const RunRecord& first = baseline.seeds[0];
  const auto loss_share = [&](double a, double b) { return std::fabs(a - b) / spread; };
  const auto norm_share = [](double a, double b) { return std::fabs(a / b - 1); };
  Worst loss, norm;
  const double noise =
      largest(first.losses, {baseline.again}, &RunRecord::losses, kFirstSteps - 1, loss_share);
  if (noise >= kSaysNothing)
    return {true,
            fmt::format(
                "first losses differ by {} of their spread from run to run, so they show nothing",
                percent(noise))};
  for (size_t i = 0; i < candidates.size(); ++i) {
    const RunRecord &before = baseline.seeds[i], &after = candidates[i];
    for (size_t step = 0; step < steps_of(before.losses, after.losses); ++step) {
      const double size = std::fabs(before.losses[step]);
      if (!std::isfinite(size)) continue;
      const double shown =
          largest(first.losses, controls.runs, &RunRecord::losses, step, loss_share);
      const double least =
          controls.is_coarse ? kCoarseLoss : kRoundings * controls.rounding * size / spread;
      loss.add(loss_share(after.losses[step], before.losses[step]),
               controls.factor_in(step) * shown + least);
    }
    for (size_t step = 0; step < steps_of(before.gradient_norms, after.gradient_norms); ++step) {
      const double size = before.gradient_norms[step];
      if (!std::isfinite(size) || size == 0) continue;
      const double shown = largest(
          first.gradient_norms, controls.runs, &RunRecord::gradient_norms, step, norm_share);
      norm.add(norm_share(after.gradient_norms[step], size),
               controls.factor_in(step) * shown + (controls.is_coarse ? kCoarseNorm : kFineNorm));
    }
  }
  std::string text = fmt::format("first losses differ by {} of their spread (allowed {})",
                                 percent(loss.share),
                                 percent(loss.allowed));
  text += norm.allowed == 0 ? std::string(", gradient norms were not seen")
                            : fmt::format(", gradient norms by {} (allowed {})",
                                          percent(norm.share),
                                          percent(norm.allowed));
  return {loss.passes() && norm.passes(), text};
}

/// Updates, then losses.
Shown compare_numbers(const ForeignBaseline& baseline,
                      const ForeignRuns& candidates,
                      const ControlRuns& controls,
                      double loss_spread) {
  const Shown updates = compare_updates(baseline, candidates, controls);
  if (!updates.passes) return updates;
  const Shown losses = compare_losses(baseline, candidates, controls, loss_spread);
  return losses.passes ? Shown{true, updates.text + "; " + losses.text} : losses;
}

}  // namespace

ControlRuns controls_for(const ForeignBaseline& baseline, SemanticClass semantic_class) {
  const bool is_coarse =
      semantic_class != SemanticClass::kReassociation || baseline.seeds[0].is_coarse;
  ControlRuns controls;
  controls.runs = is_coarse ? baseline.coarse_controls : baseline.fine_controls;
  // Noise of the program itself is no candidate's.
  if (!controls.runs.empty()) controls.runs.push_back(baseline.again);
  controls.is_coarse = is_coarse;
  controls.factor = is_coarse ? kCoarseFactor : kFineFactor;
  controls.growth = is_coarse ? kCoarseGrowth : kFineGrowth;
  controls.rounding = kRounding;
  controls.least_move = kLeastMove;
  controls.least_bias = is_coarse ? kCoarseBias : kFineBias;
  return controls;
}

Shown compare_first_steps(const ForeignBaseline& baseline,
                          const ForeignRuns& candidates,
                          const ControlRuns& controls,
                          double loss_spread) {
  const Shown batches = compare_batches(baseline, candidates, controls.runs);
  if (!batches.passes) return batches;
  Shown shown = compare_numbers(baseline, candidates, controls, loss_spread);
  const std::string failure = shown.text;
  // A sign that rounding turned shows in one run by chance, and a defect in each.
  const bool has_others = !controls.is_coarse && !shown.is_certain && candidates.size() > 1;
  for (size_t i = 0; has_others && !shown.passes && i < candidates.size(); ++i) {
    ForeignRuns alone(baseline.seeds.begin(),
                      baseline.seeds.begin() + static_cast<std::ptrdiff_t>(candidates.size()));
    alone[i] = candidates[i];
    shown = compare_numbers(baseline, alone, controls, loss_spread);
    if (shown.passes) shown.text += "; in another run " + failure;
  }
  if (!shown.passes) return {false, failure};
  return {true, batches.text + "; " + shown.text};
}

}  // namespace ridge
