#include "ridge/tune/pytorch/program_meter.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "ridge/attach/samples/tree_memory.h"
#include "ridge/base/clock.h"
#include "ridge/base/error.h"
#include "ridge/base/stop.h"
#include "ridge/io/file.h"
#include "ridge/io/json.h"
#include "ridge/tune/pytorch/guard/guard.h"

namespace ridge {
namespace {

// The probe needs to see so many steps and seconds of them, and may take so long: a share of the
// budget, or these seconds where they are more.
constexpr int64_t kProbeSteps = 10;
constexpr double kProbeSeconds = 2, kMostProbeSeconds = 60, kStartSeconds = 180;
constexpr double kProbeShare = 0.2;

// Seconds of the block that the share of waiting is read from, at least.
constexpr double kBaselineSeconds = 1.5;

constexpr int kPollMilliseconds = 50;

// A line for each module.
constexpr JsonLimits kImportLimits{.bytes = size_t{4} << 20, .values = size_t{1} << 17, .depth = 4};

// Steps that the doctor examines, and those before, which the probe has for itself.
constexpr int kRecordedSteps = 8, kStepsBefore = 12;
// Seconds until a recording is written and read; a profiler makes steps longer by this factor.
constexpr double kWriteSeconds = 3, kProfiled = 1.5;
// Long steps are not waited for beyond this share of the budget.
constexpr double kRecordingShare = 0.1;

double seconds_of(int64_t from_ns, int64_t to_ns) {
  return static_cast<double>(to_ns - from_ns) * 1e-9;
}

bool is_recorded(const attach::ProcessFacts& facts) {
  return !facts.trace_path.empty() || facts.profile == "written" || facts.profile == "off" ||
         facts.profile.starts_with("failed");
}

// Seconds that one fault costs here, and giving its page back: a region of memory is mapped,
// written and unmapped. Programs whose pages other threads map besides may take twice as long.
std::optional<double> seconds_of_fault() {
  constexpr size_t kBytes = size_t{16} << 20, kPage = 4096;
  constexpr double kMargin = 2;
  rusage before{}, after{};
  ::getrusage(RUSAGE_SELF, &before);
  const int64_t begun = now_ns();
  void* const memory =
      ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return std::nullopt;
  for (size_t at = 0; at < kBytes; at += kPage) static_cast<volatile char*>(memory)[at] = 1;
  ::munmap(memory, kBytes);
  const double seconds = seconds_of(begun, now_ns());
  ::getrusage(RUSAGE_SELF, &after);
  const auto faults = static_cast<double>(after.ru_minflt - before.ru_minflt);
  return faults > 0 ? std::optional(kMargin * seconds / faults) : std::nullopt;
}

// Packages can be imported beforehand where the program is one process of Python itself: what a
// script or a launcher does before is no import.
ProgramImports imports_of(const ForeignTarget& target,
                          ForeignProgram& program,
                          const attach::ProcessFacts& facts) {
  const char* hashes = std::getenv("PYTHONHASHSEED");
  if (hashes != nullptr && std::string_view(hashes) == "random")
    return {.text = {}, .refusal = "PYTHONHASHSEED is 'random'"};
  if (facts.pid != program.program().pid())
    return {.text = {}, .refusal = "it steps in another process than the command starts"};
  ProgramImports imports;
  try {
    imports.text = read_file(fmt::format("{}/imports_{}.json", program.shim().path(), facts.pid),
                             kImportLimits.bytes);
    const JsonValue json = parse_json(imports.text, "imports", kImportLimits);
    const JsonValue::Array& words = json.at("words", "imports").as_array("words");
    const std::vector<std::string>& command = target.command.words();
    bool is_python = words.size() == command.size();
    for (size_t i = 1; is_python && i < words.size(); ++i)
      is_python =
          command[i].find('{') != std::string::npos || words[i].as_string("words") == command[i];
    if (!is_python) imports.refusal = "the command starts Python in another way than by its words";
  } catch (const UserError& error) {
    imports.refusal = fmt::format("what it imports is not known ({})", error.what());
  }
  return imports;
}

double probed_step(const ProgramCosts& costs) { return std::max(1e-4, costs.facts.step_seconds); }

}  // namespace

PartShares ProgramCosts::parts() const {
  PartShares parts{.wait = wait_share};
  if (!(step_seconds > 0)) return parts;
  const double longer = static_cast<double>(work) * baseline_seconds / step_seconds;
  const auto scaled = [&](double share) { return std::clamp(share * longer, 0.0, 1.0); };
  if (fault_seconds) parts.faults = std::clamp(*fault_seconds / step_seconds, 0.0, 1.0);
  if (!shares) return parts;
  if (shares->optimizer) parts.update = scaled(*shares->optimizer);
  if (shares->operators)
    parts.operators = {.images = scaled(shares->operators->images),
                       .products = scaled(shares->operators->products),
                       .allocations = scaled(shares->operators->allocations),
                       .beside = scaled(shares->operators->beside)};
  return parts;
}

int64_t work_of(const attach::ProcessFacts& facts, const ForeignRecipe& recipe) {
  int64_t work = 1;
  for (const attach::KnobOffer& offer : facts.offers)
    if (!offer.value.empty() && recipe.get(offer.key) == offer.value) work *= offer.work;
  return work;
}

int64_t batches_ahead(const attach::ProcessFacts& facts, const ForeignRecipe& recipe) {
  // A thread has two ahead (ridge_background.py), and so has torch's loader for each worker.
  constexpr int64_t kAhead = 2;
  if (recipe.get("loader.background") == "true") return kAhead;
  const attach::LoaderFacts plain =
      facts.loaders.empty() ? attach::LoaderFacts{} : facts.loaders.front();
  const auto number = [&](const char* key, int64_t fallback) {
    const std::string value = recipe.get(key);
    return value.empty() ? fallback : std::strtoll(value.c_str(), nullptr, 10);
  };
  const int64_t prefetch = plain.prefetch > 0 ? plain.prefetch : kAhead;
  return number("loader.workers", plain.workers) * number("loader.prefetch", prefetch);
}

ProgramCosts probe_program(const ForeignTarget& target, const LoopView& loop) {
  loop.observer.on_message("the program runs once, to see what it does");
  const attach::ShimOptions options{.profiled_steps = kRecordedSteps,
                                    .warm_steps = kStepsBefore,
                                    .warm_seconds = 0,
                                    .probes = true};
  ForeignProgram program(target, {}, options, kProbeSteps * 100);
  ProgramCosts costs{.facts = {}, .has_steps = target.command.has_steps()};
  const double share = kProbeShare * loop.budget.total();
  const int64_t begun = now_ns(), begun_wall = wall_ns();
  for (;;) {
    if (stop_requested()) throw TrialStopped("stopped before the program was known");
    const auto end = program.program().wait(kPollMilliseconds);
    const auto facts = program.facts();
    const double seconds = seconds_of(begun, now_ns());
    const bool steps = facts && facts->steps > 0;
    if (steps) {
      const double before = costs.facts.step_seconds;
      costs.facts = *facts;
      // A profiler makes steps longer.
      if (before > 0 && facts->profile != "waiting") costs.facts.step_seconds = before;
      // A process writes its facts twice a second, and a short run only at its end.
      if (costs.first_step_seconds == 0)
        costs.first_step_seconds =
            std::clamp(seconds_of(begun_wall, facts->first_step_wall_ns), 0.0, seconds);
      const double stepped = seconds_of(facts->first_step_wall_ns, facts->last_step_wall_ns);
      const bool is_known = facts->is_probed && (is_recorded(*facts) ||
                                                 stepped > kRecordingShare * loop.budget.total());
      if (is_known && facts->steps >= kProbeSteps && stepped >= kProbeSeconds) break;
      if (seconds > costs.first_step_seconds + std::max(kMostProbeSeconds, share)) break;
    }
    if (end && end->exit_code != 0) throw program.failure(*end);
    if (end && steps) {
      // With {steps} the run ended because the probe asks for few.
      if (costs.has_steps) break;
      costs.whole_steps = facts->steps;
      costs.whole_seconds = seconds;
      break;
    }
    if (end || (!steps && seconds > std::max(kStartSeconds, share)))
      throw VariantFailed(program.why_no_step());
  }
  costs.shares = recorded_shares(costs.facts);
  costs.imports = imports_of(target, program, costs.facts);
  loop.summary.notes.push_back(program.place().how());
  return costs;
}

StepShares examine_program(const ForeignTarget& target,
                           const ForeignRecipe& recipe,
                           int64_t until_ns) {
  const attach::ShimOptions options{
      .profiled_steps = kRecordedSteps, .warm_steps = kStepsBefore, .warm_seconds = 0};
  ForeignProgram program(target, recipe, options, kProbeSteps * 100);
  for (;;) {
    if (stop_requested()) throw TrialStopped("stopped by a signal");
    const auto end = program.program().wait(kPollMilliseconds);
    if (end && end->exit_code != 0) throw program.failure(*end);
    const auto facts = program.facts();
    const bool is_late = now_ns() > until_ns;
    // The doctor wants more steps than those few, of which no profiler made any longer.
    const bool has_seconds =
        facts && seconds_of(facts->first_step_wall_ns, facts->last_step_wall_ns) >= kProbeSeconds;
    if (end || (facts && is_recorded(*facts) && (has_seconds || is_late))) {
      if (!facts) throw VariantFailed(program.why_no_step());
      if (std::optional<StepShares> shares = recorded_shares(*facts)) return *std::move(shares);
      throw VariantFailed(
          fmt::format("no step was recorded ({})",
                      facts->profile.empty() || end ? "the program ended before" : facts->profile));
    }
    if (is_late) throw TrialStopped("the budget was spent before steps were recorded");
  }
}

double examination_seconds(const ProgramCosts& costs, double open_seconds) {
  const double recorded =
      kProfiled * static_cast<double>(kStepsBefore + kRecordedSteps) * costs.step_seconds;
  return open_seconds + std::max(recorded, kProbeSeconds) + kWriteSeconds;
}

void measure_baseline(ProgramCosts& costs, ForeignRunner& best) {
  costs.start_seconds = std::max(costs.first_step_seconds, best.open_seconds());
  const auto steps = std::max<int64_t>(
      best.least_steps(), static_cast<int64_t>(std::ceil(kBaselineSeconds / probed_step(costs))));
  const pid_t process = best.pid();
  const int64_t faults = attach::tree_faults(process);
  const Block block = best.run(steps);
  // A program that ended meanwhile was started again, and has mapped its pages anew.
  if (best.pid() == process)
    if (const std::optional<double> seconds = seconds_of_fault())
      costs.fault_seconds = *seconds * static_cast<double>(attach::tree_faults(process) - faults) /
                            static_cast<double>(steps);
  costs.step_seconds = std::max(1e-9, block.seconds / static_cast<double>(steps));
  costs.baseline_seconds = costs.step_seconds;
  costs.wait_share = block.seconds > 0 ? std::min(1.0, block.waited_seconds / block.seconds) : 0;
  costs.whole_steps = best.whole_steps();
}

// A guard of the first change has three runs at least, two of them at a time.
ProgramTimes expected_times(const ProgramCosts& costs) {
  const double step = probed_step(costs);
  const ForeignRunnerOptions runner;
  ProgramTimes times{.step_seconds = step,
                     .first_step_seconds = costs.first_step_seconds,
                     .whole_seconds = costs.whole_seconds,
                     .whole_steps = costs.whole_steps,
                     .has_steps = costs.has_steps};
  times.costs.start_seconds = costs.first_step_seconds;
  times.costs.block_seconds = std::max(kForeignBlockSeconds, step);
  if (costs.whole_steps > 0) {
    const double run = static_cast<double>(costs.whole_steps) * step;
    times.costs.run_seconds = timed_run_seconds(costs.whole_steps, step);
    times.costs.start_seconds += run - times.costs.run_seconds;
  } else {
    times.costs.start_seconds +=
        std::max(runner.warm_seconds, static_cast<double>(runner.warm_steps) * step);
  }
  const double block = std::max(kBaselineSeconds, step);
  const double starts =
      times.costs.run_seconds > 0 ? std::ceil(block / times.costs.run_seconds) : 1;
  times.before_seconds = starts * times.costs.start_seconds + block;
  times.guard_seconds = 2 * (costs.first_step_seconds + static_cast<double>(kForeignSteps) * step);
  return times;
}

ProgramTimes measured_times(const ProgramCosts& costs,
                            const ForeignRunner& best,
                            double guard_seconds) {
  ProgramTimes times = expected_times(costs);
  const double step = costs.step_seconds;
  times.step_seconds = step;
  times.costs = {.start_seconds = costs.start_seconds,
                 .block_seconds = block_seconds(foreign_trial_options(0, 0, best, best), step),
                 .run_seconds = best.run_seconds(step)};
  times.before_seconds = 0;
  times.guard_seconds = guard_seconds;
  if (costs.whole_steps > 0 && costs.whole_seconds == 0)
    times.whole_seconds = costs.first_step_seconds + static_cast<double>(costs.whole_steps) * step;
  return times;
}

}  // namespace ridge
