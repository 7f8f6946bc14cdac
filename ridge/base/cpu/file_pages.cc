#include "ridge/base/cpu/file_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <map>
#include <mutex>

namespace ridge {
namespace {

struct FilePages {
  std::mutex mutex;
  std::map<uintptr_t, uintptr_t> ends;  // by the first address
};

// It is never destroyed: mapped files of static objects may outlive it otherwise.
FilePages& all() {
  static FilePages& pages = *new FilePages;
  return pages;
}

uintptr_t number_of(const void* address) { return reinterpret_cast<uintptr_t>(address); }

}  // namespace

void add_file_pages(const void* address, size_t bytes) {
  const std::lock_guard lock(all().mutex);
  all().ends[number_of(address)] = number_of(address) + bytes;
}

void remove_file_pages(const void* address) {
  const std::lock_guard lock(all().mutex);
  all().ends.erase(number_of(address));
}

void release_file_pages(const void* address, size_t bytes) {
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  // Neighbours may share the first and the last page.
  const uintptr_t first = (number_of(address) + page - 1) / page * page;
  const uintptr_t end = (number_of(address) + bytes) / page * page;
  if (first >= end) return;
  const std::lock_guard lock(all().mutex);
  const auto after = all().ends.upper_bound(first);
  if (after == all().ends.begin() || std::prev(after)->second < end) return;
  madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);
}

}  // namespace ridge
