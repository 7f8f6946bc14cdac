#include "ridge/proof/ledger/ledger_predictions.h"

#include <fmt/format.h>

#include <algorithm>

#include "ridge/base/json_writer.h"
#include "ridge/base/stats.h"
#include "ridge/proof/trial_text.h"

namespace ridge {

namespace {

// Predictions that have been seen so far.
struct Tally {
  PredictionCounts counts;
  std::vector<double> widths;

  void add(const SpeedRange& predicted, bool is_inside) {
    ++counts.measured;
    if (is_inside) ++counts.inside;
    if (predicted.low > 0) widths.push_back(predicted.high / predicted.low);
  }
  PredictionCounts result() const {
    PredictionCounts done = counts;
    if (!widths.empty()) done.median_width = median(widths);
    return done;
  }
};

// A trial that ended without a verdict, and was made again.
bool is_made_again(const std::vector<TrialRecord>& trials, size_t index) {
  const TrialRecord& trial = trials[index];
  if (trial.verdict != TrialVerdict::kOpen) return false;
  return std::ranges::any_of(std::span(trials).subspan(index + 1), [&](const TrialRecord& later) {
    return later.technique == trial.technique && later.change == trial.change && later.measured;
  });
}

void write_counts(JsonWriter& json, const PredictionCounts& counts) {
  json.field("measured", counts.measured).field("inside", counts.inside);
  json.field("coverage", counts.coverage()).field("median_width", counts.median_width);
}

}  // namespace

double PredictionCounts::coverage() const {
  return measured == 0 ? 1 : static_cast<double>(inside) / static_cast<double>(measured);
}

PredictionScore prediction_score(std::span<const Ledger> ledgers) {
  PredictionScore score;
  Tally all;
  std::map<std::string, Tally> techniques;
  for (const Ledger& ledger : ledgers)
    for (size_t i = 0; i < ledger.trials.size(); ++i) {
      const TrialRecord& trial = ledger.trials[i];
      const std::optional<double> measured = trial.gain();
      if (!is_of_technique(trial) || !trial.predicted || !measured) continue;
      if (is_made_again(ledger.trials, i)) continue;
      const SpeedRange& predicted = *trial.predicted;
      const bool is_inside = *measured >= predicted.low && *measured <= predicted.high;
      all.add(predicted, is_inside);
      techniques[trial.technique].add(predicted, is_inside);
      if (!is_inside)
        score.outside.push_back({.target = ledger.run.target,
                                 .technique = trial.technique + ": " + trial.change,
                                 .predicted = predicted,
                                 .measured = *measured});
    }
  score.all = all.result();
  for (const auto& [technique, tally] : techniques) score.techniques[technique] = tally.result();
  return score;
}

std::string predictions_text(const PredictionScore& score) {
  if (score.all.measured == 0) return "no gain was both predicted and measured\n";
  std::string text = fmt::format(
      "{} of {} measured gains lie within their prediction ({:.0f} %); median high / low of "
      "predictions {:.2f}\n",
      score.all.inside,
      score.all.measured,
      100 * score.all.coverage(),
      score.all.median_width);
  for (const auto& [technique, counts] : score.techniques)
    text += fmt::format("  {:<22} {} of {} ({:.0f} %), {:.2f}\n",
                        plain_line(technique),
                        counts.inside,
                        counts.measured,
                        100 * counts.coverage(),
                        counts.median_width);
  if (!score.outside.empty()) text += "outside:\n";
  for (const Misprediction& miss : score.outside)
    text += fmt::format("  {}: {}: predicted {:.2f} .. {:.2f}, measured {:.2f}\n",
                        plain_line(miss.target),
                        plain_line(miss.technique),
                        miss.predicted.low,
                        miss.predicted.high,
                        miss.measured);
  return text;
}

std::string predictions_json(const PredictionScore& score) {
  std::string text;
  JsonWriter json(text);
  json.begin_object().field("schema", "ridge.ledger.predictions/1");
  write_counts(json, score.all);
  json.key("techniques").begin_array();
  for (const auto& [technique, counts] : score.techniques) {
    json.begin_object().field("technique", technique);
    write_counts(json, counts);
    json.end_object();
  }
  json.end_array();
  json.key("outside").begin_array();
  for (const Misprediction& miss : score.outside) {
    json.begin_object().field("target", miss.target).field("technique", miss.technique);
    json.field("lo", miss.predicted.low).field("hi", miss.predicted.high);
    json.field("measured", miss.measured).end_object();
  }
  json.end_array().end_object().finish();
  return text + "\n";
}

}  // namespace ridge
