// Elements in another order of axes, against their indices one by one.
#include "ridge/base/cpu/transposed_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "tests/support/scale.h"

namespace ridge::test {
namespace {

// The element of the source, by number, that is the element `place` of the result.
int64_t source_of(const Shape& lying, const std::vector<int64_t>& perm, int64_t place) {
  std::vector<int64_t> index(lying.size());
  for (size_t i = perm.size(); i-- > 0;) {
    const auto axis = static_cast<size_t>(perm[i]);
    index[axis] = place % lying[axis];
    place /= lying[axis];
  }
  int64_t at = 0;
  for (size_t axis = 0; axis < lying.size(); ++axis) at = at * lying[axis] + index[axis];
  return at;
}

TEST(TransposedCopy, HasEachElementInItsPlace) {
  std::mt19937_64 random(5);
  for (int i = 0; i < cases(400); ++i) {
    const size_t rank = random() % 5;
    Shape lying(rank);
    for (int64_t& size : lying) size = static_cast<int64_t>(random() % (random() % 3 ? 6 : 40)) + 1;
    std::vector<int64_t> perm(rank);
    std::iota(perm.begin(), perm.end(), 0);
    std::shuffle(perm.begin(), perm.end(), random);
    constexpr DType kDTypes[] = {DType::kBool, DType::kBF16, DType::kF32, DType::kI64};
    const TensorType type{kDTypes[random() % 4], lying};
    const size_t size = size_of(type.dtype);
    // Unaligned.
    std::vector<std::byte> bytes(static_cast<size_t>(type.bytes()) + 1);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    const std::byte* const from = bytes.data() + 1;
    const Tensor moved = transposed_copy(type, from, perm);
    EXPECT_EQ(moved.type(), (TensorType{type.dtype, transposed_shape(lying, perm)}));
    const auto* const to = static_cast<const std::byte*>(moved.data());
    for (int64_t at = 0; at < moved.elements(); ++at)
      ASSERT_EQ(std::memcmp(to + static_cast<size_t>(at) * size,
                            from + static_cast<size_t>(source_of(lying, perm, at)) * size,
                            size),
                0)
          << "case " << i << ", element " << at;
  }
}

}  // namespace
}  // namespace ridge::test
