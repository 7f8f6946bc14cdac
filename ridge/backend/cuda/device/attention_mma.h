// Attention of 16-bit operands by tensor cores: the scheme of Dao, "FlashAttention-2"
// (arXiv 2307.08691).
//
// A block of four warps has kTile queries of a head, a warp kRowTiles times 16 of them, and goes
// over the keys, kBlockKeys at a time. Scores, weights and results stay in registers, a row of them
// in four lanes; keys and values come into shared memory while the block before is worked on. With
// 32 queries a warp, a matrix of keys out of shared memory feeds two products, which is what tensor
// cores need to be busy. Blocks of keys that a causal mask forbids a warp are left out by it, and
// only those at the mask's edge are compared.
//
// Precision: scores, weights and sums are f32. Weights are rounded to the operands' dtype before
// they are multiplied by v, which is off by at most one rounding of sum(weight |v|); what they are
// divided by is the sum before rounding.
#pragma once

#include "ridge/backend/cuda/device/mma.h"

namespace ridge::cuda {

// A node's sizes, a struct S that the printed source has:
//   Element                 F16 or BF16
//   kBatch, kHeads, kQueries, kKeys
//   kDepth, kWidth          of q and k, and of v and y
//   kCausal, kMasked, scale()
//   Q, K, V, Y              HeadRows of the operands
//   Mask                    HeadRows of the mask; strides of 0 where it is repeated
//   kGroup                  heads whose keys and values fit into the second cache together
//   kRowTiles, kBlockKeys   see above
//   kHoldsQueries           in registers, where there are enough
//   kSharedBytes            that the launch has

/// The offset of row `row` of a head, in elements.
template <int64_t kBegin, int64_t kBatch, int64_t kHead, int64_t kRow>
struct HeadRows {
  static constexpr int64_t kStride = kRow;
  static int64_t at(int64_t batch, int64_t head, int64_t row) {
    return kBegin + batch * kBatch + head * kHead + row * kRow;
  }
};

inline float minus_infinity() { return -__builtin_inff(); }

inline constexpr int kMmaThreads = 128, kMmaWarps = 4;

inline constexpr float kLog2OfE = 1.44269504088896340736f;

/// Numbers of queries, keys, heads and tiles: of 32 bits, since registers are short.
using Row = int32_t;

/// A head of all batches, and the first of its rows that a block has.
struct RowPlace {
  Row head, first;
};

/// The offset of the head's row 0 in one of q, k, v, y or the mask, in elements.
template <class S, class Rows>
inline int64_t head_at(const RowPlace& place) {
  return Rows::at(place.head / S::kHeads, place.head % S::kHeads, 0);
}

/// The block of rows of a tile's number. A group of heads after the other; of a group, the blocks
/// first that have most to do under a causal mask: the last queries or the first keys.
template <class S, int kTile, bool kOfKeys>
inline RowPlace place_in_group(Row tile) {
  constexpr Row kRows = kOfKeys ? S::kKeys : S::kQueries, kHeads = S::kBatch * S::kHeads;
  constexpr Row kBlocks = (kRows + kTile - 1) / kTile, kGroup = S::kGroup;
  const Row first = tile / (kBlocks * kGroup) * kGroup;
  const Row heads = kHeads - first < kGroup ? kHeads - first : kGroup;
  const Row rest = tile - first * kBlocks, block = rest / heads;
  return {first + rest % heads, (kOfKeys ? block : kBlocks - 1 - block) * kTile};
}

/// The last key that the mask, but for one that is given, leaves the query.
template <class S>
inline Row last_key(Row query) {
  constexpr Row kLast = static_cast<Row>(S::kKeys - 1);
  return S::kCausal && query < kLast ? query : kLast;
}

/// One more than the last key that a block of `rows` queries may see.
template <class S>
inline Row end_of_keys(Row first, int rows) {
  const Row left = static_cast<Row>(S::kQueries) - first;
  return last_key<S>(first + (left < rows ? left : rows) - 1) + 1;
}

/// Whether some of the warp's queries, from `query` on, may not see some of the keys from `key` on.
template <class S>
inline bool has_forbidden(Row query, Row key, int keys) {
  return S::kMasked || key + keys > S::kKeys || (S::kCausal && key + keys - 1 > query);
}

/// Whether the mask that is given, of the head, lets the query see the key; false for rows that are
/// not there.
template <class S>
inline bool mask_allows(const bool* mask, Row query, Row key) {
  return query < S::kQueries && key < S::kKeys && mask[query * S::Mask::kStride + key];
}

/// The softmax state of a warp's queries after some blocks of keys: for each row that a lane holds,
/// the largest score before it is scaled, and this lane's part of the sum of weights.
template <int kRowTiles>
struct RunningRows {
  float max[kRowTiles][2], sum[kRowTiles][2];
  bool has_key[kRowTiles][2];

  void clear() {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        max[m][half] = minus_infinity(), sum[m][half] = 0.0f;
        has_key[m][half] = false;
      }
  }
};

/// Makes forbidden scores -infinity. `query`: the warp's first.
template <class S, int kRowTiles, int kColumnTiles>
inline void forbid_scores(MmaSums<kRowTiles, kColumnTiles>& scores,
                          RunningRows<kRowTiles>& rows,
                          const bool* mask,
                          Row query,
                          Row key) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Row row = query + m * 16 + half * 8 + lane / 4;
      const int last = last_key<S>(row) - key;
#pragma unroll
      for (int n = 0; n < kColumnTiles; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int column = n * 8 + lane % 4 * 2 + i;
          bool allowed = column <= last;
          if constexpr (S::kMasked) {
            allowed = allowed && mask_allows<S>(mask, row, key + column);
            rows.has_key[m][half] = rows.has_key[m][half] || allowed;
          }
          float& score = scores[m][n][half * 2 + i];
          score = allowed ? score : minus_infinity();
        }
    }
}

/// Makes scores weights, exp(scale (score - max)), adds them up, and multiplies the results so far
/// by what the new maximum leaves of them.
template <class S, int kRowTiles, int kColumnTiles, int kWidthTiles>
inline void weigh_rows(MmaSums<kRowTiles, kColumnTiles>& scores,
                       RunningRows<kRowTiles>& rows,
                       MmaSums<kRowTiles, kWidthTiles>& results) {
  const float factor = S::scale() * kLog2OfE;
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float max = rows.max[m][half];
#pragma unroll
      for (int n = 0; n < kColumnTiles; ++n)
        max = larger_number(larger_number(max, scores[m][n][half * 2]), scores[m][n][half * 2 + 1]);
      max = largest_of_row(max);
      // If every score is -infinity, any finite maximum makes every exponential zero.
      const float base = max > minus_infinity() ? max * factor : 0.0f;
      const float shrink = exp2_of(multiply_add(rows.max[m][half], factor, -base));
      rows.max[m][half] = max;
      float sum = 0.0f;
#pragma unroll
      for (int n = 0; n < kColumnTiles; ++n)
#pragma unroll
        for (int i = half * 2; i < half * 2 + 2; ++i) {
          scores[m][n][i] = exp2_of(multiply_add(scores[m][n][i], factor, -base));
          sum = sum + scores[m][n][i];
        }
      rows.sum[m][half] = multiply_add(rows.sum[m][half], shrink, sum);
#pragma unroll
      for (int n = 0; n < kWidthTiles; ++n)
#pragma unroll
        for (int i = half * 2; i < half * 2 + 2; ++i) results[m][n][i] = results[m][n][i] * shrink;
    }
}

/// Divides the results by the sums of weights, and stores the logsumexps, which are the head's.
template <class S, int kRowTiles, int kWidthTiles>
inline void finish_rows(const RunningRows<kRowTiles>& rows,
                        MmaSums<kRowTiles, kWidthTiles>& results,
                        Row query,
                        float* logsumexp) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = sum_of_row(rows.sum[m][half]);
      bool has_key = true;
      if constexpr (S::kMasked) has_key = sum_of_row(rows.has_key[m][half] ? 1.0f : 0.0f) > 0.0f;
      const Row row = query + m * 16 + half * 8 + lane / 4;
      if (lane % 4 == 0 && row < S::kQueries)
        logsumexp[row] =
            has_key ? multiply_add(rows.max[m][half], S::scale(), cpu::log_of(sum)) : 0.0f;
      const float inverse = 1.0f / sum;
#pragma unroll
      for (int n = 0; n < kWidthTiles; ++n)
#pragma unroll
        for (int i = half * 2; i < half * 2 + 2; ++i)
          results[m][n][i] = has_key ? results[m][n][i] * inverse : 0.0f;
    }
}

/// Offsets of the tiles of a block in shared memory, in bytes: queries, then keys and values twice.
template <class S>
struct AttentionTiles {
  static constexpr int kTile = kMmaWarps * 16 * S::kRowTiles;
  static constexpr int kKeyBytes = S::kBlockKeys * kRowBytes<S::kDepth>;
  static constexpr int kValueBytes = S::kBlockKeys * kRowBytes<S::kWidth>;
  static constexpr int kFirst = kTile * kRowBytes<S::kDepth>;
  static constexpr int kStage = kKeyBytes + kValueBytes;
  static_assert(kFirst + 2 * kStage == S::kSharedBytes);
};

/// Begins to copy a block of keys and values of the head.
template <class S>
inline void copy_keys(SharedAddress stage,
                      const typename S::Element* k,
                      const typename S::Element* v,
                      Row key) {
  constexpr int kKeys = S::kBlockKeys;
  const Row left = static_cast<Row>(S::kKeys) - key;
  copy_rows<kKeys, S::kDepth, S::K::kStride, kMmaThreads>(stage, k + key * S::K::kStride, left);
  copy_rows<kKeys, S::kWidth, S::V::kStride, kMmaThreads>(
      stage + kKeys * kRowBytes<S::kDepth>, v + key * S::V::kStride, left);
}

/// One block of keys. `query`: the warp's first; `stage`: the tiles of keys and values.
template <class S, class Queries>
inline void attend_block(MmaSums<S::kRowTiles, S::kWidth / 8>& results,
                         RunningRows<S::kRowTiles>& rows,
                         const Queries& queries,
                         SharedAddress stage,
                         const bool* mask,
                         Row query,
                         Row key) {
  using Element = typename S::Element;
  MmaSums<S::kRowTiles, S::kBlockKeys / 8> scores;
  clear_sums(scores);
  multiply_warp<Element, S::kDepth / 16>(
      scores, queries, RightByColumns<S::kDepth>{stage + right_lane<S::kDepth>()});
  if (has_forbidden<S>(query, key, S::kBlockKeys)) forbid_scores<S>(scores, rows, mask, query, key);
  weigh_rows<S>(scores, rows, results);
  multiply_warp<Element, S::kBlockKeys / 16>(
      results,
      as_left<Element>(scores),
      RightBySteps<S::kWidth>{stage + (AttentionTiles<S>::kKeyBytes + left_lane<S::kWidth>())});
}

/// All blocks of keys of a tile, whose queries are on their way into shared memory. k, v and mask
/// are the head's; `query`: the warp's first.
template <class S, class Queries>
inline void attend_keys(MmaSums<S::kRowTiles, S::kWidth / 8>& results,
                        RunningRows<S::kRowTiles>& rows,
                        const Queries& queries,
                        SharedAddress tiles,
                        const typename S::Element* k,
                        const typename S::Element* v,
                        const bool* mask,
                        Row query,
                        Row end) {
  using Tiles = AttentionTiles<S>;
  int stage = 0;
#pragma unroll 1
  for (Row key = 0; key < end; key += S::kBlockKeys, stage ^= 1) {
    copy_wait<0>();
    __syncthreads();  // the tiles are there, and nobody reads those that are filled next
    if (key + S::kBlockKeys < end)
      copy_keys<S>(
          tiles + (Tiles::kFirst + (stage ^ 1) * Tiles::kStage), k, v, key + S::kBlockKeys);
    copy_commit();
    if (query >= S::kQueries || (S::kCausal && key > query + 16 * S::kRowTiles - 1)) continue;
    attend_block<S>(
        results, rows, queries, tiles + (Tiles::kFirst + stage * Tiles::kStage), mask, query, key);
  }
}

/// y and the logsumexps. `mask` is null where there is none.
template <class S>
inline void attend_mma(const typename S::Element* q,
                       const typename S::Element* k,
                       const typename S::Element* v,
                       const bool* mask,
                       typename S::Element* y,
                       float* logsumexp) {
  using Tiles = AttentionTiles<S>;
  constexpr int kTile = Tiles::kTile, kWarpRows = 16 * S::kRowTiles;
  constexpr Row kTiles = (S::kQueries + kTile - 1) / kTile * S::kBatch * S::kHeads;
  constexpr Row kQueries = static_cast<Row>(S::kQueries);
  RIDGE_DYNAMIC_SHARED(memory);
  const SharedAddress tiles = shared_address(memory);
  const int warp_row = static_cast<int>(threadIdx.x) / 32 * kWarpRows;
#pragma unroll 1
  for (Row tile = static_cast<Row>(blockIdx.x); tile < kTiles;
       tile += static_cast<Row>(gridDim.x)) {
    const RowPlace place = place_in_group<S, kTile, false>(tile);
    const typename S::Element* const head_k = k + head_at<S, typename S::K>(place);
    const typename S::Element* const head_v = v + head_at<S, typename S::V>(place);
    const bool* head_mask = nullptr;
    if constexpr (S::kMasked) head_mask = mask + head_at<S, typename S::Mask>(place);
    copy_rows<kTile, S::kDepth, S::Q::kStride, kMmaThreads>(
        tiles,
        q + head_at<S, typename S::Q>(place) + place.first * S::Q::kStride,
        kQueries - place.first);
    copy_keys<S>(tiles + Tiles::kFirst, head_k, head_v, 0);
    copy_commit();
    const LeftInTile<S::kRowTiles, S::kDepth> queries{
        tiles + (warp_row * kRowBytes<S::kDepth> + left_lane<S::kDepth>())};
    const Row query = place.first + warp_row, end = end_of_keys<S>(place.first, kTile);
    MmaSums<S::kRowTiles, S::kWidth / 8> results;
    RunningRows<S::kRowTiles> rows;
    clear_sums(results);
    rows.clear();
    if constexpr (S::kHoldsQueries) {
      copy_wait<0>();
      __syncthreads();
      attend_keys<S>(results,
                     rows,
                     held<S::kDepth / 16>(queries),
                     tiles,
                     head_k,
                     head_v,
                     head_mask,
                     query,
                     end);
    } else {
      attend_keys<S>(results, rows, queries, tiles, head_k, head_v, head_mask, query, end);
    }
    finish_rows<S>(rows, results, query, logsumexp + S::kQueries * place.head);
    store_sums<S::Y::kStride>(
        results, y + head_at<S, typename S::Y>(place) + query * S::Y::kStride, kQueries - query);
    __syncthreads();  // the tiles have been read
  }
}

}  // namespace ridge::cuda
