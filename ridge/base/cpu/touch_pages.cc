#include "ridge/base/cpu/touch_pages.h"

#include <sys/mman.h>

#include <cstdint>

#include "ridge/base/cpu/parallel.h"

namespace ridge {

void touch_pages(void* memory, size_t bytes) {
  constexpr size_t kPage = 4096;
  constexpr int64_t kPart = int64_t{4} << 20;
  const auto address = reinterpret_cast<uintptr_t>(memory);
  const uintptr_t first = (address + kPage - 1) / kPage * kPage;
  const uintptr_t last = (address + bytes) / kPage * kPage;
  if (first >= last) return;
  auto* const pages = static_cast<char*>(memory) + (first - address);
  madvise(pages, last - first, MADV_HUGEPAGE);  // a wish: the system may have none
  parallel_for(static_cast<int64_t>(last - first), kPart, [&](int64_t begin, int64_t end) {
    const auto size = static_cast<size_t>(end - begin);
    if (madvise(pages + begin, size, MADV_POPULATE_WRITE) == 0) return;
    for (int64_t at = begin; at < end; at += static_cast<int64_t>(kPage)) {
      volatile char& byte = pages[at];
      byte = static_cast<char>(byte);
    }
  });
}

}  // namespace ridge
