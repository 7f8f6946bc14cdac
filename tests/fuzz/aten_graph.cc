// Graphs of ATen operators, and files of `ridge capture`: whatever imports is a legal graph, and
// what is refused node by node is so in one piece, too.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "ridge/graph/verify.h"
#include "ridge/import/aten/capture.h"
#include "ridge/import/aten/import.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    if (ridge::aten::is_capture(text)) return ridge::aten::parse_capture(text, "file"), 0;
    const ridge::aten::AtenGraph graph = ridge::aten::parse_aten_graph(text);
    const bool is_refused = !ridge::aten::refusals(graph).empty();
    const ridge::aten::ImportedGraph imported = ridge::aten::import_graph(graph, {});
    ridge::verify(imported.program.entries[0]);
    if (is_refused) __builtin_trap();
  } catch (const ridge::UserError&) {
    // A clear refusal is the other right answer.
  }
  return 0;
}
