// How a buffer of the state starts, as data, and the elements of its first value.
#pragma once

#include <cstdint>
#include <string_view>

#include "ridge/base/philox.h"

namespace ridge {

/// How a buffer starts.
struct Initializer {
  enum class Kind : uint8_t {
    kConstant,  ///< Every element is `scale`.
    kUniform,   ///< Uniform in [-scale, scale).
    kNormal,    ///< Normal with mean 0 and deviation `scale`.
  };
  Kind kind = Kind::kConstant;
  double scale = 0.0;

  static Initializer zeros() { return {}; }
  static Initializer ones() { return constant(1.0); }
  static Initializer constant(double value) { return {Kind::kConstant, value}; }
  static Initializer normal(double deviation) { return {Kind::kNormal, deviation}; }
  /// Uniform within 1 / sqrt(fan_in), for a sum of `fan_in` products (He et al., "Delving deep into
  /// rectifiers", 2015, with a leak of sqrt(5): what PyTorch's layers start from).
  static Initializer fan_in(int64_t fan_in);
  /// Normal with variance 2 / fan_out, which keeps gradients in size through ReLUs (the same
  /// paper).
  static Initializer fan_out(int64_t fan_out);

  bool operator==(const Initializer&) const = default;
};

/// The elements of a first value, in row-major order: a function of the seed and the buffer's name
/// alone. Random numbers are Philox's, keyed by the name.
class InitialElements {
 public:
  InitialElements(Initializer init, uint64_t seed, std::string_view name);
  double at(uint64_t index) const;

 private:
  Initializer init_;
  RngKey key_;
};

}  // namespace ridge
