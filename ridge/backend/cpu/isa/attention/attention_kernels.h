// The parts of attention that run in vector registers, one set for each instruction set.
//
// Scores lie transposed, (keys, queries), a query to a lane: the softmax of a query then needs no
// sum across lanes, keys and values are read as they lie, and what a query gets does not depend on
// how wide a register is.
#pragma once

#include <cstdint>

namespace ridge::cpu {

/// Queries of a panel, the lanes of its matrices. Of a panel that is not full, kernels work on the
/// first 16 lanes, or all; those without a query hold any finite numbers.
inline constexpr int64_t kAttentionLanes = 32;
/// Lanes, and columns of an AttentionProduct's B, may be read up to a multiple of this.
inline constexpr int64_t kAttentionPadding = 16;

/// C (rows, cols) from the product of A (rows, depth) and B (depth, cols); an element of the
/// product is one fma chain over depth.
template <typename T>
struct AttentionProduct {
  enum Result : uint8_t {
    kScale,    ///< C = scale * product
    kAdd,      ///< C = C + product
    kRescale,  ///< C = C * factors[column] + product, in one rounding
  };
  const T* a;  ///< element (i, p) at i * a_row + p * a_step
  int64_t a_row;
  int64_t a_step;
  const T* b;  ///< element (p, j) at p * b_row + j, readable up to a multiple of kAttentionPadding
  int64_t b_row;
  T* c;
  int64_t c_row;
  int64_t rows;
  int64_t cols;
  int64_t depth;
  Result result;
  T scale;
  const T* factors;
};

/// Scores of a panel of queries against a block of keys, (keys, queries), rows `stride` apart.
template <typename T>
struct AttentionScores {
  T* scores;
  int64_t stride;
  int64_t keys;
  int64_t queries;
  int64_t open_keys;    ///< Query i may see the first open_keys + i keys of the block.
  const uint8_t* mask;  ///< (queries, keys), `mask_stride` apart: 0 forbids a key. May be null.
  int64_t mask_stride;
  const T* bias;  ///< (keys, kAttentionLanes), added to the scores; may be null.
};

/// The softmax state of the queries of a panel after some blocks of keys.
template <typename T>
struct AttentionPanel {
  T max[kAttentionLanes];     ///< Largest score; -infinity before the first.
  T sum[kAttentionLanes];     ///< Sum of exp(score - max).
  T shrink[kAttentionLanes];  ///< exp(old max - max) of the last block.
  bool has_key[kAttentionLanes];
};

template <typename T>
struct AttentionKernels {
  void (*multiply)(const AttentionProduct<T>&);

  /// Adds the bias, makes scores exp(score - max), 0 where forbidden, and updates the panel.
  void (*softmax)(const AttentionScores<T>&, AttentionPanel<T>&);

  /// Divides results (width, kAttentionLanes) by the sums, with zeros for queries without a key;
  /// writes the logsumexp of all lanes.
  void (*finish)(const AttentionPanel<T>&, T* results, int64_t width, T* logsumexp);

  /// Makes scores the weights exp(score - logsumexp), 0 where forbidden, and `dweights`, laid out
  /// like them, the gradients of the scores: weight * (dweight - delta) * scale. logsumexp and
  /// delta have kAttentionLanes elements.
  void (*differentiate)(
      const AttentionScores<T>&, const T* logsumexp, const T* delta, T scale, T* dweights);

  /// sums[lane] = the scalar product of two columns of n elements, (n, kAttentionLanes): the same
  /// chain as in a product, so that equal columns give equal bits.
  void (*column_products)(const T* a, const T* b, int64_t n, T* sums);
};

namespace avx2 {
extern const AttentionKernels<float> attention_f32;
extern const AttentionKernels<double> attention_f64;
void attention_multiply(const AttentionProduct<float>&);
void attention_multiply(const AttentionProduct<double>&);
}  // namespace avx2
namespace avx512 {
extern const AttentionKernels<float> attention_f32;
extern const AttentionKernels<double> attention_f64;
void attention_multiply(const AttentionProduct<float>&);
void attention_multiply(const AttentionProduct<double>&);
}  // namespace avx512

}  // namespace ridge::cpu
