// The gradient of attention of 16-bit operands by tensor cores. Weights are computed again from the
// logsumexps of the forward pass, a block of them at a time.
//
// Two kernels behind one that makes a pair of numbers of each query: of one, blocks own queries and
// go over the keys for dq, of the other they own keys and go over the queries for dk and dv. So
// seven products are made where one kernel would make five, and nothing is added by two blocks: no
// atomics, the same bits for any grid. Adding parts of dq in a fixed order instead would write and
// read them in f32 once for each block of keys, which takes longer than two products.
//
// The kernel of the keys has scores turned, keys by queries: then weights and gradients of scores
// are left factors in the registers in which they were made, and never lie in shared memory.
//
// Precision: as of attention_mma.h. Weights (for dv) and gradients of scores (for dq and dk), which
// hold the scale, are rounded to the operands' dtype before they are multiplied.
#pragma once

#include "ridge/backend/cuda/device/attention_mma.h"

namespace ridge::cuda {

// Beside what attention_mma.h asks for, S has
//   kKeyRowTiles, kBlockQueries   of the kernel of the keys what kRowTiles and kBlockKeys are
//   kSharedBytesOfKeys            of its launch

/// The gradient's constants of a query: logsumexp / ln(2), and scale times the product of y and dy.
struct alignas(8) GradientRow {
  float logsumexp, delta;
};

/// The operands of both kernels. `mask` is null where there is none.
template <class S>
struct MmaGradientInputs {
  const typename S::Element *q, *k, *v, *dy;
  const GradientRow* rows;
  const bool* mask;
};

/// Those of one head.
template <class S>
struct HeadOperands : MmaGradientInputs<S> {
  HeadOperands(const MmaGradientInputs<S>& all, const RowPlace& place)
      : MmaGradientInputs<S>{all.q + head_at<S, typename S::Q>(place),
                             all.k + head_at<S, typename S::K>(place),
                             all.v + head_at<S, typename S::V>(place),
                             all.dy + head_at<S, typename S::Y>(place),
                             all.rows + S::kQueries * place.head,
                             nullptr} {
    if constexpr (S::kMasked) this->mask = all.mask + head_at<S, typename S::Mask>(place);
  }
};

/// Makes the rows (B, H, T): eight lanes for each.
template <class S>
inline void gradient_rows(const typename S::Element* y,
                          const typename S::Element* dy,
                          const float* logsumexp,
                          GradientRow* to) {
  constexpr int kLanes = 8, kThreadsOfBlock = 256;
  constexpr int64_t kRows = S::kBatch * S::kHeads * S::kQueries;
  constexpr int64_t kStep = 32 / kLanes;
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t stride = static_cast<int64_t>(gridDim.x) * (kThreadsOfBlock / kLanes);
  // The lanes of a warp stay together: they meet at the shuffles.
  for (int64_t first =
           static_cast<int64_t>(blockIdx.x) * (kThreadsOfBlock / kLanes) + thread / 32 * kStep;
       first < kRows;
       first += stride) {
    const int64_t row = first + thread % 32 / kLanes;
    float sum = 0.0f;
    if (row < kRows) {
      const int64_t head = row / S::kQueries;
      const int64_t at = S::Y::at(head / S::kHeads, head % S::kHeads, row % S::kQueries);
#pragma unroll
      for (int e = thread % kLanes * 8; e < S::kWidth; e += kLanes * 8) {
        const auto a = load<8>(y + at + e);
        const auto b = load<8>(dy + at + e);
#pragma unroll
        for (int i = 0; i < 8; ++i) sum = multiply_add(value_of(a.at[i]), value_of(b.at[i]), sum);
      }
    }
#pragma unroll
    for (int by = kLanes / 2; by > 0; by /= 2)
      sum = sum + __shfl_down_sync(0xffffffffu, sum, by, kLanes);
    if (row < kRows && thread % kLanes == 0)
      to[row] = {logsumexp[row] * kLog2OfE, sum * S::scale()};
  }
}

// ---- dq ----

/// The constants of the queries of one lane.
template <int kRowTiles>
struct GradientRows {
  GradientRow at[kRowTiles][2];
};

template <class S, int kRowTiles>
inline GradientRows<kRowTiles> rows_of(const GradientRow* rows, Row query) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  GradientRows<kRowTiles> found;
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Row row = query + m * 16 + half * 8 + lane / 4;
      found.at[m][half] = row < S::kQueries ? rows[row] : GradientRow{0.0f, 0.0f};
    }
  return found;
}

/// Makes scores the gradients of scores. `query`: the warp's first.
template <class S, int kRowTiles, int kColumnTiles>
inline void differentiate_rows(MmaSums<kRowTiles, kColumnTiles>& scores,
                               const MmaSums<kRowTiles, kColumnTiles>& dweights,
                               const GradientRows<kRowTiles>& rows,
                               const bool* mask,
                               Row query,
                               Row key) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const float factor = S::scale() * kLog2OfE;
  const bool is_cut = has_forbidden<S>(query, key, kColumnTiles * 8);
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const GradientRow row = rows.at[m][half];
      const Row own = query + m * 16 + half * 8 + lane / 4;
      const int last = is_cut ? last_key<S>(own) - key : kColumnTiles * 8;
#pragma unroll
      for (int n = 0; n < kColumnTiles; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int column = n * 8 + lane % 4 * 2 + i;
          bool allowed = column <= last;
          if constexpr (S::kMasked) allowed = allowed && mask_allows<S>(mask, own, key + column);
          float& score = scores[m][n][half * 2 + i];
          const float weight = exp2_of(multiply_add(score, factor, -row.logsumexp));
          score = (allowed ? weight : 0.0f) *
                  multiply_add(dweights[m][n][half * 2 + i], S::scale(), -row.delta);
        }
    }
}

/// Offsets of the tiles of the queries' kernel: q, dy, then keys and values twice.
template <class S>
struct QueryTiles {
  static constexpr int kTile = kMmaWarps * 16 * S::kRowTiles;
  static constexpr int kQueryBytes = kTile * kRowBytes<S::kDepth>;
  static constexpr int kFirst = kQueryBytes + kTile * kRowBytes<S::kWidth>;
  static constexpr int kKeyBytes = S::kBlockKeys * kRowBytes<S::kDepth>;
  static constexpr int kStage = kKeyBytes + S::kBlockKeys * kRowBytes<S::kWidth>;
  static_assert(kFirst + 2 * kStage == S::kSharedBytes);
};

/// Adds the terms of a block of keys to dq.
template <class S>
inline void gradient_of_queries(MmaSums<S::kRowTiles, S::kDepth / 8>& dq,
                                const GradientRows<S::kRowTiles>& rows,
                                SharedAddress own,
                                SharedAddress stage,
                                const bool* mask,
                                Row query,
                                Row key) {
  using Element = typename S::Element;
  using Tiles = QueryTiles<S>;
  constexpr int kRowTiles = S::kRowTiles, kColumnTiles = S::kBlockKeys / 8;
  const int warp_row = static_cast<int>(threadIdx.x) / 32 * 16 * kRowTiles;
  MmaSums<kRowTiles, kColumnTiles> scores, dweights;
  clear_sums(scores);
  multiply_warp<Element, S::kDepth / 16>(
      scores,
      LeftInTile<kRowTiles, S::kDepth>{own +
                                       (warp_row * kRowBytes<S::kDepth> + left_lane<S::kDepth>())},
      RightByColumns<S::kDepth>{stage + right_lane<S::kDepth>()});
  clear_sums(dweights);
  multiply_warp<Element, S::kWidth / 16>(
      dweights,
      LeftInTile<kRowTiles, S::kWidth>{
          own + (Tiles::kQueryBytes + warp_row * kRowBytes<S::kWidth> + left_lane<S::kWidth>())},
      RightByColumns<S::kWidth>{stage + (Tiles::kKeyBytes + right_lane<S::kWidth>())});
  differentiate_rows<S>(scores, dweights, rows, mask, query, key);
  multiply_warp<Element, S::kBlockKeys / 16>(
      dq, as_left<Element>(scores), RightBySteps<S::kDepth>{stage + left_lane<S::kDepth>()});
}

/// dq; `to` is the tensor in which it lies as q lies in its own.
template <class S>
inline void attention_dq(const MmaGradientInputs<S>& in, typename S::Element* to) {
  using Tiles = QueryTiles<S>;
  constexpr int kTile = Tiles::kTile, kWarpRows = 16 * S::kRowTiles;
  constexpr Row kTiles = (S::kQueries + kTile - 1) / kTile * S::kBatch * S::kHeads;
  constexpr Row kQueries = static_cast<Row>(S::kQueries);
  RIDGE_DYNAMIC_SHARED(memory);
  const SharedAddress tiles = shared_address(memory);
#pragma unroll 1
  for (Row tile = static_cast<Row>(blockIdx.x); tile < kTiles;
       tile += static_cast<Row>(gridDim.x)) {
    const RowPlace place = place_in_group<S, kTile, false>(tile);
    const HeadOperands<S> head(in, place);
    const Row left = kQueries - place.first, end = end_of_keys<S>(place.first, kTile);
    copy_rows<kTile, S::kDepth, S::Q::kStride, kMmaThreads>(
        tiles, head.q + place.first * S::Q::kStride, left);
    copy_rows<kTile, S::kWidth, S::Y::kStride, kMmaThreads>(
        tiles + Tiles::kQueryBytes, head.dy + place.first * S::Y::kStride, left);
    copy_keys<S>(tiles + Tiles::kFirst, head.k, head.v, 0);
    copy_commit();
    const Row query = place.first + static_cast<int>(threadIdx.x) / 32 * kWarpRows;
    const GradientRows<S::kRowTiles> rows = rows_of<S, S::kRowTiles>(head.rows, query);
    MmaSums<S::kRowTiles, S::kDepth / 8> dq;
    clear_sums(dq);
    int stage = 0;
#pragma unroll 1
    for (Row key = 0; key < end; key += S::kBlockKeys, stage ^= 1) {
      copy_wait<0>();
      __syncthreads();  // the tiles are there, and nobody reads those that are filled next
      if (key + S::kBlockKeys < end)
        copy_keys<S>(tiles + (Tiles::kFirst + (stage ^ 1) * Tiles::kStage),
                     head.k,
                     head.v,
                     key + S::kBlockKeys);
      copy_commit();
      if (query >= kQueries || (S::kCausal && key > query + kWarpRows - 1)) continue;
      gradient_of_queries<S>(
          dq, rows, tiles, tiles + (Tiles::kFirst + stage * Tiles::kStage), head.mask, query, key);
    }
    store_sums<S::Q::kStride>(
        dq, to + head_at<S, typename S::Q>(place) + query * S::Q::kStride, kQueries - query);
    __syncthreads();  // the tiles have been read
  }
}

// ---- dk and dv ----

/// Offsets of the tiles of the keys' kernel: k, v, then twice queries, their dy and rows.
template <class S>
struct KeyTiles {
  static constexpr int kTile = kMmaWarps * 16 * S::kKeyRowTiles;
  static constexpr int kKeyBytes = kTile * kRowBytes<S::kDepth>;
  static constexpr int kFirst = kKeyBytes + kTile * kRowBytes<S::kWidth>;
  static constexpr int kDy = S::kBlockQueries * kRowBytes<S::kDepth>;
  static constexpr int kRows = kDy + S::kBlockQueries * kRowBytes<S::kWidth>;
  static constexpr int kStage = kRows + S::kBlockQueries * static_cast<int>(sizeof(GradientRow));
  static_assert(kFirst + 2 * kStage == S::kSharedBytesOfKeys && S::kBlockQueries <= kMmaThreads);
};

/// Begins to copy a block of queries of the head.
template <class S>
inline void copy_queries(SharedAddress stage, const HeadOperands<S>& head, Row query) {
  constexpr int kQueries = S::kBlockQueries;
  const Row left = static_cast<Row>(S::kQueries) - query;
  copy_rows<kQueries, S::kDepth, S::Q::kStride, kMmaThreads>(
      stage, head.q + query * S::Q::kStride, left);
  copy_rows<kQueries, S::kWidth, S::Y::kStride, kMmaThreads>(
      stage + KeyTiles<S>::kDy, head.dy + query * S::Y::kStride, left);
  const int row = static_cast<int>(threadIdx.x);
  if (row < kQueries)
    copy_async<8>(stage + (KeyTiles<S>::kRows + row * static_cast<int>(sizeof(GradientRow))),
                  head.rows + (query + row),
                  row < left);
}

/// Makes scores, keys by queries, weights. `key`: the warp's first; `rows`: of the block's queries.
/// Queries that are not there have zeros for all that is theirs, and add nothing.
template <class S, int kRowTiles, int kColumnTiles>
inline void weigh_columns(MmaSums<kRowTiles, kColumnTiles>& scores,
                          SharedAddress rows,
                          const bool* mask,
                          Row key,
                          Row query) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const float factor = S::scale() * kLog2OfE;
  const bool is_cut = S::kCausal && query < key + kRowTiles * 16 - 1;
#pragma unroll
  for (int n = 0; n < kColumnTiles; ++n) {
    // The pair holds logsumexp and delta of each of two queries.
    const Pack<float, 4> pair = load_floats(rows + (n * 64 + lane % 4 * 16));
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const Row own = key + m * 16 + i / 2 * 8 + lane / 4;
        const int column = n * 8 + lane % 4 * 2 + i % 2;
        bool allowed = !is_cut || column >= own - query;
        if constexpr (S::kMasked) allowed = allowed && mask_allows<S>(mask, query + column, own);
        const float weight = exp2_of(multiply_add(scores[m][n][i], factor, -pair.at[i % 2 * 2]));
        scores[m][n][i] = allowed ? weight : 0.0f;
      }
  }
}

/// Makes the gradients of weights those of the scores.
template <class S, int kRowTiles, int kColumnTiles>
inline void differentiate_columns(MmaSums<kRowTiles, kColumnTiles>& dweights,
                                  const MmaSums<kRowTiles, kColumnTiles>& weights,
                                  SharedAddress rows) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int n = 0; n < kColumnTiles; ++n) {
    // The pair holds logsumexp and delta of each of two queries.
    const Pack<float, 4> pair = load_floats(rows + (n * 64 + lane % 4 * 16));
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        dweights[m][n][i] =
            weights[m][n][i] * multiply_add(dweights[m][n][i], S::scale(), -pair.at[i % 2 * 2 + 1]);
  }
}

/// Adds the terms of a block of queries to dk and dv. `own` and `stage`: tiles; `rows`: of the
/// queries.
template <class S>
inline void gradient_of_keys(MmaSums<S::kKeyRowTiles, S::kDepth / 8>& dk,
                             MmaSums<S::kKeyRowTiles, S::kWidth / 8>& dv,
                             SharedAddress own,
                             SharedAddress stage,
                             SharedAddress rows,
                             const bool* mask,
                             Row key,
                             Row query) {
  using Element = typename S::Element;
  using Tiles = KeyTiles<S>;
  constexpr int kRowTiles = S::kKeyRowTiles, kColumnTiles = S::kBlockQueries / 8;
  const int warp_row = static_cast<int>(threadIdx.x) / 32 * 16 * kRowTiles;
  MmaSums<kRowTiles, kColumnTiles> scores, dweights;
  clear_sums(scores);
  multiply_warp<Element, S::kDepth / 16>(
      scores,
      LeftInTile<kRowTiles, S::kDepth>{own +
                                       (warp_row * kRowBytes<S::kDepth> + left_lane<S::kDepth>())},
      RightByColumns<S::kDepth>{stage + right_lane<S::kDepth>()});
  weigh_columns<S>(scores, rows, mask, key, query);
  multiply_warp<Element, S::kBlockQueries / 16>(
      dv,
      as_left<Element>(scores),
      RightBySteps<S::kWidth>{stage + (Tiles::kDy + left_lane<S::kWidth>())});
  clear_sums(dweights);
  multiply_warp<Element, S::kWidth / 16>(
      dweights,
      LeftInTile<kRowTiles, S::kWidth>{
          own + (Tiles::kKeyBytes + warp_row * kRowBytes<S::kWidth> + left_lane<S::kWidth>())},
      RightByColumns<S::kWidth>{stage + (Tiles::kDy + right_lane<S::kWidth>())});
  differentiate_columns<S>(dweights, scores, rows);
  multiply_warp<Element, S::kBlockQueries / 16>(
      dk, as_left<Element>(dweights), RightBySteps<S::kDepth>{stage + left_lane<S::kDepth>()});
}

/// dk and dv; `to_k` and `to_v` are the tensors in which they lie as k and v lie in theirs.
template <class S>
inline void attention_dk_dv(const MmaGradientInputs<S>& in,
                            typename S::Element* to_k,
                            typename S::Element* to_v) {
  using Tiles = KeyTiles<S>;
  constexpr int kTile = Tiles::kTile, kWarpRows = 16 * S::kKeyRowTiles;
  constexpr Row kTiles = (S::kKeys + kTile - 1) / kTile * S::kBatch * S::kHeads;
  constexpr Row kKeys = static_cast<Row>(S::kKeys);
  RIDGE_DYNAMIC_SHARED(memory);
  const SharedAddress tiles = shared_address(memory);
#pragma unroll 1
  for (Row tile = static_cast<Row>(blockIdx.x); tile < kTiles;
       tile += static_cast<Row>(gridDim.x)) {
    const RowPlace place = place_in_group<S, kTile, true>(tile);
    const HeadOperands<S> head(in, place);
    // A causal mask leaves a key the queries from its own on.
    const Row begin = S::kCausal ? place.first / S::kBlockQueries * S::kBlockQueries : 0;
    const Row left = kKeys - place.first;
    copy_rows<kTile, S::kDepth, S::K::kStride, kMmaThreads>(
        tiles, head.k + place.first * S::K::kStride, left);
    copy_rows<kTile, S::kWidth, S::V::kStride, kMmaThreads>(
        tiles + Tiles::kKeyBytes, head.v + place.first * S::V::kStride, left);
    if (begin < S::kQueries) copy_queries<S>(tiles + Tiles::kFirst, head, begin);
    copy_commit();
    const Row key = place.first + static_cast<int>(threadIdx.x) / 32 * kWarpRows;
    MmaSums<S::kKeyRowTiles, S::kDepth / 8> dk;
    MmaSums<S::kKeyRowTiles, S::kWidth / 8> dv;
    clear_sums(dk);
    clear_sums(dv);
    int stage = 0;
#pragma unroll 1
    for (Row query = begin; query < S::kQueries; query += S::kBlockQueries, stage ^= 1) {
      copy_wait<0>();
      __syncthreads();  // the tiles are there, and nobody reads those that are filled next
      if (query + S::kBlockQueries < S::kQueries)
        copy_queries<S>(
            tiles + (Tiles::kFirst + (stage ^ 1) * Tiles::kStage), head, query + S::kBlockQueries);
      copy_commit();
      if (key >= kKeys || (S::kCausal && query + S::kBlockQueries - 1 < key)) continue;
      const int at = Tiles::kFirst + stage * Tiles::kStage;
      gradient_of_keys<S>(
          dk, dv, tiles, tiles + at, tiles + (at + Tiles::kRows), head.mask, key, query);
    }
    copy_wait<0>();  // for keys that no query sees
    store_sums<S::K::kStride>(
        dk, to_k + head_at<S, typename S::K>(place) + key * S::K::kStride, kKeys - key);
    store_sums<S::V::kStride>(
        dv, to_v + head_at<S, typename S::V>(place) + key * S::V::kStride, kKeys - key);
    __syncthreads();  // the tiles have been read
  }
}

}  // namespace ridge::cuda
