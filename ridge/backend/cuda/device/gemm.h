// The matrix product: C = op(A) op(B), row-major, for each item of a batch.
//
// A block makes a tile of C. Tiles of both operands go through shared memory, two of each: one is
// multiplied while the next one is on its way through registers, so that a step of the loop meets
// once. With 128 x 128 of C to 256 threads, a step of depth is 64 multiply-adds a thread for four
// reads of 16 bytes, and an element of a tile that is read from memory once is used 128 times. A
// tile lies depth by depth, a vector of 16 bytes after the other: a warp's four reads are six
// wavefronts of shared memory, the multiply-adds take a multiprocessor sixteen cycles.
//
// Bits: an element of C is one chain of fma over each `kChain` of depth, and the chains are added
// up in order, as backend/cpu/gemm/gemm.h has it. Where C has too few tiles for the device, each
// chain is a block's own, and a second kernel adds them up.
#pragma once

#include "ridge/backend/cuda/device/kernel.h"

namespace ridge::cuda {

// How elements become factors.
struct AsTheyAre {
  template <typename In>
  static auto of(In x) {
    return value_of(x);
  }
};
struct ToF16 {
  static float of(float x) { return round_f16(x); }
};
struct ToBF16 {
  static float of(float x) { return round_bf16(x); }
};

/// Elements of a vector of 16 bytes.
template <typename T>
inline constexpr int kVector = static_cast<int>(16 / sizeof(T));

/// A tile of `kLanes` lanes (rows of the left factor, columns of the right one) by `kSteps` of
/// depth.
template <typename Sum, int kLanes, int kSteps>
struct Tile {
  static constexpr int kWidth = kVector<Sum>, kCount = kLanes;
  static_assert(kLanes % kWidth == 0);
  /// Vectors of a step. One more than it has: the next step of a lane is in another bank.
  static constexpr int kRow = kLanes / kWidth + 1;
  using Vector = Pack<Sum, kWidth>;
  Vector at[kSteps * kRow];

  Sum& element(int lane, int step) { return reinterpret_cast<Sum*>(at + step * kRow)[lane]; }
  const Vector& vector(int step, int index) const { return at[step * kRow + index]; }
};

/// A thread's part in bringing an operand's tile from memory into shared memory: fetched into
/// registers while the tile before is used, and put down when that is done. kPack elements that
/// follow each other are read at once; they run along the depth where kAlongDepth.
template <typename In,
          typename Sum,
          class Round,
          int kLanes,
          int kSteps,
          int kThreads,
          int kPack,
          bool kAlongDepth>
struct TileLoad {
  static constexpr int kInner = (kAlongDepth ? kSteps : kLanes) / kPack;  // packs of a line
  static constexpr int kLoads = kLanes * kSteps / kPack / kThreads;
  static_assert(kLoads * kPack * kThreads == kLanes * kSteps);
  static_assert((kAlongDepth ? kSteps : kLanes) % kPack == 0);

  Pack<In, kPack> held[kLoads];

  static int lane(int i) {
    const int at = i * kThreads + static_cast<int>(threadIdx.x);
    return kAlongDepth ? at / kInner : at % kInner * kPack;
  }
  static int step(int i) {
    const int at = i * kThreads + static_cast<int>(threadIdx.x);
    return kAlongDepth ? at % kInner * kPack : at / kInner;
  }

  /// `x`: of the tile's first element, in lines `stride` apart. Of the tile, so many lanes and
  /// steps are there; zeros stand for the others.
  void fetch(const In* x, int64_t stride, int64_t lanes, int64_t steps) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int64_t line = kAlongDepth ? lane(i) : step(i), inner = kAlongDepth ? step(i) : lane(i);
      if (lane(i) < lanes && step(i) < steps)
        held[i] = load<kPack>(x + line * stride + inner);
      else
        held[i] = Pack<In, kPack>{};
    }
  }

  void put(Tile<Sum, kLanes, kSteps>& tile) const {
    constexpr int kWidth = kVector<Sum>;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      if constexpr (!kAlongDepth && kPack % kWidth == 0) {
#pragma unroll
        for (int v = 0; v < kPack / kWidth; ++v) {
          Pack<Sum, kWidth> y;
#pragma unroll
          for (int k = 0; k < kWidth; ++k) y.at[k] = Round::of(held[i].at[v * kWidth + k]);
          tile.at[step(i) * tile.kRow + lane(i) / kWidth + v] = y;
        }
      } else {
#pragma unroll
        for (int k = 0; k < kPack; ++k)
          tile.element(lane(i) + (kAlongDepth ? 0 : k), step(i) + (kAlongDepth ? k : 0)) =
              Round::of(held[i].at[k]);
      }
    }
  }
};

/// The sums of a thread: kRows x kColumns of them, in vectors that lie kDown (kAcross) threads
/// apart, so that neighbours read neighbouring vectors.
template <typename Sum, int kRows, int kColumns, int kDown, int kAcross>
struct Sums {
  static constexpr int kWidth = kVector<Sum>;
  static_assert(kRows % kWidth == 0 && kColumns % kWidth == 0);

  Sum at[kRows][kColumns];

  void clear(Sum to = Sum(0)) {
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int c = 0; c < kColumns; ++c) at[r][c] = to;
  }

  /// Adds other sums; a sum that begins as -0 then has the bits of the first term.
  void add(const Sums& other) {
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int c = 0; c < kColumns; ++c) at[r][c] = at[r][c] + other.at[r][c];
  }

  // The row in the tile of this thread's row r, and the column in the tile of its vector g of
  // columns.
  static int row(int r) {
    return (r / kWidth * kDown + static_cast<int>(threadIdx.x) / kAcross) * kWidth + r % kWidth;
  }
  static int column(int g) {
    return (g * kAcross + static_cast<int>(threadIdx.x) % kAcross) * kWidth;
  }

  /// One step of depth.
  template <class Left, class Right>
  void add_step(const Left& left, const Right& right, int step) {
    constexpr int kRowVectors = kRows / kWidth, kColumnVectors = kColumns / kWidth;
    Pack<Sum, kWidth> a[kRowVectors], b[kColumnVectors];
#pragma unroll
    for (int g = 0; g < kRowVectors; ++g) a[g] = left.vector(step, row(g * kWidth) / kWidth);
#pragma unroll
    for (int g = 0; g < kColumnVectors; ++g) b[g] = right.vector(step, column(g) / kWidth);
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int c = 0; c < kColumns; ++c)
        at[r][c] =
            multiply_add(a[r / kWidth].at[r % kWidth], b[c / kWidth].at[c % kWidth], at[r][c]);
  }

  /// The first `count` of kSteps steps, in order. Steps behind them would add zeros, which are not
  /// nothing where a sum is -0.
  template <int kSteps, class Left, class Right>
  void add(const Left& left, const Right& right, int64_t count) {
    if (count >= kSteps) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) add_step(left, right, step);
    } else {
#pragma unroll 1
      for (int step = 0; step < count; ++step) add_step(left, right, step);
    }
  }

  /// Stores them in rows `stride` apart, of which `rows` are there, each of `columns`. kWhole:
  /// these are whole vectors, which lie as vectors have to.
  template <bool kWhole, typename To>
  void store(To* to, int64_t stride, int64_t rows, int64_t columns) const {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (row(r) >= rows) continue;
#pragma unroll
      for (int g = 0; g < kColumns / kWidth; ++g) {
        if (column(g) >= columns) continue;
        Pack<To, kWidth> y;
#pragma unroll
        for (int k = 0; k < kWidth; ++k) set(y.at[k], at[r][g * kWidth + k]);
        To* const first = to + row(r) * stride + column(g);
        if constexpr (kWhole)
          cuda::store<kWidth>(first, y);
        else
          store_some<kWidth>(first, y, columns - column(g));
      }
    }
  }
};

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
      sums.template add<S::kSteps>(left[now], right[now], end - step);
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
