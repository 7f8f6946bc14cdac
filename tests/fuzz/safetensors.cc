// Safetensors files: whatever reads is written and reads to the same tensors again.
#include "ridge/io/safetensors.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::optional<ridge::SafetensorsView> view;
  try {
    view.emplace(std::as_bytes(std::span(data, size)), "fuzz");
  } catch (const ridge::UserError&) {
    return 0;  // A clear refusal is the other right answer.
  }
  std::string written;
  const auto append = [&](ridge::Bytes bytes) { written += ridge::as_text(bytes); };
  ridge::write_safetensors(append, view->tensors(), view->metadata());
  const ridge::SafetensorsView again(ridge::as_bytes(written), "written");
  if (again.metadata() != view->metadata()) std::abort();
  if (again.tensors().size() != view->tensors().size()) std::abort();
  for (const ridge::TensorView& tensor : view->tensors()) {
    const ridge::TensorView& other = again.tensor(tensor.name);
    if (other.type != tensor.type || !std::ranges::equal(other.bytes(), tensor.bytes()))
      std::abort();
    try {
      view->read(tensor.name);
    } catch (const ridge::UserError&) {
      if (tensor.type.dtype != ridge::DType::kBool) std::abort();  // only a bool can be wrong
    }
  }
  return 0;
}
