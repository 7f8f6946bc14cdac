// The slot of an entry for one field of a batch. The entry may take samples in part only.
#pragma once

#include <cstdint>

#include "ridge/base/type.h"
#include "ridge/data/loader.h"
#include "ridge/run/program.h"

namespace ridge {

class BatchInput {
 public:
  /// `slot` holds `samples` samples, whole ones of type `sample` or their first items.
  BatchInput(DataSlot slot, int64_t samples, const TensorType& sample);

  /// Writes samples `first` and following of `field`, (count, sample...), which stay as
  /// Program::write() says. Allocates nothing.
  void write(Program& program, const void* field, int64_t first = 0) const;

 private:
  DataSlot slot_;
  size_t bytes_, sample_bytes_;  ///< Bytes of a sample in the slot, and in a batch.
};

/// Memory for a loader whose batches are written to a program on `backend`, which outlives it, and
/// not waited for. Copies can read it beside the host, and the batch before the last is kept, for
/// it is still read while the last one is written.
data::BatchMemory batch_memory(Backend& backend);

}  // namespace ridge
