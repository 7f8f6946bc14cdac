#include "tests/doctor/synthetic_trace.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "ridge/doctor/read/read_trace.h"
#include "tests/doctor/trace_rows.h"
#include "tests/support/temp_folder.h"

namespace ridge::doctor::synthetic {
namespace {

using test::TempFolder;

const Program& program_called(const std::string& name) {
  static const std::vector<Program> programs = all_programs();
  const auto found = std::find_if(
      programs.begin(), programs.end(), [&](const Program& each) { return each.name == name; });
  if (found == programs.end()) throw std::runtime_error("no program '" + name + "'");
  return *found;
}

// Sums over the steps that are not the first or last.
StepTruth total(const SyntheticTrace& made) {
  StepTruth sum;
  for (size_t i = 3; i + 1 < made.steps.size(); ++i) {
    const StepTruth& step = made.steps[i];
    sum.at.end += step.at.length();
    sum.compute += step.compute;
    sum.starved += step.starved;
    sum.launch += step.launch;
    sum.blocking += step.blocking;
    sum.blocked_by_copies += step.blocked_by_copies;
    sum.blocked_by_communication += step.blocked_by_communication;
    for (size_t k = 0; k < kHostCauses; ++k) sum.starved_by[k] += step.starved_by[k];
  }
  return sum;
}

double share(int64_t part, const StepTruth& sum) {
  return static_cast<double>(part) / static_cast<double>(sum.at.length());
}

double share_by(HostCause cause, const StepTruth& sum) {
  return share(sum.starved_by[static_cast<size_t>(cause)], sum);
}

StepTruth total_of(const std::string& name) { return total(simulate(program_called(name))[0]); }

TEST(SyntheticTrace, EveryNanosecondOfAStepHasOneCause) {
  for (const Program& program : all_programs()) {
    for (const double scale : {.1, 1., 10.}) {
      for (const SyntheticTrace& made : simulate(program, {.seed = 5, .scale = scale})) {
        ASSERT_EQ(made.steps.size(), 16u);
        for (size_t i = 0; i < made.steps.size(); ++i) {
          const StepTruth& step = made.steps[i];
          ASSERT_GE(step.launch, 0);
          ASSERT_EQ(step.compute + step.starved + step.launch + step.blocking, step.at.length())
              << program.name << " step " << i;
          ASSERT_EQ(step.blocked_by_copies + step.blocked_by_communication, step.blocking);
          int64_t starved = 0;
          for (const int64_t each : step.starved_by) starved += each;
          ASSERT_EQ(starved, step.starved) << program.name << " step " << i;
          if (i > 0) {
            ASSERT_EQ(step.at.begin, made.steps[i - 1].at.end);
          }
        }
      }
    }
  }
}

TEST(SyntheticTrace, HealthyProgramsComputeMostOfTheTime) {
  for (const Program& program : all_programs()) {
    if (program.is_sick) continue;
    const StepTruth sum = total(simulate(program)[0]);
    EXPECT_GT(share(sum.compute, sum), program.rule == "R03" ? .85 : .93) << program.name;
  }
}

TEST(SyntheticTrace, SickProgramsSufferFromWhatTheyAreMadeFor) {
  EXPECT_GT(share_by(HostCause::kLoader, total_of("input starved")), .3);
  EXPECT_GT(share_by(HostCause::kLoader, total_of("loader that cannot scale")), .3);
  const StepTruth launches = total_of("launch bound");
  EXPECT_GT(share_by(HostCause::kOperators, launches) + share(launches.launch, launches), .5);
  EXPECT_GT(share_by(HostCause::kSync, total_of("host reads a scalar in each layer")), .15);
  EXPECT_GT(share_by(HostCause::kAllocation, total_of("allocator in the loop")), .15);
  EXPECT_GT(share_by(HostCause::kModule, total_of("modules loaded late")), .3);
  EXPECT_GT(share_by(HostCause::kPageable, total_of("pageable copies")), .2);
  const StepTruth copies = total_of("copies that block kernels");
  EXPECT_GT(share(copies.blocked_by_copies, copies), .2);
  const StepTruth communication = total_of("communication that blocks");
  EXPECT_GT(share(communication.blocked_by_communication, communication), .2);
  EXPECT_GT(share_by(HostCause::kCheckpoint, total_of("a checkpoint each fifth step")), .3);
  EXPECT_GT(share_by(HostCause::kOffCpu, total_of("too few cores")), .2);
}

TEST(SyntheticTrace, ASlowRankHoldsTheOthersUp) {
  const std::vector<SyntheticTrace> ranks = simulate(program_called("one slow rank"));
  ASSERT_EQ(ranks.size(), 4u);
  for (size_t rank = 0; rank < 4; ++rank) {
    const StepTruth sum = total(ranks[rank]);
    const double waits = share(sum.blocked_by_communication, sum);
    if (rank == 2)
      EXPECT_LT(waits, .1);
    else
      EXPECT_GT(waits, .2) << rank;
    EXPECT_EQ(ranks[rank].trace.rank, static_cast<int32_t>(rank));
  }
}

// Collectives of a step end on all ranks together, but for the jitter of their own length.
TEST(SyntheticTrace, CollectivesEndTogether) {
  const std::vector<SyntheticTrace> ranks =
      simulate(program_called("one slow rank"), {.seed = 3, .jitter = 0});
  std::vector<std::vector<int64_t>> ends;
  for (const SyntheticTrace& each : ranks) {
    ends.emplace_back();
    for (size_t row = 0; row < each.trace.size(); ++row)
      if (each.trace.name_text(row).starts_with("nccl"))
        ends.back().push_back(each.trace.end_ns(row));
  }
  ASSERT_EQ(ends[0].size(), 64u);
  for (size_t rank = 1; rank < 4; ++rank) EXPECT_EQ(ends[rank], ends[0]);
}

// A row without what a format has no place for.
enum class Form { kKineto, kNsys };

std::string plain_row(const Trace& trace, size_t row, Form form) {
  const EventKind kind = trace.kind[row];
  const Lane& lane = trace.lane_of(row);
  std::string text = row_text(trace, row);
  text = text.substr(text.find('#'));
  const std::string_view name = trace.name_text(row);
  const bool becomes_range =
      form == Form::kNsys && kind == EventKind::kOperator && !name.starts_with("aten::");
  if (form == Form::kNsys && kind == EventKind::kOperator) text = "#-1";
  return fmt::format("{}+{} {} '{}' {}/{}/{} {}",
                     trace.start_ns[row],
                     trace.duration_ns[row],
                     name_of(becomes_range ? EventKind::kRange : kind),
                     name,
                     lane.is_device() ? 0 : lane.process,
                     lane.thread,
                     lane.device,
                     text);
}

std::multiset<std::string> plain_rows(const Trace& trace, Form form) {
  std::multiset<std::string> rows;
  for (size_t row = 0; row < trace.size(); ++row) {
    const EventKind kind = trace.kind[row];
    if (kind == (form == Form::kKineto ? EventKind::kHostWait : EventKind::kPython)) continue;
    rows.insert(plain_row(trace, row, form));
  }
  return rows;
}

void expect_same(const Trace& read, const Trace& made, Form form, const std::string& name) {
  const auto given = plain_rows(made, form), found = plain_rows(read, form);
  EXPECT_EQ(found.size(), given.size()) << name;
  for (const std::string& each : given) ASSERT_TRUE(found.contains(each)) << name << ": " << each;
  EXPECT_EQ(found, given);
  EXPECT_EQ(read.base_ns, made.base_ns);
  EXPECT_EQ(read.devices, made.devices);
  EXPECT_EQ(read.rank, made.rank);
  EXPECT_EQ(read.dropped, 0);
  EXPECT_TRUE(read.warnings.empty()) << read.warnings[0].text;
}

TEST(SyntheticTrace, ReadsBackFromKineto) {
  TempFolder folder;
  const std::string path = folder / "a.json";
  uint64_t seed = 40;
  for (const Program& program : all_programs()) {
    const SyntheticTrace made = simulate(program, {.seed = ++seed, .scale = .3})[0];
    write_kineto(made.trace, seed, path);
    expect_same(read_kineto(path), made.trace, Form::kKineto, program.name);
    if (HasFailure()) return;
  }
}

TEST(SyntheticTrace, ReadsBackFromNsys) {
  TempFolder folder;
  const std::string path = folder / "a.sqlite";
  uint64_t seed = 10;
  for (const Program& program : all_programs()) {
    const SyntheticTrace made = simulate(program, {.seed = ++seed, .scale = .3})[0];
    write_nsys(made.trace, seed, path);
    expect_same(read_nsys(path), made.trace, Form::kNsys, program.name);
    if (HasFailure()) return;
  }
}

// The order of the rows in a file does not count, and the seed does.
TEST(SyntheticTrace, IsDeterminedByItsSeed) {
  TempFolder folder;
  const std::string path = folder / "a.sqlite";
  const Program& program = program_called("copies that block kernels");
  std::vector<std::vector<std::string>> lines;
  for (const uint64_t order : {1, 2}) {
    write_nsys(simulate(program, {.seed = 4})[0].trace, order, path);
    lines.push_back(lines_of(read_nsys(path)));
  }
  EXPECT_EQ(lines[0], lines[1]);
  EXPECT_EQ(lines_of(simulate(program, {.seed = 4})[0].trace),
            lines_of(simulate(program, {.seed = 4})[0].trace));
  EXPECT_NE(lines_of(simulate(program, {.seed = 4})[0].trace),
            lines_of(simulate(program, {.seed = 5})[0].trace));
}

}  // namespace
}  // namespace ridge::doctor::synthetic
