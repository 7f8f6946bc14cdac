// How stable the tuner's picks are, and what planning from its cache costs.
//
//   bench_tuning CONFIG... [--times N] [--plans N]
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>

#include "bench/exit_code.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/base/machine/machine.h"
#include "ridge/base/settings.h"
#include "ridge/base/stats.h"
#include "ridge/config/text.h"
#include "ridge/run/backends.h"
#include "ridge/run/tuner.h"
#include "ridge/train/task.h"

namespace ridge {
namespace {

// The picks of all launches, in order.
struct Planned {
  std::vector<std::string> picks;
  size_t timed = 0, cached = 0;
  double seconds = 0;  ///< Seconds of make_plan, tuning included.
};

Planned plan_with(const Task& task, const TrainConfig& config, const std::filesystem::path& cache) {
  const auto cpu = make_backend("cpu"), ref = make_backend("ref");
  ChoiceCache kept(cache, machine_fingerprint("cpu"));
  Tuner tuner(*cpu, *ref, kept);
  ProgramOptions options = program_options(config, task);
  ProgramGraphs graphs = task.training->program(task.sizes);
  for (Graph& graph : graphs.entries) run_pipeline(graph, *cpu, options.passes);
  options.plan.choose = [&](const Node& node, const std::vector<Choice>& choices) {
    return tuner.choose(node, choices);
  };
  const int64_t start = now_ns();
  const Plan plan = make_plan(graphs, *cpu, options.plan);
  Planned planned;
  planned.seconds = static_cast<double>(now_ns() - start) * 1e-9;
  for (const EntryPlan& entry : plan.entries)
    for (const PlanStep& step : entry.steps)
      planned.picks.push_back(fmt::format("{} {} {}", entry.name, step.site, step.choice_name));
  planned.timed = tuner.timed();
  planned.cached = tuner.cached();
  return planned;
}

// Share of the launches whose pick is the most frequent one, over all tunings.
double stability(const std::vector<Planned>& tunings) {
  const size_t launches = tunings[0].picks.size();
  size_t same = 0;
  for (size_t i = 0; i < launches; ++i) {
    std::map<std::string, size_t> votes;
    for (const Planned& each : tunings) ++votes[each.picks[i]];
    same += votes.size() == 1;
  }
  return static_cast<double>(same) / static_cast<double>(launches);
}

// Median over so many plans, in ms.
double planning_ms(const Task& task,
                   const TrainConfig& config,
                   const std::filesystem::path& cache,
                   int plans) {
  std::vector<double> all;
  for (int i = 0; i < plans; ++i) {
    const Planned planned = plan_with(task, config, cache);
    check(planned.timed == 0, "{} kinds of nodes are not in the cache", planned.timed);
    all.push_back(1e3 * planned.seconds);
  }
  return median(all);
}

void report(const std::string& path, int times, int plans) {
  const TrainConfig config = load_config_file(path, {}).config;
  const Task task = open_task(config);
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / fmt::format("ridge-tuning-{}", now_ns());
  std::vector<Planned> tunings;
  for (int i = 0; i < times; ++i) {
    std::filesystem::remove_all(folder);
    tunings.push_back(plan_with(task, config, folder));
  }
  const double planned_ms = planning_ms(task, config, folder, plans);
  std::filesystem::remove_all(folder);
  fmt::print(
      "{}: {} launches, {} kinds of nodes timed in {:.2f} s; {:.1f} % of the launches got the "
      "same pick in {} tunings; planned from the cache in {:.1f} ms\n",
      path,
      tunings[0].picks.size(),
      tunings[0].timed,
      tunings[0].seconds,
      100 * stability(tunings),
      times,
      planned_ms);
  std::fflush(stdout);
}

}  // namespace
}  // namespace ridge

int main(int argc, char** argv) {
  int times = 10, plans = 9;
  std::vector<std::string> paths;
  for (int i = 1; i < argc; ++i)
    if (std::strcmp(argv[i], "--times") == 0 && i + 1 < argc)
      times = std::max(1, std::atoi(argv[++i]));
    else if (std::strcmp(argv[i], "--plans") == 0 && i + 1 < argc)
      plans = std::max(1, std::atoi(argv[++i]));
    else
      paths.emplace_back(argv[i]);
  if (paths.empty()) {
    fmt::print(stderr, "usage: bench_tuning CONFIG... [--times N] [--plans N]\n");
    return 2;
  }
  return ridge::bench::exit_code([&] {
    for (const std::string& path : paths) ridge::report(path, times, plans);
  });
}
