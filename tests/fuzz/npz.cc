// NPZ files: whatever reads can be looked at in every element.
#include <cstddef>
#include <cstdint>

#include "ridge/io/npy.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const ridge::NpzView arrays(std::as_bytes(std::span(data, size)), "fuzz");
    for (const std::string& name : arrays.names()) {
      const ridge::Tensor tensor = arrays.read(name);
      for (int64_t i = 0; i < tensor.elements(); ++i) tensor.at(i);
    }
  } catch (const ridge::UserError&) {
    // A clear refusal is the other right answer. InternalError is not caught: it is a finding.
  }
  return 0;
}
