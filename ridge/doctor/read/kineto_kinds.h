// Meanings of categories and names of Kineto traces, those of old versions and of AMD too.
#pragma once

#include <string_view>

#include "ridge/doctor/trace/trace.h"

namespace ridge::doctor {

/// Arguments of an event that show its kind where the category does not.
struct KindHints {
  bool has_launch = false;  ///< A grid, a block or registers.
  bool has_stream = false;  ///< A device and a stream.
};

/// `category` as the file has it, or empty.
EventKind kineto_kind(std::string_view category, std::string_view name, KindHints hints);

/// Whether events of `category` say nothing: spans of the recorder over all of the recording.
bool is_idle_category(std::string_view category);

/// Sets from and to by "Memcpy HtoD (Pageable -> Device)", "Memset (Device)", "CopyHostToDevice".
void set_memory_kinds(std::string_view name, Transfer& transfer);

/// By "Stream Wait Event" and the like.
Sync::What sync_kind(std::string_view text);

/// Bytes of an element of a collective's "dtype"; 0: not known.
int64_t element_bytes(std::string_view dtype);

}  // namespace ridge::doctor
