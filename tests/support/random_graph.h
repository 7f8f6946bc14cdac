// Random graphs over the whole op set.
#pragma once

#include "tests/support/case_builder.h"

namespace ridge::test {

struct RandomGraphOptions {
  DType dtype = DType::kF64;
  int ops = 12;           ///< Templates drawn (each adds a few nodes).
  bool gradients = true;  ///< Adds d loss / d input for each float input as an output.
};

/// A random graph of `options.dtype`: random shapes, ops of every family, several outputs. Values
/// stay within a few units. In f64 and with kinked ops only on inputs that keep away from the kink,
/// so that gradients can be compared. The same seed gives the same graph.
CaseBuilder random_graph(uint64_t seed, const RandomGraphOptions& options);

}  // namespace ridge::test
