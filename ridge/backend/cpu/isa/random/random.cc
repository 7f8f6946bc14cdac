// Dropout: the mask is a pure function of the stream and the element's global index.
#include "ridge/backend/cpu/isa/map.h"
#include "ridge/backend/cpu/isa/random/random_kernels.h"
#include "ridge/base/philox.h"

namespace ridge::cpu {
namespace {

constexpr int64_t kWords = 4;  // words of a Philox block

// Words of the stream from block `block` on, as they lie in it.
void fill_words(const DropoutStream& s, uint64_t block, int64_t blocks, uint32_t* words) {
  RIDGE_INDEPENDENT
  for (int64_t b = 0; b < blocks; ++b) {
    const PhiloxWords four = rng_block(s.philox_key, s.step, block + static_cast<uint64_t>(b));
    for (int64_t k = 0; k < kWords; ++k) words[b * kWords + k] = four.word[k];
  }
}

// The words of up to kBlock elements from `begin` on; gives the place of the first.
int64_t words_of(const DropoutStream& s, uint64_t begin, int64_t count, uint32_t* words) {
  const uint64_t index = s.first + begin;
  const auto skipped = static_cast<int64_t>(index % kWords);
  fill_words(s, index / kWords, (skipped + count + kWords - 1) / kWords, words);
  return skipped;
}

template <typename T>
void dropout(const DropoutStream& s, uint64_t first, const void* x, void* y, int64_t n) {
  using A = Computed<T>;
  alignas(64) uint32_t words[kBlock + 2 * kWords];
  alignas(64) A block[kBlock];
  const A scale = static_cast<A>(s.scale);
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t count = least(kBlock, n - begin);
    const uint32_t* word = words + words_of(s, first + static_cast<uint64_t>(begin), count, words);
    const T* from = static_cast<const T*>(x) + begin;
    T* to = static_cast<T*>(y) + begin;
    if constexpr (kIsHalf<T>)
      widen(from, block, count);
    else
      for (int64_t i = 0; i < count; ++i) block[i] = from[i];
    for (int64_t i = 0; i < count; ++i)
      block[i] = word[i] >> 8 >= s.threshold ? block[i] * scale : A(0);
    if constexpr (kIsHalf<T>)
      narrow(block, to, count);
    else
      for (int64_t i = 0; i < count; ++i) to[i] = block[i];
  }
}

void numbers(const DropoutStream& s, uint64_t first, int32_t* y, int64_t n) {
  alignas(64) uint32_t words[kBlock + 2 * kWords];
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t count = least(kBlock, n - begin);
    const uint32_t* word = words + words_of(s, first + static_cast<uint64_t>(begin), count, words);
    for (int64_t i = 0; i < count; ++i) y[begin + i] = static_cast<int32_t>(word[i] >> 8);
  }
}

}  // namespace

namespace RIDGE_ISA {
extern const RandomKernels random_kernels = {
    {dropout<double>, dropout<float>, dropout<F16Bits>, dropout<BF16Bits>}, numbers};
}

}  // namespace ridge::cpu
