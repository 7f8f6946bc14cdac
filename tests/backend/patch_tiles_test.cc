// Patches of a convolution that are gathered as tiles of AMX: the elements of gather_patches, each
// at its place of a panel.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <vector>

#include "ridge/backend/cpu/conv/conv_patches.h"
#include "ridge/backend/cpu/cpu_isa.h"
#include "ridge/backend/cpu/isa/gemm/gemm_amx_kernels.h"

namespace ridge::cpu {
namespace {

// All elements differ, so that none can stand in another's place.
std::vector<BF16> numbered(int64_t count) {
  std::vector<BF16> elements(static_cast<size_t>(count));
  uint16_t bits = 0;
  for (BF16& element : elements) element = std::bit_cast<BF16>(++bits);
  return elements;
}

struct Case {
  int64_t channels, pitch;
  std::array<int64_t, 2> source, grid, step;
  std::array<std::vector<int64_t>, 2> offsets;
};

TEST(PatchTiles, AreThePatchesInTiles) {
  if (!has_isa(Isa::kAmx)) GTEST_SKIP() << "no AMX here: its kernels are not tested";
  const std::vector<int64_t> three{-1, 0, 1}, apart{-2, 0, 2}, one{0}, even{0, 1}, before{-1, 0};
  using Both = std::array<std::vector<int64_t>, 2>;
  const Case cases[] = {
      {32, 32, {5, 7}, {5, 7}, {1, 1}, Both{three, three}},
      {64, 64, {6, 5}, {3, 3}, {2, 2}, Both{three, three}},
      {32, 96, {4, 4}, {4, 4}, {1, 1}, Both{three, three}},  // of a group
      {32, 32, {5, 5}, {5, 5}, {1, 1}, Both{apart, apart}},  // dilated
      {3, 3, {9, 9}, {5, 5}, {2, 2}, Both{three, three}},    // 27 steps
      {40, 40, {3, 4}, {3, 4}, {1, 1}, Both{three, three}},  // taps end within tiles
      {64, 64, {4, 3}, {4, 3}, {1, 1}, Both{one, one}},
      {32, 32, {3, 3}, {4, 4}, {1, 1}, Both{before, even}},  // grid beyond the source
      {33, 33, {2, 2}, {2, 2}, {1, 1}, Both{even, three}},
  };
  for (const Case& c : cases) {
    const PatchMatrix patches{2, c.source, c.pitch, c.channels, c.grid, c.step, c.offsets};
    const std::vector<BF16> source = numbered(2 * c.source[0] * c.source[1] * c.pitch);
    const int64_t pixels = patches.pixels(), depth = patches.depth();
    std::vector<BF16> rows(static_cast<size_t>(pixels * depth));
    gather_patches(patches, source.data(), 0, pixels, rows.data());
    const int64_t tiles = (depth + kAmxSteps - 1) / kAmxSteps;
    for (const auto& [begin, count] : {std::pair<int64_t, int64_t>{0, pixels}, {1, pixels - 2}}) {
      const int64_t panels = (count + kAmxLanes - 1) / kAmxLanes;
      std::vector<BF16> got(static_cast<size_t>(panels * tiles * kAmxTile), BF16(5.0f));
      gather_patch_tiles(patches, source.data(), begin, count, got.data());
      for (int64_t i = 0; i < panels * kAmxLanes; ++i)
        for (int64_t p = 0; p < tiles * kAmxSteps; ++p) {
          const bool is_one = i < count && p < depth;
          const int64_t at = i / kAmxLanes * tiles * kAmxTile + p / kAmxSteps * kAmxTile +
                             i % kAmxLanes * kAmxSteps + p % kAmxSteps;
          const uint16_t wanted =
              is_one ? std::bit_cast<uint16_t>(rows[static_cast<size_t>((begin + i) * depth + p)])
                     : 0;
          ASSERT_EQ(std::bit_cast<uint16_t>(got[static_cast<size_t>(at)]), wanted)
              << c.channels << " channels, pixel " << begin + i << ", step " << p;
        }
    }
  }
}

}  // namespace
}  // namespace ridge::cpu
