// The driver of products of bytes. A task packs its rows of op(A) on its own stack, unless the
// kernel reads them where they lie; op(B) is packed beforehand, or whole into the workspace, or,
// where there are few rows, by the tasks, a strip of columns at a time.
#include "ridge/backend/cpu/gemm/gemm_i8.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "ridge/backend/cpu/cpu_isa.h"
#include "ridge/backend/cpu/gemm/gemm_i8_form.h"
#include "ridge/backend/cpu/gemm/gemm_plan.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/base/error.h"

namespace ridge::cpu {
namespace {

constexpr int64_t kStrip = kI8Panels * kI8Lanes;  // columns of a block
constexpr int64_t kGroup = 256;                   // most columns whose sums wait for their results
constexpr int64_t kRing = 64;                     // rows of sums where blocks give results
constexpr int64_t kPanelsOfPacking = 4;
constexpr int64_t kTasksOfThread = 4;
constexpr int64_t kWorkOfTask = int64_t{1} << 20;  // products

int64_t tiles_of(int64_t depth) { return ceil_div(depth, kI8Steps); }
int64_t panels_of(const GemmShape& shape) { return ceil_div(shape.n, kI8Lanes); }
int64_t panel_bytes(const GemmShape& shape) { return tiles_of(shape.k) * kI8Tile; }
uint8_t flip_of(bool is_flipped) { return is_flipped ? 0x80 : 0; }

// An operand as lanes: rows of op(A) or columns of op(B).
struct Lanes {
  const uint8_t* data;
  int64_t lane_stride, depth_stride;
  uint8_t flip;

  GemmI8Lanes at(int64_t lane, Range depth, int64_t most) const {
    return {.from = data + lane * lane_stride + depth.begin * depth_stride,
            .lane_stride = lane_stride,
            .depth_stride = depth_stride,
            .depth = depth.size(),
            .lanes = static_cast<int>(std::min(kI8Lanes, most - lane)),
            .flip = flip,
            .to = nullptr,
            .to_tile = 0,
            .sums = nullptr};
  }
};

Lanes columns_of(const GemmShape& s, const void* b, bool is_signed) {
  return {static_cast<const uint8_t*>(b),
          s.transpose_b ? s.ldb : 1,
          s.transpose_b ? 1 : s.ldb,
          flip_of(!is_signed)};
}

// Packs panels of columns; those that lie side by side a tile at a time, in the order of memory.
// `to` and `sums` are those of the first panel.
void pack_panels(const Lanes& from,
                 Range depth,
                 int64_t columns,
                 Range panels,
                 uint8_t* to,
                 int64_t panel,
                 int32_t* sums) {
  std::fill_n(sums, panels.size() * kI8Lanes, 0);
  const int64_t steps = from.depth_stride == 1 ? depth.size() : kI8Steps;
  for (int64_t p = depth.begin; p < depth.end; p += steps)
    for (int64_t i = panels.begin; i < panels.end; ++i) {
      GemmI8Lanes lanes = from.at(i * kI8Lanes, {p, std::min(p + steps, depth.end)}, columns);
      lanes.to = to + (i - panels.begin) * panel + (p - depth.begin) / kI8Steps * kI8Tile;
      lanes.to_tile = kI8Tile;
      lanes.sums = sums + (i - panels.begin) * kI8Lanes;
      avx2::pack_i8_columns(lanes);
    }
}

// op(B) packed: its panels, and the sums of its columns.
struct PackedColumns {
  const int8_t* panels = nullptr;
  const int32_t* sums = nullptr;
};

PackedColumns packed_at(const GemmShape& shape, const void* packed) {
  const auto* const panels = static_cast<const int8_t*>(packed);
  return {panels, reinterpret_cast<const int32_t*>(panels + panels_of(shape) * panel_bytes(shape))};
}

// A zero point, as it is where the elements are packed.
int32_t zero_at(const I8Zeros& zeros, int64_t i, bool is_signed, int32_t moved) {
  if (zeros.data == nullptr) return moved;
  const size_t at = zeros.each ? static_cast<size_t>(i) : 0;
  return moved + (is_signed ? int32_t{static_cast<const int8_t*>(zeros.data)[at]}
                            : int32_t{static_cast<const uint8_t*>(zeros.data)[at]});
}

// Whether numbers of a column are within 2^30, whatever its sums are.
bool is_plain(float scale, float bias) {
  constexpr float kMostScale = 0.25f, kMostBias = 0x1p29f;
  return std::abs(scale) <= kMostScale && std::abs(bias) <= kMostBias;
}

int32_t wrapped(int64_t x) { return static_cast<int32_t>(static_cast<uint32_t>(x)); }

class I8Product {
 public:
  I8Product(const I8Problem& problem,
            const I8Operands& operands,
            const I8Results& results,
            const FinishBlock* finish)
      : problem_(problem),
        shape_(problem.shape),
        operands_(operands),
        results_(results),
        finish_(finish),
        kernels_(i8_kernels(problem.form)),
        has_column_zeros_(finds_column_zeros()) {}

  void run(void* workspace) const;

 private:
  // A task has it on its stack.
  struct Memory {
    alignas(64) uint8_t rows[kI8NearBytes];
    alignas(64) int8_t strip[kStrip * kI8Chain];
    alignas(64) int32_t sums[kI8Rows * kGroup];
    alignas(64) int32_t column_sums[kGroup];
    int32_t row_sums[kI8Rows];
    // These make results of the sums of a group of columns.
    int32_t row_zeros[kI8Rows], row_terms[kI8Rows];
    alignas(64) int32_t column_terms[kGroup];
    alignas(64) int32_t column_zeros[kGroup];
    alignas(64) float scales[kGroup];
    alignas(64) float bias[kGroup];
    GemmI8Results results;
  };
  // Rows and columns of an item, and op(B) where it is packed.
  struct Task {
    int64_t item;
    Range rows, columns;
    PackedColumns packed;
  };
  void run_items(Range items, const PackedColumns& packed) const;
  void run_task(const Task& task) const;
  void pack_rows(const Task& task, Range depth, Memory& memory) const;
  void set_rows(
      const Task& task, Range depth, Range chain, const Memory& memory, GemmI8Block& block) const;
  void multiply(const Task& task, Range columns, Range depth, Memory& memory) const;
  void fetch_behind(const Task& task, Range at, Range depth, GemmI8Block& block) const;
  PackedColumns pack_strip(
      const Task& task, int64_t column, int64_t group, Range depth, Memory& memory) const;
  bool fill_columns(const Task& task, Range columns, Memory& memory) const;
  GiveI8Results prepare_results(const Task& task, Range columns, Memory& memory) const;
  GiveI8Results result_kernel(const GemmI8Results& results, bool is_plain) const;
  // Whether blocks have rows of op(A) where they lie, but for those behind the last multiple of 16:
  // they are whole tiles, nothing is summed, and they do not lie in one set of the first-level
  // cache.
  bool reads_rows() const {
    constexpr int64_t kCacheStride = 4096;
    return kernels_.reads_rows && operands_.windows == nullptr && !shape_.transpose_a &&
           !has_column_zeros_ && shape_.k % kI8Steps == 0 && shape_.lda % kCacheStride != 0;
  }
  // The rows that a task packs.
  Range packed_rows(const Task& task) const {
    const int64_t whole = task.rows.size() / kI8Lanes * kI8Lanes;
    return {task.rows.begin + (reads_rows() ? whole : 0), task.rows.end};
  }
  // Whether the blocks of a strip of columns make its results.
  bool blocks_give_results(const Task& task) const {
    return kernels_.gives_results && group_of(task) == kStrip;
  }
  // Weights mostly have zero points that are 0, and then sums of rows are not needed.
  bool finds_column_zeros() const {
    const int64_t count = operands_.b_zero.each ? shape_.n : 1;
    for (int64_t j = 0; j < count; ++j)
      if (column_zero(j) != 0) return true;
    return false;
  }
  // Steps of depth of which a task packs its rows at a time.
  int64_t chunk_of(const Task& task) const {
    const int64_t rows = round_up(packed_rows(task).size(), kI8Lanes);
    if (rows * round_up(shape_.k, kI8Steps) <= kI8NearBytes) return shape_.k;
    return kI8NearBytes / rows / kI8Chain * kI8Chain;
  }
  // Columns whose sums wait for their results: more where rows are packed again for each group.
  int64_t group_of(const Task& task) const { return chunk_of(task) >= shape_.k ? kStrip : kGroup; }
  // Bits that packing op(A) flips.
  uint8_t row_flip() const { return flip_of(problem_.a_is_signed && !reads_rows()); }
  int32_t row_zero(int64_t i) const {
    return zero_at(operands_.a_zero, i, problem_.a_is_signed, row_flip());
  }
  int32_t column_zero(int64_t j) const {
    const bool is_signed = problem_.b_is_signed;
    return zero_at(operands_.b_zero, j, is_signed, is_signed ? 0 : -128);
  }
  const uint8_t* a(int64_t item) const {
    return static_cast<const uint8_t*>(operands_.a) + item * problem_.batch.stride_a;
  }
  const uint8_t* b(int64_t item) const {
    return static_cast<const uint8_t*>(operands_.b) + item * problem_.batch.stride_b;
  }

  const I8Problem& problem_;
  const GemmShape& shape_;
  const I8Operands& operands_;
  const I8Results& results_;
  const FinishBlock* finish_;
  const GemmI8Kernels& kernels_;
  bool has_column_zeros_;
};

void I8Product::pack_rows(const Task& task, Range depth, Memory& memory) const {
  const Lanes from{a(task.item),
                   shape_.transpose_a ? 1 : shape_.lda,
                   shape_.transpose_a ? shape_.lda : 1,
                   row_flip()};
  const Range packed = packed_rows(task);
  const int64_t rows = round_up(packed.size(), kI8Lanes);
  if (depth.begin == 0) std::fill_n(memory.row_sums, rows, 0);
  for (int64_t i = 0; i < rows; i += kI8Lanes) {
    GemmI8Lanes lanes = from.at(packed.begin + i, depth, packed.end);
    lanes.to = memory.rows + i * kI8Steps;
    lanes.to_tile = rows * kI8Steps;
    lanes.sums = has_column_zeros_ ? memory.row_sums + i : nullptr;
    if (operands_.windows != nullptr)
      avx2::pack_i8_windows(*operands_.windows, packed.begin + i, depth.begin, lanes);
    else if (has_avx512() && lanes.depth_stride == 1 && lanes.sums == nullptr)
      avx512::pack_i8_whole_rows(lanes);
    else
      avx2::pack_i8_rows(lanes);
  }
}

// The panels of a strip over some depth, packed now; their sums are added to those of the group.
PackedColumns I8Product::pack_strip(
    const Task& task, int64_t column, int64_t group, Range depth, Memory& memory) const {
  const Lanes from = columns_of(shape_, b(task.item), problem_.b_is_signed);
  const Range panels{column / kI8Lanes,
                     ceil_div(std::min(column + kStrip, task.columns.end), kI8Lanes)};
  std::array<int32_t, kStrip> sums;
  pack_panels(from,
              depth,
              shape_.n,
              panels,
              reinterpret_cast<uint8_t*>(memory.strip),
              kI8Chain * kI8Lanes,
              sums.data());
  int32_t* const to = memory.column_sums + (column - group);
  for (int64_t j = 0; j < panels.size() * kI8Lanes; ++j)
    to[j] = wrapped(int64_t{to[j]} + sums[static_cast<size_t>(j)]);
  return {memory.strip, nullptr};
}

// The block behind the one that ends at that depth is the next chain of its strip, or the first one
// of the next strip.
void I8Product::fetch_behind(const Task& task, Range at, Range depth, GemmI8Block& block) const {
  const bool same_strip = at.end < depth.end;
  const int64_t column = same_strip ? at.begin : at.begin + kStrip;
  const int64_t step = same_strip ? at.end : depth.begin;
  if (column >= task.columns.end) return;
  block.next = task.packed.panels + column / kI8Lanes * block.b_panel + step * kI8Lanes;
  block.next_bytes = round_up(std::min(kI8Chain, depth.end - step), kI8Steps) * kI8Lanes;
  block.next_panels = ceil_div(std::min(kStrip, task.columns.end - column), kI8Lanes);
}

// Rows of op(A) over that chain.
void I8Product::set_rows(
    const Task& task, Range depth, Range chain, const Memory& memory, GemmI8Block& block) const {
  const int64_t rows = round_up(packed_rows(task).size(), kI8Lanes);
  const uint8_t* const packed = memory.rows + (chain.begin - depth.begin) * rows;
  block.a = packed;
  block.a_tile = rows * kI8Steps;
  block.a_row = kI8Steps;
  if (!reads_rows()) return;
  block.a = a(task.item) + task.rows.begin * shape_.lda + chain.begin;
  block.a_tile = kI8Steps;
  block.a_row = shape_.lda;
  block.a_rest = rows > 0 ? packed : nullptr;
  block.a_is_signed = problem_.a_is_signed;
}

// Adds to the sums of a group of columns the products of some depth, whose rows are packed.
void I8Product::multiply(const Task& task, Range columns, Range depth, Memory& memory) const {
  for (int64_t j = columns.begin; j < columns.end; j += kStrip)
    for (int64_t p = depth.begin; p < depth.end; p += kI8Chain) {
      const Range chain{p, std::min(p + kI8Chain, depth.end)};
      GemmI8Block block{};
      block.steps = chain.size();
      set_rows(task, depth, chain, memory, block);
      block.b_panel = panel_bytes(shape_);
      block.c = memory.sums + (j - columns.begin);
      block.c_row = group_of(task);
      block.c_rows = kI8Rows;
      block.rows = task.rows.size();
      block.panels = ceil_div(std::min(kStrip, columns.end - j), kI8Lanes);
      block.add = p > 0;
      if (task.packed.panels != nullptr) {
        block.b = task.packed.panels + j / kI8Lanes * block.b_panel + p * kI8Lanes;
        fetch_behind(task, {j, chain.end}, depth, block);
      } else {
        block.b = pack_strip(task, j, columns.begin, chain, memory).panels;
        block.b_panel = kI8Chain * kI8Lanes;
      }
      if (chain.end == shape_.k && blocks_give_results(task)) {
        block.give = prepare_results(task, columns, memory);
        block.results = &memory.results;
        if (p == 0) block.c_rows = kRing;  // it stays in the first-level cache
      }
      kernels_.block(block);
    }
}

// The numbers of the columns of a group, and of those up to the next strip; whether all are plain.
bool I8Product::fill_columns(const Task& task, Range columns, Memory& memory) const {
  const int32_t* const column_sums =
      task.packed.sums != nullptr ? task.packed.sums + columns.begin : memory.column_sums;
  const bool has_row_zeros = operands_.a_zero.each;
  bool all_plain = true;
  for (int64_t j = 0; j < columns.size(); ++j) {
    const int64_t at = columns.begin + j;
    const int64_t added = results_.sum_bias == nullptr ? 0 : results_.sum_bias[at];
    memory.column_terms[j] =
        wrapped((has_row_zeros ? 0 : int64_t{memory.row_zeros[0]} * column_sums[j]) - added);
    if (has_column_zeros_) memory.column_zeros[j] = column_zero(at);
    if (results_.dtype == DType::kI32) continue;
    memory.scales[j] = results_.column_scale[results_.has_scale_each_column ? at : 0];
    memory.bias[j] = results_.bias == nullptr ? -0.0f : results_.bias[at];  // x + -0 is x
    all_plain = all_plain && is_plain(memory.scales[j], memory.bias[j]);
  }
  const int64_t filled = round_up(columns.size(), kStrip);
  std::fill(memory.column_terms + columns.size(), memory.column_terms + filled, 0);
  std::fill(memory.scales + columns.size(), memory.scales + filled, 0.0f);
  std::fill(memory.bias + columns.size(), memory.bias + filled, 0.0f);
  return all_plain;
}

GiveI8Results I8Product::result_kernel(const GemmI8Results& results, bool is_plain) const {
  const GemmI8ResultKernels& kernels =
      for_isa(avx2::gemm_i8_result_kernels, avx512::gemm_i8_result_kernels);
  const bool is_alone =
      results.row_zeros == nullptr && results.row_terms == nullptr && results.row_scales == nullptr;
  const bool takes_plain = is_plain && is_alone && kernels.plain_to_i8 != nullptr;
  switch (results_.dtype) {
    case DType::kI32:
      return kernels.to_i32;
    case DType::kF32:
      return kernels.to_f32;
    case DType::kI8:
      return takes_plain ? kernels.plain_to_i8 : kernels.to_i8;
    default:
      return takes_plain ? kernels.plain_to_u8 : kernels.to_u8;
  }
}

// Fills memory.results for a group of columns, and returns what makes them.
GiveI8Results I8Product::prepare_results(const Task& task, Range columns, Memory& memory) const {
  const bool has_row_zeros = operands_.a_zero.each;
  for (int64_t i = 0; i < task.rows.size(); ++i) {
    memory.row_zeros[i] = row_zero(task.rows.begin + i);
    if (has_column_zeros_)
      memory.row_terms[i] = wrapped(int64_t{memory.row_sums[i]} - shape_.k * memory.row_zeros[i]);
    else if (!has_row_zeros)
      break;
  }
  const bool is_plain = fill_columns(task, columns, memory);
  const int64_t first =
      task.item * problem_.batch.stride_c + task.rows.begin * shape_.ldc + columns.begin;
  memory.results = {
      .sums_row = group_of(task),
      .rows = task.rows.size(),
      .columns = columns.size(),
      .column_terms = memory.column_terms,
      .row_zeros = has_row_zeros ? memory.row_zeros : nullptr,
      .column_sums =
          task.packed.sums != nullptr ? task.packed.sums + columns.begin : memory.column_sums,
      .row_terms = has_column_zeros_ ? memory.row_terms : nullptr,
      .column_zeros = memory.column_zeros,
      .row_scales = results_.row_scale == nullptr ? nullptr : results_.row_scale + task.rows.begin,
      .column_scales = memory.scales,
      .bias = memory.bias,
      .zero = results_.zero,
      .low = results_.least(),
      .high = results_.most(),
      .to = static_cast<char*>(results_.c) + first * static_cast<int64_t>(size_of(results_.dtype)),
      .to_row = shape_.ldc};
  return result_kernel(memory.results, is_plain);
}

void I8Product::run_task(const Task& task) const {
  Memory memory;
  const int64_t chunk = chunk_of(task), group = group_of(task);
  for (int64_t j = task.columns.begin; j < task.columns.end; j += group) {
    const Range columns{j, std::min(j + group, task.columns.end)};
    if (task.packed.panels == nullptr) std::fill_n(memory.column_sums, group, 0);
    if (kernels_.begin != nullptr) kernels_.begin();
    for (int64_t p = 0; p < shape_.k; p += chunk) {
      const Range depth{p, std::min(p + chunk, shape_.k)};
      const bool has_rows = chunk >= shape_.k && j > task.columns.begin;
      if (!has_rows) pack_rows(task, depth, memory);
      multiply(task, columns, depth, memory);
    }
    if (kernels_.end != nullptr) kernels_.end();
    if (!blocks_give_results(task)) {
      const GiveI8Results give = prepare_results(task, columns, memory);
      give(memory.results, memory.sums, 0, task.rows.size());
    }
    if (finish_ != nullptr)
      (*finish_)({task.item, task.rows.begin, task.rows.size(), j, columns.size()});
  }
}

// Rows and columns of a task.
struct Cut {
  int64_t rows, columns;
};

// Fewer rows than kFewRows would read op(B) too often.
Cut cut_of(const GemmShape& shape, int64_t items, bool packs_strips, int64_t threads) {
  constexpr int64_t kFewRows = 64;
  Cut cut{std::min(kI8Rows, round_up(shape.m, kI8Lanes)), round_up(shape.n, kStrip)};
  const auto tasks = [&] {
    return items * ceil_div(shape.m, cut.rows) * ceil_div(shape.n, cut.columns);
  };
  while (tasks() < kTasksOfThread * threads) {
    if (threads == 1 || cut.rows * cut.columns * shape.k <= kWorkOfTask) break;
    if (cut.rows > kFewRows && !packs_strips)
      cut.rows = round_up(cut.rows / 2, kI8Lanes);
    else if (cut.columns > kStrip)
      cut.columns = round_up(cut.columns / 2, kStrip);
    else
      break;
  }
  return cut;
}

void I8Product::run_items(Range items, const PackedColumns& packed) const {
  const Cut cut = cut_of(shape_, items.size(), packed.panels == nullptr, num_threads());
  const int64_t across = ceil_div(shape_.n, cut.columns);
  const int64_t tasks = ceil_div(shape_.m, cut.rows) * across;
  parallel_for(items.size() * tasks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t i = task % tasks / across * cut.rows, j = task % across * cut.columns;
      run_task({items.begin + task / tasks,
                {i, std::min(i + cut.rows, shape_.m)},
                {j, std::min(j + cut.columns, shape_.n)},
                packed});
    }
  });
}

void I8Product::run(void* workspace) const {
  const int64_t count = problem_.batch.count;
  if (problem_.b_is_packed) return run_items({0, count}, packed_at(shape_, operands_.b));
  if (gemm_i8_workspace_bytes(problem_) == 0) return run_items({0, count}, {});
  const uintptr_t aligned = (reinterpret_cast<uintptr_t>(workspace) + 63) & ~uintptr_t{63};
  auto* const to = reinterpret_cast<uint8_t*>(aligned);
  const bool is_shared = problem_.batch.stride_b == 0;
  for (int64_t item = 0; item < count; item += is_shared ? count : 1) {
    pack_i8(shape_, b(item), problem_.b_is_signed, to);
    run_items({item, is_shared ? count : item + 1}, packed_at(shape_, to));
  }
}

}  // namespace

size_t packed_i8_bytes(const GemmShape& shape) {
  return static_cast<size_t>(panels_of(shape) *
                             (panel_bytes(shape) + kI8Lanes * int64_t{sizeof(int32_t)}));
}

void pack_i8(const GemmShape& shape, const void* b, bool is_signed, void* to) {
  check_gemm_shape(shape);
  const Lanes from = columns_of(shape, b, is_signed);
  auto* const panels_at = static_cast<uint8_t*>(to);
  const int64_t panels = panels_of(shape), panel = panel_bytes(shape);
  auto* const sums = reinterpret_cast<int32_t*>(panels_at + panels * panel);
  parallel_for(ceil_div(panels, kPanelsOfPacking), 1, [&](int64_t begin, int64_t end) {
    const Range some{begin * kPanelsOfPacking, std::min(panels, end * kPanelsOfPacking)};
    pack_panels(from,
                {0, shape.k},
                shape.n,
                some,
                panels_at + some.begin * panel,
                panel,
                sums + some.begin * kI8Lanes);
  });
}

size_t gemm_i8_workspace_bytes(const I8Problem& problem) {
  if (problem.b_is_packed || problem.shape.m <= kI8Rows) return 0;
  return packed_i8_bytes(problem.shape) + 63;  // room to align
}

void gemm_i8(const I8Problem& problem,
             const I8Operands& operands,
             const I8Results& results,
             void* workspace,
             const FinishBlock* finish) {
  const DType dtype = results.dtype;
  check_gemm_shape(problem.shape);
  check_internal(problem.batch.count >= 0, "[gemm_i8] batch of {} items", problem.batch.count);
  check_internal(
      operands.windows == nullptr || (problem.batch.count == 1 && !problem.shape.transpose_a),
      "[gemm_i8] windows of a batch or transposed");
  check_internal(has_i8_form(problem.form), "[gemm_i8] there is no {} here", name_of(problem.form));
  check_internal(
      dtype == DType::kI32 || dtype == DType::kF32 || dtype == DType::kI8 || dtype == DType::kU8,
      "[gemm_i8] results of {}",
      name_of(dtype));
  check_internal(dtype == DType::kI32 || results.column_scale != nullptr,
                 "[gemm_i8] results of {} without a scale",
                 name_of(dtype));
  I8Product(problem, operands, results, finish).run(workspace);
}

}  // namespace ridge::cpu
