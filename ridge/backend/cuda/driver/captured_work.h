// Work that is queued once and launched many times: a graph of CUDA.
#pragma once

#include <cstddef>

#include "ridge/backend/cuda/driver/stream.h"
#include "ridge/base/function_ref.h"

namespace ridge::cuda {

class CapturedWork {
 public:
  /// `queue` queues work on `stream`, and on streams that wait for its events and that it waits for
  /// in the end; nothing of it runs, and addresses and sizes are kept as they are. Inside, nothing
  /// may wait for the device or allocate. What `queue` throws ends the capture.
  CapturedWork(Stream& stream, FunctionRef<void()> queue);

  /// Launches, copies and fills in it.
  size_t nodes() const { return nodes_; }
  void launch(Stream& stream) const;

 private:
  Owned<GraphExecHandle> exec_;
  size_t nodes_ = 0;
};

}  // namespace ridge::cuda
