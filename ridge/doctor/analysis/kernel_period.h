// Steps that nobody marked: what repeats in a sequence of names.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ridge::doctor {

/// The length of the shortest stretch that `names` repeats, by autocorrelation: at least 3 times,
/// and 9 of 10 names are equal to that one stretch later; 0 where nothing repeats so. A longer
/// one is preferred where it repeats better, so that a step is found and not a layer of it.
int64_t period_of(std::span<const uint32_t> names);

/// Positions at which each repetition begins: those of a name that stands once in each. Of these
/// it is the one with the largest `gap` before it, added up, as steps begin after a pause.
/// `gaps` is as long as `names`.
std::vector<int64_t> repetitions(std::span<const uint32_t> names,
                                 std::span<const int64_t> gaps,
                                 int64_t period);

}  // namespace ridge::doctor
