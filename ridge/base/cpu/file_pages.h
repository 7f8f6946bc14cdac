// The memory of mapped files, whose pages can be given back at any time.
#pragma once

#include <cstddef>

namespace ridge {

/// Says that the memory maps a file, read-only and privately, until remove_file_pages().
void add_file_pages(const void* address, size_t bytes);
void remove_file_pages(const void* address);

/// Gives back the whole pages of that part of a mapped file; they come from the file again where
/// somebody reads them. Does nothing for other memory.
void release_file_pages(const void* address, size_t bytes);

}  // namespace ridge
