#include "ridge/train/batch_input.h"

namespace ridge {

BatchInput::BatchInput(DataSlot slot, int64_t samples, const TensorType& sample)
    : slot_(slot),
      bytes_(slot.bytes / static_cast<size_t>(samples)),
      sample_bytes_(static_cast<size_t>(sample.bytes())) {
  check_internal(bytes_ <= sample_bytes_, "[BatchInput] more than a sample of {}", sample.bytes());
}

void BatchInput::write(Program& program, const void* field, int64_t first) const {
  const auto* from =
      static_cast<const std::byte*>(field) + static_cast<size_t>(first) * sample_bytes_;
  if (bytes_ == sample_bytes_) return program.write(slot_, from);
  program.write_rows(slot_, from, bytes_, sample_bytes_);
}

data::BatchMemory batch_memory(Backend& backend) {
  if (!backend.is_asynchronous()) return {};
  return {.allocate = [&backend](size_t bytes) { return backend.allocate_host(bytes); },
          .deallocate = [&backend](void* memory) { backend.deallocate_host(memory); },
          .kept = 1};
}

}  // namespace ridge
