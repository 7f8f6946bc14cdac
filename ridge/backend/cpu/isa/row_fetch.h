// Fetching rows of an operand while others are worked on.
#pragma once

#include <cstdint>

namespace ridge::cpu {
namespace {

// Into which cache lines are fetched: the second one can wait for more of them at a time, but Zen 4
// drops such requests for seconds on end where others keep a core's caches busy. Lines for the
// first one always come.
enum class FetchInto { kFirst, kSecond };

// Fetches the line at `offset` of a row and goes on to the next one; whether that is in the next
// row.
template <FetchInto kInto>
bool fetch_line(const char*& row, int64_t& offset, int64_t bytes, int64_t stride) {
  constexpr int64_t kLine = 64;
  __builtin_prefetch(row + offset, 0, kInto == FetchInto::kFirst ? 3 : 2);
  offset += kLine;
  if (offset < bytes) return false;
  offset = 0;
  row += stride;
  return true;
}

// Fetches rows into the second-level cache a line at a time, in the order in which they lie: memory
// serves long runs sooner than many short ones side by side, and rows a power of two apart do not
// fit beside one another into the first-level cache.
template <typename T>
class RowFetch {
 public:
  RowFetch(const T* first, int64_t elements, int64_t stride)
      : at_(reinterpret_cast<const char*>(first)),
        bytes_(elements * static_cast<int64_t>(sizeof(T))),
        stride_(stride * static_cast<int64_t>(sizeof(T))) {}

  void next() { fetch_line<FetchInto::kSecond>(at_, offset_, bytes_, stride_); }

 private:
  const char* at_;
  int64_t bytes_;
  int64_t stride_;
  int64_t offset_ = 0;
};

}  // namespace
}  // namespace ridge::cpu
