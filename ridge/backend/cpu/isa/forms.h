// Forms of the elementwise ops that are few operations, and the lists of all forms: functions.h
// says what a form is.
//
// Internal linkage, as kernel files share no code.
#pragma once

#include <type_traits>

#include "ridge/backend/cpu/isa/functions.h"

namespace ridge::cpu {
namespace {

/// Integers are computed in this type: unsigned, as they wrap, and wide enough not to be promoted
/// to int.
template <typename T>
using Wrapping = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

// Besides those of functions.h, the forms below consist of these.
template <typename T>
inline T negated(T x) {
  return static_cast<T>(Wrapping<T>{0} - static_cast<Wrapping<T>>(x));
}
inline float negated(float x) { return -x; }
inline double negated(double x) { return -x; }
/// The lowest integer has no magnitude and stays as it is.
template <typename T>
inline T magnitude(T x) {
  return x < T{0} ? negated(x) : x;
}

/// The sign as -1, 0 or 1; NaN stays NaN.
template <typename T>
inline T sign_of(T x) {
  const T sign = static_cast<T>(static_cast<T>(x > T{0}) - static_cast<T>(x < T{0}));
  return x == x ? sign : x;
}
/// NaN where either is; a where they are equal. The comparison is false for NaN: then b is taken,
/// unless a is the NaN.
template <typename T>
inline T larger_of(T a, T b) {
  return ((a >= b) | (a != a)) ? a : b;
}
template <typename T>
inline T smaller_of(T a, T b) {
  return ((a <= b) | (a != a)) ? a : b;
}

namespace forms {

struct Neg : Arithmetic {
  static constexpr Takes kTakes = Takes::kNumbers;
  static constexpr bool kIsExact = true;
  static constexpr const char* name() { return "neg"; }
  template <typename F>
  static F of(F x) {
    return negated(x);
  }
};

struct Abs : Arithmetic {
  static constexpr Takes kTakes = Takes::kNumbers;
  static constexpr bool kIsExact = true;
  static constexpr const char* name() { return "abs"; }
  template <typename F>
  static F of(F x) {
    return magnitude(x);
  }
};

struct Sign : Arithmetic {
  static constexpr Takes kTakes = Takes::kNumbers;
  static constexpr bool kIsExact = true;
  static constexpr const char* name() { return "sign"; }
  template <typename F>
  static F of(F x) {
    return sign_of(x);
  }
};

struct Sqrt : Arithmetic {
  static constexpr const char* name() { return "sqrt"; }
  template <typename F>
  static F of(F x) {
    return sqrt_of(x);
  }
};

struct Rsqrt : Arithmetic {
  static constexpr const char* name() { return "rsqrt"; }
  template <typename F>
  static F of(F x) {
    return F(1.0f) / sqrt_of(x);
  }
};

struct Relu : Arithmetic {
  static constexpr bool kIsExact = true;
  static constexpr const char* name() { return "relu"; }
  template <typename F>
  static F of(F x) {
    return select(x <= F(0.0f), F(0.0f), x);
  }
};

struct IsFinite : Arithmetic {
  static constexpr const char* name() { return "is_finite"; }
  template <typename F>
  static auto of(F x) {
    return x - x == F(0.0f);
  }
};

struct Not : Arithmetic {
  static constexpr Takes kTakes = Takes::kBools;
  static constexpr const char* name() { return "not"; }
  template <typename F>
  static F of(F x) {
    return !x;
  }
};

struct Add : Arithmetic {
  static constexpr Takes kTakes = Takes::kNumbers;
  static constexpr bool kWraps = true;
  static constexpr const char* name() { return "add"; }
  template <typename F>
  static F of(F a, F b) {
    return a + b;
  }
};

struct Sub : Arithmetic {
  static constexpr Takes kTakes = Takes::kNumbers;
  static constexpr bool kWraps = true;
  static constexpr const char* name() { return "sub"; }
  template <typename F>
  static F of(F a, F b) {
    return a - b;
  }
};

struct Mul : Arithmetic {
  static constexpr Takes kTakes = Takes::kNumbers;
  static constexpr bool kWraps = true;
  static constexpr const char* name() { return "mul"; }
  template <typename F>
  static F of(F a, F b) {
    return a * b;
  }
};

struct Div : Arithmetic {
  static constexpr const char* name() { return "div"; }
  template <typename F>
  static F of(F a, F b) {
    return a / b;
  }
};

// The C library's, exact whatever the quotient: it takes a loop for each element.
struct Fmod : Function {
  static constexpr bool kIsExact = true;
  static constexpr bool kHasCode = false;
  static constexpr const char* name() { return "fmod"; }
  static float of(float a, float b) { return __builtin_fmodf(a, b); }
  static double of(double a, double b) { return __builtin_fmod(a, b); }
};

// The C library's, as Fmod.
struct Pow : Function {
  static constexpr bool kHasCode = false;
  static constexpr const char* name() { return "pow"; }
  template <typename F>
  static F of(F a, F b) {
    return pow_of(a, b);
  }
};

struct Maximum : Arithmetic {
  static constexpr Takes kTakes = Takes::kNumbers;
  static constexpr bool kIsExact = true;
  static constexpr const char* name() { return "maximum"; }
  template <typename F>
  static F of(F a, F b) {
    return larger_of(a, b);
  }
};

struct Minimum : Arithmetic {
  static constexpr Takes kTakes = Takes::kNumbers;
  static constexpr bool kIsExact = true;
  static constexpr const char* name() { return "minimum"; }
  template <typename F>
  static F of(F a, F b) {
    return smaller_of(a, b);
  }
};

struct Equal : Arithmetic {
  static constexpr Takes kTakes = Takes::kNumbers;
  static constexpr const char* name() { return "eq"; }
  template <typename F>
  static auto of(F a, F b) {
    return a == b;
  }
};

struct NotEqual : Arithmetic {
  static constexpr Takes kTakes = Takes::kNumbers;
  static constexpr const char* name() { return "ne"; }
  template <typename F>
  static auto of(F a, F b) {
    return a != b;
  }
};

struct Less : Arithmetic {
  static constexpr Takes kTakes = Takes::kNumbers;
  static constexpr const char* name() { return "lt"; }
  template <typename F>
  static auto of(F a, F b) {
    return a < b;
  }
};

struct LessEqual : Arithmetic {
  static constexpr Takes kTakes = Takes::kNumbers;
  static constexpr const char* name() { return "le"; }
  template <typename F>
  static auto of(F a, F b) {
    return a <= b;
  }
};

struct Greater : Arithmetic {
  static constexpr Takes kTakes = Takes::kNumbers;
  static constexpr const char* name() { return "gt"; }
  template <typename F>
  static auto of(F a, F b) {
    return a > b;
  }
};

struct GreaterEqual : Arithmetic {
  static constexpr Takes kTakes = Takes::kNumbers;
  static constexpr const char* name() { return "ge"; }
  template <typename F>
  static auto of(F a, F b) {
    return a >= b;
  }
};

struct And : Arithmetic {
  static constexpr Takes kTakes = Takes::kBools;
  static constexpr const char* name() { return "and"; }
  template <typename F>
  static F of(F a, F b) {
    return F(a & b);
  }
};

struct Or : Arithmetic {
  static constexpr Takes kTakes = Takes::kBools;
  static constexpr const char* name() { return "or"; }
  template <typename F>
  static F of(F a, F b) {
    return F(a | b);
  }
};

}  // namespace forms

/// The forms of both lists; it is declared for its type alone.
template <class... First, class... Second>
FormList<First..., Second...> joined(FormList<First...>, FormList<Second...>);

using UnaryForms = decltype(joined(FormList<forms::Neg,
                                            forms::Abs,
                                            forms::Sign,
                                            forms::Sqrt,
                                            forms::Rsqrt,
                                            forms::Relu,
                                            forms::IsFinite,
                                            forms::Not>{},
                                   FunctionForms{}));
using BinaryForms = FormList<forms::Add,
                             forms::Sub,
                             forms::Mul,
                             forms::Div,
                             forms::Fmod,
                             forms::Pow,
                             forms::Maximum,
                             forms::Minimum,
                             forms::Equal,
                             forms::NotEqual,
                             forms::Less,
                             forms::LessEqual,
                             forms::Greater,
                             forms::GreaterEqual,
                             forms::And,
                             forms::Or>;
// Types with external linkage must not name the lists, which each file has of its own.
constexpr int kUnaryForms = UnaryForms::kCount, kBinaryForms = BinaryForms::kCount;

}  // namespace
}  // namespace ridge::cpu
