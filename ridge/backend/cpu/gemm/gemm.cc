// The driver of the packed GEMM: packs by plan and hands tiles to the kernels of the instruction
// set in use.
//
// A product is cut into tasks, each some rows by some columns of C over the whole depth. For each
// chain of depth a task packs its rows of op(A) into panels, then its columns of op(B) strip by
// strip, all on its own stack; what a thin product would use too seldom it reads where it lies.
// Tasks share nothing that is written: on processors with several last-level caches, packing for
// one another would cost more than packing twice.
#include "ridge/backend/cpu/gemm/gemm.h"

#include <optional>

#include "ridge/backend/cpu/cpu_isa.h"
#include "ridge/backend/cpu/gemm/gemm_operands.h"
#include "ridge/backend/cpu/gemm/gemm_plan.h"
#include "ridge/backend/cpu/gemm/gemm_thin.h"
#include "ridge/backend/cpu/half_rows.h"
#include "ridge/backend/cpu/isa/gemm/gemm_kernels.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/base/error.h"

namespace ridge::cpu {
namespace {

// The parameters that the tiles of one panel of columns share.
template <typename T>
struct Step {
  Range depth;
  int64_t steps;  // packed ones, of which kPairs has half as many
  const T* a;     // address of the first row: panels, or the operand where it lies
  int64_t a_row;  // strides of the operand; 0 for panels
  int64_t a_step;
  const T* b;
  int64_t b_step;
  T* copy;  // not null: the first tile reads op(B) where it lies and packs it there, at b
  const T* lying;
  int64_t lying_step;
  int64_t cols;
  bool add;
};

constexpr int64_t kLine = 64;

// Part of an operand, as rows of memory.
template <typename In>
GemmAhead::Rows rows_of(const Operand<In>& x, Range lanes, Range depth) {
  const bool lanes_run = x.lane_stride == 1;
  constexpr int64_t kSize = sizeof(In);
  const char* const at = reinterpret_cast<const char*>(x.at(lanes.begin, depth.begin));
  const int64_t bytes = (lanes_run ? lanes : depth).size() * kSize;
  const int64_t stride = (lanes_run ? x.depth_stride : x.lane_stride) * kSize;
  // Rows that begin inside a line may end in one more.
  const bool aligned = reinterpret_cast<uintptr_t>(at) % kLine == 0 && stride % kLine == 0;
  return {at, bytes + (aligned ? 0 : kLine - kSize), stride, (lanes_run ? depth : lanes).size()};
}

int64_t lines_of(const GemmAhead::Rows& rows) { return rows.count * ceil_div(rows.bytes, kLine); }

// One part of operands after the other, over so many tiles.
GemmAhead ahead_of(const GemmAhead::Rows& now, const GemmAhead::Rows& then, int64_t tiles) {
  return {now, then, 0, ceil_div(lines_of(now) + lines_of(then), tiles)};
}

template <typename In>
class Product {
 public:
  using T = ComputeType<In>;

  Product(const GemmPlan& plan, const GemmOperands<In>& operands, bool accumulate)
      : plan_(plan),
        kernels_(for_isa(avx2::gemm_kernels, avx512::gemm_kernels)),
        kernel_(kernel_for(plan, kernels_)),
        pack_(packing<In>(kernels_, plan.products)),
        a_(operands.a),
        b_(operands.b),
        c_(operands.c),
        panels_(operands.panels),
        gather_(operands.gather),
        accumulate_(accumulate) {}

  /// `scratch` holds plan.scratch_elements, of which tasks touch their own.
  void run_task(int64_t task, T* scratch) const;

  /// Operands of the product that will come after this one, to be fetched meanwhile.
  void precede(const GemmOperands<In>& next) { next_ = &next; }

 private:
  static const GemmKernel<T>& kernel_for(const GemmPlan& plan, const GemmKernels& kernels) {
    if constexpr (std::is_same_v<T, float>)
      if (plan.products == GemmProducts::kPairs) return avx512::gemm_pair_kernels.kernel;
    return kernel_of(kernels, T{});
  }
  // 16-bit sums of a single chain of depth go into C tile by tile.
  bool rounds_at_once() const { return is_half<In> && plan_.scratch_elements == 0; }
  void run_block(const PanelledRows& rows, Range columns, Result<T> sums) const;
  void run_strip(
      const PanelledRows& rows, Range strip, Step<T> step, Result<T> sums, GemmAhead& ahead) const;
  GemmAhead after(const PanelledRows& rows, Range columns, Range strip, Range depth) const;
  Step<T> take_rows(const PanelledRows& rows, Range depth, T* packed) const;
  void pack_columns(Range columns, Range depth, T* to) const;
  const T* panel_at(int64_t column, int64_t p) const;
  GemmAhead::Rows columns_of(Range columns, Range depth) const;
  void multiply(const PanelledRows& rows, const Step<T>& step, Result<T> c, GemmAhead& ahead) const;
  void multiply_16_bit(const PanelledRows& rows, const Step<T>& step, Result<In> c) const;
  void widen_row_of(Result<In> from, int64_t n, T* to) const;
  void narrow_row_to(const T* from, int64_t n, Result<In> to) const;

  const GemmPlan& plan_;
  const GemmKernels& kernels_;
  const GemmKernel<T>& kernel_;
  const PackGemmPanel<BitsOf<In>, T> pack_;
  Operand<In> a_;
  Operand<In> b_;
  Result<In> c_;
  const T* panels_;
  const GatherRows<In>* gather_;
  bool accumulate_;
  const GemmOperands<In>* next_ = nullptr;
};

template <typename In>
void Product<In>::run_task(int64_t task, T* scratch) const {
  const auto [task_rows, columns] = plan_.block(task);
  const PanelledRows rows(task_rows, std::min<int64_t>(kernel_.rows, plan_.tallest));
  if constexpr (!is_half<In>) {
    run_block(rows, columns, c_.at(rows.begin, columns.begin));
  } else if (rounds_at_once()) {
    run_block(rows, columns, {});
  } else {
    // The sums begin as the old C and are rounded once, at the end.
    const Result<T> sums{scratch + rows.begin * plan_.n + columns.begin, plan_.n, 1};
    for (int64_t i = 0; accumulate_ && i < rows.count; ++i)
      widen_row_of(c_.at(rows.begin + i, columns.begin), columns.size(), sums.at(i, 0).data);
    run_block(rows, columns, sums);
    for (int64_t i = 0; i < rows.count; ++i)
      narrow_row_to(sums.at(i, 0).data, columns.size(), c_.at(rows.begin + i, columns.begin));
  }
}

// `sums` is unused where rounds_at_once.
template <typename In>
void Product<In>::run_block(const PanelledRows& rows, Range columns, Result<T> sums) const {
  alignas(64) T packed[kGemmBlockBytes / sizeof(T)];
  for (int64_t p = 0; p < plan_.k; p += plan_.depth) {
    const Range depth = plan_.chain(p);
    Step<T> step = take_rows(rows, depth, packed);
    step.add = accumulate_ || p > 0;
    GemmAhead ahead{};
    if (next_ != nullptr)
      ahead = ahead_of(rows_of(next_->a, {0, plan_.m}, depth),
                       rows_of(next_->b, {0, plan_.n}, depth),
                       rows.panels * ceil_div(columns.size(), kernel_.cols));
    for (int64_t j = columns.begin; j < columns.end; j += plan_.strip_columns) {
      const Range strip{j, std::min(j + plan_.strip_columns, columns.end)};
      if (plan_.fetch) ahead = after(rows, columns, strip, depth);
      run_strip(rows, strip, step, sums.at(0, j - columns.begin), ahead);
    }
  }
}

// The operands that are read after this strip: the strip beside it, or the first one that is
// deeper, below or of the next task, which the same thread may well run; where rows are new, those
// too.
template <typename In>
GemmAhead Product<In>::after(const PanelledRows& rows,
                             Range columns,
                             Range strip,
                             Range depth) const {
  const int64_t tiles = rows.panels * ceil_div(strip.size(), kernel_.cols);
  const bool beside = strip.end < columns.end;
  const bool deeper = !beside && depth.end < plan_.k;
  const int64_t end = rows.begin + rows.count;
  const bool below = !beside && !deeper && end < plan_.m;
  const int64_t first = deeper || below ? columns.begin : strip.end;
  const int64_t p = beside ? depth.begin : deeper ? depth.end : 0;
  if (first >= plan_.n) return {};
  const Range next{first, std::min(first + plan_.strip_columns, plan_.n)};
  GemmAhead::Rows new_rows{};
  if (gather_ != nullptr) return ahead_of(columns_of(next, plan_.chain(p)), new_rows, tiles);
  if (deeper) new_rows = rows_of(a_, {rows.begin, end}, plan_.chain(p));
  if (below) new_rows = rows_of(a_, {end, std::min(end + rows.count, plan_.m)}, plan_.chain(p));
  return ahead_of(columns_of(next, plan_.chain(p)), new_rows, tiles);
}

// The first column of a panel that was packed beforehand, from step p of the depth on.
template <typename In>
const ComputeType<In>* Product<In>::panel_at(int64_t column, int64_t p) const {
  return panels_ + column * plan_.packed(plan_.k) + plan_.packed(p) * kernel_.cols;
}

template <typename In>
GemmAhead::Rows Product<In>::columns_of(Range columns, Range depth) const {
  if (panels_ == nullptr) return rows_of(b_, columns, depth);
  const int64_t line = kernel_.cols * static_cast<int64_t>(sizeof(T));
  return {reinterpret_cast<const char*>(panel_at(columns.begin, depth.begin)),
          plan_.packed(depth.size()) * line,
          plan_.packed(plan_.k) * line,
          ceil_div(columns.size(), kernel_.cols)};
}

template <typename In>
void Product<In>::run_strip(
    const PanelledRows& rows, Range strip, Step<T> step, Result<T> sums, GemmAhead& ahead) const {
  alignas(64) T packed[kGemmStripBytes / sizeof(T)];
  const Range depth = step.depth;
  const bool is_packed = panels_ != nullptr;
  const bool direct = !is_packed && plan_.direct_b && b_.lane_stride == 1;
  // Packing that is mere copying hides behind the multiply-adds of the first tile.
  const bool copies =
      !is_packed && !plan_.converts && b_.lane_stride == 1 && strip.size() % kernel_.cols == 0;
  if (!is_packed && !direct && !copies) pack_columns(strip, depth, packed);
  for (int64_t j = strip.begin; j < strip.end; j += kernel_.cols) {
    step.cols = std::min<int64_t>(kernel_.cols, strip.end - j);
    step.b = is_packed ? panel_at(j, depth.begin) : packed + (j - strip.begin) * step.steps;
    step.b_step = kernel_.cols;
    if constexpr (!is_half<In>) {
      step.copy = !direct && copies ? packed + (j - strip.begin) * step.steps : nullptr;
      if (copies) {
        step.lying = b_.at(j, depth.begin);
        step.lying_step = b_.depth_stride;
      }
      if (direct) {
        // A panel that ends inside a vector is packed, as reading it would pass its end.
        if (step.cols % kernel_.lanes != 0) {
          pack_columns({j, strip.end}, depth, packed);
          step.b = packed;
        } else {
          step.b = b_.at(j, depth.begin);
          step.b_step = b_.depth_stride;
        }
      }
    }
    if (!rounds_at_once())
      multiply(rows, step, sums.at(0, j - strip.begin), ahead);
    else
      multiply_16_bit(rows, step, c_.at(rows.begin, j));
  }
}

// The rows of one chain of depth: where they lie, or packed.
template <typename In>
Step<ComputeType<In>> Product<In>::take_rows(const PanelledRows& rows,
                                             Range depth,
                                             T* packed) const {
  Step<T> step{};
  step.depth = depth;
  step.steps = plan_.packed(depth.size());
  if constexpr (!is_half<In>) {
    if (gather_ != nullptr && panels_ == nullptr) {
      for (int64_t i = 0; i < rows.panels; ++i) {
        const Range r = rows.panel(i);
        (*gather_)({rows.begin + r.begin, r.size(), depth.begin, depth.size()},
                   packed + r.begin * depth.size());
      }
      step.a = packed;
      return step;
    }
    if (gather_ != nullptr) {
      (*gather_)({rows.begin, rows.count, depth.begin, depth.size()}, packed);
      step.a = packed;
      step.a_row = depth.size();
      step.a_step = 1;
      return step;
    }
    if (plan_.direct_a) {
      step.a = a_.at(rows.begin, depth.begin);
      step.a_row = a_.lane_stride;
      step.a_step = a_.depth_stride;
      return step;
    }
  }
  pack_rows(plan_, kernels_, a_, rows, depth, packed);
  step.a = packed;
  return step;
}

template <typename In>
void Product<In>::pack_columns(Range columns, Range depth, T* to) const {
  const int64_t width = kernel_.cols;
  const int64_t steps = pack_steps(plan_, b_);
  for (int64_t p = depth.begin; p < depth.end; p += steps)
    for (int64_t j = columns.begin; j < columns.end; j += width)
      pack_({bits_of(b_.at(j, p)),
             b_.lane_stride,
             b_.depth_stride,
             std::min(steps, depth.end - p),
             static_cast<int>(std::min(width, columns.end - j)),
             static_cast<int>(width),
             to + (j - columns.begin) * plan_.packed(depth.size()) +
                 plan_.packed(p - depth.begin) * width});
}

template <typename In>
void Product<In>::multiply(const PanelledRows& rows,
                           const Step<T>& step,
                           Result<T> c,
                           GemmAhead& ahead) const {
  const bool packed = step.a_row == 0;
  for (int64_t i = 0; i < rows.panels; ++i) {
    const Range r = rows.panel(i);
    const bool copies = i == 0 && step.copy != nullptr;
    kernel_.tile({step.steps,
                  step.a + r.begin * (packed ? step.steps : step.a_row),
                  packed ? 1 : step.a_row,
                  packed ? r.size() : step.a_step,
                  copies ? step.lying : step.b,
                  copies ? step.lying_step : step.b_step,
                  c.at(r.begin, 0).data,
                  c.row_stride,
                  c.col_stride,
                  static_cast<int>(r.size()),
                  static_cast<int>(step.cols),
                  step.add,
                  copies ? step.copy : nullptr,
                  ahead.now.count > 0 ? &ahead : nullptr});
  }
}

// Does the same as multiply for packed rows and a single chain of depth; the sums are rounded to In
// at once.
template <typename In>
void Product<In>::multiply_16_bit(const PanelledRows& rows,
                                  const Step<T>& step,
                                  Result<In> c) const {
  alignas(64) T sums[kGemmRows * kGemmColumns];
  alignas(64) T old[kGemmColumns];
  for (int64_t i = 0; i < rows.panels; ++i) {
    const Range r = rows.panel(i);
    Step<T> one = step;
    one.a += r.begin * step.steps;
    one.add = false;
    GemmAhead nothing{};
    multiply({{0, r.size()}, r.size()}, one, {sums, step.cols, 1}, nothing);
    for (int64_t row = 0; row < r.size(); ++row) {
      T* const line = sums + row * step.cols;
      const Result<In> to = c.at(r.begin + row, 0);
      if (accumulate_) {
        widen_row_of(to, step.cols, old);
        for (int64_t j = 0; j < step.cols; ++j) line[j] = old[j] + line[j];
      }
      narrow_row_to(line, step.cols, to);
    }
  }
}

template <typename In>
void Product<In>::widen_row_of(Result<In> from, int64_t n, T* to) const {
  if (from.col_stride == 1) return widen_row(from.data, to, n);
  for (int64_t j = 0; j < n; ++j) to[j] = static_cast<T>(from.data[j * from.col_stride]);
}

template <typename In>
void Product<In>::narrow_row_to(const T* from, int64_t n, Result<In> to) const {
  if (to.col_stride == 1) return narrow_row(from, to.data, n);
  for (int64_t j = 0; j < n; ++j) to.data[j * to.col_stride] = static_cast<In>(from[j]);
}

// The part of C that a task makes.
GemmBlock block_of(const GemmPlan& plan, int64_t item, int64_t task) {
  auto [rows, columns] = plan.block(task);
  if (plan.swapped) std::swap(rows, columns);
  return {item, rows.begin, rows.size(), columns.begin, columns.size()};
}

// 16-bit products over several chains of depth need f32 sums: so much of C at a time.
constexpr int64_t kMostRowsOfScratch = 2048;
constexpr int64_t kMostColumnsOfScratch = 2048;

bool needs_pieces(const GemmShape& shape, DType dtype) {
  const int64_t longest = kGemmDepth * (shape.products == GemmProducts::kPairs ? 2 : 1);
  return size_of(dtype) == 2 && shape.k > longest;
}

void check_products(GemmProducts products, DType dtype) {
  const bool f32 = dtype == DType::kF32;
  const bool fits =
      products == GemmProducts::kOwn ||
      (f32 && (products == GemmProducts::kRounded || products == GemmProducts::kRoundedToF16)) ||
      (products == GemmProducts::kPairs && (f32 || dtype == DType::kBF16) && has_bf16_pairs());
  check_internal(fits, "[gemm] products of this kind are not made of {} here", name_of(dtype));
}

template <typename T>
void run_in_pieces(const GemmShape& s, const T* a, const T* b, T* c, bool accumulate, void* work) {
  for (int64_t i = 0; i < s.m; i += kMostRowsOfScratch)
    for (int64_t j = 0; j < s.n; j += kMostColumnsOfScratch) {
      GemmShape piece = s;
      piece.m = std::min(kMostRowsOfScratch, s.m - i);
      piece.n = std::min(kMostColumnsOfScratch, s.n - j);
      const GemmPlan plan = make_gemm_plan(piece, dtype_of<T>(), 1, num_threads());
      const Product<T> product(plan,
                               {plan,
                                piece,
                                a + i * (s.transpose_a ? 1 : s.lda),
                                b + j * (s.transpose_b ? s.ldb : 1),
                                c + i * s.ldc + j},
                               accumulate);
      const uintptr_t aligned = (reinterpret_cast<uintptr_t>(work) + 63) & ~uintptr_t{63};
      parallel_for(plan.tasks(), 1, [&](int64_t begin, int64_t end) {
        for (int64_t task = begin; task < end; ++task)
          product.run_task(task, reinterpret_cast<ComputeType<T>*>(aligned));
      });
    }
}

}  // namespace

size_t gemm_workspace_bytes(const GemmShape& shape, DType dtype, int64_t batch_count) {
  check_gemm_shape(shape);
  check_internal(batch_count >= 0, "[gemm] batch of {} items", batch_count);
  if (!needs_pieces(shape, dtype)) return 0;
  const int64_t elements =
      std::min(shape.m, kMostRowsOfScratch) * std::min(shape.n, kMostColumnsOfScratch);
  return static_cast<size_t>(elements) * sizeof(float) + 63;  // room to align
}

template <typename T>
void gemm_batched(const GemmShape& shape,
                  const GemmBatch& batch,
                  const T* a,
                  const T* b,
                  T* c,
                  bool accumulate,
                  void* workspace,
                  const FinishBlock* finish) {
  check_gemm_shape(shape);
  check_products(shape.products, dtype_of<T>());
  if (needs_pieces(shape, dtype_of<T>())) {
    for (int64_t i = 0; i < batch.count; ++i) {
      run_in_pieces(shape,
                    a + i * batch.stride_a,
                    b + i * batch.stride_b,
                    c + i * batch.stride_c,
                    accumulate,
                    workspace);
      if (finish != nullptr) (*finish)({i, 0, shape.m, 0, shape.n});
    }
    return;
  }
  const GemmPlan plan = make_gemm_plan(shape, dtype_of<T>(), batch.count, num_threads());
  const auto item_at = [&](int64_t i) {
    return GemmOperands<T>(
        plan, shape, a + i * batch.stride_a, b + i * batch.stride_b, c + i * batch.stride_c);
  };
  const auto run_task = [&](int64_t i, int64_t task) {
    const GemmOperands<T> item = item_at(i);
    if constexpr (!is_half<T>)
      if (plan.thin) return run_thin_gemm_task(plan, item, accumulate, task);
    Product<T> product(plan, item, accumulate);
    // The item that this thread will probably come to next.
    std::optional<GemmOperands<T>> next;
    if (plan.fetch_items && i + 1 < batch.count) {
      next = item_at(i + 1);
      product.precede(*next);
    }
    product.run_task(task, nullptr);
  };
  parallel_for(batch.count * plan.tasks(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t each = begin; each < end; ++each) {
      const int64_t i = each / plan.tasks(), task = each % plan.tasks();
      run_task(i, task);
      if (finish != nullptr) (*finish)(block_of(plan, i, task));
    }
  });
}

template <typename T>
void gemm(const GemmShape& shape,
          const T* a,
          const T* b,
          T* c,
          bool accumulate,
          void* workspace,
          const FinishBlock* finish) {
  gemm_batched(shape, GemmBatch{}, a, b, c, accumulate, workspace, finish);
}

std::optional<GemmPanels> gemm_panels(const GemmShape& shape, DType dtype) {
  check_gemm_shape(shape);
  check_products(shape.products, dtype);
  if (size_of(dtype) == 2 || shape.products == GemmProducts::kPairs) return std::nullopt;
  const GemmPlan plan = make_gemm_plan(shape, dtype, 1, 1);
  if (plan.swapped || plan.thin) return std::nullopt;
  const GemmKernels& kernels = for_isa(avx2::gemm_kernels, avx512::gemm_kernels);
  const int64_t columns = dtype == DType::kF64 ? kernels.f64->cols : kernels.f32->cols;
  return GemmPanels{.columns = columns, .panels = ceil_div(shape.n, columns)};
}

namespace {

template <typename T>
void run_plan(const GemmPlan& plan, const GemmOperands<T>& operands, const FinishBlock* finish) {
  const Product<T> product(plan, operands, /*accumulate=*/false);
  parallel_for(plan.tasks(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      product.run_task(task, nullptr);
      if (finish != nullptr) (*finish)(block_of(plan, 0, task));
    }
  });
}

}  // namespace

template <typename T>
void gemm_packed(
    const GemmShape& shape, const T* a, const void* panels, T* c, const FinishBlock* finish) {
  const GemmPlan plan =
      make_packed_gemm_plan(shape, dtype_of<T>(), /*gathers_rows=*/false, num_threads());
  GemmOperands<T> operands(plan, shape, a, nullptr, c);
  operands.panels = static_cast<const T*>(panels);
  run_plan(plan, operands, finish);
}

template <typename T>
void gemm_packed(const GemmShape& shape,
                 GatherRows<T> gather,
                 const void* panels,
                 T* c,
                 const FinishBlock* finish) {
  const GemmPlan plan =
      make_packed_gemm_plan(shape, dtype_of<T>(), /*gathers_rows=*/true, num_threads());
  GemmOperands<T> operands(plan, shape, nullptr, nullptr, c);
  operands.panels = static_cast<const T*>(panels);
  operands.gather = &gather;
  run_plan(plan, operands, finish);
}

bool can_gather(const GemmShape& shape, DType dtype) {
  if (size_of(dtype) == 2 || shape.products != GemmProducts::kOwn) return false;
  const GemmPlan plan = make_gathered_gemm_plan(shape, dtype, 1);
  return !plan.swapped && !plan.thin;
}

template <typename T>
void gemm_gathered(const GemmShape& shape, GatherRows<T> gather, const T* b, T* c) {
  const GemmPlan plan = make_gathered_gemm_plan(shape, dtype_of<T>(), num_threads());
  GemmOperands<T> operands(plan, shape, nullptr, b, c);
  operands.gather = &gather;
  run_plan<T>(plan, operands, nullptr);
}

#define RIDGE_INSTANTIATE_PACKED(T)                                                              \
  template void gemm_packed<T>(const GemmShape&, const T*, const void*, T*, const FinishBlock*); \
  template void gemm_packed<T>(                                                                  \
      const GemmShape&, GatherRows<T>, const void*, T*, const FinishBlock*);                     \
  template void gemm_gathered<T>(const GemmShape&, GatherRows<T>, const T*, T*);
RIDGE_INSTANTIATE_PACKED(float)
RIDGE_INSTANTIATE_PACKED(double)
#undef RIDGE_INSTANTIATE_PACKED

#define RIDGE_INSTANTIATE(T)                                                      \
  template void gemm<T>(                                                          \
      const GemmShape&, const T*, const T*, T*, bool, void*, const FinishBlock*); \
  template void gemm_batched<T>(const GemmShape&,                                 \
                                const GemmBatch&,                                 \
                                const T*,                                         \
                                const T*,                                         \
                                T*,                                               \
                                bool,                                             \
                                void*,                                            \
                                const FinishBlock*);
RIDGE_INSTANTIATE(float)
RIDGE_INSTANTIATE(double)
RIDGE_INSTANTIATE(F16)
RIDGE_INSTANTIATE(BF16)
#undef RIDGE_INSTANTIATE

}  // namespace ridge::cpu
