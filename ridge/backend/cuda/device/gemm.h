// The matrix product: C = op(A) op(B), row-major, for each item of a batch.
//
// A block makes a tile of C. Tiles of both operands go through shared memory, two of each: one is
// multiplied while the next one is on its way through registers, so that a step of the loop meets
// once. With 128 x 128 of C to 256 threads, a step of depth is 64 multiply-adds a thread for four
// reads of 16 bytes, and an element of a tile that is read from memory once is used 128 times.
//
// Bits: an element of C is one chain of fma over each `kChain` of depth, and the chains are added
// up in order, as backend/cpu/gemm.h has it. Where C has too few tiles for the device, each chain
// is a block's own, and a second kernel adds them up.
#pragma once

#include "ridge/backend/cuda/device/product.h"

namespace ridge::cuda {

// A product's sizes and its tiles, a struct S that the printed source has:
//   Element, Result, Sum     dtypes of A and B, of C, and of the sums
//   Round                    what is done to elements before they are multiplied
//   kBatches, kM, kN, kK     op(A) (M, K), op(B) (K, N)
//   kChain                   depth of one chain of fma
//   kTransposeA, kTransposeB
//   kTileRows, kTileColumns  of C, of a block
//   kRows, kColumns          of C, of a thread
//   kSteps                   of depth that lie in shared memory at a time
//   kPackA, kPackB           elements that are read at once

/// The tile of C that a block makes: its first row and column, of which item and chain.
struct TilePlace {
  int64_t row, column, item, chain;
};

/// Eight rows of tiles at a time, column by column: what blocks that run together read stays in
/// the caches.
template <class S>
inline TilePlace place_of_tile(int64_t tile, bool by_chains) {
  constexpr int64_t kDown = (S::kM + S::kTileRows - 1) / S::kTileRows;
  constexpr int64_t kAcross = (S::kN + S::kTileColumns - 1) / S::kTileColumns;
  constexpr int64_t kBand = 8, kTiles = kDown * kAcross;
  constexpr int64_t kChains = (S::kK + S::kChain - 1) / S::kChain;
  const int64_t matrix = tile / kTiles, within = tile % kTiles;
  const int64_t band = within / (kBand * kAcross), at = within % (kBand * kAcross);
  const int64_t height = kDown - band * kBand < kBand ? kDown - band * kBand : kBand;
  return {(band * kBand + at % height) * S::kTileRows,
          at / height * S::kTileColumns,
          by_chains ? matrix / kChains : matrix,
          by_chains ? matrix % kChains : 0};
}

/// All tiles of the product, or with kByChains of each chain of it: then C is (batches, chains, M,
/// N), of sums.
template <class S, bool kByChains, typename To>
inline void multiply_tiles(const typename S::Element* a, const typename S::Element* b, To* c) {
  using In = typename S::Element;
  using Sum = typename S::Sum;
  constexpr int kDown = S::kTileRows / S::kRows, kAcross = S::kTileColumns / S::kColumns;
  constexpr int kThreads = kDown * kAcross;
  constexpr int64_t kChains = (S::kK + S::kChain - 1) / S::kChain;
  constexpr int64_t kTiles = ((S::kM + S::kTileRows - 1) / S::kTileRows) *
                             ((S::kN + S::kTileColumns - 1) / S::kTileColumns) * S::kBatches *
                             (kByChains ? kChains : 1);
  // Lines of the operands, as they lie.
  constexpr int64_t kStrideA = S::kTransposeA ? S::kM : S::kK;
  constexpr int64_t kStrideB = S::kTransposeB ? S::kK : S::kN;
  using LoadA = TileLoad<In,
                         Sum,
                         typename S::Round,
                         S::kTileRows,
                         S::kSteps,
                         kThreads,
                         S::kPackA,
                         !S::kTransposeA>;
  using LoadB = TileLoad<In,
                         Sum,
                         typename S::Round,
                         S::kTileColumns,
                         S::kSteps,
                         kThreads,
                         S::kPackB,
                         S::kTransposeB>;
  using TileSums = Sums<Sum, S::kRows, S::kColumns, kDown, kAcross>;
  __shared__ Tile<Sum, S::kTileRows, S::kSteps> left[2];
  __shared__ Tile<Sum, S::kTileColumns, S::kSteps> right[2];

#pragma unroll 1
  for (int64_t tile = blockIdx.x; tile < kTiles; tile += gridDim.x) {
    const TilePlace place = place_of_tile<S>(tile, kByChains);
    const In* const rows =
        a + place.item * (S::kM * S::kK) + place.row * (S::kTransposeA ? 1 : kStrideA);
    const In* const columns =
        b + place.item * (S::kK * S::kN) + place.column * (S::kTransposeB ? kStrideB : 1);
    LoadA load_a;
    LoadB load_b;
    const auto fetch = [&](int64_t step, int64_t end) {
      load_a.fetch(
          rows + step * (S::kTransposeA ? kStrideA : 1), kStrideA, S::kM - place.row, end - step);
      load_b.fetch(columns + step * (S::kTransposeB ? 1 : kStrideB),
                   kStrideB,
                   S::kN - place.column,
                   end - step);
    };
    const auto end_of_chain = [](int64_t begin) {
      return begin + S::kChain < S::kK ? begin + S::kChain : S::kK;
    };
    int64_t step = place.chain * S::kChain, end = end_of_chain(step);
    const int64_t last = kByChains ? end : S::kK;
    fetch(step, end);
    __syncthreads();  // the tile before has been used
    load_a.put(left[0]);
    load_b.put(right[0]);
    __syncthreads();
    TileSums sums, total;
    sums.clear();
    if constexpr (!kByChains && kChains > 1) total.clear(Sum(-0.0));
    int now = 0;
#pragma unroll 1
    for (;;) {
      // The next steps are of this chain, or begin another one.
      const bool ends = step + S::kSteps >= end;
      const int64_t next = ends ? end : step + S::kSteps;
      const int64_t next_end = ends ? end_of_chain(end) : end;
      if (next < last) fetch(next, next_end);
      sums.template add<S::kSteps>(left[now], 0, right[now], end - step);
      if constexpr (!kByChains && kChains > 1) {
        if (ends) {
          total.add(sums);
          sums.clear();
        }
      }
      if (next >= last) break;
      now = 1 - now;
      load_a.put(left[now]);
      load_b.put(right[now]);
      __syncthreads();
      step = next;
      end = next_end;
    }
    const int64_t matrix = kByChains ? place.item * kChains + place.chain : place.item;
    To* const to = c + matrix * (S::kM * S::kN) + place.row * S::kN + place.column;
    constexpr bool kWhole = S::kN % TileSums::kWidth == 0;
    if constexpr (!kByChains && kChains > 1)
      total.template store<kWhole>(to, S::kN, S::kM - place.row, S::kN - place.column);
    else
      sums.template store<kWhole>(to, S::kN, S::kM - place.row, S::kN - place.column);
  }
}

/// The product, of which each chain is summed in x (batches, chains, M, N).
template <class S>
inline void add_chains(const typename S::Sum* x, typename S::Result* c) {
  constexpr int64_t kChains = (S::kK + S::kChain - 1) / S::kChain;
  constexpr int64_t kItem = S::kM * S::kN;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       i < S::kBatches * kItem;
       i += stride) {
    const typename S::Sum* from = x + i / kItem * (kChains * kItem) + i % kItem;
    typename S::Sum sum = from[0];
#pragma unroll 8
    for (int64_t chain = 1; chain < kChains; ++chain) sum = sum + from[chain * kItem];
    set(c[i], sum);
  }
}

}  // namespace ridge::cuda
