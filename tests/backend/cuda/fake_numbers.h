// Elements of tensors, for stand-ins that compute in double.
#pragma once

#include "ridge/base/dtype.h"

namespace ridge::test {

inline double read_number(DType dtype, const void* from, int64_t at) {
  return dispatch(dtype, [&](auto tag) {
    return convert<double>(static_cast<const typename decltype(tag)::type*>(from)[at]);
  });
}
/// Rounds once.
inline void write_number(DType dtype, void* to, int64_t at, double x) {
  dispatch(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    static_cast<T*>(to)[at] = convert<T>(x);
  });
}

}  // namespace ridge::test
