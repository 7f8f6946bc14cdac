// In place of the CUDA backend, in builds of the engine alone (RIDGE_ENGINE_ONLY).
#include "ridge/backend/cuda/open_backend.h"

namespace ridge::cuda {

std::unique_ptr<Backend> open_backend(int, const NoteListener&) {
  throw UserError("this build has no CUDA backend");
}

int64_t free_memory(int) { throw UserError("this build has no CUDA backend"); }

}  // namespace ridge::cuda
