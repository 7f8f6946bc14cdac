// Programs that train: how their first steps move each tensor, in units of what controls show.
//
// A tensor's difference is seen in three ways. Projections on random directions estimate its size,
// whatever it is. The projection on the tensor itself sees what pulls all elements to or from zero,
// as a weight decay does, which is little in each. Norms see a share by which all is larger:
// rounding lies across an update and hardly lengthens it. And where all tensors are longer by the
// same small share, as another learning rate makes them, their median shows it.
//
// Adam and its kin move each element by about the same step, whichever way its gradient points: an
// element whose gradient is no more than rounding turns its step around, and a single one of them
// is a third of the update of a tensor of 32 elements. So many may turn as the rounding of the
// gradient, which controls show, makes turn; gradients themselves show what hides behind that.
// Rounding to bf16 leaves nothing of some gradients, such as that of the keys' bias in an
// attention, which is zero but for rounding. There the update is seen by how far it leads along its
// gradient: elements without a gradient have no part in that, and a step that is left out, turned
// around or of another size has.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "ridge/base/stats.h"
#include "ridge/tune/pytorch/guard/parts.h"

namespace ridge {
namespace {

using attach::RunRecord;
using attach::TensorUpdates;

// A tensor whose own update is only rounding may differ by the rounding of the others.
constexpr double kOfOthers = 0.05;
// The difference of a number before a step and after it has the rounding of the number.
constexpr double kRoundings = 4;
// A tensor that controls move by more says nothing of a median.
constexpr double kStillClear = 0.3;
constexpr size_t kLeastForMedian = 3;
// An error of a median of T normal numbers, in their deviation over the root of T.
constexpr double kMedianError = 1.25;

/// One kind of numbers that a step has of a tensor.
struct Kind {
  std::string_view name;
  std::vector<double> TensorUpdates::* norms;
  std::vector<double> TensorUpdates::* projections;
  bool is_update;
};
constexpr Kind kKinds[] = {
    {"gradient", &TensorUpdates::gradients, &TensorUpdates::gradient_projections, false},
    {"update", &TensorUpdates::updates, &TensorUpdates::update_projections, true}};

/// The distance of a run from the baseline, of one tensor in one step.
struct Distance {
  double move = 0;   ///< Norm of the difference.
  double along = 0;  ///< Its part along the tensor, times the root of the number of elements.
  double norm = 0;   ///< How much longer the run's own is.
  double along_gradient = 0;  ///< Its part along the gradient of either.
};

struct Place {
  const Kind& kind;
  size_t step;
};

double norm_of(const TensorUpdates& tensor, const Place& place) {
  return (tensor.*place.kind.norms)[place.step];
}

Distance distance_of(const TensorUpdates& a, const TensorUpdates& b, const Place& place) {
  constexpr size_t kDirections = TensorUpdates::kDirections;
  double squares = 0;
  for (size_t i = place.step * kDirections; i < (place.step + 1) * kDirections; ++i) {
    const double difference = (b.*place.kind.projections)[i] - (a.*place.kind.projections)[i];
    squares += difference * difference;
  }
  Distance distance;
  distance.move = std::sqrt(squares / static_cast<double>(kDirections));
  if (place.kind.is_update) {
    distance.along = std::fabs(b.along[place.step] - a.along[place.step]) *
                     std::sqrt(static_cast<double>(a.elements));
    distance.along_gradient =
        std::fabs(b.along_gradients[place.step] - a.along_gradients[place.step]);
  }
  distance.norm = norm_of(b, place) - norm_of(a, place);
  return distance;
}

size_t steps_of(const RunRecord& run) {
  return run.updates.empty() ? 0 : run.updates[0].sizes.size();
}

bool has_same_tensors(const RunRecord& a, const RunRecord& b) {
  return steps_of(a) == steps_of(b) &&
         std::ranges::equal(a.updates, b.updates, [](const auto& one, const auto& other) {
           return one.elements == other.elements && one.is_buffer == other.is_buffer;
         });
}

/// Whether a kind of a tensor has numbers in a step that can be compared.
bool is_finite(const TensorUpdates& tensor, const Place& place) {
  return std::isfinite(norm_of(tensor, place));
}

bool has_kind(const TensorUpdates& tensor, const Kind& kind) {
  return kind.is_update || !tensor.is_buffer;
}

double deviation(std::vector<double> values) {
  const double middle = median(values);
  for (double& value : values) value = std::fabs(value - middle);
  return median(std::move(values));
}

/// Whether elements move by steps of one size, be their gradients large or small: then tensors
/// differ much less in the updates of their elements than in their gradients.
bool moves_by_equal_steps(const RunRecord& run, size_t step) {
  constexpr double kMuchLess = 0.25;
  std::vector<double> updates, gradients;
  for (const TensorUpdates& tensor : run.updates) {
    const double update = tensor.updates[step], gradient = tensor.gradients[step];
    if (tensor.is_buffer || !(update > 0) || !(gradient > 0) || !std::isfinite(update + gradient))
      continue;
    const double elements = std::log(static_cast<double>(tensor.elements)) / 2;
    updates.push_back(std::log(update) - elements);
    gradients.push_back(std::log(gradient) - elements);
  }
  return updates.size() >= kLeastForMedian && deviation(updates) < kMuchLess * deviation(gradients);
}

/// The share of an update's norm that turns where normal numbers are rounded by `rounding` of their
/// norm: a number turns with a probability of atan(rounding) / pi, and counts twice.
double turned_share(double rounding, int64_t elements) {
  constexpr double kUnlikely = 1e-3, kDeviations = 3;
  const auto count = static_cast<double>(elements);
  const double turned = count * std::atan(rounding) / std::numbers::pi;
  if (turned < kUnlikely) return 0;
  return 2 * std::sqrt(std::min(1.0, (turned + kDeviations * std::sqrt(turned) + 1) / count));
}

/// The distances of controls, of one tensor in one step, as shares of its norm.
struct Level {
  double move = 0, along = 0, norm = 0, along_gradient = 0;
};

/// The distances of controls, of all tensors in the steps so far.
class Levels {
 public:
  Levels(const RunRecord& baseline, const ControlRuns& controls, const Kind& kind)
      : baseline_(baseline), controls_(controls), kind_(kind), levels_(baseline.updates.size()) {}

  /// Takes one step more: errors grow from step to step, and a distance that is small by chance is
  /// none.
  void take(size_t step) {
    const Place place{kind_, step};
    std::vector<double> moves, along_gradients;
    double squares = 0, elements = 0;
    bias_ = 0;
    for (const RunRecord& control : controls_.runs)
      bias_ = std::max(bias_, std::fabs(median_growth(baseline_, control, place)));
    for (size_t i = 0; i < levels_.size(); ++i) {
      const TensorUpdates& tensor = baseline_.updates[i];
      const double norm = norm_of(tensor, place);
      if (!has_kind(tensor, kind_) || !(norm > 0) || !std::isfinite(norm)) continue;
      for (const RunRecord& control : controls_.runs) {
        if (!is_finite(control.updates[i], place)) continue;
        const Distance distance = distance_of(tensor, control.updates[i], place);
        levels_[i].move = std::max(levels_[i].move, distance.move / norm);
        levels_[i].along = std::max(levels_[i].along, distance.along / norm);
        levels_[i].norm = std::max(levels_[i].norm, std::fabs(distance.norm) / norm);
        levels_[i].along_gradient =
            std::max(levels_[i].along_gradient, distance.along_gradient / norm);
      }
      moves.push_back(levels_[i].move);
      along_gradients.push_back(levels_[i].along_gradient);
      squares += norm * norm;
      elements += static_cast<double>(tensor.elements);
    }
    usual_ = moves.empty() ? 0 : median(moves);
    usual_along_gradient_ = moves.empty() ? 0 : median(along_gradients);
    size_ = elements > 0 ? std::sqrt(squares / elements) : 0;
    set_bias_error();
  }

  /// Three projections alone may be small by chance, so that of a tensor is at least the usual one.
  double move(size_t tensor) const { return std::max(levels_[tensor].move, usual_); }
  double along(size_t tensor) const { return std::max(levels_[tensor].along, move(tensor)); }
  double norm(size_t tensor) const {
    const double share = move(tensor);
    const auto elements = static_cast<double>(baseline_.updates[tensor].elements);
    return std::max({levels_[tensor].norm, share / std::sqrt(elements), share * share / 2});
  }
  double along_gradient(size_t tensor) const {
    return std::max(levels_[tensor].along_gradient, usual_along_gradient_);
  }
  /// Norm of what is rounding in a tensor of so many elements.
  double rounding_of(size_t tensor) const {
    const auto elements = static_cast<double>(baseline_.updates[tensor].elements);
    return usual_ * size_ * std::sqrt(elements);
  }
  double bias() const { return std::max(bias_, bias_error_); }
  const Kind& kind() const { return kind_; }

  /// The median over the tensors of the share by which they are longer.
  double median_growth(const RunRecord& a, const RunRecord& b, const Place& place) const {
    std::vector<double> growths;
    for (size_t i = 0; i < levels_.size(); ++i) {
      const double before = norm_of(a.updates[i], place), after = norm_of(b.updates[i], place);
      const bool is_clear = levels_[i].move < kStillClear && !a.updates[i].is_buffer;
      if (is_clear && before > 0 && after > 0 && std::isfinite(before) && std::isfinite(after))
        growths.push_back(std::log(after / before));
    }
    return growths.size() < kLeastForMedian ? 0 : median(growths);
  }

 private:
  // By chance alone, where each tensor's rounding lies across it.
  void set_bias_error() {
    std::vector<double> errors;
    for (size_t i = 0; i < levels_.size(); ++i)
      if (levels_[i].move > 0 && levels_[i].move < kStillClear) errors.push_back(norm(i));
    bias_error_ = errors.empty() ? 0
                                 : kMedianError * median(errors) /
                                       std::sqrt(static_cast<double>(errors.size()));
  }

  const RunRecord& baseline_;
  const ControlRuns& controls_;
  const Kind& kind_;
  std::vector<Level> levels_;
  double usual_ = 0, usual_along_gradient_ = 0, size_ = 0, bias_ = 0, bias_error_ = 0;
};

/// A difference over what is allowed, of all seeds: of fewer digits the root of the mean square,
/// for a projection is small or large by chance, and what a change does wrong it does with each
/// seed; else the largest.
class Measure {
 public:
  explicit Measure(bool is_coarse) : is_coarse_(is_coarse) {}
  /// `whole`: what the difference is a share of, for the words.
  void add(double difference, double allowed, double whole) {
    const double here = difference == 0 ? 0
                        : allowed > 0   ? difference / allowed
                                        : std::numeric_limits<double>::infinity();
    squares_ += here * here;
    largest_ = std::max(largest_, here);
    ++count_;
    if (difference > 0) share_ = std::max(share_, difference / whole);
  }
  double ratio() const {
    return is_coarse_ && count_ > 0 ? std::sqrt(squares_ / count_) : largest_;
  }
  /// The largest share.
  double share() const { return share_; }

 private:
  bool is_coarse_;
  double squares_ = 0, largest_ = 0, share_ = 0;
  int count_ = 0;
};

/// The difference that lies farthest out in its own measure.
struct Worst {
  double ratio = 0;  ///< To what is allowed.
  std::string text{};

  template <typename Say>
  void add(const Measure& here, const Say& say) {
    if (here.ratio() <= ratio) return;
    ratio = here.ratio();
    text = say(here.share());
  }
};

class Comparison {
 public:
  Comparison(const ForeignBaseline& baseline, const ControlRuns& controls)
      : baseline_(baseline), controls_(controls) {}

  void compare(const ForeignRuns& candidates) {
    const RunRecord& first = baseline_.seeds[0];
    std::vector<Levels> levels;
    for (const Kind& kind : kKinds) levels.emplace_back(first, controls_, kind);
    for (size_t step = 0; step < steps_of(first) && failure_.empty(); ++step) {
      for (Levels& of_kind : levels) of_kind.take(step);
      take_gradients(levels.front(), step);
      for (const Levels& of_kind : levels)
        compare_step(candidates, {of_kind.kind(), step}, of_kind);
      // Later steps differ because this one does.
      for (const Worst* worst : {&bias_, &worst_})
        if (worst->ratio > 1 && failure_.empty())
          failure_ =
              fmt::format("{}, {:.2g} times what is allowed ({:.3g} times what controls show)",
                          worst->text,
                          worst->ratio,
                          controls_.factor_in(step));
    }
  }

  bool passes() const { return failure_.empty(); }
  std::string text() const {
    if (!passes()) return failure_;
    std::string text = fmt::format(
        "updates and gradients of {} tensors in {} steps differ by up to {} of what is "
        "allowed ({:.3g} times what controls show)",
        baseline_.seeds[0].updates.size() - silent_.size(),
        steps_of(baseline_.seeds[0]),
        percent(std::max(worst_.ratio, bias_.ratio)),
        controls_.factor);
    if (!silent_.empty())
      text += fmt::format("; {} more may be rounding alone ({})", silent_.size(), silent_.front());
    return text;
  }

 private:
  void take_gradients(const Levels& levels, size_t step) {
    const RunRecord& first = baseline_.seeds[0];
    gradients_.emplace_back();
    if (!moves_by_equal_steps(first, step)) return;
    for (size_t i = 0; i < first.updates.size(); ++i) {
      const double norm = first.updates[i].gradients[step];
      const double of_others = norm > 0 ? kOfOthers * levels.rounding_of(i) / norm
                                        : std::numeric_limits<double>::infinity();
      gradients_.back().push_back(controls_.factor_in(step) * (levels.move(i) + of_others));
    }
  }

  bool moves_by_equal_steps_at(const Place& place, const TensorUpdates& tensor) const {
    return place.kind.is_update && !tensor.is_buffer && !gradients_[place.step].empty();
  }

  /// The share of an update's or a gradient's norm that is allowed where controls differ by the
  /// share `shown`. Elements that turn are counted for themselves: a control has a few of them, or
  /// none.
  double allowed_share(const Place& place,
                       const TensorUpdates& tensor,
                       size_t number,
                       double shown) const {
    if (!moves_by_equal_steps_at(place, tensor)) return controls_.factor_in(place.step) * shown;
    const double gradient = gradients_[place.step][number];
    return std::max(shown, gradient) + turned_share(gradient, tensor.elements);
  }

  void compare_step(const ForeignRuns& candidates, const Place& place, const Levels& levels) {
    for (size_t i = 0; i < baseline_.seeds[0].updates.size(); ++i)
      compare_tensor(candidates, place, levels, i);
    Measure longer(controls_.is_coarse);
    double growth = 0;  // the largest
    for_each_seed(candidates, [&](const RunRecord& before, const RunRecord& after) {
      const double here = levels.median_growth(before, after, place);
      longer.add(std::fabs(here),
                 controls_.factor_in(place.step) * levels.bias() + controls_.least_bias,
                 1);
      if (std::fabs(here) > std::fabs(growth)) growth = here;
    });
    bias_.add(longer, [&](double share) {
      return fmt::format("the {}s of step {} are {} by {} in the median of all tensors",
                         place.kind.name,
                         place.step + 1,
                         growth > 0 ? "longer" : "shorter",
                         percent(share));
    });
  }

  template <typename Visit>
  void for_each_seed(const ForeignRuns& candidates, const Visit& visit) const {
    for (size_t seed = 0; seed < candidates.size(); ++seed)
      if (has_same_tensors(baseline_.seeds[0], baseline_.seeds[seed]))
        visit(baseline_.seeds[seed], candidates[seed]);
  }

  void compare_tensor(const ForeignRuns& candidates,
                      const Place& place,
                      const Levels& levels,
                      size_t i) {
    const double factor = controls_.factor_in(place.step);
    const std::string what = fmt::format("the {} of {} in step {}",
                                         place.kind.name,
                                         baseline_.seeds[0].updates[i].name,
                                         place.step + 1);
    const Measure none(controls_.is_coarse);
    Measure broken = none, move = none, along = none, longer = none, along_gradient = none;
    for_each_seed(candidates, [&](const RunRecord& before, const RunRecord& after) {
      const TensorUpdates &a = before.updates[i], &b = after.updates[i];
      if (!has_kind(a, place.kind) || !is_finite(a, place)) return;
      if (!is_finite(b, place)) return broken.add(1, 0, 1);
      const Distance distance = distance_of(a, b, place);
      const double norm = norm_of(a, place);
      const double size = place.kind.is_update ? a.sizes[place.step] : 0;
      const double least = controls_.least_move * norm + kRoundings * controls_.rounding * size +
                           kOfOthers * factor * levels.rounding_of(i);
      if (controls_.is_coarse && moves_by_equal_steps_at(place, a)) {
        // A gradient that may be rounding alone leads nowhere.
        if (gradients_[place.step][i] < 1)
          along_gradient.add(
              distance.along_gradient, factor * levels.along_gradient(i) * norm + least, norm);
        return;
      }
      const auto allowed = [&](double shown) {
        return allowed_share(place, a, i, shown) * norm + least;
      };
      const bool is_first = place.step == 0 && &before == baseline_.seeds.data();
      if (is_first && place.kind.is_update && allowed(levels.move(i)) >= norm && norm > 0)
        silent_.push_back(a.name);
      move.add(distance.move, allowed(levels.move(i)), norm);
      along.add(distance.along, allowed(levels.along(i)), norm);
      longer.add(std::fabs(distance.norm), factor * levels.norm(i) * norm + least, norm);
    });
    worst_.add(broken, [&](double) { return what + " is not finite"; });
    for (const Measure* measure : {&move, &along, &longer})
      worst_.add(*measure, [&](double share) {
        return std::isfinite(share)
                   ? fmt::format("{} differs by {} of its norm", what, percent(share))
                   : what + " is no more zero";
      });
    worst_.add(along_gradient, [&](double share) {
      return fmt::format(
          "{} leads {} of its norm less or more along its gradient", what, percent(share));
    });
  }

  const ForeignBaseline& baseline_;
  const ControlRuns& controls_;
  /// By step and tensor, where a step moves by equal steps: the share by which a gradient may
  /// differ.
  std::vector<std::vector<double>> gradients_;
  Worst worst_, bias_;
  std::string failure_;              ///< In the first step that has one.
  std::vector<std::string> silent_;  ///< Tensors whose first update shows nothing.
};

}  // namespace

Shown compare_updates(const ForeignBaseline& baseline,
                      const ForeignRuns& candidates,
                      const ControlRuns& controls) {
  const RunRecord& first = baseline.seeds[0];
  if (steps_of(first) == 0) return {true, "updates of single tensors were not seen"};
  ControlRuns same = controls;
  std::erase_if(same.runs, [&](const RunRecord& run) { return !has_same_tensors(first, run); });
  if (same.runs.empty()) return {true, "controls have other tensors, so updates show nothing"};
  for (size_t i = 0; i < candidates.size(); ++i)
    if (!has_same_tensors(first, candidates[i]))
      return {.passes = false,
              .text = candidates[i].updates.empty()
                          ? std::string("its updates could not be recorded any more")
                          : fmt::format("{} tensors are updated, and not the {} of before",
                                        candidates[i].updates.size(),
                                        first.updates.size()),
              .is_certain = true};
  Comparison comparison(baseline, same);
  comparison.compare(candidates);
  return {comparison.passes(), comparison.text()};
}

}  // namespace ridge
