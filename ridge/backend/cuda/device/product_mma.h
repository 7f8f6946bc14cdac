// The product of 16-bit factors by tensor cores: C = op(A) op(B), row-major, for each item of a
// batch.
//
// A block makes tiles of C, one after the other; a warp of it has kWarpRows x kWarpColumns of a
// tile in registers. Steps of the depth come into shared memory by asynchronous copies, kStages of
// them at a time. They follow each other without a break: while a tile is finished the first steps
// of the block's next one are under way. Within a step, matrices of the next 16 of depth are loaded
// while those before are multiplied.
//
// Warps of 64 x 64 read 4 KiB of shared memory for 64 x 64 x 16 multiply-adds. A tile of 128 x 256
// reads a byte from the second cache for 85 operations: at the 450 TFLOP/s that mma.sync may reach
// on an H200 these are 5.3 TB/s, about what that cache gives; 128 x 128 would ask for 7.
//
// Bits: an element is one sum of f32 that begins with 0 and takes 16 of the depth at a time, in
// order; within the 16 the order is the device's. Where C has too few tiles for the device, the
// depth is cut into kParts, each a sum of its own, which are added up in order (add_parts). What is
// rounded is the sum, once.
#pragma once

#include "ridge/backend/cuda/device/mma.h"

namespace ridge::cuda {

// A product's sizes and its tiles, a struct S that the printed source has:
//   Element                    F16 or BF16
//   Index                      counts the elements of all that is stored
//   kBatches, kM, kN, kK       op(A) (M, K), op(B) (K, N)
//   kTransposeA, kTransposeB
//   kTileRows, kTileColumns    of C, of a block
//   kWarpRows, kWarpColumns    of C, of a warp
//   kDepth, kStages            of a step; steps that lie in shared memory
//   kPartSteps, kParts         steps of a part of the depth, all parts
//   kBytesA, kBytesB           that are copied at once: 16, 8 or 4; 2 go through registers
//   kRun                       columns of C that are finished at once: 4, 2 or 1
//   kSharedBytes               that the launch has

/// A factor's tile in shared memory: kOuter of its rows (left) or columns (right) by kDepth of
/// depth. Lines are what lies together in memory: along the depth, or, with kByDepth, across it.
///
/// A line is cut into chunks of 16 bytes, whose places within 128 bytes are turned by the line's
/// number. So the eight rows of a matrix, a chunk of eight lines that follow each other, lie in
/// different banks, and so do eight chunks that eight threads copy.
template <bool kByDepth_, int kOuter, int kDepth>
struct SwizzledTile {
  static constexpr bool kByDepth = kByDepth_;
  static constexpr int kLines = kByDepth ? kDepth : kOuter;
  static constexpr int kChunks = (kByDepth ? kOuter : kDepth) / 8;
  static constexpr int kLineBytes = kChunks * 16, kBytes = kLines * kLineBytes;
  static constexpr int kLinesOf128 = kChunks < 8 ? 8 / kChunks : 1;
  static constexpr int kTurns = kChunks < 8 ? kChunks : 8;
  static_assert((kChunks & (kChunks - 1)) == 0 && kChunks >= 2);

  static constexpr int at(int line, int chunk) {
    return line * kLineBytes + (chunk ^ (line / kLinesOf128 % kTurns)) * 16;
  }
};

template <class S>
struct ProductTiles {
  static constexpr int kDown = S::kTileRows / S::kWarpRows;
  static constexpr int kAcross = S::kTileColumns / S::kWarpColumns;
  static constexpr int kThreads = kDown * kAcross * 32;
  using Left = SwizzledTile<S::kTransposeA, S::kTileRows, S::kDepth>;
  using Right = SwizzledTile<!S::kTransposeB, S::kTileColumns, S::kDepth>;
  static constexpr int kStage = Left::kBytes + Right::kBytes;
  static constexpr int kRows = kStage * S::kStages;  ///< Where the rows of the warps begin.

  static constexpr int kRowTiles = (S::kM + S::kTileRows - 1) / S::kTileRows;
  static constexpr int kColumnTiles = (S::kN + S::kTileColumns - 1) / S::kTileColumns;
  static constexpr int kSteps = (S::kK + S::kDepth - 1) / S::kDepth;
  /// Tiles of all items of the batch and all parts of the depth: what blocks have to do.
  static constexpr int kTasks = kRowTiles * kColumnTiles * S::kBatches * S::kParts;
};

/// What a task is: the tile's first row and column, of which item and part.
struct ProductTask {
  int row, column, item, part;
};

/// Sixteen rows of tiles at a time, column by column: the tiles that 132 blocks have at a time are
/// as wide as they are high, so that they read the least.
template <class S>
inline ProductTask product_task(int task) {
  using Tiles = ProductTiles<S>;
  constexpr int kBand = 16, kTiles = Tiles::kRowTiles * Tiles::kColumnTiles;
  const int matrix = task / kTiles, within = task % kTiles;
  const int band = within / (kBand * Tiles::kColumnTiles);
  const int at = within % (kBand * Tiles::kColumnTiles);
  const int left = Tiles::kRowTiles - band * kBand, height = left < kBand ? left : kBand;
  return {(band * kBand + at % height) * S::kTileRows,
          at / height * S::kTileColumns,
          matrix / S::kParts,
          matrix % S::kParts};
}

template <class S>
inline int steps_of_part(int part) {
  constexpr int kSteps = ProductTiles<S>::kSteps;
  const int left = kSteps - part * S::kPartSteps;
  return S::kParts == 1 ? kSteps : left < S::kPartSteps ? left : S::kPartSteps;
}

/// Copies the first `count` of eight elements to a chunk of shared memory, and zeros for the
/// others, kBytes at a time.
template <int kBytes, class Element>
inline void copy_chunk(SharedAddress to, const Element* from, int count) {
  if constexpr (kBytes == 2) {
    uint32_t pairs[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t low = 2 * i < count ? from[2 * i].bits : 0u;
      const uint32_t high = 2 * i + 1 < count ? from[2 * i + 1].bits : 0u;
      pairs[i] = high << 16 | low;
    }
    store_chunk(to, pairs);
  } else {
#pragma unroll
    for (int i = 0; i < 16 / kBytes; ++i)
      copy_async<kBytes>(to + i * kBytes, from + i * (kBytes / 2), i * (kBytes / 2) < count);
  }
}

/// A thread's part in copying one factor's tiles, step after step of the depth. Lines are kStride
/// elements apart.
template <class S, class Tile, int64_t kStride, int kBytes, bool kIsWholeOuter>
struct TileCopy {
  using Element = typename S::Element;
  static constexpr int kThreads = ProductTiles<S>::kThreads;
  static constexpr int kLinesAtOnce = kThreads / Tile::kChunks;
  static constexpr int kTimes = Tile::kLines / kLinesAtOnce;
  static constexpr bool kIsWholeDepth = S::kK % S::kDepth == 0;
  static_assert(kLinesAtOnce * Tile::kChunks == kThreads && kTimes * kLinesAtOnce == Tile::kLines);

  const Element* from;  ///< The thread's first chunk of the next step.
  int outer, depth;     ///< How many are there from that on.

  /// `tile`: its first element.
  void begin(const Element* tile, int outer_left, int depth_left) {
    const int line = static_cast<int>(threadIdx.x) / Tile::kChunks;
    const int element = static_cast<int>(threadIdx.x) % Tile::kChunks * 8;
    from = tile + (line * kStride + element);
    outer = outer_left - (Tile::kByDepth ? element : line);
    depth = depth_left - (Tile::kByDepth ? line : element);
  }

  void copy_line(SharedAddress tile, int ahead) const {
    const int line = static_cast<int>(threadIdx.x) / Tile::kChunks;
    const int chunk = static_cast<int>(threadIdx.x) % Tile::kChunks;
    const int rows = kIsWholeOuter ? Tile::kLines + 8 : outer;
    const int steps = kIsWholeDepth ? Tile::kLines + 8 : depth;
    const bool is_there = ahead < (Tile::kByDepth ? steps : rows);
    copy_chunk<kBytes>(tile + Tile::at(line + ahead, chunk),
                       from + ahead * kStride,
                       is_there ? (Tile::kByDepth ? rows : steps) : 0);
  }

  void copy(SharedAddress tile) {
    if constexpr (kBytes == 2) {
      // Loads of more lines at a time would take registers that the sums have.
#pragma unroll 2
      for (int i = 0; i < kTimes; ++i) copy_line(tile, i * kLinesAtOnce);
    } else {
#pragma unroll
      for (int i = 0; i < kTimes; ++i) copy_line(tile, i * kLinesAtOnce);
    }
    from += Tile::kByDepth ? S::kDepth * kStride : S::kDepth;
    depth -= S::kDepth;
  }
};

/// What a block copies, ahead of what it multiplies: all steps of its tasks, one after the other.
template <class S>
struct ProductFeed {
  using Element = typename S::Element;
  using Tiles = ProductTiles<S>;
  static constexpr int64_t kStrideA = S::kTransposeA ? S::kM : S::kK;
  static constexpr int64_t kStrideB = S::kTransposeB ? S::kK : S::kN;

  const Element *a, *b;
  int task, steps_left;
  TileCopy<S, typename Tiles::Left, kStrideA, S::kBytesA, S::kM % S::kTileRows == 0> left;
  TileCopy<S, typename Tiles::Right, kStrideB, S::kBytesB, S::kN % S::kTileColumns == 0> right;

  void begin(int first) {
    task = first;
    if (task >= Tiles::kTasks) return;
    const ProductTask place = product_task<S>(task);
    steps_left = steps_of_part<S>(place.part);
    const int step = place.part * (S::kPartSteps * S::kDepth);
    const int depth = static_cast<int>(S::kK) - step;
    left.begin(a + (place.item * (S::kM * S::kK) +
                    (S::kTransposeA ? step * kStrideA + place.row : place.row * kStrideA + step)),
               static_cast<int>(S::kM) - place.row,
               depth);
    right.begin(
        b + (place.item * (S::kK * S::kN) +
             (S::kTransposeB ? place.column * kStrideB + step : step * kStrideB + place.column)),
        static_cast<int>(S::kN) - place.column,
        depth);
  }

  /// Begins to copy the next step, if there is one, and ends the group of copies.
  void copy(SharedAddress stage) {
    if (task < Tiles::kTasks) {
      left.copy(stage);
      right.copy(stage + Tiles::Left::kBytes);
      if (--steps_left == 0) begin(task + static_cast<int>(gridDim.x));
    }
    copy_commit();
  }
};

/// A lane's row of matrix lane / 8 of four: line and chunk, relative to the first. Matrices below
/// each other come first where kLinesFirst, else those beside each other.
template <bool kLinesFirst>
struct LanePlace {
  int line, chunk;
  LanePlace() {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    line = kLinesFirst ? lane % 16 : lane / 16 * 8 + lane % 8;
    chunk = kLinesFirst ? lane / 16 : lane / 8 % 2;
  }
};

/// Loads 16 of depth by 16 rows or columns of a factor, of number `i` of the warp, whose first is
/// `first`.
template <class Tile, bool kIsLeft>
inline void load_factor(uint32_t (&to)[4], SharedAddress tile, int first, int step, int i) {
  const LanePlace<kIsLeft != Tile::kByDepth> lane;
  if constexpr (Tile::kByDepth)
    load_matrices_transposed(to,
                             tile + (step * (16 * Tile::kLineBytes) +
                                     Tile::at(lane.line, first / 8 + (2 * i + lane.chunk))));
  else
    load_matrices(
        to,
        tile + ((first + i * 16) * Tile::kLineBytes + Tile::at(lane.line, step * 2 + lane.chunk)));
}

/// Both factors of a warp, for 16 of depth.
template <class S>
struct WarpFactors {
  static constexpr int kRowTiles = S::kWarpRows / 16, kColumnPairs = S::kWarpColumns / 16;
  uint32_t left[kRowTiles][4], right[kColumnPairs][4];

  void load(SharedAddress stage, int row, int column, int step) {
    using Tiles = ProductTiles<S>;
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m)
      load_factor<typename Tiles::Left, true>(left[m], stage, row, step, m);
#pragma unroll
    for (int n = 0; n < kColumnPairs; ++n)
      load_factor<typename Tiles::Right, false>(
          right[n], stage + Tiles::Left::kBytes, column, step, n);
  }

  void multiply(MmaSums<kRowTiles, 2 * kColumnPairs>& sums) const {
#pragma unroll
    for (int n = 0; n < kColumnPairs; ++n)
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        multiply_16(sums[m][2 * n], left[m], right[n][0], right[n][1], typename S::Element{});
        multiply_16(sums[m][2 * n + 1], left[m], right[n][2], right[n][3], typename S::Element{});
      }
  }
};

// What is done with finished sums is a Finish, a class that has
//   Read                  what it reads beside the sums
//   Read read(i)          that of the run of S::kRun elements from number i on
//   operator()(i, x, y)   with the sums, Pack<float, S::kRun>, and what was read

/// Stores sums, rounded.
template <class To>
struct StoreSums {
  struct Read {};
  To* to;

  template <class Index>
  Read read(Index) const {
    return {};
  }
  template <class Index, int kRun>
  void operator()(Index i, const Pack<float, kRun>& x, Read) const {
    Pack<To, kRun> y;
#pragma unroll
    for (int k = 0; k < kRun; ++k) set(y.at[k], x.at[k]);
    store<kRun>(to + i, y);
  }
};

/// Where a warp has 16 rows of sums in shared memory, to be read as rows: from row to row eight
/// columns more than there are, so that four rows lie in different banks.
template <class S>
struct RowStage {
  static constexpr int kRowBytes = (S::kWarpColumns + 8) * 4, kBytes = 16 * kRowBytes;
  SharedAddress at;

  template <int kColumnTiles>
  void put(const float (&sums)[kColumnTiles][4]) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    __syncwarp();  // the rows before have been read
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        store_floats(at + ((lane / 4 + half * 8) * kRowBytes + (n * 8 + lane % 4 * 2) * 4),
                     sums[n][half * 2],
                     sums[n][half * 2 + 1]);
    __syncwarp();
  }

  /// Finishes them; `row` and `column` are of the product, `matrix` counts those before it.
  template <class Finish>
  void finish(typename S::Index matrix, int row, int column, const Finish& finish) const {
    using Index = typename S::Index;
    constexpr int kRunsOfRow = S::kWarpColumns / S::kRun, kTimes = 16 * kRunsOfRow / 32;
    // So many are read before the first is stored: nothing else hides how long memory takes. More
    // would take registers that other sums have.
    constexpr int kAtOnce = sizeof(typename Finish::Read) <= 16 ? 4 : 2;
    static_assert(kTimes % kAtOnce == 0);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const Index first = matrix * static_cast<Index>(S::kM);
#pragma unroll 1
    for (int time = 0; time < kTimes; time += kAtOnce) {
      Index numbers[kAtOnce];
      bool is_there[kAtOnce];
      typename Finish::Read read[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const int run = (time + k) * 32 + lane;
        const int down = row + run / kRunsOfRow, across = column + run % kRunsOfRow * S::kRun;
        numbers[k] = (first + static_cast<Index>(down)) * static_cast<Index>(S::kN) +
                     static_cast<Index>(across);
        is_there[k] = down < S::kM && across < S::kN;
        if (is_there[k]) read[k] = finish.read(numbers[k]);
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const int run = (time + k) * 32 + lane;
        const auto x = load_floats<S::kRun>(
            at + (run / kRunsOfRow * kRowBytes + run % kRunsOfRow * (S::kRun * 4)));
        if (is_there[k]) finish(numbers[k], x, read[k]);
      }
    }
  }
};

/// Finishes the sums of a warp, whose first row and column are of the tile. With several parts
/// elements are those of (batches, parts, M, N).
template <class S, class Sums, class Finish>
inline void finish_sums(const Sums& sums,
                        const RowStage<S>& stage,
                        const ProductTask& place,
                        int row,
                        int column,
                        const Finish& finish) {
  using Index = typename S::Index;
  const Index matrix = static_cast<Index>(place.item) * S::kParts + static_cast<Index>(place.part);
#pragma unroll
  for (int m = 0; m < S::kWarpRows / 16; ++m) {
    stage.put(sums[m]);
    stage.finish(matrix, place.row + row + m * 16, place.column + column, finish);
  }
}

/// All of a block's tasks.
template <class S, class Finish>
inline void multiply_mma(const typename S::Element* a,
                         const typename S::Element* b,
                         const Finish& finish) {
  using Tiles = ProductTiles<S>;
  using Factors = WarpFactors<S>;
  constexpr int kSubsteps = S::kDepth / 16;
  static_assert(Tiles::kRows + Tiles::kThreads / 32 * RowStage<S>::kBytes == S::kSharedBytes);
  static_assert(kSubsteps % 2 == 0 && S::kStages >= 2);
  RIDGE_DYNAMIC_SHARED(memory);
  const SharedAddress stages = shared_address(memory);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int row = warp / Tiles::kAcross * S::kWarpRows;
  const int column = warp % Tiles::kAcross * S::kWarpColumns;
  const RowStage<S> rows{stages + (Tiles::kRows + warp * RowStage<S>::kBytes)};

  ProductFeed<S> feed;
  feed.a = a, feed.b = b;
  feed.begin(static_cast<int>(blockIdx.x));
#pragma unroll 1
  for (int i = 0; i < S::kStages; ++i) feed.copy(stages + i * Tiles::kStage);
  copy_wait<S::kStages - 1>();
  __syncthreads();
  int stage = 0;
#pragma unroll 1
  for (int task = static_cast<int>(blockIdx.x); task < Tiles::kTasks;
       task += static_cast<int>(gridDim.x)) {
    const ProductTask place = product_task<S>(task);
    MmaSums<Factors::kRowTiles, 2 * Factors::kColumnPairs> sums;
    clear_sums(sums);
    // Loaded here once more, so that no register is kept for them while the task before is
    // finished.
    Factors factors[2];
    factors[0].load(stages + stage * Tiles::kStage, row, column, 0);
    const int steps = steps_of_part<S>(place.part);
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
#pragma unroll
      for (int i = 0; i < kSubsteps; ++i) {
        if (i == kSubsteps - 1) {
          // All have loaded the last of this stage, and the next one is there. What is under way
          // for it is waited for with the last 16 of depth still to be multiplied.
          copy_wait<S::kStages - 2>();
          __syncthreads();
          feed.copy(stages + stage * Tiles::kStage);
          stage = stage + 1 < S::kStages ? stage + 1 : 0;
        }
        factors[(i + 1) % 2].load(stages + stage * Tiles::kStage, row, column, (i + 1) % kSubsteps);
        factors[i % 2].multiply(sums);
      }
    }
    finish_sums<S>(sums, rows, place, row, column, finish);
  }
  copy_wait<0>();
}

/// Adds up the parts, (batches, parts, M, N), in order, and finishes what they make.
template <class S, class Finish>
inline void add_parts(const float* parts, const Finish& finish) {
  using Index = typename S::Index;
  constexpr Index kItem = static_cast<Index>(S::kM * S::kN), kParts = S::kParts;
  const Index stride = static_cast<Index>(gridDim.x) * blockDim.x * S::kRun;
#pragma unroll 1
  for (Index i = (static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x) * S::kRun;
       i < kItem * S::kBatches;
       i += stride) {
    const float* const from = parts + (i / kItem * (kParts * kItem) + i % kItem);
    Pack<float, S::kRun> sum = load<S::kRun>(from);
#pragma unroll 4
    for (Index part = 1; part < kParts; ++part) {
      const Pack<float, S::kRun> x = load<S::kRun>(from + part * kItem);
#pragma unroll
      for (int k = 0; k < S::kRun; ++k) sum.at[k] = sum.at[k] + x.at[k];
    }
    finish(i, sum, finish.read(i));
  }
}

}  // namespace ridge::cuda
