#include "ridge/proof/ledger/ledger_predictions.h"

#include <fmt/format.h>

#include "ridge/base/json_writer.h"
#include "ridge/base/stats.h"
#include "ridge/proof/trial_text.h"

namespace ridge {

double PredictionScore::coverage() const {
  return measured == 0 ? 1 : static_cast<double>(inside) / static_cast<double>(measured);
}

PredictionScore prediction_score(std::span<const Ledger> ledgers) {
  PredictionScore score;
  std::vector<double> widths;
  for (const Ledger& ledger : ledgers)
    for (const TrialRecord& trial : ledger.trials) {
      if (!is_of_technique(trial) || !trial.predicted || !trial.measured) continue;
      ++score.measured;
      const SpeedRange& predicted = *trial.predicted;
      const double gain = trial.measured->mid;
      if (predicted.low > 0) widths.push_back(predicted.high / predicted.low);
      if (gain >= predicted.low && gain <= predicted.high)
        ++score.inside;
      else
        score.outside.push_back({.target = ledger.run.target,
                                 .technique = trial.technique + ": " + trial.change,
                                 .predicted = predicted,
                                 .measured = gain});
    }
  if (!widths.empty()) score.median_width = median(widths);
  return score;
}

std::string predictions_text(const PredictionScore& score) {
  if (score.measured == 0) return "no gain was both predicted and measured\n";
  std::string text = fmt::format(
      "{} of {} measured gains lie within their prediction ({:.0f} %); median high / low of "
      "predictions {:.2f}\n",
      score.inside,
      score.measured,
      100 * score.coverage(),
      score.median_width);
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
  json.field("measured", score.measured).field("inside", score.inside);
  json.field("coverage", score.coverage()).field("median_width", score.median_width);
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
