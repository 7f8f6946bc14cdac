// Analyses of synthetic traces against the truth of the simulation.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ridge/doctor/read/read_trace.h"
#include "tests/doctor/synthetic_trace.h"
#include "tests/support/temp_folder.h"

namespace ridge::doctor::synthetic {
namespace {

// The truth for the steady steps that an analysis found: means in milliseconds.
Breakdown truth_of(const std::vector<StepTruth>& truth, const Analysis& analysis) {
  Breakdown mean;
  const double steps = static_cast<double>(analysis.steps.windows.size());
  for (const StepTruth& step : truth) {
    bool is_steady = false;
    for (const Interval& each : analysis.steps.windows) is_steady |= each == step.at;
    if (!is_steady) continue;
    const auto ms = [&](int64_t ns) { return static_cast<double>(ns) / 1e6 / steps; };
    mean.wall += ms(step.at.length());
    mean.compute += ms(step.compute);
    mean.starved += ms(step.starved);
    mean.launch += ms(step.launch);
    mean.blocking += ms(step.blocking);
    for (size_t i = 0; i < kHostCauses; ++i) mean.starved_by[i] += ms(step.starved_by[i]);
  }
  return mean;
}

// A part may be off by this share of a step.
constexpr double kTolerance = .01;

void expect_truth(const Trace& trace,
                  const SyntheticTrace& made,
                  const std::string& name,
                  bool has_causes = true) {
  const Analysis analysis = analyse(trace);
  ASSERT_GE(analysis.steps.windows.size(), 8u) << name;
  const Breakdown truth = truth_of(made.steps, analysis);
  const Breakdown& found = analysis.breakdown;
  ASSERT_NEAR(found.wall, truth.wall, 1e-6) << name << ": other steps than were marked";
  const auto expect_near = [&](double value, double expected, std::string_view what) {
    EXPECT_NEAR(value / truth.wall, expected / truth.wall, kTolerance) << name << ": " << what;
  };
  expect_near(found.compute, truth.compute, "compute");
  expect_near(found.starved, truth.starved, "starved");
  expect_near(found.launch, truth.launch, "launch");
  expect_near(found.blocking, truth.blocking, "blocking");
  expect_near(found.unknown, 0, "unknown");
  for (size_t i = 0; has_causes && i < kHostCauses; ++i)
    expect_near(found.starved_by[i], truth.starved_by[i], name_of(static_cast<HostCause>(i)));
}

TEST(SyntheticAnalysis, FindsWhatTheSimulationKnows) {
  for (const Program& program : all_programs())
    for (const double scale : {.3, 3.}) {
      const std::vector<SyntheticTrace> made = simulate(program, {.seed = 7, .scale = scale});
      expect_truth(made[0].trace, made[0], fmt::format("{} at scale {}", program.name, scale));
    }
}

TEST(SyntheticAnalysis, FindsItInTheFilesOfNsys) {
  test::TempFolder folder;
  const std::string path = folder / "a.sqlite";
  for (const Program& program : all_programs()) {
    const std::vector<SyntheticTrace> made = simulate(program, {.seed = 8, .scale = .5});
    write_nsys(made[0].trace, 8, path);
    expect_truth(read_nsys(path), made[0], program.name + " from nsys");
  }
}

TEST(SyntheticAnalysis, FindsItInTheFilesOfKineto) {
  test::TempFolder folder;
  const std::string path = folder / "a.json";
  for (const Program& program : all_programs()) {
    const std::vector<SyntheticTrace> made = simulate(program, {.seed = 9, .scale = .5});
    write_kineto(made[0].trace, 9, path);
    // Kineto does not record when a thread was off its core.
    expect_truth(read_kineto(path), made[0], program.name + " from Kineto", program.rule != "R30");
  }
}

}  // namespace
}  // namespace ridge::doctor::synthetic
