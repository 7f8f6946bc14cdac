// Elementwise ops of two inputs, and selection.
#include "ridge/backend/cpu/isa/elementwise_kernels.h"
#include "ridge/backend/cpu/isa/map.h"

namespace ridge::cpu {
namespace {

// A form on elements as they lie in memory; integers are given as unsigned numbers where they wrap.
template <class Form>
struct OfElements {
  static bool of(Bool8 a, Bool8 b) {
    return Form::of(static_cast<uint8_t>(a), static_cast<uint8_t>(b)) != 0;
  }
  template <typename T>
  static auto of(T a, T b) {
    if constexpr (kIsInteger<T> && Form::kWraps)
      return static_cast<T>(Form::of(static_cast<Wrapping<T>>(a), static_cast<Wrapping<T>>(b)));
    else
      return Form::of(a, b);
  }
};

template <typename Bits>
void where(const Bool8* condition, const void* a, const void* b, void* y, int64_t n) {
  const Bits* yes = static_cast<const Bits*>(a);
  const Bits* no = static_cast<const Bits*>(b);
  Bits* to = static_cast<Bits*>(y);
  RIDGE_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    const Bits each[2] = {no[i], yes[i]};  // both are read, so that no load is conditional
    to[i] = condition[i] != Bool8{0} ? each[1] : each[0];
  }
}

template <class Form, int kIndex = 0>
constexpr void fill(BinaryKernel (&row)[kElements]) {
  if constexpr (kIndex < kElements) {
    using T = Element<kIndex>;
    if constexpr (takes<Form, T>()) {
      using Op = OfElements<Form>;
      constexpr bool kIsTest = std::is_same_v<decltype(Op::of(Computed<T>{}, Computed<T>{})), bool>;
      row[kIndex] = map2<Op, T, std::conditional_t<kIsTest, Bool8, T>>;
    }
    fill<Form, kIndex + 1>(row);
  }
}

constexpr BinaryKernels make_kernels() {
  BinaryKernels k{};
  BinaryForms::for_each([&k](int number, auto form) { fill<decltype(form)>(k.by_op[number]); });
  k.where[0] = where<uint8_t>;
  k.where[1] = where<uint16_t>;
  k.where[2] = where<uint32_t>;
  k.where[3] = where<uint64_t>;
  return k;
}

}  // namespace

namespace RIDGE_ISA {
extern constinit const BinaryKernels binary_kernels = make_kernels();
}

}  // namespace ridge::cpu
