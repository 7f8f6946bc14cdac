// The result of the pass pad_head on a graph.
#pragma once

#include <string>
#include <vector>

#include "ridge/graph/graph.h"

namespace ridge {

/// Logits whose rows lie `stride` elements apart, though `columns` of each count.
struct HeadPadding {
  std::string site;  ///< Site of the product that makes the logits.
  int64_t rows = 0, columns = 0, stride = 0;
};

/// The padded heads of a graph, before or after its loops were fused, in the graph's order.
std::vector<HeadPadding> head_paddings(const Graph& graph);

}  // namespace ridge
