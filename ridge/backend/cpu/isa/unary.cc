// Elementwise ops of one input.
#include "ridge/backend/cpu/isa/elementwise_kernels.h"
#include "ridge/backend/cpu/isa/float_vector.h"
#include "ridge/backend/cpu/isa/map.h"

namespace ridge::cpu {
namespace {

// x and y may be the same.
template <class Form>
void vectors(const float* x, float* y, int64_t n) {
  constexpr int64_t kWidth = FloatVector::kWidth;
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) Form::of(FloatVector::load(x + i)).store(y + i);
  if (i == n) return;
  float rest[kWidth] = {};
  __builtin_memcpy(rest, x + i, static_cast<size_t>(n - i) * sizeof(float));
  Form::of(FloatVector::load(rest)).store(rest);
  __builtin_memcpy(y + i, rest, static_cast<size_t>(n - i) * sizeof(float));
}

// The counterpart of map() for a form that takes whole vectors.
template <class Form, typename T>
void map_vectors(const void* x, void* y, int64_t n) {
  const T* from = static_cast<const T*>(x);
  T* to = static_cast<T*>(y);
  if constexpr (kIsHalf<T>) {
    alignas(64) float block[kBlock];
    for (int64_t begin = 0; begin < n; begin += kBlock) {
      const int64_t count = least(kBlock, n - begin);
      widen(from + begin, block, count);
      vectors<Form>(block, block, count);
      narrow(block, to + begin, count);
    }
  } else {
    vectors<Form>(from, to, n);
  }
}

// A form on bools as they lie in memory.
template <class Form>
struct OfBool8 {
  static bool of(Bool8 x) { return Form::of(x != Bool8{0}); }
};

template <class Form, typename T>
constexpr UnaryKernel kernel() {
  if constexpr (std::is_same_v<T, Bool8>) {
    return map<OfBool8<Form>, Bool8, Bool8>;
  } else if constexpr (Form::kLooksUp && !std::is_same_v<T, double>) {
    return map_vectors<Form, T>;
  } else {
    constexpr bool kIsTest = std::is_same_v<decltype(Form::of(Computed<T>{})), bool>;
    return map<Form, T, std::conditional_t<kIsTest, Bool8, T>>;
  }
}

template <class Form, int kIndex = 0>
constexpr void fill(UnaryKernel (&row)[kElements]) {
  if constexpr (kIndex < kElements) {
    using T = Element<kIndex>;
    if constexpr (takes<Form, T>()) row[kIndex] = kernel<Form, T>();
    fill<Form, kIndex + 1>(row);
  }
}

constexpr UnaryKernels make_kernels() {
  UnaryKernels k{};
  UnaryForms::for_each([&k](int number, auto form) { fill<decltype(form)>(k.by_op[number]); });
  return k;
}

}  // namespace

namespace RIDGE_ISA {
extern constinit const UnaryKernels unary_kernels = make_kernels();
}

}  // namespace ridge::cpu
