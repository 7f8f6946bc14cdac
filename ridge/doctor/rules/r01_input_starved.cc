// R01: the device waits for data.
#include <fmt/format.h>

#include <algorithm>

#include "ridge/doctor/rules/loader_spans.h"
#include "ridge/doctor/rules/measures.h"
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

std::string fix_of(const LoaderTime& loader) {
  if (loader.form == LoaderForm::kSameThread)
    return "batches are made on the thread that trains: let workers make them ahead "
           "(num_workers >= 2 with persistent workers, in Ridge loader.workers)";
  if (loader.producers > 0)
    return fmt::format(
        "give the loader more than its {} threads and let it run further ahead; "
        "where no processor is free, make a sample cheaper: store it decoded or "
        "smaller, or keep it in memory",
        loader.producers);
  return "let more workers make batches further ahead; where no processor is free, make a sample "
         "cheaper: store it decoded or smaller, or keep it in memory";
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
  finding.fix = fix_of(loader);
  const size_t workers = std::max<size_t>(2, 2 * loader.producers);
  if (trace.recorder == "ridge") finding.recipe = fmt::format("[loader]\nworkers = {}\n", workers);
  finding.command = proof_of(trace, fmt::format("loader.workers={}", workers));
  output.findings.push_back(std::move(finding));
}

}  // namespace ridge::doctor
