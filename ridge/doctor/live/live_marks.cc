// By marks of all steps: stalls, files that are written all the time, and data that is waited for.
#include <fmt/format.h>

#include <algorithm>

#include "ridge/doctor/findings/measures.h"
#include "ridge/doctor/live/live_parts.h"
#include "ridge/doctor/rules/loader_spans.h"
#include "ridge/doctor/rules/rules.h"

namespace ridge::doctor {
namespace {

constexpr Ladder kWrites{.info = 0.03, .warning = 0.05, .high = 0.20};
constexpr double kFull = 0.90;      // of the processors: none is left
constexpr double kSure = 0.7;       // of what workers should gain
constexpr double kMuchData = 0.05;  // of a step: worth a word on its workers
constexpr double kMostOfIt = 0.5;   // workers that take over no more of the loading come second

Finding* finding_of(RuleOutput& output, std::string_view rule) {
  const auto it = std::find_if(output.findings.begin(),
                               output.findings.end(),
                               [rule](const Finding& each) { return each.rule == rule; });
  return it == output.findings.end() ? nullptr : &*it;
}

// Surely: as what slow steps do and others do not.
bool is_blamed_on_writing(const Finding& stall) {
  return stall.confidence > 0.5 &&
         std::any_of(stall.evidence.begin(), stall.evidence.end(), [](const Evidence& each) {
           return each.text.find("'torch.save'") != std::string::npos;
         });
}

size_t saves_in(const Trace& spans, const Steps& steps) {
  const Intervals within = union_of({steps.windows.begin(), steps.windows.end()});
  size_t saves = 0;
  for (size_t row = 0; row < spans.size(); ++row)
    saves += spans.name_text(row) == "torch.save" &&
             !clipped(within, {spans.start_ns[row], spans.end_ns(row)}).empty();
  return saves;
}

// Reports writing where steps differ too much for R29 to see stalls, or where so many steps write
// that they are no stalls.
void judge_writes(const Trace& spans, const Analysis& marked, RuleOutput& output) {
  const double ms = marked.breakdown.starved_by[static_cast<size_t>(HostCause::kCheckpoint)];
  const double share = share_of(ms, marked);
  const Finding* stall = finding_of(output, "R29");
  const size_t saves = saves_in(spans, marked.steps);
  if (saves < 2 || share < kWrites.info || (stall != nullptr && is_blamed_on_writing(*stall)))
    return;
  const auto each = static_cast<double>(marked.steps.windows.size()) / static_cast<double>(saves);
  Finding finding{.rule = "R29",
                  .title = fmt::format("torch.save takes {:.0f} % of the time", 100 * share)};
  finding.severity = severity_of(share, kWrites);
  finding.confidence = 0.8;
  charge(finding, marked, ms);
  finding.evidence.push_back(
      {.text =
           fmt::format("'torch.save' is called once in {:.0f} steps and takes {:.2f} ms; that is "
                       "{:.2f} ms of a step of {:.2f} ms, in the mean of {} steps",
                       each,
                       ms * each,
                       ms,
                       marked.breakdown.wall,
                       marked.steps.windows.size())});
  finding.fix =
      "write checkpoints less often, or from a thread of their own, from a copy of the state";
  const auto is_it = [](const auto& row) { return row.rule == "R29"; };
  std::erase_if(output.findings, is_it);
  std::erase_if(output.not_fired, is_it);
  output.findings.push_back(std::move(finding));
}

// Workers take the loader's work off the thread that trains, not off the processors: at worst all
// of it is shared among them, at best only the loader's part is.
void foresee_workers(const Trace& spans,
                     const Analysis& marked,
                     const LiveFacts& facts,
                     Finding& finding) {
  const double processors = processors_of(facts);
  if (!(processors > 0) || is_cheap(marked.batches)) return;
  const double step = marked.breakdown.wall, loading = finding.cost_ms, rest = step - loading;
  const double threads =
      facts.torch_threads > 0 ? static_cast<double>(facts.torch_threads) : processors;
  const double busy = std::min(processors, threads);
  const double worst = std::max(rest, (loading + rest * busy) / processors);
  const double best = std::max(rest, loading / processors);
  finding.predicted.low = 1 + kSure * std::max(0.0, step / worst - 1);
  finding.predicted.high = std::min(finding.ceiling, std::max(step / best, finding.predicted.low));
  finding.evidence.push_back(
      {.text =
           fmt::format("{:g} processors are shared by workers and operators: {:.2f} to {:.2f} ms a "
                       "step with workers, if samples cost what they cost now",
                       processors,
                       best,
                       worst)});
  // Workers get only the processors that operators leave to them.
  const bool is_less_work_first = step - worst <= kMostOfIt * loading;
  finding.fix = fix_of_same_thread(spans, marked.batches, is_less_work_first);
}

// Many workers, and no processor for more of them.
void judge_workers(const Analysis& marked, const LiveFacts& facts, RuleOutput& output) {
  const Finding* input = finding_of(output, "R01");
  const double processors = processors_of(facts);
  if (facts.loader_workers <= 0 || !(processors > 0) || facts.used_cpus < 0) return;
  if (input == nullptr || input->share < kMuchData) {
    output.not_fired.push_back({"R02", "the loader keeps up"});
    return;
  }
  const std::string used = fmt::format(
      "{:.1f} of {:g} processors are used, by {} workers of the loader and {} threads of "
      "operators",
      facts.used_cpus,
      processors,
      facts.loader_workers,
      facts.torch_threads);
  if (facts.used_cpus < kFull * processors) {
    output.not_fired.push_back({"R02", used});
    return;
  }
  Finding finding = *input;
  finding.rule = "R02";
  finding.semantic_class = SemanticClass::kBitIdentical;
  finding.title = "the loader's workers have no processor left: more of them do not help";
  finding.confidence = 0.8;
  finding.predicted = {1.0001, finding.ceiling};
  finding.evidence.push_back({.text = used});
  finding.fix =
      "make a sample cheaper: store it decoded or smaller, resize offline, or keep it in memory; "
      "fewer "
      "threads for operators leave more for workers";
  charge(finding, marked, finding.cost_ms, 0.1);
  output.findings.push_back(std::move(finding));
}

}  // namespace

void judge_marks(const Trace& spans,
                 const Analysis& marked,
                 const LiveFacts& facts,
                 RuleOutput& output) {
  r29_periodic_stalls(spans, marked, output);
  judge_writes(spans, marked, output);
  r01_input_starved(spans, marked, output);
  Finding* input = finding_of(output, "R01");
  if (input != nullptr && loader_time(spans, marked).form == LoaderForm::kSameThread)
    foresee_workers(spans, marked, facts, *input);
  judge_workers(marked, facts, output);
}

}  // namespace ridge::doctor
