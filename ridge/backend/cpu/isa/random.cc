// Dropout: the mask is a pure function of the stream and the element's global index.
#include "ridge/backend/cpu/isa/map.h"
#include "ridge/backend/cpu/isa/random_kernels.h"
#include "ridge/backend/cpu/isa/round_odd.h"
#include "ridge/base/philox.h"

namespace ridge::cpu {
namespace {

constexpr int64_t kWords = 4;  // of a Philox block

// Words of the stream from block `block` on, as they lie in it.
void fill_words(const DropoutStream& s, uint64_t block, int64_t blocks, uint32_t* words) {
  RIDGE_INDEPENDENT
  for (int64_t b = 0; b < blocks; ++b) {
    const PhiloxWords four = rng_block(s.philox_key, s.step, block + static_cast<uint64_t>(b));
    for (int64_t k = 0; k < kWords; ++k) words[b * kWords + k] = four.word[k];
  }
}

// x / keep by its reciprocal, corrected by the remainder (Markstein, "Computation of elementary
// functions on the IBM RISC System/6000 processor", 1990): a vector division would take longer than
// the random numbers do.
inline double quotient(double x, double keep, double reciprocal) {
  const double near = x * reciprocal;
  const double rest = __builtin_fma(-near, keep, x);
  return rest == rest ? __builtin_fma(rest, reciprocal, near) : near;  // near is infinite or NaN
}

// x / keep, rounded once to T.
template <typename T>
Computed<T> divided(Computed<T> x, double keep, double reciprocal) {
  if constexpr (std::is_same_v<T, double>)
    return x / keep;
  else if constexpr (kIsHalf<T>)
    return round_odd(quotient(static_cast<double>(x), keep, reciprocal));
  else
    return static_cast<float>(quotient(static_cast<double>(x), keep, reciprocal));
}

template <typename T>
void dropout(const DropoutStream& s, uint64_t first, const void* x, void* y, int64_t n) {
  using A = Computed<T>;
  alignas(64) uint32_t words[kBlock + kWords];
  alignas(64) A block[kBlock];
  const double reciprocal = 1.0 / s.keep;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t count = least(kBlock, n - begin);
    const uint64_t index = first + static_cast<uint64_t>(begin);
    const auto skipped = static_cast<int64_t>(index % kWords);
    fill_words(s, index / kWords, (skipped + count + kWords - 1) / kWords, words);
    const T* from = static_cast<const T*>(x) + begin;
    T* to = static_cast<T*>(y) + begin;
    const uint32_t* word = words + skipped;
    if constexpr (kIsHalf<T>)
      widen(from, block, count);
    else
      for (int64_t i = 0; i < count; ++i) block[i] = from[i];
    for (int64_t i = 0; i < count; ++i) {
      const A kept = divided<T>(block[i], s.keep, reciprocal);
      block[i] = word[i] >> 8 >= s.threshold ? kept : A(0);
    }
    if constexpr (kIsHalf<T>)
      narrow(block, to, count);
    else
      for (int64_t i = 0; i < count; ++i) to[i] = block[i];
  }
}

}  // namespace

namespace RIDGE_ISA {
extern const RandomKernels random_kernels = {
    {dropout<double>, dropout<float>, dropout<F16Bits>, dropout<BF16Bits>}};
}

}  // namespace ridge::cpu
