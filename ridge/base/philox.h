// Random numbers by counting: Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random
// numbers: as easy as 1, 2, 3", SC'11) and the streams that Ridge keys with it.
//
// The number at (seed, step, site, index) is a pure function of the four, whoever computes it:
//   key     = mix(seed) xor site, as two words, low first;
//   counter = block low, block high, step low, step high.
// So nothing is folded: indices and steps use all their 64 bits, two sites never share a stream
// under one seed, and two seeds never share one at a site.
//
// Kernels include this file. All functions in it are `static inline` over plain integers and
// floats, so that a copy compiled for one instruction set cannot be linked into another's code.
#pragma once

#include <cstdint>

namespace ridge {

struct PhiloxWords {
  uint32_t word[4];
};

/// The Philox4x32 bijection of the counter (c0 is the lowest word) under the key, 10 rounds.
static inline PhiloxWords philox4x32_10(
    uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint32_t k0, uint32_t k1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xd2511f53u} * c0;
    const uint64_t p1 = uint64_t{0xcd9e8d57u} * c2;
    const uint32_t next0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    const uint32_t next2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
    c0 = next0;
    c2 = next2;
    k0 += 0x9e3779b9u;
    k1 += 0xbb67ae85u;
  }
  return {{c0, c1, c2, c3}};
}

/// Names a stream of random numbers; `site` is hash64 of a site's name.
struct RngKey {
  uint64_t seed = 0;
  uint64_t step = 0;
  uint64_t site = 0;
};

/// The Philox key of a stream: the finaliser of SplitMix64 over the seed, xor the site.
static inline uint64_t rng_philox_key(uint64_t seed, uint64_t site) {
  seed = (seed ^ (seed >> 30)) * 0xbf58476d1ce4e5b9u;
  seed = (seed ^ (seed >> 27)) * 0x94d049bb133111ebu;
  return (seed ^ (seed >> 31)) ^ site;
}

/// Four random words of the stream, numbers 4 * block to 4 * block + 3, from rng_philox_key.
static inline PhiloxWords rng_block(uint64_t philox_key, uint64_t step, uint64_t block) {
  return philox4x32_10(static_cast<uint32_t>(block),
                       static_cast<uint32_t>(block >> 32),
                       static_cast<uint32_t>(step),
                       static_cast<uint32_t>(step >> 32),
                       static_cast<uint32_t>(philox_key),
                       static_cast<uint32_t>(philox_key >> 32));
}

/// The upper 24 bits of a random word as an f32 in [0, 1): every multiple of 2^-24.
static inline float unit_f32(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }

/// The upper 53 bits of (high, low) as an f64 in [0, 1): every multiple of 2^-53.
static inline double unit_f64(uint32_t low, uint32_t high) {
  return static_cast<double>(((uint64_t{high} << 32) | low) >> 11) * 0x1p-53;
}

/// Word `index` of the stream; four consecutive ones come from one block.
uint32_t random_u32(const RngKey& key, uint64_t index);

/// Uniform in [0, 1) with 24 bits, from word `index`.
float random_f32(const RngKey& key, uint64_t index);

/// Uniform in [0, 1) with 53 bits, from words 2 * index (low) and 2 * index + 1 of the stream.
double random_f64(const RngKey& key, uint64_t index);

/// Standard normal by Box and Muller, in f64: numbers 2b and 2b+1 come from block b, whose first
/// two words give the radius and whose last two the angle. The same bits on every machine: no
/// libm function is called but sqrt.
double random_normal(const RngKey& key, uint64_t index);

}  // namespace ridge
