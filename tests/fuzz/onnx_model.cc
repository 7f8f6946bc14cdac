// ONNX models: whatever imports is a legal graph, and everything else is a clear refusal.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "ridge/graph/verify.h"
#include "ridge/import/onnx/onnx_source.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const ridge::OnnxSource model(
        ridge::OnnxModel(std::as_bytes(std::span(data, size)), nullptr, "fuzz"));
    ridge::Binding binding;
    for (const std::string& dim : model.dims()) binding[dim] = 3;
    const ridge::ProgramGraphs program = model.bind(binding);
    ridge::verify(program.entries[0]);
  } catch (const ridge::UserError&) {
    // A clear refusal is the other right answer.
  }
  return 0;
}
