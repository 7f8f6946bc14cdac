#include "ridge/base/type.h"

#include <fmt/format.h>

namespace ridge {

int64_t numel(const Shape& shape) {
  int64_t product = 1;
  for (int64_t size : shape) product *= size;
  return product;
}

// By hand: graphs are printed, and keys made of them, by the hundred.
std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (const int64_t size : shape) {
    if (text.size() > 1) text += ',';
    const fmt::format_int digits(size);
    text.append(digits.data(), digits.size());
  }
  return text += ']';
}

std::string to_string(const TensorType& type) {
  return std::string(name_of(type.dtype)) += to_string(type.shape);
}

void check_type(const TensorType& type, std::string_view who) {
  constexpr int64_t kMaxBytes = int64_t{1} << 48;
  check(type.rank() <= kMaxRank,
        "[{}] too many dimensions; got {}, expected at most {}",
        who,
        type.rank(),
        kMaxRank);
  const Lazily printed{[&] { return to_string(type); }};
  int64_t bytes = static_cast<int64_t>(size_of(type.dtype));
  for (int64_t size : type.shape) {
    check(size >= 1, "[{}] every dimension must be at least 1; got {}", who, printed);
    check(!__builtin_mul_overflow(bytes, size, &bytes) && bytes < kMaxBytes,
          "[{}] tensor too large; got {}, expected less than 2^48 bytes",
          who,
          printed);
  }
}

int64_t normalize_axis(int64_t axis, int64_t rank, std::string_view who) {
  check(axis >= -rank && axis < rank,
        "[{}] axis out of range; got {}, expected {} to {}",
        who,
        axis,
        -rank,
        rank - 1);
  return axis < 0 ? axis + rank : axis;
}

}  // namespace ridge
