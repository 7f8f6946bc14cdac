// The activations of batch norm and the condition under which a gradient flows: the CPU's kernels
// and printed ones share this text. Internal linkage, as kernel files share no code.
#pragma once

namespace ridge::cpu {
namespace {

struct NoActivation {
  template <typename A>
  static A of(A z) {
    return z;
  }
  template <typename A>
  static bool lets_through(A) {
    return true;
  }
};
// NaN stays NaN; no gradient flows there.
struct ReluActivation {
  template <typename A>
  static A of(A z) {
    return z < A(0) ? A(0) : z;
  }
  template <typename A>
  static bool lets_through(A z) {
    return z > A(0);
  }
};
struct Relu6Activation {
  template <typename A>
  static A of(A z) {
    return z < A(0) ? A(0) : z > A(6) ? A(6) : z;
  }
  // Without a branch, so that loops over it are vectorised.
  template <typename A>
  static bool lets_through(A z) {
    return (z > A(0)) & (z < A(6));
  }
};

}  // namespace
}  // namespace ridge::cpu
