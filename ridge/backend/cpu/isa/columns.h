// Reduction of the rows of a matrix, for some of its columns: each column is a lane of its own.
#pragma once

#include "ridge/backend/cpu/isa/lanes.h"
#include "ridge/backend/cpu/isa/map.h"

namespace ridge::cpu {
namespace {

// Combines the first `columns` columns of n rows with `sum`, one row after the other. With kPadded,
// `sum` has room for whole groups of lanes.
template <class Op, bool kPadded, typename T, typename A>
void add_columns(const T* x, int64_t stride, int64_t n, int64_t columns, A* sum) {
  constexpr int64_t kAtOnce = 8;  // rows for which `sum` is loaded and stored once
  for (int64_t begin = 0; begin < n; begin += kAtOnce) {
    const int64_t end = least(n, begin + kAtOnce);
    for (int64_t j = 0; j < columns; j += kLanes) {
      const int count = static_cast<int>(least(kLanes, columns - j));
      const bool is_whole = kPadded || count == kLanes;
      auto all = is_whole ? Lanes<A>::load(sum + j) : Lanes<A>::load(sum + j, count, A(0));
      for (int64_t r = begin; r < end; ++r)
        all = Op::of(all, lanes_at<A>(x + r * stride + j, 0, count, A(0)));
      is_whole ? all.store(sum + j) : all.store(sum + j, count);
    }
  }
}

// The first `columns` columns of n rows; `sum` has room for a whole tile.
template <class Op, typename T, typename A>
void reduce_columns(const T* x, int64_t stride, int64_t n, int64_t columns, A* sum) {
  for (int64_t j = 0; j < columns; j += kLanes)
    Lanes<A>::all(Op::template kNeutral<A>).store(sum + j);
  add_columns<Op, true>(x, stride, n, columns, sum);
}

}  // namespace
}  // namespace ridge::cpu
