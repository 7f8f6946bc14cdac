// What the pass pad_head did to a graph.
#pragma once

#include <string>
#include <vector>

#include "ridge/graph/graph.h"

namespace ridge {

/// Logits whose rows lie `stride` elements apart, though `columns` of each count.
struct HeadPadding {
  std::string site;  ///< Of the product that makes them.
  int64_t rows = 0, columns = 0, stride = 0;
};

/// The padded heads of a graph, before or after its loops were fused, in the graph's order.
std::vector<HeadPadding> head_paddings(const Graph& graph);

}  // namespace ridge
