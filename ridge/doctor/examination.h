// One trace, and all that is said of it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ridge/doctor/findings/finding.h"

namespace ridge::doctor {

/// Mean step times of one of several ranks.
struct RankRow {
  std::string file;
  int32_t rank = -1;
  double step_ms = 0, compute_ms = 0, communication_ms = 0;
  bool operator==(const RankRow&) const = default;
};

/// The first of those whose steps take longest without communication: ranks that wait for each
/// other take the same time, and who is late waits least. 0 where there are none.
size_t slowest_rank(std::span<const RankRow> ranks);

struct Examination {
  Trace trace;
  Analysis analysis;
  Diagnosis diagnosis;
  std::vector<RankRow> ranks{};  ///< All ranks in their order, where several traces were given.
};

/// Analyses, replays and diagnoses.
Examination examine(Trace trace);
/// Examines the ranks of one run: the rank that the others wait for, else the first.
Examination examine(std::vector<Trace> ranks);

/// Whether a finding is worth fixing.
bool has_findings(const Diagnosis& diagnosis);

/// A part of the mean step; all of them are disjoint, and sum up to it.
struct StepPart {
  std::string_view name;
  double ms = 0;
  std::string detail{};  ///< "waits for data 1.20 ms"
};
std::vector<StepPart> parts_of_step(const Analysis& analysis);

/// Times as fast, if the device computed all the time (of the CPU: if operators ran all the time).
double ceiling_without_gaps(const Analysis& analysis);
/// Below this ceiling nothing is worth fixing.
inline constexpr double kNearlyOne = 1.10;

/// Kernels by name (of a program on the CPU operators, less what they call), by time.
struct NameRow {
  std::string_view name;
  double count = 0, ms = 0;  ///< A step, in the mean.
  double share = 0;          ///< Share of the step.
};
std::vector<NameRow> rows_by_name(const Trace& trace, const Analysis& analysis, size_t most);

/// "R01 input starved ... takes 1.80 ms of a step", or that nothing is worth fixing.
std::string verdict_text(const Examination& examination);
/// "10 steady steps (ProfilerStep), 2 left out"
std::string steps_text(const Steps& steps);
/// "312 steps without a profiler, which makes them 8 % longer"; "" where no such are known.
std::string unprofiled_text(const Analysis& analysis);

}  // namespace ridge::doctor
