#include "ridge/doctor/analysis/kernel_period.h"

#include <algorithm>
#include <map>
#include <unordered_map>

namespace ridge::doctor {
namespace {

constexpr size_t kMostCandidates = 128;
constexpr size_t kOccurrences = 8;  // Occurrences of a name before this one that are compared.
constexpr double kLeastMatch = 0.9;
constexpr double kAsGood = 0.005;  // A shorter period that repeats as well to this is the one.

// Distances from one occurrence of a name to those after it, how many there are of each. Of a name
// that comes a few times in a step the step's length is among them.
std::vector<int64_t> candidates(std::span<const uint32_t> names) {
  std::unordered_map<uint32_t, std::vector<int64_t>> places;
  std::unordered_map<int64_t, int64_t> weight;
  for (size_t i = 0; i < names.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    std::vector<int64_t>& before = places[names[i]];
    for (size_t k = 1; k <= std::min(kOccurrences, before.size()); ++k) {
      const int64_t distance = at - before[before.size() - k];
      // By the stretch that it explains: long ones are rare by nature, and those to later
      // occurrences explain the same stretch again.
      if (3 * distance <= static_cast<int64_t>(names.size()))
        weight[distance] += 840 * distance / static_cast<int64_t>(k);
    }
    before.push_back(at);
  }
  std::vector<std::pair<int64_t, int64_t>> ranked;
  for (const auto& [distance, each] : weight) ranked.emplace_back(-each, distance);
  std::sort(ranked.begin(), ranked.end());
  if (ranked.size() > kMostCandidates) ranked.resize(kMostCandidates);
  std::vector<int64_t> periods;
  for (const auto& [each, distance] : ranked) periods.push_back(distance);
  std::sort(periods.begin(), periods.end());
  return periods;
}

double match(std::span<const uint32_t> names, int64_t period) {
  const size_t shift = static_cast<size_t>(period);
  size_t equal = 0;
  for (size_t i = 0; i + shift < names.size(); ++i) equal += names[i] == names[i + shift];
  return static_cast<double>(equal) / static_cast<double>(names.size() - shift);
}

}  // namespace

int64_t period_of(std::span<const uint32_t> names) {
  std::map<int64_t, double> matches;
  double best = 0;
  for (int64_t period : candidates(names))
    best = std::max(best, matches[period] = match(names, period));
  if (best < kLeastMatch) return 0;
  for (const auto& [period, score] : matches)
    if (score >= std::max(kLeastMatch, best - kAsGood)) return period;
  return 0;
}

std::vector<int64_t> repetitions(std::span<const uint32_t> names,
                                 std::span<const int64_t> gaps,
                                 int64_t period) {
  if (period <= 0) return {};
  std::map<uint32_t, std::vector<int64_t>> places;
  for (size_t i = 0; i < names.size(); ++i) places[names[i]].push_back(static_cast<int64_t>(i));
  std::vector<int64_t> best;
  int64_t best_gap = -1;
  const int64_t slack = period / 20, size = static_cast<int64_t>(names.size());
  for (const auto& [name, at] : places) {
    // Once in each repetition, but for what is cut off at both ends.
    if (static_cast<int64_t>(at.size()) < 3 ||
        std::abs(static_cast<int64_t>(at.size()) * period - size) > period)
      continue;
    bool regular = true;
    int64_t gap = 0;
    for (size_t i = 0; i < at.size(); ++i) {
      gap += gaps[static_cast<size_t>(at[i])];
      if (i > 0) regular = regular && std::abs(at[i] - at[i - 1] - period) <= slack;
    }
    if (!regular || gap <= best_gap) continue;
    best_gap = gap;
    best = at;
  }
  if (!best.empty()) return best;
  for (int64_t at = 0; at < size; at += period) best.push_back(at);
  return best;
}

}  // namespace ridge::doctor
