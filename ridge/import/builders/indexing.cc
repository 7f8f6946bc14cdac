#include "ridge/import/builders/indexing.h"

#include <numeric>

#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"

namespace ridge {

Value axis_to_end(Value x, int64_t axis) {
  std::vector<int64_t> perm;
  for (int64_t i = 0; i < x.rank(); ++i)
    if (i != axis) perm.push_back(i);
  perm.push_back(axis);
  return transpose(x, perm);
}

Value axis_from_end(Value x, int64_t axis) {
  std::vector<int64_t> perm(static_cast<size_t>(x.rank() - 1));
  std::iota(perm.begin(), perm.end(), 0);
  perm.insert(perm.begin() + axis, x.rank() - 1);
  return transpose(x, perm);
}

Value from_front(Value indices, int64_t size) {
  check(is_integer(indices.dtype()), "indices are {}", name_of(indices.dtype()));
  const Value wide = cast(indices, DType::kI64);
  return where(lt(wide, constant_like(wide, 0.0)), wide + static_cast<double>(size), wide);
}

}  // namespace ridge
