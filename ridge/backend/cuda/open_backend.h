// The backend of a GPU, with the libraries of NVIDIA that are opened for it.
#pragma once

#include <cstdint>
#include <memory>

#include "ridge/backend/backend.h"

namespace ridge::cuda {

/// The backend of GPU `number`, which keeps `note`; UserError when there is none, or when the
/// driver or a library that it needs is missing.
std::unique_ptr<Backend> open_backend(int number, const NoteListener& note);

/// Bytes of GPU `number` that no process has now; UserError when there is none, or no driver.
int64_t free_memory(int number);

}  // namespace ridge::cuda
