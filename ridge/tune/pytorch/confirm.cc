#include "ridge/tune/pytorch/confirm.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <span>
#include <string>

#include "ridge/base/stats.h"
#include "ridge/proof/paired_runs.h"

namespace ridge {
namespace {

constexpr int64_t kMostPairs = 8;
// Fewer pairs give no interval that would say more than the differences themselves.
constexpr int64_t kPairsOfInterval = 4;
constexpr double kDeviations = 2, kProgress = 0.02;
// One run may end this many margins above the other by the chaos of training alone.
constexpr double kClear = 2;
// Share of a run whose steps count as its beginning and as its end.
constexpr double kFirst = 0.05, kLast = 0.25;

using Runs = std::vector<TrainedRun>;

double mean_of(std::span<const double> values) { return mean({values.begin(), values.end()}); }

size_t part_of(const std::vector<double>& losses, double share) {
  return std::max<size_t>(1, static_cast<size_t>(share * static_cast<double>(losses.size())));
}
double first_loss(const TrainedRun& run) {
  return mean_of(std::span(run.losses).first(part_of(run.losses, kFirst)));
}
double last_loss(const TrainedRun& run) {
  return mean_of(std::span(run.losses).last(part_of(run.losses, kLast)));
}

// A loss that is computed without gradients at every other step is no evaluation of held-out data.
bool evaluates(const TrainedRun& run) {
  return !run.evaluations.empty() &&
         (run.losses.empty() || 2 * run.evaluated <= static_cast<int64_t>(run.losses.size()));
}

/// One number of each run, by which runs are compared.
struct Measure {
  std::string name;
  std::function<std::optional<double>(const TrainedRun&)> of;
};

std::optional<double> evaluation_at(const TrainedRun& run, int64_t step) {
  const auto found = std::ranges::find(run.evaluations, step, &attach::EvaluationFacts::step);
  if (found == run.evaluations.end()) return std::nullopt;
  return std::strtod(found->loss.c_str(), nullptr);
}

// The measure that all runs of the program as it is have.
std::optional<Measure> measure_for(const Runs& runs) {
  const auto all = [&](auto has) { return std::ranges::all_of(runs, has); };
  if (all(evaluates)) {
    int64_t step = runs.front().evaluations.back().step;
    for (const TrainedRun& run : runs) step = std::min(step, run.evaluations.back().step);
    const Measure held_out{"held-out loss",
                           [step](const TrainedRun& run) { return evaluation_at(run, step); }};
    if (all([&](const TrainedRun& run) { return held_out.of(run).has_value(); })) return held_out;
  }
  const auto printed = [](const TrainedRun& run) {
    return run.has_ended ? run.printed : std::nullopt;
  };
  if (all([&](const TrainedRun& run) { return printed(run).has_value(); }))
    return Measure{"held-out loss that it prints", printed};
  const auto trained = [](const TrainedRun& run) {
    return run.losses.empty() ? std::nullopt : std::optional(last_loss(run));
  };
  if (all([&](const TrainedRun& run) { return trained(run).has_value(); }))
    return Measure{"training loss", trained};
  return std::nullopt;
}

double margin_for(const Runs& runs, const std::vector<double>& values) {
  double margin = fixed_margin({values.front(), values.front()});
  if (values.size() > 1) margin = kDeviations * fixed_margin(values);
  const TrainedRun& first = runs.front();
  if (first.losses.empty()) return margin;
  return std::max(margin, kProgress * (first_loss(first) - last_loss(first)));
}

OptimizeConfirmation cannot_tell(OptimizeConfirmation said, std::string why) {
  said.verdict = ConfirmVerdict::kCannotTell;
  said.text = "cannot be told: " + std::move(why);
  return said;
}

ConfirmVerdict verdict_of(const std::vector<double>& differences, double margin) {
  if (std::ranges::any_of(differences, [](double value) { return std::isnan(value); }))
    return ConfirmVerdict::kRefused;
  if (static_cast<int64_t>(differences.size()) >= kPairsOfInterval) {
    GuardRuns judged{.margin = margin};
    judge_pairs(differences, judged);
    if (judged.passed) return ConfirmVerdict::kConfirmed;
    return judged.lower > 0 && judged.difference >= margin ? ConfirmVerdict::kRefused
                                                           : ConfirmVerdict::kCannotTell;
  }
  if (std::ranges::all_of(differences, [&](double value) { return value < margin; }))
    return ConfirmVerdict::kConfirmed;
  return std::ranges::all_of(differences, [&](double value) { return value >= kClear * margin; })
             ? ConfirmVerdict::kRefused
             : ConfirmVerdict::kCannotTell;
}

std::string statement(const OptimizeConfirmation& said, double before, double after) {
  const std::string runs = fmt::format(
      "{} pair{} of runs of {} steps", said.pairs, said.pairs == 1 ? "" : "s", said.steps);
  const std::string both =
      fmt::format("{} {:.5g}, and {:.5g} in the program as it was", said.loss, after, before);
  switch (said.verdict) {
    case ConfirmVerdict::kConfirmed:
      return fmt::format("{}: no more than {:.3g} above it, in {}", both, *said.margin, runs);
    case ConfirmVerdict::kRefused:
      return fmt::format("{}: {:.3g} were allowed, in {}", both, *said.margin, runs);
    case ConfirmVerdict::kCannotTell:
      return fmt::format(
          "cannot be told in {}: {}, with a margin of {:.3g}; give --confirm more "
          "seconds",
          runs,
          both,
          *said.margin);
  }
  return both;
}

}  // namespace

OptimizeConfirmation confirm_training(const TrainOnce& train, double seconds) {
  OptimizeConfirmation said;
  Runs before;
  double spent = 0;
  do {
    before.push_back(train(false, static_cast<int64_t>(before.size())));
    spent += before.back().seconds;
  } while (spent + before.back().seconds <= seconds &&
           static_cast<int64_t>(before.size()) < kMostPairs);
  said.pairs = static_cast<int64_t>(before.size());
  said.steps = static_cast<int64_t>(before.front().losses.size());
  const std::optional<Measure> measure = measure_for(before);
  if (!measure) return cannot_tell(std::move(said), "the program computes no loss that was seen");
  said.loss = measure->name;
  std::vector<double> values;
  for (const TrainedRun& run : before) values.push_back(*measure->of(run));
  if (std::ranges::any_of(values, [](double value) { return !std::isfinite(value); }))
    return cannot_tell(said, said.loss + " of the program as it was is not finite");
  said.margin = margin_for(before, values);
  // Nothing has been seen of the result until here.
  std::vector<double> differences, results;
  for (size_t i = 0; i < before.size(); ++i) {
    const std::optional<double> value = measure->of(train(true, static_cast<int64_t>(i)));
    if (!value) return cannot_tell(said, "with what was kept it has no " + said.loss);
    results.push_back(*value);
    // An infinite loss is no number to compute with.
    differences.push_back(std::isfinite(*value) ? *value - values[i] : std::nan(""));
  }
  said.verdict = verdict_of(differences, *said.margin);
  said.difference = mean(differences);
  if (!std::isfinite(*said.difference)) said.difference.reset();
  said.text = statement(said, mean(values), mean(results));
  return said;
}

std::optional<double> printed_loss(std::string_view output) {
  constexpr std::string_view kHeldOut[] = {"val", "test", "eval", "held", "dev"};
  constexpr std::string_view kLoss = "loss";
  std::string plain(output);
  std::ranges::transform(plain, plain.begin(), [](unsigned char c) { return std::tolower(c); });
  std::optional<double> last;
  for (size_t at = plain.find(kLoss); at != std::string::npos; at = plain.find(kLoss, at + 1)) {
    // The word before it on its line, with what joins both: "val_", "test ", "validation-".
    size_t begin = at;
    while (begin > 0 &&
           (plain[begin - 1] == ' ' || plain[begin - 1] == '_' || plain[begin - 1] == '-' ||
            plain[begin - 1] == '/' || plain[begin - 1] == ':'))
      --begin;
    size_t word = begin;
    while (word > 0 && std::isalpha(static_cast<unsigned char>(plain[word - 1])) != 0) --word;
    const std::string_view name = std::string_view(plain).substr(word, begin - word);
    if (std::ranges::none_of(kHeldOut,
                             [&](std::string_view opening) { return name.starts_with(opening); }))
      continue;
    size_t number = at + kLoss.size();
    while (number < plain.size() &&
           std::string_view(" :=\t\"'").find(plain[number]) != std::string_view::npos)
      ++number;
    char* end = nullptr;
    const double value = std::strtod(plain.c_str() + number, &end);
    if (end != plain.c_str() + number) last = value;
  }
  return last;
}

}  // namespace ridge
