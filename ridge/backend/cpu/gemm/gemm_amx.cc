// The driver of products by tiles. op(B) is packed whole before it is multiplied, each element
// once: a product takes hardly longer than the conversion of what it multiplies. A task packs its
// rows of op(A) on its own stack, where its second-level cache holds them.
#include "ridge/backend/cpu/gemm/gemm_amx.h"

#include <algorithm>

#include "ridge/backend/cpu/cpu_isa.h"
#include "ridge/backend/cpu/gemm/gemm_operands.h"
#include "ridge/backend/cpu/gemm/gemm_plan.h"
#include "ridge/backend/cpu/isa/gemm/gemm_amx_kernels.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/base/error.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/shape.h"

namespace ridge::cpu {
namespace {

// Rows and columns of a block of C in registers, and most rows of a task.
constexpr int64_t kSide = 2 * kAmxLanes, kMostRows = 4 * kSide;
// Tiles of depth for which a strip of op(B), 32 columns wide, stays in a first-level cache.
constexpr int64_t kChain = 16;
// Columns whose results the caches hold until they are finished.
constexpr int64_t kColumnsToFinish = 256;
// Elements that are packed on the stack of the thread that multiplies them.
constexpr int64_t kNearElements = 256 * 1024;
// Elements of an operand that are packed elsewhere at a time, and the fewest lanes of them.
constexpr int64_t kMostPacked = int64_t{8} << 20, kFewestLanes = 256;
constexpr int64_t kPanelsOfPacking = 4;
constexpr int64_t kTasksOfThread = 4;
constexpr int64_t kWorkOfTask = int64_t{1} << 20;  // multiply-adds

int64_t tiles_of(const GemmShape& shape) { return ceil_div(shape.k, kAmxSteps); }
int64_t panel_elements(const GemmShape& shape) { return tiles_of(shape) * kAmxTile; }
// Elements of so many packed lanes.
int64_t packed_elements(const GemmShape& shape, int64_t lanes) {
  return ceil_div(lanes, kAmxLanes) * panel_elements(shape);
}

// Lanes of an operand that are packed at a time.
int64_t piece_of(const GemmShape& shape, int64_t lanes) {
  const int64_t most = kMostPacked / (tiles_of(shape) * kAmxSteps) / kSide * kSide;
  return std::min(lanes, std::max(most, kFewestLanes));
}

// Whether a thread packs both operands of an item. A product that is alone is cut for several
// threads sooner.
bool is_near(const GemmShape& shape, const GemmBatch& batch) {
  return packed_elements(shape, shape.m) + packed_elements(shape, shape.n) <=
         (batch.count > 1 ? kNearElements : kNearElements / 8);
}

// Rows that a task has at most: as many as fit, or any where none would, so that op(A) is packed
// like op(B).
int64_t most_rows(const GemmShape& shape) {
  const int64_t fitting = kNearElements / (tiles_of(shape) * kAmxSteps) / kSide * kSide;
  return std::min(kMostRows, fitting);
}
bool is_deep(const GemmShape& shape) { return most_rows(shape) == 0; }

const GemmAmxKernels& kernels() { return avx512::gemm_amx_kernels; }

BF16Bits* result_bits(BF16* p) { return reinterpret_cast<BF16Bits*>(p); }
void pack_rows(const GemmAmxPanel<float>& panel) { kernels().pack_rows_f32(panel); }
void pack_rows(const GemmAmxPanel<BF16Bits>& panel) { kernels().pack_rows_bf16(panel); }
void pack_columns(const GemmAmxPanel<float>& panel) { kernels().pack_columns_f32(panel); }
void pack_columns(const GemmAmxPanel<BF16Bits>& panel) { kernels().pack_columns_bf16(panel); }

// Part of C, over the whole depth, by packed operands that begin at its first row and column.
template <typename Out>
struct Block {
  const BF16Bits *a, *b;
  Out* c;
  int64_t c_row;
  int64_t rows, columns;
};

template <typename In, typename Out>
class AmxProduct {
 public:
  AmxProduct(const GemmShape& shape,
             const GemmBatch& batch,
             bool accumulate,
             const FinishBlock* finish,
             const GatherTiles* gather = nullptr)
      : shape_(shape), batch_(batch), accumulate_(accumulate), finish_(finish), gather_(gather) {}

  /// `panels` is op(B) where it is packed already, else null; `a` is null where it is gathered.
  void run(const In* a, const In* b, const BF16Bits* panels, Out* c, void* workspace) const;

 private:
  using Lanes = Operand<In>;
  Lanes rows_of(const In* a) const {
    return {a, shape_.transpose_a ? 1 : shape_.lda, shape_.transpose_a ? shape_.lda : 1};
  }
  Lanes columns_of(const In* b) const {
    return {b, shape_.transpose_b ? shape_.ldb : 1, shape_.transpose_b ? 1 : shape_.ldb};
  }
  int64_t panel() const { return panel_elements(shape_); }
  template <bool kColumns>
  void pack(const Lanes& from, Range lanes, Range panels, BF16Bits* to) const;
  template <bool kColumns>
  void pack_all(const Lanes& from, Range lanes, BF16Bits* to) const;
  void pack_own_rows(const In* a, Range lanes, BF16Bits* to) const;
  void run_near(int64_t item, const In* a, const In* b, Out* c) const;
  // Packed op(B), the rows and columns of it that there are, and op(A), of which `packed` is null
  // where tasks pack their own rows.
  struct Piece {
    int64_t item;
    const In* a;
    const BF16Bits *packed, *b;
    Out* c;
    Range rows, columns;
  };
  void run_piece(const Piece& piece) const;
  void run_task(const Piece& piece, Range rows, Range columns) const;
  void run_rows(const Piece& piece, const BF16Bits* a, Range rows, Range columns) const;
  void multiply(const Block<Out>& block) const;
  void run_strip(const Block<Out>& strip) const;
  void add_up(const Block<Out>& strip, float* sums, int64_t sums_row) const;

  const GemmShape& shape_;
  const GemmBatch& batch_;
  bool accumulate_;
  const FinishBlock* finish_;
  const GatherTiles* gather_;
};

// Panels of the lanes [lanes.begin, lanes.end), which begin at `to`. Lanes that lie side by side
// are packed a tile at a time, in the order of memory.
template <typename In, typename Out>
template <bool kColumns>
void AmxProduct<In, Out>::pack(const Lanes& from, Range lanes, Range panels, BF16Bits* to) const {
  const int64_t steps = from.depth_stride == 1 ? shape_.k : kAmxSteps;
  for (int64_t p = 0; p < shape_.k; p += steps)
    for (int64_t i = panels.begin; i < panels.end; ++i) {
      const int64_t lane = lanes.begin + i * kAmxLanes;
      const GemmAmxPanel<BitsOf<In>> panel_at{
          bits_of(from.at(lane, p)),
          from.lane_stride,
          from.depth_stride,
          std::min(steps, shape_.k - p),
          static_cast<int>(std::min(kAmxLanes, lanes.end - lane)),
          to + i * panel() + p / kAmxSteps * kAmxTile};
      kColumns ? pack_columns(panel_at) : pack_rows(panel_at);
    }
}

template <typename In, typename Out>
template <bool kColumns>
void AmxProduct<In, Out>::pack_all(const Lanes& from, Range lanes, BF16Bits* to) const {
  const int64_t panels = ceil_div(lanes.size(), kAmxLanes);
  parallel_for(ceil_div(panels, kPanelsOfPacking), 1, [&](int64_t begin, int64_t end) {
    pack<kColumns>(
        from, lanes, {begin * kPanelsOfPacking, std::min(panels, end * kPanelsOfPacking)}, to);
  });
}

// Rows of op(A) that the thread multiplies itself.
template <typename In, typename Out>
void AmxProduct<In, Out>::pack_own_rows(const In* a, Range lanes, BF16Bits* to) const {
  if (gather_ != nullptr)
    (*gather_)(lanes.begin, lanes.size(), reinterpret_cast<BF16*>(to));
  else
    pack<false>(rows_of(a), lanes, {0, ceil_div(lanes.size(), kAmxLanes)}, to);
}

// Sums over the depth into (rows, 32) floats.
template <typename In, typename Out>
void AmxProduct<In, Out>::add_up(const Block<Out>& strip, float* sums, int64_t sums_row) const {
  const int64_t tiles = tiles_of(shape_);
  for (int64_t t = 0; t < tiles; t += kChain)
    for (int64_t i = 0; i < strip.rows; i += kSide)
      kernels().block({.tiles = std::min(kChain, tiles - t),
                       .a = strip.a + i / kAmxLanes * panel() + t * kAmxTile,
                       .a_panel = panel(),
                       .b = strip.b + t * kAmxTile,
                       .b_panel = panel(),
                       .c = sums + i * sums_row,
                       .c_row = sums_row,
                       .rows = static_cast<int>(std::min(kSide, strip.rows - i)),
                       .cols = static_cast<int>(strip.columns),
                       .add = accumulate_ || t > 0});
}

template <typename In, typename Out>
void AmxProduct<In, Out>::run_strip(const Block<Out>& strip) const {
  if constexpr (std::is_same_v<Out, float>) {
    add_up(strip, strip.c, strip.c_row);
  } else {
    alignas(64) float sums[kMostRows * kSide];
    add_up(strip, sums, kSide);
    kernels().narrow(sums,
                     kSide,
                     result_bits(strip.c),
                     strip.c_row,
                     strip.rows,
                     static_cast<int>(strip.columns));
  }
}

template <typename In, typename Out>
void AmxProduct<In, Out>::multiply(const Block<Out>& block) const {
  kernels().begin();
  for (int64_t i = 0; i < block.rows; i += kMostRows)
    for (int64_t j = 0; j < block.columns; j += kSide)
      run_strip({block.a + i / kAmxLanes * panel(),
                 block.b + j / kAmxLanes * panel(),
                 block.c + i * block.c_row + j,
                 block.c_row,
                 std::min(kMostRows, block.rows - i),
                 std::min(kSide, block.columns - j)});
  kernels().end();
}

// Rows and columns of a task.
struct Cut {
  int64_t rows, columns;
};

// Fewer rows than kFewRows would read op(B) too often.
Cut cut_of(const GemmShape& shape, int64_t rows, int64_t columns, int64_t threads) {
  constexpr int64_t kFewRows = 2 * kSide;
  const int64_t most = is_deep(shape) ? kMostRows : most_rows(shape);
  Cut cut{std::min(most, round_up(rows, kSide)), round_up(columns, kSide)};
  const auto half = [](int64_t& size) { size = round_up(size / 2, kSide); };
  while (ceil_div(rows, cut.rows) * ceil_div(columns, cut.columns) < kTasksOfThread * threads) {
    if (threads == 1 || cut.rows * cut.columns * shape.k <= kWorkOfTask) break;
    if (cut.rows > kFewRows)
      half(cut.rows);
    else if (cut.columns > kColumnsToFinish)
      half(cut.columns);
    else if (cut.rows > kSide)
      half(cut.rows);
    else if (cut.columns > kSide)
      half(cut.columns);
    else
      break;
  }
  return cut;
}

// Rows and columns are counted from those of the piece.
template <typename In, typename Out>
void AmxProduct<In, Out>::run_rows(const Piece& piece,
                                   const BF16Bits* a,
                                   Range rows,
                                   Range columns) const {
  const int64_t row = piece.rows.begin + rows.begin;
  for (int64_t j = columns.begin; j < columns.end; j += kColumnsToFinish) {
    const int64_t width = std::min(kColumnsToFinish, columns.end - j);
    const int64_t column = piece.columns.begin + j;
    multiply({a,
              piece.b + j / kAmxLanes * panel(),
              piece.c + row * shape_.ldc + column,
              shape_.ldc,
              rows.size(),
              width});
    if (finish_ != nullptr) (*finish_)({piece.item, row, rows.size(), column, width});
  }
}

template <typename In, typename Out>
void AmxProduct<In, Out>::run_task(const Piece& piece, Range rows, Range columns) const {
  if (piece.packed != nullptr)
    return run_rows(piece, piece.packed + rows.begin / kAmxLanes * panel(), rows, columns);
  alignas(64) BF16Bits packed[kNearElements];
  const Range lanes{piece.rows.begin + rows.begin, piece.rows.begin + rows.end};
  pack_own_rows(piece.a, lanes, packed);
  run_rows(piece, packed, rows, columns);
}

template <typename In, typename Out>
void AmxProduct<In, Out>::run_piece(const Piece& piece) const {
  const int64_t rows = piece.rows.size(), columns = piece.columns.size();
  const Cut cut = cut_of(shape_, rows, columns, num_threads());
  const int64_t across = ceil_div(columns, cut.columns);
  parallel_for(ceil_div(rows, cut.rows) * across, 1, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t i = task / across * cut.rows, j = task % across * cut.columns;
      run_task(piece, {i, std::min(i + cut.rows, rows)}, {j, std::min(j + cut.columns, columns)});
    }
  });
}

template <typename In, typename Out>
void AmxProduct<In, Out>::run_near(int64_t item, const In* a, const In* b, Out* c) const {
  alignas(64) BF16Bits packed[kNearElements];
  BF16Bits* const columns = packed + packed_elements(shape_, shape_.m);
  pack_own_rows(a, {0, shape_.m}, packed);
  pack<true>(columns_of(b), {0, shape_.n}, {0, ceil_div(shape_.n, kAmxLanes)}, columns);
  multiply({packed, columns, c, shape_.ldc, shape_.m, shape_.n});
  if (finish_ != nullptr) (*finish_)({item, 0, shape_.m, 0, shape_.n});
}

template <typename In, typename Out>
void AmxProduct<In, Out>::run(
    const In* a, const In* b, const BF16Bits* panels, Out* c, void* workspace) const {
  if (panels == nullptr && is_near(shape_, batch_)) {
    parallel_for(batch_.count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        run_near(i, a + i * batch_.stride_a, b + i * batch_.stride_b, c + i * batch_.stride_c);
    });
    return;
  }
  const uintptr_t aligned = (reinterpret_cast<uintptr_t>(workspace) + 63) & ~uintptr_t{63};
  auto* const columns_at = reinterpret_cast<BF16Bits*>(aligned);
  const int64_t width = panels == nullptr ? piece_of(shape_, shape_.n) : shape_.n;
  const int64_t height = is_deep(shape_) ? piece_of(shape_, shape_.m) : shape_.m;
  BF16Bits* const rows_at =
      is_deep(shape_) ? columns_at + (panels == nullptr ? packed_elements(shape_, width) : 0)
                      : nullptr;
  const In* has = nullptr;  // op(B) whose columns are all packed
  for (int64_t item = 0; item < batch_.count; ++item) {
    const In* const left = a + item * batch_.stride_a;
    const In* const right = panels == nullptr ? b + item * batch_.stride_b : nullptr;
    Out* const result = c + item * batch_.stride_c;
    for (int64_t i = 0; i < shape_.m; i += height) {
      const Range rows{i, std::min(i + height, shape_.m)};
      if (rows_at != nullptr) pack_all<false>(rows_of(left), rows, rows_at);
      for (int64_t j = 0; j < shape_.n; j += width) {
        const Range columns{j, std::min(j + width, shape_.n)};
        if (right != nullptr && !(width == shape_.n && has == right))
          pack_all<true>(columns_of(right), columns, columns_at);
        has = right;
        const BF16Bits* const packed = panels == nullptr ? columns_at : panels;
        run_piece({item, left, rows_at, packed, result, rows, columns});
      }
    }
  }
}

void check_amx(const GemmShape& shape, const GemmBatch& batch) {
  check_gemm_shape(shape);
  check_internal(batch.count >= 0, "[gemm_amx] batch of {} items", batch.count);
  check_internal(has_amx(), "[gemm_amx] there is no AMX here");
}

// The ops that make of op(B) what pack() makes of it.
Value pack_operand(Value b, const GemmShape& shape) {
  const int64_t depth = tiles_of(shape), panels = ceil_div(shape.n, kAmxLanes);
  const int64_t more_steps = depth * kAmxSteps - shape.k;
  const int64_t more_columns = panels * kAmxLanes - shape.n;
  const bool along = shape.transpose_b;
  Value x =
      cast(reshape(b, along ? Shape{shape.n, shape.k} : Shape{shape.k, shape.n}), DType::kBF16);
  if (more_steps > 0 || more_columns > 0)
    x = pad(x,
            {0, 0},
            along ? std::vector{more_columns, more_steps} : std::vector{more_steps, more_columns});
  if (along)
    return transpose(reshape(x, {panels, kAmxLanes, depth, kAmxSteps / 2, 2}), {0, 2, 3, 1, 4});
  return transpose(reshape(x, {depth, kAmxSteps / 2, 2, panels, kAmxLanes}), {3, 0, 1, 4, 2});
}

}  // namespace

size_t gemm_amx_workspace_bytes(const GemmShape& shape, const GemmBatch& batch, bool has_panels) {
  check_amx(shape, batch);
  int64_t elements = 0;
  if (is_deep(shape)) elements += packed_elements(shape, piece_of(shape, shape.m));
  if (!has_panels && !is_near(shape, batch))
    elements += packed_elements(shape, piece_of(shape, shape.n));
  return elements == 0 ? 0 : static_cast<size_t>(elements) * sizeof(BF16) + 63;  // room to align
}

template <typename In, typename Out>
void gemm_amx(const GemmShape& shape,
              const GemmBatch& batch,
              const In* a,
              const In* b,
              Out* c,
              bool accumulate,
              void* workspace,
              const FinishBlock* finish) {
  check_amx(shape, batch);
  check_internal(!accumulate || std::is_same_v<Out, float>, "[gemm_amx] only f32 accumulates");
  AmxProduct<In, Out>(shape, batch, accumulate, finish).run(a, b, nullptr, c, workspace);
}

bool can_gather_tiles(const GemmShape& shape) { return !is_deep(shape); }

void gemm_amx_gathered(const GemmShape& shape,
                       GatherTiles gather,
                       const BF16* b,
                       BF16* c,
                       void* workspace,
                       const FinishBlock* finish) {
  const GemmBatch one;
  check_amx(shape, one);
  check_internal(can_gather_tiles(shape), "[gemm_amx] a depth of {} is not gathered", shape.k);
  AmxProduct<BF16, BF16>(shape, one, /*accumulate=*/false, finish, &gather)
      .run(nullptr, b, nullptr, c, workspace);
}

template <typename In, typename Out>
void gemm_amx_packed(const GemmShape& shape,
                     const In* a,
                     const void* panels,
                     Out* c,
                     void* workspace,
                     const FinishBlock* finish) {
  const GemmBatch one;
  check_amx(shape, one);
  AmxProduct<In, Out>(shape, one, /*accumulate=*/false, finish)
      .run(a, nullptr, static_cast<const BF16Bits*>(panels), c, workspace);
}

PackedOperand amx_operand(size_t input, const GemmShape& shape) {
  return {.input = input,
          .layout = shape.transpose_b ? "amx.t" : "amx",
          .pack = [shape](Value value) { return pack_operand(value, shape); },
          .only_constants = true};
}

#define RIDGE_INSTANTIATE(In, Out)                     \
  template void gemm_amx<In, Out>(const GemmShape&,    \
                                  const GemmBatch&,    \
                                  const In*,           \
                                  const In*,           \
                                  Out*,                \
                                  bool,                \
                                  void*,               \
                                  const FinishBlock*); \
  template void gemm_amx_packed<In, Out>(              \
      const GemmShape&, const In*, const void*, Out*, void*, const FinishBlock*);
RIDGE_INSTANTIATE(float, float)
RIDGE_INSTANTIATE(BF16, BF16)
RIDGE_INSTANTIATE(BF16, float)
#undef RIDGE_INSTANTIATE

}  // namespace ridge::cpu
