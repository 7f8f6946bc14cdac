// IDX files, plain or gzipped: whatever reads has the size that its type says.
#include "ridge/io/idx.h"

#include <cstddef>
#include <cstdint>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const ridge::Tensor tensor = ridge::parse_idx(std::as_bytes(std::span(data, size)), "fuzz");
    for (int64_t i = 0; i < tensor.elements(); i += 97) tensor.at(i);
  } catch (const ridge::UserError&) {
    // A clear refusal is the other right answer. InternalError is not caught: it is a finding.
  }
  return 0;
}
