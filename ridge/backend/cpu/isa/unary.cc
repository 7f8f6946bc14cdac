// Elementwise ops of one input.
#include "ridge/backend/cpu/isa/elementwise_kernels.h"
#include "ridge/backend/cpu/isa/float_vector.h"
#include "ridge/backend/cpu/isa/map.h"

namespace ridge::cpu {
namespace {

struct Neg {
  template <typename T>
  static T of(T x) {
    if constexpr (kIsInteger<T>)
      return static_cast<T>(Wrapping<T>{0} - static_cast<Wrapping<T>>(x));
    else
      return -x;
  }
};

struct Abs {
  static float of(float x) { return __builtin_fabsf(x); }
  static double of(double x) { return __builtin_fabs(x); }
  template <typename T>
  static T of(T x) {
    return x < T{0} ? Neg::of(x) : x;
  }
};

struct Sign {
  template <typename T>
  static T of(T x) {
    const T sign = static_cast<T>(static_cast<T>(x > T{0}) - static_cast<T>(x < T{0}));
    return x == x ? sign : x;
  }
};

struct Exp {
  template <typename T>
  static T of(T x) {
    return exp_of(x);
  }
};

struct Log {
  template <typename T>
  static T of(T x) {
    return log_of(x);
  }
};

struct Tanh {
  template <typename T>
  static T of(T x) {
    return tanh_of(x);
  }
};

struct Erf {
  template <typename T>
  static T of(T x) {
    return erf_of(x);
  }
};

struct Sqrt {
  template <typename T>
  static T of(T x) {
    return sqrt_of(x);
  }
};

struct Rsqrt {
  template <typename T>
  static T of(T x) {
    return T{1} / sqrt_of(x);
  }
};

struct Sigmoid {
  template <typename T>
  static T of(T x) {
    return sigmoid_of(x);
  }
};

struct Relu {
  template <typename T>
  static T of(T x) {
    return x <= T{0} ? T{0} : x;
  }
};

struct GeluErf {
  static double of(double x) { return gelu_of(x); }
};

struct GeluTanh {
  template <typename T>
  static T of(T x) {
    return gelu_tanh_of(x);
  }
};

struct Silu {
  template <typename T>
  static T of(T x) {
    return silu_of(x);
  }
};

struct IsFinite {
  template <typename T>
  static bool of(T x) {
    return x - x == T{0};
  }
};

struct Not {
  static bool of(Bool8 x) { return x == Bool8{0}; }
};

// x and y may be the same.
void gelu_floats(const float* x, float* y, int64_t n) {
  constexpr int64_t kWidth = FloatVector::kWidth;
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) gelu_of(FloatVector::load(x + i)).store(y + i);
  if (i == n) return;
  float rest[kWidth] = {};
  __builtin_memcpy(rest, x + i, static_cast<size_t>(n - i) * sizeof(float));
  gelu_of(FloatVector::load(rest)).store(rest);
  __builtin_memcpy(y + i, rest, static_cast<size_t>(n - i) * sizeof(float));
}

// 16-bit floats by blocks in f32, as map() does.
template <typename T>
void gelu_erf(const void* x, void* y, int64_t n) {
  const T* from = static_cast<const T*>(x);
  T* to = static_cast<T*>(y);
  if constexpr (kIsHalf<T>) {
    alignas(64) float block[kBlock];
    for (int64_t begin = 0; begin < n; begin += kBlock) {
      const int64_t count = least(kBlock, n - begin);
      widen(from + begin, block, count);
      gelu_floats(block, block, count);
      narrow(block, to + begin, count);
    }
  } else {
    gelu_floats(from, to, n);
  }
}

template <class Op, int kIndex = 0>
constexpr void fill_floats(UnaryKernel (&row)[kElements]) {
  if constexpr (kIndex < kElements) {
    using T = Element<kIndex>;
    if constexpr (kIsFloat<T>) row[kIndex] = map<Op, T, T>;
    fill_floats<Op, kIndex + 1>(row);
  }
}

template <class Op, int kIndex = 0>
constexpr void fill_numbers(UnaryKernel (&row)[kElements]) {
  if constexpr (kIndex < kElements) {
    using T = Element<kIndex>;
    if constexpr (kIsFloat<T> || kIsInteger<T>) row[kIndex] = map<Op, T, T>;
    fill_numbers<Op, kIndex + 1>(row);
  }
}

constexpr UnaryKernels make_kernels() {
  UnaryKernels k{};
  const auto row = [&k](UnaryOp op) -> UnaryKernel(&)[kElements] {
    return k.by_op[static_cast<int>(op)];
  };
  fill_numbers<Neg>(row(UnaryOp::kNeg));
  fill_numbers<Abs>(row(UnaryOp::kAbs));
  fill_numbers<Sign>(row(UnaryOp::kSign));
  fill_floats<Exp>(row(UnaryOp::kExp));
  fill_floats<Log>(row(UnaryOp::kLog));
  fill_floats<Tanh>(row(UnaryOp::kTanh));
  fill_floats<Erf>(row(UnaryOp::kErf));
  fill_floats<Sqrt>(row(UnaryOp::kSqrt));
  fill_floats<Rsqrt>(row(UnaryOp::kRsqrt));
  fill_floats<Sigmoid>(row(UnaryOp::kSigmoid));
  fill_floats<Relu>(row(UnaryOp::kRelu));
  auto& gelu = row(UnaryOp::kGeluErf);
  gelu[0] = map<GeluErf, Element<0>, Element<0>>;
  gelu[1] = gelu_erf<Element<1>>;
  gelu[2] = gelu_erf<Element<2>>;
  gelu[3] = gelu_erf<Element<3>>;
  fill_floats<GeluTanh>(row(UnaryOp::kGeluTanh));
  fill_floats<Silu>(row(UnaryOp::kSilu));
  auto& finite = row(UnaryOp::kIsFinite);
  finite[0] = map<IsFinite, Element<0>, Bool8>;
  finite[1] = map<IsFinite, Element<1>, Bool8>;
  finite[2] = map<IsFinite, Element<2>, Bool8>;
  finite[3] = map<IsFinite, Element<3>, Bool8>;
  row(UnaryOp::kNot)[10] = map<Not, Bool8, Bool8>;
  return k;
}

}  // namespace

namespace RIDGE_ISA {
extern constinit const UnaryKernels unary_kernels = make_kernels();
}

}  // namespace ridge::cpu
