// Graph texts: whatever parses must verify, print, and parse to the same text again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "ridge/graph/batch_flow.h"
#include "ridge/graph/text.h"
#include "ridge/graph/verify.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const ridge::Graph graph = ridge::parse_graph(text, "fuzz");
    ridge::verify(graph);
    const std::string printed = ridge::print(graph);
    if (ridge::print(ridge::parse_graph(printed, "printed")) != printed) std::abort();
    ridge::analyze_batch(graph);
    for (const auto& node : graph.nodes()) node->op->cost(node->input_types(), node->outputs);
  } catch (const ridge::UserError&) {
    // A clear refusal is the other right answer. InternalError is not caught: it is a finding.
  }
  return 0;
}
