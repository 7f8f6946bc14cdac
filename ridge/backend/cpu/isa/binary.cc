// Elementwise ops of two inputs, and selection.
#include "ridge/backend/cpu/isa/elementwise_kernels.h"
#include "ridge/backend/cpu/isa/map.h"

namespace ridge::cpu {
namespace {

// Arithmetic wraps for integers: Op on the unsigned type, then the low bits.
template <class Op>
struct Arithmetic {
  template <typename T>
  static T of(T a, T b) {
    if constexpr (kIsInteger<T>)
      return static_cast<T>(Op::of(static_cast<Wrapping<T>>(a), static_cast<Wrapping<T>>(b)));
    else
      return Op::of(a, b);
  }
};

struct Add {
  template <typename T>
  static T of(T a, T b) {
    return a + b;
  }
};

struct Sub {
  template <typename T>
  static T of(T a, T b) {
    return a - b;
  }
};

struct Mul {
  template <typename T>
  static T of(T a, T b) {
    return a * b;
  }
};

struct Div {
  template <typename T>
  static T of(T a, T b) {
    return a / b;
  }
};

// The comparison is false for NaN: then b is taken, unless a is the NaN.
struct Maximum {
  template <typename T>
  static T of(T a, T b) {
    return ((a >= b) | (a != a)) ? a : b;
  }
};

struct Minimum {
  template <typename T>
  static T of(T a, T b) {
    return ((a <= b) | (a != a)) ? a : b;
  }
};

struct Eq {
  template <typename T>
  static bool of(T a, T b) {
    return a == b;
  }
};

struct Ne {
  template <typename T>
  static bool of(T a, T b) {
    return a != b;
  }
};

struct Lt {
  template <typename T>
  static bool of(T a, T b) {
    return a < b;
  }
};

struct Le {
  template <typename T>
  static bool of(T a, T b) {
    return a <= b;
  }
};

struct Gt {
  template <typename T>
  static bool of(T a, T b) {
    return a > b;
  }
};

struct Ge {
  template <typename T>
  static bool of(T a, T b) {
    return a >= b;
  }
};

struct And {
  static bool of(Bool8 a, Bool8 b) {
    return (static_cast<uint8_t>(a) & static_cast<uint8_t>(b)) != 0;
  }
};

struct Or {
  static bool of(Bool8 a, Bool8 b) {
    return (static_cast<uint8_t>(a) | static_cast<uint8_t>(b)) != 0;
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

template <class Op, int kIndex = 0>
constexpr void fill_numbers(BinaryKernel (&row)[kElements]) {
  if constexpr (kIndex < kElements) {
    using T = Element<kIndex>;
    if constexpr (kIsFloat<T> || kIsInteger<T>) row[kIndex] = map2<Op, T, T>;
    fill_numbers<Op, kIndex + 1>(row);
  }
}

template <class Op, int kIndex = 0>
constexpr void fill_comparisons(BinaryKernel (&row)[kElements]) {
  if constexpr (kIndex < kElements) {
    using T = Element<kIndex>;
    if constexpr (kIsFloat<T> || kIsInteger<T>) row[kIndex] = map2<Op, T, Bool8>;
    fill_comparisons<Op, kIndex + 1>(row);
  }
}

constexpr BinaryKernels make_kernels() {
  BinaryKernels k{};
  const auto row = [&k](BinaryOp op) -> BinaryKernel(&)[kElements] {
    return k.by_op[static_cast<int>(op)];
  };
  fill_numbers<Arithmetic<Add>>(row(BinaryOp::kAdd));
  fill_numbers<Arithmetic<Sub>>(row(BinaryOp::kSub));
  fill_numbers<Arithmetic<Mul>>(row(BinaryOp::kMul));
  auto& div = row(BinaryOp::kDiv);
  div[0] = map2<Div, Element<0>, Element<0>>;
  div[1] = map2<Div, Element<1>, Element<1>>;
  div[2] = map2<Div, Element<2>, Element<2>>;
  div[3] = map2<Div, Element<3>, Element<3>>;
  fill_numbers<Maximum>(row(BinaryOp::kMaximum));
  fill_numbers<Minimum>(row(BinaryOp::kMinimum));
  fill_comparisons<Eq>(row(BinaryOp::kEq));
  fill_comparisons<Ne>(row(BinaryOp::kNe));
  fill_comparisons<Lt>(row(BinaryOp::kLt));
  fill_comparisons<Le>(row(BinaryOp::kLe));
  fill_comparisons<Gt>(row(BinaryOp::kGt));
  fill_comparisons<Ge>(row(BinaryOp::kGe));
  row(BinaryOp::kAnd)[10] = map2<And, Bool8, Bool8>;
  row(BinaryOp::kOr)[10] = map2<Or, Bool8, Bool8>;
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
