#include "ridge/train/memory_limit.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "ridge/compile/live_ranges.h"
#include "ridge/graph/summary.h"
#include "ridge/run/program.h"

namespace ridge {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

double in_mib(int64_t bytes) { return static_cast<double>(bytes) / static_cast<double>(kMiB); }

/// A number of micro-batches, what a step of them needs, and what it costs.
struct Way {
  int64_t micro = 0;
  int64_t loss_chunks = 1;
  int64_t bytes = 0;
  double cost = 0;   ///< Bytes to move, a FLOP counted as a tenth of a byte.
  double extra = 0;  ///< Share of the cost that is for making results again.
  std::shared_ptr<const CompiledProgram> program = nullptr;
};

double step_cost(const CompiledProgram& program, int64_t batch, int64_t micro) {
  const std::string name = micro > 1 ? "micro" : "step";
  double cost = 0;
  int64_t first_size = 0;
  const auto cost_of = [&](const std::string& entry) {
    for (const Graph& graph : program.graphs.entries)
      if (graph.name() == entry) {
        const Cost total = summarize(graph).total;
        return total.bytes + total.flops / 10;
      }
    return 0.0;
  };
  for (int64_t i = 0; i < micro; ++i) {
    const int64_t size = micro_batch_size(batch, micro, i);
    if (i == 0) first_size = size;
    cost += cost_of(size == first_size ? name : fmt::format("{}.{}", name, size));
  }
  return cost + cost_of("apply");
}

class LimitSolver {
 public:
  LimitSolver(const TrainConfig& config, const Task& task, Backend& backend)
      : config_(config), task_(task), backend_(backend), limit_(config.train.memory_limit * kMiB) {}

  /// The plan with so many micro-batches and chunks of the loss; `again`: results are recomputed
  /// until it fits. `tuned`: with the kernels that the run will have; sizes that are not taken are
  /// not worth that.
  Way plan(int64_t micro, int64_t loss_chunks, bool again, bool tuned = false) const {
    TrainConfig config = config_;
    config.train.micro = micro;
    config.train.loss_chunks = loss_chunks;
    ProgramOptions options = program_options(config, task_);
    if (!tuned) options.plan.choose = untimed_choices(config);
    if (!again) options.memory_limit = 0;
    const auto program = std::make_shared<const CompiledProgram>(
        compile_program(task_.training->program(program_sizes(config, task_)), backend_, options));
    return {.micro = micro,
            .loss_chunks = loss_chunks,
            .bytes = program->plan.total_bytes(),
            .cost = step_cost(*program, config.train.batch, micro),
            .program = program};
  }

  bool fits(const Way& way) const { return way.bytes <= limit_; }

  /// The cheapest way that fits. Where none does, `least` is the one that needs least.
  std::optional<Way> solve(bool separable, Way& least) const {
    std::optional<Way> best;
    const int64_t batch = config_.train.batch;
    bool parts_help = !task_.training->model().sample().regression();
    for (Way plain = plan(config_.train.micro, config_.train.loss_chunks, false);;) {
      if (best && plain.cost >= best->cost) return best;
      if (fits(plain)) {
        const Way fewest = fewest_that_fit(plain);
        return best && best->cost <= fewest.cost ? best : fewest;
      }
      const Way parts = parts_help ? with_loss_in_parts(plain) : plain;
      parts_help = parts.loss_chunks > plain.loss_chunks;
      const bool may_fit = !fits(parts) && parts.program->plan.state_bytes < limit_;
      Way again = may_fit ? plan(parts.micro, parts.loss_chunks, true) : parts;
      again.extra = again.cost / parts.cost - 1;
      if (least.micro == 0 || again.bytes < least.bytes) least = again;
      if (fits(again) && (!best || again.cost < best->cost)) best = again;
      if (!separable || plain.micro >= batch) return best;
      plain = plan(std::min(2 * plain.micro, batch), config_.train.loss_chunks, false);
    }
  }

  /// The fewest, from those of the configuration on, that fit with nothing recomputed.
  std::optional<Way> fewest(bool separable) const {
    for (Way way = plan(config_.train.micro, config_.train.loss_chunks, false);;) {
      if (fits(way)) return fewest_that_fit(std::move(way));
      if (!separable || way.micro >= config_.train.batch) return std::nullopt;
      way = plan(std::min(2 * way.micro, config_.train.batch), config_.train.loss_chunks, false);
    }
  }

 private:
  // The way with its loss in as few parts as fit, or in as many as still free a hundredth of the
  // arena each time: a step does little more work for them. The way itself where logits are not
  // what holds most.
  Way with_loss_in_parts(const Way& whole) const {
    constexpr int64_t kMostParts = 256;
    constexpr double kWorth = 0.99;
    Way least = whole;
    while (!fits(least) && least.loss_chunks < kMostParts) {
      Way next = plan(whole.micro, 2 * least.loss_chunks, false);
      const auto arena = [](const Way& way) {
        return static_cast<double>(way.program->plan.arena_bytes);
      };
      if (arena(next) > kWorth * arena(least)) break;
      least = std::move(next);
    }
    return least;
  }

  // Halving: more micro-batches never need more memory once there are two (one has no gradient
  // buffers in the state), and half as many as `way` has do not fit.
  Way fewest_that_fit(Way way) const {
    int64_t low = std::max(config_.train.micro, way.micro / 2);
    while (way.micro - low > 1) {
      const int64_t middle = low + (way.micro - low) / 2;
      Way tried = plan(middle, way.loss_chunks, false);
      if (fits(tried))
        way = std::move(tried);
      else
        low = middle;
    }
    return way;
  }

  const TrainConfig& config_;
  const Task& task_;
  Backend& backend_;
  int64_t limit_;
};

// "parameters 12.0 MiB, ..., 3.0 MiB in 'SITE'": the state by its roles and the largest buffers of
// the entry that needs most, where it needs most.
std::string holders_text(const CompiledProgram& program) {
  constexpr size_t kShown = 3;
  const Plan& plan = program.plan;
  const EntryPlan& entry =
      *std::max_element(plan.entries.begin(), plan.entries.end(), [](const auto& a, const auto& b) {
        return a.peak_bytes < b.peak_bytes;
      });
  const std::vector<LiveRange> ranges = live_ranges(entry);
  const std::vector<int64_t> live = live_bytes(entry, ranges);
  const int peak = static_cast<int>(std::max_element(live.begin(), live.end()) - live.begin());
  std::vector<std::pair<int64_t, std::string>> held;
  for (const LiveRange& range : ranges) {
    if (range.begin > peak || range.end < peak) continue;
    const bool is_input = range.kind == LiveRange::Kind::kInput;
    held.emplace_back(range.place.bytes,
                      is_input ? "input " + entry.inputs[range.index].name
                               : entry.steps[static_cast<size_t>(range.begin) - 1].site);
  }
  std::stable_sort(
      held.begin(), held.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string text = fmt::format("state {:.1f} MiB", in_mib(plan.state_bytes));
  for (size_t i = 0; i < std::min(kShown, held.size()); ++i)
    text += fmt::format(", {:.1f} MiB '{}'", in_mib(held[i].first), held[i].second);
  return text;
}

std::string parts_text(const Way& way) {
  return way.loss_chunks > 1 ? fmt::format(" and the loss in {} parts", way.loss_chunks) : "";
}

[[noreturn]] void fail(const TrainConfig& config, const Way& least, const BatchReport& report) {
  const int64_t missing = least.bytes - config.train.memory_limit * kMiB;
  const std::string micro =
      report.separable ? fmt::format("with {} micro-batches{}", least.micro, parts_text(least))
                       : "(micro-batches would change what is computed: " + report.reason + ")";
  throw UserError(
      fmt::format("train.memory_limit is {} MiB, {:.1f} MiB less than the least plan, {:.1f} MiB "
                  "{}; most is held by: {}",
                  config.train.memory_limit,
                  in_mib(missing),
                  in_mib(least.bytes),
                  micro,
                  holders_text(*least.program)),
      fmt::format("set it to {} or more, or {}",
                  (least.bytes + kMiB - 1) / kMiB,
                  report.separable ? "make the model smaller" : "set a smaller train.batch"));
}

// The same configuration with another limit.
TrainConfig within(TrainConfig config, int64_t bytes) {
  config.train.memory_limit = std::max<int64_t>(1, bytes / kMiB);
  return config;
}

std::string describe(const TrainConfig& config, const Way& way) {
  std::string text = fmt::format("memory limit {} MiB: ", config.train.memory_limit);
  if (way.micro > 1)
    text += fmt::format("{} micro-batches of {} samples a step, ",
                        way.micro,
                        micro_batch_size(config.train.batch, way.micro, 0));
  if (way.loss_chunks > config.train.loss_chunks)
    text += fmt::format("the loss in {} parts, ", way.loss_chunks);
  if (way.extra > 0)
    text += fmt::format("recomputed results for {:.1f} % more work, ", 100 * way.extra);
  return fmt::format("{}need {:.1f} MiB", text, in_mib(way.bytes));
}

}  // namespace

std::string apply_memory_limit(TrainConfig& config, Task& task, Backend& backend) {
  if (config.train.memory_limit == 0) return {};
  const LimitSolver solver(config, task, backend);
  const RunOptions& asked = config.train;
  if (solver.fits(solver.plan(asked.micro, asked.loss_chunks, false, true))) return {};
  const BatchReport report = task.training->batch_report(config.train.batch);
  Way least;
  std::optional<Way> way = solver.solve(report.separable, least);
  if (!way) fail(config, least, report);
  // Tuned kernels may ask for other workspaces than those that were counted.
  while (task.choose) {
    const Way tuned = solver.plan(way->micro, way->loss_chunks, true, true);
    way->bytes = tuned.bytes;
    if (solver.fits(tuned)) break;
    if (!report.separable || way->micro >= config.train.batch) fail(config, tuned, report);
    ++way->micro;
  }
  const std::string text = describe(config, *way);
  config.train.micro = way->micro;
  config.train.loss_chunks = way->loss_chunks;
  task.sizes = program_sizes(config, task);
  return text;
}

bool can_use_micro_batches(const TrainConfig& config, const Task& task) {
  return task.training->batch_report(config.train.batch).separable;
}

std::optional<int64_t> fewest_micro_batches(const TrainConfig& config,
                                            const Task& task,
                                            Backend& backend,
                                            int64_t limit) {
  TrainConfig whole = within(config, limit);
  whole.train.micro = 1;
  const std::optional<Way> way =
      LimitSolver(whole, task, backend).fewest(can_use_micro_batches(config, task));
  return way ? std::optional(way->micro) : std::nullopt;
}

bool limit_can_be_kept(const TrainConfig& config,
                       const Task& task,
                       Backend& backend,
                       int64_t limit) {
  const TrainConfig limited = within(config, limit);
  Way least;
  return LimitSolver(limited, task, backend)
      .solve(can_use_micro_batches(config, task), least)
      .has_value();
}

MicroBatch largest_micro_batch(const TrainConfig& config,
                               const Task& task,
                               Backend& backend,
                               int64_t limit) {
  constexpr int64_t kMost = int64_t{1} << 20;
  ProgramOptions options = program_options(config, task);
  options.plan.choose = untimed_choices(config);
  options.memory_limit = 0;
  const auto bytes_of = [&](int64_t samples) {
    return compile_program(
               task.training->program({.micro = {samples}, .eval = {samples}}), backend, options)
        .plan.total_bytes();
  };
  MicroBatch found{.samples = 0, .bytes = 0, .next_bytes = bytes_of(1)};
  int64_t above = 1;  // the fewest that are known not to fit
  while (found.next_bytes <= limit && found.samples < kMost) {
    found = {above, found.next_bytes, 0};
    above *= 2;
    found.next_bytes = bytes_of(above);
  }
  while (above - found.samples > 1) {
    const int64_t middle = found.samples + (above - found.samples) / 2;
    const int64_t bytes = bytes_of(middle);
    if (bytes <= limit) {
      found.samples = middle;
      found.bytes = bytes;
    } else {
      above = middle;
      found.next_bytes = bytes;
    }
  }
  return found;
}

}  // namespace ridge
