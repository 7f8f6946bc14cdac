// The interface between the program and libridge_cuda.so.
#pragma once

#include <cstdint>
#include <memory>

#include "ridge/backend/backend.h"

namespace ridge::cuda {

/// The plugin's table. The version stands first, for all time: the rest is of C++ types, and means
/// something only between a program and a plugin of one build.
struct Plugin {
  const char* version;  ///< RIDGE_VERSION.
  /// The backend of GPU `number`, which keeps `note`; UserError when there is none, or no driver.
  std::unique_ptr<Backend> (*make_backend)(int number, const NoteListener& note);
  /// Bytes of GPU `number` that no process has now; UserError as above.
  int64_t (*free_memory)(int number);
};

/// The one function of the plugin that the program looks up.
inline constexpr const char* kPluginEntry = "ridge_cuda_plugin";
using PluginEntry = const Plugin*();

}  // namespace ridge::cuda
