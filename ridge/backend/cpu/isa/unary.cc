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

// A form whose `near` alone is vectorised, run by run; x and y may be the same.
template <class Form, typename F>
void runs(const F* x, F* y, int64_t n) {
  constexpr int64_t kRun = 64;
  F from[kRun];
  for (int64_t begin = 0; begin < n; begin += kRun) {
    const int64_t count = least(kRun, n - begin);
    F* to = y + begin;
    __builtin_memcpy(from, x + begin, static_cast<size_t>(count) * sizeof(F));
    bool all_near = true;
    RIDGE_INDEPENDENT
    for (int64_t i = 0; i < count; ++i)
      to[i] = static_cast<F>(Form::near(static_cast<double>(from[i])));
    for (int64_t i = 0; i < count; ++i) all_near &= is_near(static_cast<double>(from[i]));
    for (int64_t i = 0; !all_near && i < count; ++i)
      if (!is_near(static_cast<double>(from[i]))) to[i] = Form::of(from[i]);
  }
}

template <class Form, typename F>
void each_run(const F* x, F* y, int64_t n) {
  if constexpr (Form::kHasNear)
    runs<Form>(x, y, n);
  else
    vectors<Form>(x, y, n);
}

// The counterpart of map() for a form that takes whole vectors, or runs.
template <class Form, typename T>
void map_vectors(const void* x, void* y, int64_t n) {
  const T* from = static_cast<const T*>(x);
  T* to = static_cast<T*>(y);
  if constexpr (kIsHalf<T>) {
    alignas(64) float block[kBlock];
    for (int64_t begin = 0; begin < n; begin += kBlock) {
      const int64_t count = least(kBlock, n - begin);
      widen(from + begin, block, count);
      each_run<Form>(block, block, count);
      narrow(block, to + begin, count);
    }
  } else {
    each_run<Form>(from, to, n);
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
  } else if constexpr (Form::kHasNear || (Form::kLooksUp && !std::is_same_v<T, double>)) {
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
