#include "ridge/tune/pytorch/program_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "ridge/base/machine/machine.h"

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

}  // namespace

void describe_program(const attach::CommandTemplate& command, OptimizeSummary& summary) {
  summary.target = script_of(command.words());
  summary.subject = "program";
  summary.recipe_use = "ridge run --recipe";
  summary.recipe_rest = " -- " + command.text();
  summary.doctor_use = "ridge doctor" + summary.recipe_rest;
  summary.machine = machine_fingerprint("cpu");
  summary.energy_problem = "blocks of third-party programs are not weighed";
  summary.guard.text = "no change was kept";
}

void report_baseline(const LoopView& loop, const ProgramCosts& costs) {
  const attach::ProcessFacts& facts = costs.facts;
  VariantSpeed& speed = loop.summary.baseline;
  speed.step_samples = facts.loaders.empty() ? 0 : static_cast<double>(facts.loaders.front().batch);
  speed.set_step(costs.step_seconds, costs.wait_share);
  loop.report(fmt::format("a step takes {:.3g} ms; {:.0f} % of it waits for data",
                          1e3 * costs.step_seconds,
                          100 * costs.wait_share));
  if (costs.shares) {
    loop.report(
        fmt::format("the optimizer's update takes {:.0f} % of it", 100 * costs.shares->optimizer));
    for (const std::string& finding : costs.shares->findings)
      loop.report("ridge doctor: " + finding);
  }
  loop.report(fmt::format(
      "steps are {}; torch {} computes with {} threads",
      facts.step_source == "module" ? "calls of the outermost module" : "those of the optimizer",
      facts.torch,
      facts.threads));
  loop.report(fmt::format("it is started anew for each trial, which takes {:.1f} s until it steps",
                          costs.start_seconds));
}

void report_proof(const ForeignRunner& before,
                  const ForeignRunner& after,
                  bool is_run_known,
                  OptimizeSummary& summary) {
  summary.result = summary.baseline;
  summary.baseline.measured_bytes = before.memory_bytes();
  summary.result.measured_bytes = after.memory_bytes();
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

}  // namespace ridge
