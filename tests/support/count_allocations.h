// Counts calls of operator new. It defines that operator: for one source of a test program only.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RIDGE_TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define RIDGE_TEST_SANITIZED 1
#endif
#endif

namespace ridge::test {

inline std::atomic<int64_t> allocations{0};

#ifdef RIDGE_TEST_SANITIZED
inline constexpr bool kCountsAllocations = false;  // the sanitizer owns operator new
#else
inline constexpr bool kCountsAllocations = true;
#endif

}  // namespace ridge::test

#ifndef RIDGE_TEST_SANITIZED
// Inlined they would look to g++ like malloc and free that do not match.
[[gnu::noinline]] void* operator new(size_t size) {
  ridge::test::allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(size ? size : 1)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
#endif
