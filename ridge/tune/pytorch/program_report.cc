#include "ridge/tune/pytorch/program_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "ridge/attach/samples/tree_samples.h"
#include "ridge/base/cpu/cpu_info.h"
#include "ridge/base/machine/energy.h"
#include "ridge/base/machine/machine.h"
#include "ridge/proof/report/words.h"
#include "ridge/tune/pytorch/usage_runner.h"

namespace ridge {
namespace {

// An end of an epoch that takes longer by more seconds than this is reported, and so is what a knob
// costs once.
constexpr double kLongerBreak = 0.25, kLongOnce = 0.5;

// "train.py" of "python -u train.py --epochs 3".
std::string script_of(const std::vector<std::string>& words) {
  const auto script =
      std::ranges::find_if(words, [](const std::string& word) { return word.ends_with(".py"); });
  return script != words.end() ? *script : words.front();
}

// The counters of the machine that the program runs on.
EnergyMeter meter_for(const ForeignRunner& program) {
  const attach::ProcessFacts facts = program.facts();
  if (!facts.has_cuda) return EnergyMeter(kPowercap);
  // Without the GPU's part the energy of the processors would mislead.
  return EnergyMeter(kPowercap, facts.gpu.empty() ? "a GPU without a name" : facts.gpu);
}

UsageCounters counters_of(const ForeignRunner& program, EnergyMeter& meter) {
  const auto sampler = std::make_shared<attach::TreeSampler>(program.pid());
  return {.joules = [&meter] { return meter.take(); },
          .sample =
              [&program, sampler, pid = program.pid()]() mutable {
                if (std::exchange(pid, program.pid()) != program.pid())
                  *sampler = attach::TreeSampler(program.pid());
                return sampler->take();
              }};
}

void report_usage(const UsageRunner& usage, const ForeignRunner& program, VariantSpeed& speed) {
  speed.joules_per_step = usage.joules_per_step();
  speed.cpu_idle_share = usage.idle_share(usable_cpus());
  speed.measured_bytes = program.peak_bytes();
  speed.device_bytes = program.facts().gpu_peak_bytes;
}

void report_energy(const EnergyMeter& meter, OptimizeSummary& summary) {
  summary.energy_of = meter.what();
  summary.energy_problem = meter.problem();
  if (meter.problem().empty() && !energy_ratio(summary))
    summary.energy_problem = fmt::format("the counters of {} stood still", meter.what());
}

// Notes of what a change costs that no step has in it.
void report_costs(const ForeignRunner& before,
                  const ForeignRunner& after,
                  bool is_run_known,
                  OptimizeSummary& summary) {
  for (const attach::KnobFacts& knob : after.facts().knobs)
    if (knob.seconds >= kLongOnce)
      summary.notes.push_back(fmt::format("{} costs {:.1f} s once a run, which no step has in it{}",
                                          knob.key,
                                          knob.seconds,
                                          is_run_known
                                              ? ""
                                              : "; it was held against a run of an hour, for no "
                                                "trial saw the program's end (--planned)"));
  if (after.break_seconds() > before.break_seconds() + kLongerBreak)
    summary.notes.push_back(fmt::format("the end of an epoch takes {:.2f} s longer than before",
                                        after.break_seconds() - before.break_seconds()));
}

}  // namespace

void describe_program(const attach::CommandTemplate& command, OptimizeSummary& summary) {
  summary.target = script_of(command.words());
  summary.subject = "program";
  summary.recipe_use = "ridge run --recipe";
  summary.recipe_rest = " -- " + command.text();
  summary.doctor_use = "ridge doctor" + summary.recipe_rest;
  summary.machine = machine_fingerprint("cpu");
  summary.energy_problem = "nothing was kept, so there was no proof to weigh";
  summary.guard.text = "no change was kept";
}

void report_baseline(const LoopView& loop, const ProgramCosts& costs) {
  const attach::ProcessFacts& facts = costs.facts;
  VariantSpeed& speed = loop.summary.baseline;
  speed.step_samples = facts.loaders.empty() ? 0 : static_cast<double>(facts.loaders.front().batch);
  speed.set_step(costs.step_seconds, costs.wait_share);
  if (costs.shares) {
    speed.device_idle_share = costs.shares->device_idle;
    loop.summary.examination = {.findings = costs.shares->findings};
  } else {
    loop.summary.examination = {.problem = "no step was recorded"};
  }
  loop.report(fmt::format("a step takes {:.3g} ms; {:.0f} % of it waits for data",
                          1e3 * costs.step_seconds,
                          100 * costs.wait_share));
  if (costs.shares) {
    if (costs.shares->optimizer)
      loop.report(fmt::format("the optimizer's update takes {:.0f} % of it",
                              100 * *costs.shares->optimizer));
    for (const StepFinding& finding : costs.shares->findings)
      loop.report("ridge doctor: " + finding_words(finding));
  }
  loop.report(fmt::format(
      "steps are {}; torch {} computes with {} threads",
      facts.step_source == "module" ? "calls of the outermost module" : "those of the optimizer",
      facts.torch,
      facts.threads));
  loop.report(fmt::format("it is started anew for each trial, which takes {:.1f} s until it steps",
                          costs.start_seconds));
}

std::vector<std::string> texts_of_leave(std::span<const ForeignProposal> proposals,
                                        const std::map<size_t, SpeedRange>& timed,
                                        const PartShares& parts) {
  constexpr std::string_view kLeave =
      "it is another trajectory, so --allow-trajectory is needed to try it";
  std::string batch, updates;
  double best = 0;
  for (size_t id = 0; id < proposals.size(); ++id) {
    const ForeignProposal& proposal = proposals[id];
    if (proposal.knobs.empty()) continue;
    const std::string& value = proposal.knobs.front().second;
    const double most = ceiling_of(proposal, parts).value_or(1);
    if (proposal.technique == "optimizer.accumulate" && most >= kLeastCeiling)
      updates = fmt::format(
          "an update for {} steps would bring at most {:.2f} times the samples a "
          "second; {}",
          value,
          most,
          kLeave);
    if (proposal.work == 1) continue;
    const auto found = timed.find(id);
    if (found == timed.end() && batch.empty())
      batch = fmt::format("a batch of {} would bring at most {:.3g} times the samples a second; {}",
                          value,
                          most,
                          kLeave);
    if (found == timed.end() || found->second.high <= best) continue;
    best = found->second.high;
    batch = fmt::format(
        "a batch of {} made {:.2f} to {:.2f} times the samples a second when it was timed; {}",
        value,
        found->second.low,
        found->second.high,
        kLeave);
  }
  std::vector<std::string> texts = {std::move(batch), std::move(updates)};
  std::erase(texts, "");
  return texts;
}

TrialResult prove_programs(ForeignRunner& before,
                           ForeignRunner& after,
                           const TrialOptions& options,
                           bool is_run_known,
                           OptimizeSummary& summary) {
  EnergyMeter meter = meter_for(after);
  UsageRunner used_before(before, counters_of(before, meter));
  UsageRunner used_after(after, counters_of(after, meter));
  const TrialResult trial = compare(used_before, used_after, options);
  if (trial.pairs.empty()) return trial;
  summary.result = summary.baseline;
  summary.result.step_samples *= options.work;
  summary.result.device_idle_share.reset();  // known when its steps have been recorded
  report_usage(used_before, before, summary.baseline);
  report_usage(used_after, after, summary.result);
  report_energy(meter, summary);
  report_costs(before, after, is_run_known, summary);
  return trial;
}

}  // namespace ridge
