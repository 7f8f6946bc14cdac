// The comparisons of run/compare.h under the names that tests use.
#pragma once

#include "ridge/run/compare.h"

namespace ridge::test {

using ridge::bit_difference;
using ridge::difference;
using ridge::node_differences;
using ridge::tolerance;

}  // namespace ridge::test
