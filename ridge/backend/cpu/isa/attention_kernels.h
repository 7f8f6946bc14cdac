// The softmax inside attention, one set for each instruction set.
#pragma once

#include <cstdint>

namespace ridge::cpu {

/// Keys of one block are a multiple of this, up to padding that a kernel may overwrite.
inline constexpr int64_t kAttentionLanes = 16;

/// What is known of a row of scores after some blocks of keys.
template <typename T>
struct AttentionRow {
  T max;         ///< Of the scaled scores; -infinity before the first.
  T sum;         ///< Of exp(score - max).
  bool has_key;  ///< Whether any key was allowed.
};

/// Scores of some queries against a block of keys.
template <typename T>
struct AttentionBlock {
  T* scores;       ///< (rows, keys), `stride` apart; becomes exp(scale * score - max), 0 if masked.
  int64_t stride;  ///< A multiple of kAttentionLanes.
  int64_t rows;
  int64_t keys;
  T scale;
  const uint8_t* mask;  ///< (rows, keys), `mask_stride` apart: 0 forbids a key. May be null.
  int64_t mask_stride;
  int64_t open_keys;        ///< Row i may see the first open_keys + i keys of the block.
  AttentionRow<T>* states;  ///< (rows), updated.
  T* results;               ///< (rows, width): sums of the blocks before, multiplied to fit the new
                            ///< max. Untouched where a row has seen no key yet.
  int64_t width;
};

template <typename T>
struct AttentionKernels {
  void (*softmax)(const AttentionBlock<T>& block);
  /// Divides each row of results (rows, width) by its sum; rows without a key become zeros.
  void (*finish)(T* results, const AttentionRow<T>* states, int64_t rows, int64_t width);
};

namespace avx2 {
extern const AttentionKernels<float> attention_f32;
extern const AttentionKernels<double> attention_f64;
}  // namespace avx2
namespace avx512 {
extern const AttentionKernels<float> attention_f32;
extern const AttentionKernels<double> attention_f64;
}  // namespace avx512

}  // namespace ridge::cpu
