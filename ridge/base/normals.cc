#include "ridge/base/normals.h"

#include <algorithm>

namespace ridge {
namespace {

// Loops over lanes, which the compiler makes vectors of.
void make_groups(
    uint64_t philox_key, uint64_t step, uint64_t block, int64_t groups, float* numbers) {
  for (int64_t group = 0; group < groups; ++group, numbers += kNormalGroup, block += kNormalLanes) {
    uint32_t words[4][kNormalLanes];
    for (int64_t lane = 0; lane < kNormalLanes; ++lane) {
      const PhiloxWords four = rng_block(philox_key, step, block + static_cast<uint64_t>(lane));
      for (int64_t k = 0; k < 4; ++k) words[k][lane] = four.word[k];
    }
    for (int64_t k = 0; k < 4; k += 2)
      for (int64_t lane = 0; lane < kNormalLanes; ++lane) {
        const NormalPair pair = normal_pair(words[k][lane], words[k + 1][lane]);
        numbers[k * kNormalLanes + lane] = pair.first;
        numbers[(k + 1) * kNormalLanes + lane] = pair.second;
      }
  }
}

}  // namespace

void fill_normals(const RngKey& key, std::span<float> numbers) {
  const uint64_t philox_key = rng_philox_key(key.seed, key.site);
  const auto n = static_cast<int64_t>(numbers.size());
  const int64_t whole = n / kNormalGroup, rest = n % kNormalGroup;
  make_groups(philox_key, key.step, 0, whole, numbers.data());
  if (rest == 0) return;
  float last[kNormalGroup];
  make_groups(philox_key, key.step, static_cast<uint64_t>(whole * kNormalLanes), 1, last);
  std::copy_n(last, rest, numbers.data() + whole * kNormalGroup);
}

}  // namespace ridge
