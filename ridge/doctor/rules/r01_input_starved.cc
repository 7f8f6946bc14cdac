// R01: the device waits for data.
#include <fmt/format.h>

#include <algorithm>

#include "ridge/doctor/findings/measures.h"
#include "ridge/doctor/rules/loader_spans.h"
#include "ridge/doctor/rules/proof.h"
#include "ridge/doctor/rules/rules.h"

namespace ridge::doctor {
namespace {

constexpr Ladder kLadder{.info = 0.03, .warning = 0.05, .high = 0.20};
constexpr double kSure = 0.7;  // of what twice the workers should gain

std::string reason_against(const LoaderTime& loader, const Analysis& analysis) {
  if (share_of(loader.mean_ms, analysis) >= kLadder.info)
    return fmt::format(
        "data is waited for in few steps only: {:.2f} ms in the mean, {:.2f} ms in "
        "the median step (R29 looks at such)",
        loader.mean_ms,
        loader.starved_ms);
  return fmt::format("{:.1f} % of a step waits for data with nothing to compute",
                     100 * share_of(loader.starved_ms, analysis));
}

// With twice the threads the loader takes half the time, where the trace shows what it takes.
void predict(Finding& finding, const LoaderTime& loader, const Analysis& analysis) {
  const double wall = analysis.breakdown.wall;
  if (loader.producers == 0 || !(wall > 0)) return;
  const double twice = loader.producer_ms / (2 * static_cast<double>(loader.producers));
  const double step = std::max(wall - finding.cost_ms, twice);
  const double gain = step > 0 ? wall / step - 1 : 0;
  finding.predicted.low = std::min(1 + kSure * gain, finding.predicted.high);
}

std::string fix_of(const Trace& trace, const LoaderTime& loader, const LoadedBatches& batches) {
  if (loader.form == LoaderForm::kSameThread) return fix_of_same_thread(trace, batches, false);
  const std::string more =
      loader.producers > 0
          ? fmt::format("give the loader more than its {} threads and let it run further ahead",
                        loader.producers)
          : "let more workers make batches further ahead";
  const std::string cheaper =
      "make a sample cheaper: store it decoded or smaller, or keep it in memory";
  const std::string words = class_words_of_workers(trace, batches);
  if (trace.recorder != "ridge" && is_cheap(batches))
    return fmt::format(
        "{}; a batch is made in {:.2f} ms, and to hand it from one process to another costs about "
        "as "
        "much, so that more workers gain little{}",
        cheaper,
        batches.make_ms,
        words);
  return fmt::format("{}{}; where no processor is free, {}", more, words, cheaper);
}

}  // namespace

void r01_input_starved(const Trace& trace, const Analysis& analysis, RuleOutput& output) {
  const LoaderTime loader = loader_time(trace, analysis);
  const double share = share_of(loader.starved_ms, analysis);
  if (share < kLadder.info) {
    output.not_fired.push_back({"R01", reason_against(loader, analysis)});
    return;
  }
  Finding finding{.rule = "R01", .title = "input starved: nothing to compute until data comes"};
  finding.severity = severity_of(share, kLadder);
  finding.confidence = 0.9;
  charge(finding, analysis, loader.starved_ms);
  predict(finding, loader, analysis);
  finding.evidence.push_back(
      {.rows = loader.waits,
       .text = fmt::format("{:.2f} ms of a step of {:.2f} ms wait for the loader with nothing to "
                           "compute",
                           loader.starved_ms,
                           analysis.breakdown.wall)});
  if (loader.producers > 0)
    finding.evidence.push_back(
        {.text = fmt::format("{} threads make batches, {:.2f} ms a step together",
                             loader.producers,
                             loader.producer_ms)});
  finding.at = loader.starved;
  finding.fix = fix_of(trace, loader, analysis.batches);
  finding.semantic_class = class_of_workers(trace, analysis.batches);
  const size_t workers = std::max<size_t>(2, 2 * loader.producers);
  if (trace.recorder == "ridge") finding.recipe = fmt::format("[loader]\nworkers = {}\n", workers);
  finding.command = proof_of(trace, fmt::format("loader.workers={}", workers));
  output.findings.push_back(std::move(finding));
}

}  // namespace ridge::doctor
