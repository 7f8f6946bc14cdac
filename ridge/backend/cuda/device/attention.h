// Scaled-dot-product attention by blocks of keys with a running softmax (graph/ops/attention.h has
// the formula): no more than a block of scores exists at a time, in shared memory.
//
// A block of 128 threads has `kTile` queries of a head and goes over the keys, 128 at a time. Four
// parts, between which the block meets: scores = q k^T, in registers, then in shared memory; the
// maximum of each query; weights, and their sum; results += weights v. In the second and third a
// query has `kTeam` threads.
//
// Bits: those of the CPU's kernel. An element of a product is one chain of fma over depth or over
// the keys of a block, sums of weights are four chains, in turn, then (0 + 1) + (2 + 3). exp and
// log are those of backend/cpu/isa/functions.h, which printed kernels include before this; of f64
// they are CUDA's own.
#pragma once

#include "ridge/backend/cuda/device/product.h"

namespace ridge::cuda {

// A node's sizes, a struct S that the printed source has:
//   Element, Sum                    dtypes of the operands, and of scores and sums
//   kBatch, kHeads, kQueries, kKeys
//   kDepth, kWidth                  of q and k, and of v and y
//   kCausal, kMasked, scale()
//   Q, K, V, Y                      HeadRows of the operands
//   Mask                            HeadRows of the mask; strides of 0 where it is repeated
//   kTile                           queries (of a gradient: of what it is of) of a block
//   kSteps                          of depth that lie in shared memory at a time
//   kColumns                        of v and y, of a block
//   kPackDepth, kPackWidth          elements of rows of q and k, and of v and y, read at once

/// Where row `row` of a head begins.
template <int64_t kBegin, int64_t kBatch, int64_t kHead, int64_t kRow>
struct HeadRows {
  static constexpr int64_t kStride = kRow;
  static int64_t at(int64_t batch, int64_t head, int64_t row) {
    return kBegin + batch * kBatch + head * kHead + row * kRow;
  }
};

inline constexpr int kAttentionThreads = 128;
/// The threads of a block as Sums has them.
inline constexpr int kAttentionDown = 8, kAttentionAcross = 16;

template <typename Sum>
inline Sum minus_infinity() {
  return -static_cast<Sum>(__builtin_inff());
}

/// A head of a batch, and the first of its rows that a block has.
struct HeadPlace {
  int64_t batch, head, first, column;
};

/// Blocks of the last rows first: under a causal mask those have most to do.
template <class S>
inline HeadPlace place_in_heads(int64_t tile, int64_t rows, int64_t columns) {
  const int64_t blocks = (rows + S::kTile - 1) / S::kTile;
  const int64_t chunks = (columns + S::kColumns - 1) / S::kColumns;
  const int64_t per_block = S::kBatch * S::kHeads * chunks;
  const int64_t block = blocks - 1 - tile / per_block, rest = tile % per_block;
  const int64_t head = rest / chunks;
  return {head / S::kHeads, head % S::kHeads, block * S::kTile, rest % chunks * S::kColumns};
}

/// Whether the query may see the key.
template <class S>
inline bool is_allowed(const bool* mask, const HeadPlace& place, int64_t query, int64_t key) {
  if (query >= S::kQueries || key >= S::kKeys) return false;
  if (S::kCausal && key > query) return false;
  if constexpr (S::kMasked) return mask[S::Mask::at(place.batch, place.head, query) + key];
  return true;
}

/// Adds `depth` steps to the sums, S::kSteps at a time: fetch(step) brings what they need into
/// registers, put() into the tiles. The block meets before the tiles are written.
template <class S, class TileSums, class Left, class Right, class Fetch, class Put>
inline void multiply_by_steps(TileSums& sums,
                              const Left& left,
                              const Right& right,
                              int64_t depth,
                              const Fetch& fetch,
                              const Put& put) {
  fetch(0);
#pragma unroll 1
  for (int64_t step = 0; step < depth; step += S::kSteps) {
    __syncthreads();
    put();
    __syncthreads();
    if (step + S::kSteps < depth) fetch(step + S::kSteps);
    sums.template add<S::kSteps>(left, 0, right, depth - step);
  }
}

/// What a block of threads fetches for `Lanes` of a product.
template <class S, class Lanes, int kPack, bool kAlongDepth>
using AttentionLoad = TileLoad<typename S::Element,
                               typename S::Sum,
                               AsTheyAre,
                               Lanes::kCount,
                               S::kSteps,
                               kAttentionThreads,
                               kPack,
                               kAlongDepth>;

/// sums = a b^T: of rows of `a` and rows of `b`, of kDepth elements, of which `a_rows` and `b_rows`
/// are there.
template <class S, int64_t kDepth, int kPack, class TileSums, class Left, class Right>
inline void multiply_rows(TileSums& sums,
                          Left& left,
                          Right& right,
                          const typename S::Element* a,
                          int64_t a_stride,
                          int64_t a_rows,
                          const typename S::Element* b,
                          int64_t b_stride,
                          int64_t b_rows) {
  AttentionLoad<S, Left, kPack, true> load_a;
  AttentionLoad<S, Right, kPack, true> load_b;
  sums.clear();
  multiply_by_steps<S>(
      sums,
      left,
      right,
      kDepth,
      [&](int64_t step) {
        load_a.fetch(a + step, a_stride, a_rows, kDepth - step);
        load_b.fetch(b + step, b_stride, b_rows, kDepth - step);
      },
      [&] {
        load_a.put(left);
        load_b.put(right);
      });
}

/// sums = weights x: `weights` has a lane for each row of the sums and a step for each row of x, of
/// which `rows` are there, and from the place of `x` on `columns` columns.
template <class S, int kPack, class TileSums, class Weights, class Right>
inline void multiply_weights(TileSums& sums,
                             const Weights& weights,
                             Right& right,
                             const typename S::Element* x,
                             int64_t stride,
                             int64_t rows,
                             int64_t columns) {
  AttentionLoad<S, Right, kPack, false> load_x;
  sums.clear();
  load_x.fetch(x, stride, columns, rows);
#pragma unroll 1
  for (int64_t step = 0; step < rows; step += S::kSteps) {
    __syncthreads();
    load_x.put(right);
    __syncthreads();
    if (step + S::kSteps < rows)
      load_x.fetch(x + (step + S::kSteps) * stride, stride, columns, rows - step - S::kSteps);
    sums.template add<S::kSteps>(weights, static_cast<int>(step), right, rows - step);
  }
}

// ---- attention ----

/// Keys of a block of scores.
inline constexpr int kScoreKeys = 128;

template <class S>
struct ScoreOperands {
  Tile<typename S::Sum, S::kTile, S::kSteps> q;
  Tile<typename S::Sum, kScoreKeys, S::kSteps> k;
};

template <class S>
struct AttentionShared {
  using Sum = typename S::Sum;
  static constexpr int kTeam = kAttentionThreads / S::kTile;  // threads of a query

  Tile<Sum, S::kTile, kScoreKeys> weights;  // first the scores
  union {
    ScoreOperands<S> scores;
    Tile<Sum, S::kColumns, S::kSteps> v;
  };
  Sum part[kTeam][S::kTile];
  Sum factor[S::kTile];
};

/// What a thread knows of its query after some blocks of keys. All of it but `has_key` is known to
/// the whole team.
template <typename Sum>
struct QueryState {
  Sum max, sum;
  bool has_key;
};

/// Forbids keys, and gives the largest score, of those of this thread, that is not NaN.
template <class S>
inline typename S::Sum forbid_keys(AttentionShared<S>& shared,
                                   QueryState<typename S::Sum>& state,
                                   const bool* mask,
                                   const HeadPlace& place,
                                   int64_t key,
                                   int keys) {
  using Sum = typename S::Sum;
  constexpr int kOwn = 4 / AttentionShared<S>::kTeam;
  const int lane = static_cast<int>(threadIdx.x) % S::kTile;
  const int member = static_cast<int>(threadIdx.x) / S::kTile;
  Sum found = minus_infinity<Sum>();
#pragma unroll 4
  for (int r = member * kOwn; r < keys; r += 4)
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      if (r + i >= keys) continue;
      Sum& score = shared.weights.element(lane, r + i);
      if (is_allowed<S>(mask, place, place.first + lane, key + r + i)) {
        if (score > found) found = score;
        state.has_key = true;
      } else {
        score = minus_infinity<Sum>();
      }
    }
  return found;
}

/// Makes the scores of `keys` keys weights, exp(score - max), 0 where forbidden. shared.factor is
/// then what earlier results are to be multiplied by.
template <class S>
inline void weigh(AttentionShared<S>& shared,
                  QueryState<typename S::Sum>& state,
                  const bool* mask,
                  const HeadPlace& place,
                  int64_t key,
                  int keys) {
  using Sum = typename S::Sum;
  constexpr int kTeam = AttentionShared<S>::kTeam, kOwn = 4 / kTeam;  // of the four chains
  const int lane = static_cast<int>(threadIdx.x) % S::kTile;
  const int member = static_cast<int>(threadIdx.x) / S::kTile;
  shared.part[member][lane] = forbid_keys<S>(shared, state, mask, place, key, keys);
  __syncthreads();
  Sum max = state.max;
#pragma unroll
  for (int m = 0; m < kTeam; ++m) max = shared.part[m][lane] > max ? shared.part[m][lane] : max;
  // Where every score is -infinity, any finite maximum makes every exponential zero.
  const Sum base = max > minus_infinity<Sum>() ? max : Sum(0);
  const Sum shrink = cpu::exp_of(state.max - base);
  state.max = max;
  __syncthreads();  // `part` has been read

  Sum chain[kOwn];
#pragma unroll
  for (int i = 0; i < kOwn; ++i) chain[i] = Sum(0);
#pragma unroll 4
  for (int r = member * kOwn; r < keys; r += 4)
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      if (r + i >= keys) continue;
      Sum& weight = shared.weights.element(lane, r + i);
      weight = cpu::exp_of(weight - base);
      chain[i] = chain[i] + weight;
    }
  if constexpr (kOwn == 2) chain[0] = chain[0] + chain[1];
  shared.part[member][lane] = chain[0];
  if (member == 0) shared.factor[lane] = shrink;
  __syncthreads();
  Sum sum = shared.part[0][lane] + shared.part[1][lane];
  if constexpr (kTeam == 4) sum = sum + (shared.part[2][lane] + shared.part[3][lane]);
  state.sum = multiply_add(state.sum, shrink, sum);
}

/// Leaves in shared.factor what the results of each query are to be multiplied by, and stores their
/// logsumexps.
template <class S>
inline void finish_queries(AttentionShared<S>& shared,
                           const QueryState<typename S::Sum>& state,
                           const HeadPlace& place,
                           typename S::Sum* logsumexp) {
  using Sum = typename S::Sum;
  const int lane = static_cast<int>(threadIdx.x) % S::kTile;
  const int member = static_cast<int>(threadIdx.x) / S::kTile;
  __syncthreads();  // factors and parts have been read
  shared.part[member][lane] = state.has_key ? Sum(1) : Sum(0);
  __syncthreads();
  bool has_key = false;
#pragma unroll
  for (int m = 0; m < AttentionShared<S>::kTeam; ++m)
    has_key = has_key || shared.part[m][lane] != Sum(0);
  const int64_t query = place.first + lane;
  if (member == 0) {
    shared.factor[lane] = has_key ? Sum(1) / state.sum : Sum(0);
    if (query < S::kQueries && place.column == 0)
      logsumexp[(place.batch * S::kHeads + place.head) * S::kQueries + query] =
          has_key ? state.max + cpu::log_of(state.sum) : Sum(0);
  }
  __syncthreads();
}

/// y and the logsumexps. `mask` is null where there is none.
template <class S>
inline void attend(const typename S::Element* q,
                   const typename S::Element* k,
                   const typename S::Element* v,
                   const bool* mask,
                   typename S::Element* y,
                   typename S::Sum* logsumexp) {
  using Sum = typename S::Sum;
  constexpr int kRows = S::kTile / kAttentionDown, kColumns = S::kColumns / kAttentionAcross;
  using Scores = Sums<Sum, kRows, kScoreKeys / kAttentionAcross, kAttentionDown, kAttentionAcross>;
  using Results = Sums<Sum, kRows, kColumns, kAttentionDown, kAttentionAcross>;
  constexpr int64_t kTiles = ((S::kQueries + S::kTile - 1) / S::kTile) *
                             ((S::kWidth + S::kColumns - 1) / S::kColumns) * S::kBatch * S::kHeads;
  __shared__ AttentionShared<S> shared;
#pragma unroll 1
  for (int64_t tile = blockIdx.x; tile < kTiles; tile += gridDim.x) {
    const HeadPlace place = place_in_heads<S>(tile, S::kQueries, S::kWidth);
    const int64_t queries = S::kQueries - place.first;  // of the tile, or more
    const int64_t last = place.first + (queries < S::kTile ? queries : S::kTile);
    const int64_t end = S::kCausal && last < S::kKeys ? last : S::kKeys;
    QueryState<Sum> state{minus_infinity<Sum>(), Sum(0), false};
    Results results;
    results.clear(Sum(-0.0));  // times a first factor of 0, plus a product: the product's bits
#pragma unroll 1
    for (int64_t key = 0; key < end; key += kScoreKeys) {
      const int64_t keys = end - key < kScoreKeys ? end - key : kScoreKeys;
      {
        Scores scores;
        multiply_rows<S, S::kDepth, S::kPackDepth>(
            scores,
            shared.scores.q,
            shared.scores.k,
            q + S::Q::at(place.batch, place.head, place.first),
            S::Q::kStride,
            queries,
            k + S::K::at(place.batch, place.head, key),
            S::K::kStride,
            keys);
        scores.scale(S::scale());
        scores.put(shared.weights);
      }
      __syncthreads();
      weigh<S>(shared, state, mask, place, key, static_cast<int>(keys));
      Results product;
      multiply_weights<S, S::kPackWidth>(product,
                                         shared.weights,
                                         shared.v,
                                         v + S::V::at(place.batch, place.head, key) + place.column,
                                         S::V::kStride,
                                         keys,
                                         S::kWidth - place.column);
#pragma unroll
      for (int r = 0; r < kRows; ++r)
#pragma unroll
        for (int c = 0; c < kColumns; ++c)
          results.at[r][c] =
              multiply_add(results.at[r][c], shared.factor[Results::row(r)], product.at[r][c]);
    }
    finish_queries<S>(shared, state, place, logsumexp);
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int c = 0; c < kColumns; ++c)
        results.at[r][c] = results.at[r][c] * shared.factor[Results::row(r)];
    results.template store<(S::kPackWidth >= kVector<Sum>)>(
        y + S::Y::at(place.batch, place.head, place.first) + place.column,
        S::Y::kStride,
        queries,
        S::kWidth - place.column);
  }
}

}  // namespace ridge::cuda
