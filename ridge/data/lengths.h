// To which lengths batches of ragged samples are worth cutting.
#pragma once

#include <cstdint>
#include <vector>

#include "ridge/data/dataset.h"

namespace ridge::data {

inline constexpr int64_t kBatchLengths = 5;

/// At most kBatchLengths lengths, ascending and below the fields' own, such that batches of `batch`
/// random samples, each cut to the shortest of them (or left whole) that holds its samples, are
/// expected to be shortest. Multiples of 8. A length that saves less than 1 % is left out, since
/// each is a program of its own. Empty where samples do not differ.
std::vector<int64_t> batch_lengths(const Dataset& dataset, int64_t batch);

}  // namespace ridge::data
