#include "ridge/graph/initializer.h"

#include <cmath>

#include "ridge/base/hash.h"

namespace ridge {

Initializer Initializer::fan_in(int64_t fan_in) {
  return {Kind::kUniform, 1.0 / std::sqrt(static_cast<double>(fan_in))};
}

Initializer Initializer::fan_out(int64_t fan_out) {
  return normal(std::sqrt(2.0 / static_cast<double>(fan_out)));
}

InitialElements::InitialElements(Initializer init, uint64_t seed, std::string_view name)
    : init_(init), key_{seed, 0, hash64(name)} {}

double InitialElements::at(uint64_t index) const {
  switch (init_.kind) {
    case Initializer::Kind::kConstant:
      return init_.scale;
    case Initializer::Kind::kUniform:
      return init_.scale * (2.0 * random_f64(key_, index) - 1.0);
    default:
      return init_.scale * random_normal(key_, index);
  }
}

}  // namespace ridge
