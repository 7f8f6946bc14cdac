// The softmax inside attention, row by row: a running maximum and sum over blocks of keys (Milakov
// and Gimelshein, "Online normalizer calculation for softmax", 2018). Sums run over 16 virtual
// lanes, so that their bits do not depend on the width of a register.
#include "ridge/backend/cpu/isa/attention_kernels.h"
#include "ridge/backend/cpu/isa/functions.h"
#include "ridge/backend/cpu/isa/vectors.h"

namespace ridge::cpu {
namespace {

template <typename T>
constexpr T kMinusInfinity = -static_cast<T>(__builtin_inff());

// Vectors that make up the virtual lanes.
template <typename T>
constexpr int kParts = static_cast<int>(kAttentionLanes) / Vector<T>::kLanes;

// Folds 16 lanes in a fixed tree.
template <typename T, typename F>
T fold(const typename Vector<T>::Reg (&parts)[kParts<T>], F combine) {
  alignas(64) T lanes[kAttentionLanes];
  for (int i = 0; i < kParts<T>; ++i) Vector<T>::store(lanes + i * Vector<T>::kLanes, parts[i]);
  for (int64_t half = kAttentionLanes / 2; half > 0; half /= 2)
    for (int64_t i = 0; i < half; ++i) lanes[i] = combine(lanes[i], lanes[i + half]);
  return lanes[0];
}

// The largest that is not NaN; `padded` is a multiple of the lanes.
template <typename T>
T largest(const T* row, int64_t padded) {
  using V = Vector<T>;
  typename V::Reg parts[kParts<T>];
  for (auto& part : parts) part = V::set(kMinusInfinity<T>);
  for (int64_t j = 0; j < padded; j += kAttentionLanes)
    for (int i = 0; i < kParts<T>; ++i)
      parts[i] = V::max(V::load(row + j + i * V::kLanes), parts[i]);
  return fold<T>(parts, [](T a, T b) { return a > b ? a : b; });
}

template <typename T>
T sum_of(const T* row, int64_t padded) {
  using V = Vector<T>;
  typename V::Reg parts[kParts<T>];
  for (auto& part : parts) part = V::zero();
  for (int64_t j = 0; j < padded; j += kAttentionLanes)
    for (int i = 0; i < kParts<T>; ++i)
      parts[i] = V::add(V::load(row + j + i * V::kLanes), parts[i]);
  return fold<T>(parts, [](T a, T b) { return a + b; });
}

// Scales the row and puts -infinity where a key is forbidden or missing, up to `padded`; returns
// whether any key is allowed.
template <typename T>
bool scale_and_mask(T* row, const uint8_t* mask, int64_t open, int64_t padded, T scale) {
  for (int64_t j = 0; j < open; ++j) row[j] *= scale;
  for (int64_t j = open; j < padded; ++j) row[j] = kMinusInfinity<T>;
  if (mask == nullptr) return open > 0;
  uint8_t any = 0;
  for (int64_t j = 0; j < open; ++j) {
    any |= mask[j];
    row[j] = mask[j] != 0 ? row[j] : kMinusInfinity<T>;
  }
  return any != 0;
}

template <typename T>
void softmax(const AttentionBlock<T>& block) {
  const int64_t padded = (block.keys + kAttentionLanes - 1) / kAttentionLanes * kAttentionLanes;
  for (int64_t i = 0; i < block.rows; ++i) {
    T* row = block.scores + i * block.stride;
    const int64_t allowed = block.open_keys < 0 - i ? 0 : block.open_keys + i;
    const int64_t open = allowed < block.keys ? allowed : block.keys;
    const uint8_t* mask = block.mask == nullptr ? nullptr : block.mask + i * block.mask_stride;
    const bool has_key = scale_and_mask(row, mask, open, padded, block.scale);

    AttentionRow<T>& state = block.states[i];
    const T found = largest(row, padded);
    const T max = found > state.max ? found : state.max;
    // Where every score is -infinity, any finite maximum makes every exponential zero.
    const T base = max > kMinusInfinity<T> ? max : T(0);
    for (int64_t j = 0; j < padded; ++j) row[j] = exp_of(row[j] - base);
    const T sum = sum_of(row, padded);
    if (state.has_key && base != state.max) {
      const T shrink = exp_of(state.max - base);
      T* results = block.results + i * block.width;
      for (int64_t e = 0; e < block.width; ++e) results[e] *= shrink;
      state.sum = state.sum * shrink + sum;
    } else {
      state.sum += sum;
    }
    state.max = max;
    state.has_key = state.has_key || has_key;
  }
}

template <typename T>
void finish(T* results, const AttentionRow<T>* states, int64_t rows, int64_t width) {
  for (int64_t i = 0; i < rows; ++i, results += width) {
    const T sum = states[i].sum;
    if (states[i].has_key)
      for (int64_t e = 0; e < width; ++e) results[e] /= sum;
    else
      for (int64_t e = 0; e < width; ++e) results[e] = T(0);
  }
}

}  // namespace

namespace RIDGE_ISA {
const AttentionKernels<float> attention_f32 = {softmax<float>, finish<float>};
const AttentionKernels<double> attention_f64 = {softmax<double>, finish<double>};
}  // namespace RIDGE_ISA

}  // namespace ridge::cpu
