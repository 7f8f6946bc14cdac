// The choice of sites by their errors: which are taken first, and how many a limit allows.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "ridge/base/function_ref.h"

namespace ridge::compress {

struct SiteCost {
  double error = 0;  ///< The error power (drop.h) where this site alone is quantized.
  double gain = 0;   ///< The time that it saves, in any unit that all sites share.

  /// The gain for the error; infinite without an error.
  double worth() const;
};

/// Numbers of sites, those of the most gain for their error first; of equal ones the first in the
/// model.
std::vector<size_t> order_by_gain(const std::vector<SiteCost>& costs);

/// The largest number of sites, from the first in order on, whose measured drop is at most `limit`:
/// all of them where that holds, else by bisection, for which the drop is taken to grow with the
/// number. drop(0) is taken to be within the limit.
size_t most_within(size_t count, double limit, FunctionRef<double(size_t)> drop);

}  // namespace ridge::compress
