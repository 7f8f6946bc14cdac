// The gradient of attention: weights are computed again from the logsumexps of the forward pass, a
// block of them at a time.
//
// Of dq, dk and dv each has a kernel, whose blocks own kTile rows of it and add up what the rows of
// the other side, 64 at a time, contribute: queries over keys for dq, keys over queries for dk and
// dv. Scores are so computed three times, and nothing is added by two blocks: no atomics, the same
// bits for any grid. They are the bits of the CPU's kernel, whose blocks are of 64 too.
#pragma once

#include "ridge/backend/cuda/device/attention.h"

namespace ridge::cuda {

// Beside what attention.h asks for, S has
//   kRange   keys after which a part of dq ends; the parts are added up in order

/// Rows of the other side, of a block of weights.
inline constexpr int kOthers = 64;

enum class GradientOf { kQ, kK, kV };

template <class S>
struct GradientShared {
  static_assert(S::kColumns == kOthers);
  // A lane for each own row, a step for each of the others: weights, or gradients of the scores.
  Tile<typename S::Sum, S::kTile, kOthers> weights;
  Tile<typename S::Sum, S::kTile, S::kSteps> own;
  Tile<typename S::Sum, kOthers, S::kSteps> other;
};

/// The operands of the gradient. `mask` is null where there is none.
template <class S>
struct GradientInputs {
  const typename S::Element *q, *k, *v, *dy;
  const typename S::Sum *logsumexp, *delta;
  const bool* mask;
};

/// delta (B, H, T): of each query the product of y and dy.
template <class S>
inline void attention_delta(const typename S::Element* y,
                            const typename S::Element* dy,
                            typename S::Sum* delta) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       i < S::kBatch * S::kHeads * S::kQueries;
       i += stride) {
    const int64_t head = i / S::kQueries;
    const int64_t at = S::Y::at(head / S::kHeads, head % S::kHeads, i % S::kQueries);
    typename S::Sum sum = 0;
#pragma unroll 4
    for (int64_t e = 0; e < S::kWidth; ++e)
      sum = multiply_add(value_of(y[at + e]), value_of(dy[at + e]), sum);
    delta[i] = sum;
  }
}

/// Makes scores weights, and with kOf other than kV the gradients of the scores, for which
/// `dweights` has the gradients of the weights. `other`: the first of the other rows.
template <class S, GradientOf kOf, class Scores>
inline void differentiate(Scores& scores,
                          const Scores& dweights,
                          const GradientInputs<S>& in,
                          const HeadPlace& place,
                          int64_t other) {
  using Sum = typename S::Sum;
  constexpr int kRows = S::kTile / kAttentionDown, kColumns = kOthers / kAttentionAcross;
  const int64_t head = (place.batch * S::kHeads + place.head) * S::kQueries;
#pragma unroll
  for (int r = 0; r < kRows; ++r)
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int64_t own_row = place.first + Scores::row(r);
      const int64_t other_row = other + Scores::column_of(c);
      const int64_t query = kOf == GradientOf::kQ ? own_row : other_row;
      const int64_t key = kOf == GradientOf::kQ ? other_row : own_row;
      Sum y = Sum(0);
      if (is_allowed<S>(in.mask, place, query, key)) {
        y = cpu::exp_of(scores.at[r][c] * S::scale() - in.logsumexp[head + query]);
        if constexpr (kOf != GradientOf::kV)
          y = y * (dweights.at[r][c] - in.delta[head + query]) * S::scale();
      }
      scores.at[r][c] = y;
    }
}

/// What the other rows from `other` on, of which `others` are there, add to the block's rows.
template <class S, GradientOf kOf, class Results>
inline void gradient_of_block(Results& product,
                              GradientShared<S>& shared,
                              const GradientInputs<S>& in,
                              const HeadPlace& place,
                              int64_t other,
                              int64_t others) {
  using Scores = Sums<typename S::Sum,
                      S::kTile / kAttentionDown,
                      kOthers / kAttentionAcross,
                      kAttentionDown,
                      kAttentionAcross>;
  constexpr bool kOfQueries = kOf == GradientOf::kQ;
  const int64_t own = (kOfQueries ? S::kQueries : S::kKeys) - place.first;
  const auto q = [&](int64_t row) { return in.q + S::Q::at(place.batch, place.head, row); };
  const auto k = [&](int64_t row) { return in.k + S::K::at(place.batch, place.head, row); };
  const auto v = [&](int64_t row) { return in.v + S::V::at(place.batch, place.head, row); };
  const auto dy = [&](int64_t row) { return in.dy + S::Y::at(place.batch, place.head, row); };
  {
    Scores scores, dweights;
    multiply_rows<S, S::kDepth, S::kPackDepth>(scores,
                                               shared.own,
                                               shared.other,
                                               kOfQueries ? q(place.first) : k(place.first),
                                               kOfQueries ? S::Q::kStride : S::K::kStride,
                                               own,
                                               kOfQueries ? k(other) : q(other),
                                               kOfQueries ? S::K::kStride : S::Q::kStride,
                                               others);
    if constexpr (kOf != GradientOf::kV)
      multiply_rows<S, S::kWidth, S::kPackWidth>(dweights,
                                                 shared.own,
                                                 shared.other,
                                                 kOfQueries ? dy(place.first) : v(place.first),
                                                 kOfQueries ? S::Y::kStride : S::V::kStride,
                                                 own,
                                                 kOfQueries ? v(other) : dy(other),
                                                 kOfQueries ? S::V::kStride : S::Y::kStride,
                                                 others);
    differentiate<S, kOf>(scores, dweights, in, place, other);
    scores.put(shared.weights);
  }
  if constexpr (kOf == GradientOf::kV)
    multiply_weights<S, S::kPackWidth>(product,
                                       shared.weights,
                                       shared.other,
                                       dy(other) + place.column,
                                       S::Y::kStride,
                                       others,
                                       S::kWidth - place.column);
  else
    multiply_weights<S, S::kPackDepth>(product,
                                       shared.weights,
                                       shared.other,
                                       (kOfQueries ? k(other) : q(other)) + place.column,
                                       kOfQueries ? S::K::kStride : S::Q::kStride,
                                       others,
                                       S::kDepth - place.column);
}

/// dq, dk or dv; `Rows` says where its rows lie in `out`.
template <class S, GradientOf kOf, class Rows>
inline void attention_gradient(const GradientInputs<S>& in, typename S::Element* out) {
  using Sum = typename S::Sum;
  constexpr bool kOfQueries = kOf == GradientOf::kQ;
  constexpr int64_t kOwn = kOfQueries ? S::kQueries : S::kKeys;
  constexpr int64_t kWidth = kOf == GradientOf::kV ? S::kWidth : S::kDepth;
  constexpr int64_t kTiles = ((kOwn + S::kTile - 1) / S::kTile) *
                             ((kWidth + S::kColumns - 1) / S::kColumns) * S::kBatch * S::kHeads;
  constexpr int kRows = S::kTile / kAttentionDown, kColumns = S::kColumns / kAttentionAcross;
  constexpr bool kHasParts = kOfQueries && S::kRange < S::kKeys;
  using Results = Sums<Sum, kRows, kColumns, kAttentionDown, kAttentionAcross>;
  __shared__ GradientShared<S> shared;
#pragma unroll 1
  for (int64_t tile = blockIdx.x; tile < kTiles; tile += gridDim.x) {
    const HeadPlace place = place_in_heads<S>(tile, kOwn, kWidth);
    const int64_t own = kOwn - place.first;
    const int64_t last = place.first + (own < S::kTile ? own : S::kTile);
    // A causal mask leaves a query the keys up to its own, and a key the queries from its own on.
    const int64_t begin = !kOfQueries && S::kCausal ? place.first / kOthers * kOthers : 0;
    const int64_t all = kOfQueries ? S::kKeys : S::kQueries;
    const int64_t end = kOfQueries && S::kCausal && last < all ? last : all;
    Results results, total;
    results.clear();
    if constexpr (kHasParts) total.clear(Sum(-0.0));
#pragma unroll 1
    for (int64_t other = begin; other < end; other += kOthers) {
      if constexpr (kHasParts)
        if (other > 0 && other % S::kRange == 0) {
          total.add(results);
          results.clear();
        }
      Results product;
      gradient_of_block<S, kOf>(
          product, shared, in, place, other, end - other < kOthers ? end - other : kOthers);
      results.add(product);
    }
    if constexpr (kHasParts) {
      total.add(results);
      results = total;
    }
    constexpr int kPack = kOf == GradientOf::kV ? S::kPackWidth : S::kPackDepth;
    results.template store<(kPack >= kVector<Sum>)>(
        out + Rows::at(place.batch, place.head, place.first) + place.column,
        Rows::kStride,
        own,
        kWidth - place.column);
  }
}

}  // namespace ridge::cuda
