// Reduction of the rows of a matrix, for some of its columns: each column is a lane of its own.
#pragma once

#include "ridge/backend/cpu/isa/lanes.h"
#include "ridge/backend/cpu/isa/map.h"

namespace ridge::cpu {
namespace {

// Eight rows combined as a tree; row(r) gives the lanes of r.
template <class Op, class Row>
auto combine_rows(Row row) {
  const auto low = Op::of(Op::of(row(0), row(1)), Op::of(row(2), row(3)));
  const auto high = Op::of(Op::of(row(4), row(5)), Op::of(row(6), row(7)));
  return Op::of(low, high);
}

// Adds the first `columns` columns of n rows to `sum`, eight rows at a time. With kPadded, `sum`
// has room for whole groups of lanes.
template <class Op, bool kPadded, typename T, typename A>
void add_columns(const T* x, int64_t stride, int64_t n, int64_t columns, A* sum) {
  const auto add = [&](int64_t j, int count, const Lanes<A>& lanes) {
    if (kPadded || count == kLanes)
      Op::of(Lanes<A>::load(sum + j), lanes).store(sum + j);
    else
      Op::of(Lanes<A>::load(sum + j, count, A(0)), lanes).store(sum + j, count);
  };
  int64_t r = 0;
  for (; r + 8 <= n; r += 8)
    for (int64_t j = 0; j < columns; j += kLanes) {
      const int count = static_cast<int>(least(kLanes, columns - j));
      add(j, count, combine_rows<Op>([&](int k) {
            return lanes_at<A>(x + (r + k) * stride, j, count, A(0));
          }));
    }
  for (; r < n; ++r)
    for (int64_t j = 0; j < columns; j += kLanes) {
      const int count = static_cast<int>(least(kLanes, columns - j));
      add(j, count, lanes_at<A>(x + r * stride, j, count, A(0)));
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
