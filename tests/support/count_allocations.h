// Counts allocations: malloc and its kin, and so operator new. It defines those functions, over the
// C library's own: for one source of a test program only.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RIDGE_TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define RIDGE_TEST_SANITIZED 1
#endif
#endif

namespace ridge::test {

inline std::atomic<int64_t> allocations{0};                 ///< Allocations of all threads.
inline constinit thread_local int64_t own_allocations = 0;  ///< Allocations of the calling thread.

#ifdef RIDGE_TEST_SANITIZED
inline constexpr bool kCountsAllocations = false;  // the sanitizer owns malloc
#else
inline constexpr bool kCountsAllocations = true;

inline void count_allocation() {
  allocations.fetch_add(1, std::memory_order_relaxed);
  ++own_allocations;
}
#endif

}  // namespace ridge::test

#ifndef RIDGE_TEST_SANITIZED
// The C library's own free takes their memory back: glibc exports these names for that.
extern "C" {
// NOLINTBEGIN(readability-identifier-naming): the names are the C library's
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* memory, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
// NOLINTEND(readability-identifier-naming)

void* malloc(size_t size) noexcept {
  ridge::test::count_allocation();
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) noexcept {
  ridge::test::count_allocation();
  return __libc_calloc(count, size);
}
void* realloc(void* memory, size_t size) noexcept {
  ridge::test::count_allocation();
  return __libc_realloc(memory, size);
}
void* memalign(size_t alignment, size_t size) noexcept {
  ridge::test::count_allocation();
  return __libc_memalign(alignment, size);
}
void* aligned_alloc(size_t alignment, size_t size) noexcept {
  ridge::test::count_allocation();
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** memory, size_t alignment, size_t size) noexcept {
  ridge::test::count_allocation();
  *memory = __libc_memalign(alignment, size);
  return *memory == nullptr ? ENOMEM : 0;
}
}  // extern "C"
#endif
