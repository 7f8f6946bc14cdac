// The driver of the packed GEMM: packs by plan and hands tiles to the kernels of the instruction
// set in use.
//
// Large products: for each chain of depth (and at most so many rows), (1) pack op(A) into panels;
// (2) run the tasks, each a group of rows by a group of columns, which packs its columns of op(B)
// strip by strip on its own stack. Small or thin products and batches of them, here called local:
// a task packs there what it packs of both, and reads the rest where it lies. All give the same
// bits.
#include "ridge/backend/cpu/gemm.h"

#include <utility>

#include "ridge/backend/cpu/cpu_isa.h"
#include "ridge/backend/cpu/gemm_plan.h"
#include "ridge/backend/cpu/half_rows.h"
#include "ridge/backend/cpu/isa/gemm_kernels.h"
#include "ridge/base/parallel.h"

namespace ridge::cpu {
namespace {

constexpr int64_t kRowGrain = 16;

// An operand as (lanes, depth): lanes are rows of op(A) or columns of op(B).
template <typename In>
struct Operand {
  const In* data;
  int64_t lane_stride;
  int64_t depth_stride;
  const In* at(int64_t lane, int64_t p) const {
    return data + lane * lane_stride + p * depth_stride;
  }
};

// Where results go: element (i, j) at data[i * row_stride + j * col_stride].
template <typename T>
struct Result {
  T* data;
  int64_t row_stride;
  int64_t col_stride;
  Result at(int64_t i, int64_t j) const {
    return {data + i * row_stride + j * col_stride, row_stride, col_stride};
  }
};

// Rows of op(A) from `begin`, cut into panels of nearly equal height, the taller ones first: 8 rows
// for a tile of 6 become 4 and 4, not 6 and 2.
struct PanelledRows {
  PanelledRows(Range rows, int64_t tallest)
      : begin(rows.begin),
        count(rows.size()),
        panels(ceil_div(count, tallest)),
        height(count / panels),
        taller(count % panels) {}
  Range panel(int64_t i) const {
    const int64_t first = i * height + std::min(i, taller);
    return {first, first + height + (i < taller ? 1 : 0)};
  }

  int64_t begin;
  int64_t count;
  int64_t panels;
  int64_t height;
  int64_t taller;  // so many panels have one row more
};

// What the tiles of one panel of columns share.
template <typename T>
struct Step {
  int64_t depth;
  const T* a;     // of the first row: panels, or the operand where it lies
  int64_t a_row;  // for the operand: its strides; 0 for panels
  int64_t a_step;
  const T* b;
  int64_t b_step;
  int64_t cols;
  bool add;
};

// Fetches part of an operand into the second-level cache, a few lines at a time, while a thread
// computes: packing it afterwards does not wait for memory.
class Ahead {
 public:
  Ahead() = default;

  template <typename In>
  Ahead(const Operand<In>& x, Range lanes, Range depth, int64_t turns)
      : at_(reinterpret_cast<const char*>(x.at(lanes.begin, depth.begin))) {
    const bool lanes_run = x.lane_stride == 1;
    constexpr int64_t kSize = sizeof(In);
    stride_ = (lanes_run ? x.depth_stride : x.lane_stride) * kSize;
    row_bytes_ = (lanes_run ? lanes : depth).size() * kSize;
    rows_ = (lanes_run ? depth : lanes).size();
    lines_ = ceil_div(rows_ * ceil_div(row_bytes_, kLine), turns);
  }

  void fetch() {
    for (int64_t i = 0; i < lines_ && rows_ > 0; ++i) {
      __builtin_prefetch(at_ + offset_, 0, 2);
      offset_ += kLine;
      if (offset_ < row_bytes_) continue;
      offset_ = 0;
      at_ += stride_;
      --rows_;
    }
  }

 private:
  static constexpr int64_t kLine = 64;
  const char* at_ = nullptr;
  int64_t offset_ = 0;
  int64_t stride_ = 0;
  int64_t row_bytes_ = 0;
  int64_t rows_ = 0;
  int64_t lines_ = 0;
};

void pack(const GemmKernels& kernels, const GemmPanel<float, float>& panel) {
  kernels.pack_f32(panel);
}
void pack(const GemmKernels& kernels, const GemmPanel<double, double>& panel) {
  kernels.pack_f64(panel);
}
void pack(const GemmKernels& kernels, const GemmPanel<F16Bits, float>& panel) {
  kernels.pack_f16(panel);
}
void pack(const GemmKernels& kernels, const GemmPanel<BF16Bits, float>& panel) {
  kernels.pack_bf16(panel);
}

// What the kernels take for an element.
const float* bits_of(const float* p) { return p; }
const double* bits_of(const double* p) { return p; }
const F16Bits* bits_of(const F16* p) { return reinterpret_cast<const F16Bits*>(p); }
const BF16Bits* bits_of(const BF16* p) { return reinterpret_cast<const BF16Bits*>(p); }

// Where rows of the operand run along the lanes, few steps at a time for all panels read them in
// order, which suits the hardware's prefetching and address translation.
template <typename In>
int64_t pack_steps(const Operand<In>& x) {
  return x.lane_stride == 1 ? 32 : kGemmDepth;
}

template <typename In>
class Product {
 public:
  using T = ComputeType<In>;

  Product(const GemmPlan& plan,
          const GemmShape& s,
          const In* a,
          const In* b,
          Result<In> c,
          bool accumulate)
      : plan_(plan),
        kernels_(for_isa(avx2::gemm_kernels, avx512::gemm_kernels)),
        kernel_(kernel_of(kernels_, T{})),
        a_{a, s.transpose_a ? 1 : s.lda, s.transpose_a ? s.lda : 1},
        b_{b, s.transpose_b ? s.ldb : 1, s.transpose_b ? 1 : s.ldb},
        c_(c),
        accumulate_(accumulate) {
    if (!plan.swapped) return;
    std::swap(a_, b_);
    std::swap(c_.row_stride, c_.col_stride);
  }

  int64_t local_tasks() const { return local_blocks() * plan_.column_groups; }
  void run_local(int64_t task) const;
  void run_shared(void* workspace) const;

 private:
  // One round of packing and tasks: some rows and columns of C, one chain of depth.
  struct Super {
    PanelledRows rows;
    Range columns, depth;
    T* packed;  // panels of all rows
    Result<T> c;
  };

  static const GemmKernel<float>& kernel_of(const GemmKernels& kernels, float) {
    return *kernels.f32;
  }
  static const GemmKernel<double>& kernel_of(const GemmKernels& kernels, double) {
    return *kernels.f64;
  }

  int64_t local_blocks() const { return ceil_div(plan_.m, plan_.block_rows); }
  PanelledRows panelled(Range rows) const { return {rows, kernel_.rows}; }

  void pack_rows(const PanelledRows& rows, Range panels, Range depth, T* to) const;
  void pack_columns(Range columns, Range depth, T* to) const;
  void multiply(
      const PanelledRows& rows, Range panels, const Step<T>& step, Result<T> c, Ahead& ahead) const;
  void run_local_columns(const PanelledRows& rows, Range columns, Range depth, Step<T> step) const;
  void take_columns(int64_t j, Range depth, T* packed, Step<T>& step) const;
  void multiply_16_bit(const PanelledRows& rows, const Step<T>& step, Result<In> c) const;
  void pack_super(const Super& super) const;
  void run_super(const Super& super) const;
  void run_task(const Super& super, Range panels, Range columns) const;
  void run_strip(const Super& super, Range panels, Range strip, Ahead& ahead) const;
  void widen_result(const Super& super) const;
  void narrow_result(const Super& super) const;
  void put_row(const T* from, int64_t n, Result<In> to) const;

  const GemmPlan& plan_;
  const GemmKernels& kernels_;
  const GemmKernel<T>& kernel_;
  Operand<In> a_;
  Operand<In> b_;
  Result<In> c_;
  bool accumulate_;
};

// `to` receives one chain of depth of all of `rows`; this fills in the named panels.
template <typename In>
void Product<In>::pack_rows(const PanelledRows& rows, Range panels, Range depth, T* to) const {
  const int64_t steps = pack_steps(a_);
  for (int64_t p = depth.begin; p < depth.end; p += steps)
    for (int64_t i = panels.begin; i < panels.end; ++i) {
      const Range r = rows.panel(i);
      const int lanes = static_cast<int>(r.size());
      pack(kernels_,
           {bits_of(a_.at(rows.begin + r.begin, p)),
            a_.lane_stride,
            a_.depth_stride,
            std::min(steps, depth.end - p),
            lanes,
            lanes,
            to + r.begin * depth.size() + (p - depth.begin) * lanes});
    }
}

template <typename In>
void Product<In>::pack_columns(Range columns, Range depth, T* to) const {
  const int64_t width = kernel_.cols;
  const int64_t steps = pack_steps(b_);
  for (int64_t p = depth.begin; p < depth.end; p += steps)
    for (int64_t j = columns.begin; j < columns.end; j += width)
      pack(kernels_,
           {bits_of(b_.at(j, p)),
            b_.lane_stride,
            b_.depth_stride,
            std::min(steps, depth.end - p),
            static_cast<int>(std::min(width, columns.end - j)),
            static_cast<int>(width),
            to + (j - columns.begin) * depth.size() + (p - depth.begin) * width});
}

// `c` is where the first of all `rows` goes.
template <typename In>
void Product<In>::multiply(
    const PanelledRows& rows, Range panels, const Step<T>& step, Result<T> c, Ahead& ahead) const {
  for (int64_t i = panels.begin; i < panels.end; ++i) {
    const Range r = rows.panel(i);
    const bool packed = step.a_row == 0;
    ahead.fetch();
    kernel_.tile({step.depth,
                  step.a + r.begin * (packed ? step.depth : step.a_row),
                  packed ? 1 : step.a_row,
                  packed ? r.size() : step.a_step,
                  step.b,
                  step.b_step,
                  c.at(r.begin, 0).data,
                  c.row_stride,
                  c.col_stride,
                  static_cast<int>(r.size()),
                  static_cast<int>(step.cols),
                  step.add});
  }
}

// As multiply, for a single chain of depth whose sums are rounded to 16 bits at once.
template <typename In>
void Product<In>::multiply_16_bit(const PanelledRows& rows,
                                  const Step<T>& step,
                                  Result<In> c) const {
  constexpr int64_t kMostRows = 16;
  alignas(64) T sums[kMostRows * kGemmColumns];
  for (int64_t i = 0; i < rows.panels; ++i) {
    const Range r = rows.panel(i);
    Ahead nothing;
    Step<T> one = step;
    one.a += r.begin * step.depth;
    one.add = false;
    multiply(panelled({0, r.size()}), {0, 1}, one, {sums, step.cols, 1}, nothing);
    for (int64_t row = 0; row < r.size(); ++row) {
      T* const line = sums + row * step.cols;
      const Result<In> to = c.at(r.begin + row, 0);
      for (int64_t j = 0; accumulate_ && j < step.cols; ++j)
        line[j] = static_cast<T>(to.data[j * to.col_stride]) + line[j];
      put_row(line, step.cols, to);
    }
  }
}

template <typename In>
void Product<In>::run_local(int64_t task) const {
  alignas(64) T packed_a[kGemmLocalBytes / sizeof(T)];
  const PanelledRows rows = panelled(part(plan_.m, local_blocks(), task % local_blocks()));
  const int64_t steps = ceil_div(plan_.n, kGemmColumns);
  const Range group = part(steps, plan_.column_groups, task / local_blocks());
  const Range columns{group.begin * kGemmColumns, std::min(plan_.n, group.end * kGemmColumns)};
  for (int64_t p = 0; p < plan_.k; p += plan_.depth) {
    const Range depth = plan_.chain(p);
    Step<T> step{depth.size(), packed_a, 0, 0, nullptr, 0, 0, accumulate_ || p > 0};
    if (!plan_.direct_a) {
      pack_rows(rows, {0, rows.panels}, depth, packed_a);
    } else if constexpr (!is_half<In>) {
      step.a = a_.at(rows.begin, p);
      step.a_row = a_.lane_stride;
      step.a_step = a_.depth_stride;
    }
    run_local_columns(rows, columns, depth, step);
  }
}

// One chain of depth of a local task, whose rows are ready in `step`.
template <typename In>
void Product<In>::run_local_columns(const PanelledRows& rows,
                                    Range columns,
                                    Range depth,
                                    Step<T> step) const {
  alignas(64) T packed[kGemmDepth * kGemmColumns];
  for (int64_t j = columns.begin; j < columns.end; j += kernel_.cols) {
    step.cols = std::min<int64_t>(kernel_.cols, columns.end - j);
    take_columns(j, depth, packed, step);
    const Result<In> c = c_.at(rows.begin, j);
    Ahead nothing;
    if constexpr (is_half<In>)
      multiply_16_bit(rows, step, c);
    else
      multiply(rows, {0, rows.panels}, step, c, nothing);
  }
}

// Points `step` at its columns from j on: where they lie, or packed.
template <typename In>
void Product<In>::take_columns(int64_t j, Range depth, T* packed, Step<T>& step) const {
  if constexpr (!is_half<In>) {
    // A panel that ends inside a vector is packed, as reading it would pass its end.
    if (plan_.direct_b && b_.lane_stride == 1 && step.cols % kernel_.lanes == 0) {
      step.b = b_.at(j, depth.begin);
      step.b_step = b_.depth_stride;
      return;
    }
  }
  pack_columns({j, j + step.cols}, depth, packed);
  step.b = packed;
  step.b_step = kernel_.cols;
}

template <typename In>
void Product<In>::pack_super(const Super& super) const {
  constexpr int64_t kPanels = 8;  // enough lanes for whole cache lines where they run along rows
  parallel_for(super.rows.panels, kPanels, [&](int64_t begin, int64_t end) {
    pack_rows(super.rows, {begin, end}, super.depth, super.packed);
  });
}

// One group of rows by one group of columns, strip by strip. While it computes with one, it
// fetches the next, even if that belongs to the next group: often the same thread runs it.
template <typename In>
void Product<In>::run_task(const Super& super, Range panels, Range columns) const {
  for (int64_t j = columns.begin; j < columns.end; j += plan_.strip_columns) {
    const Range strip{j, std::min(j + plan_.strip_columns, columns.end)};
    const Range next{strip.end, std::min(strip.end + plan_.strip_columns, super.columns.end)};
    Ahead ahead;
    if (next.size() > 0)
      ahead = Ahead(b_, next, super.depth, panels.size() * ceil_div(strip.size(), kernel_.cols));
    run_strip(super, panels, strip, ahead);
  }
}

template <typename In>
void Product<In>::run_strip(const Super& super, Range panels, Range strip, Ahead& ahead) const {
  alignas(64) T packed[kGemmStripBytes / sizeof(T)];
  const int64_t depth = super.depth.size();
  if (!plan_.direct_b) pack_columns(strip, super.depth, packed);
  const int64_t blocks = ceil_div(panels.size() * kernel_.rows, plan_.block_rows);
  for (int64_t block = 0; block < blocks; ++block) {
    const Range some = part(panels.size(), blocks, block);
    for (int64_t j = strip.begin; j < strip.end; j += kernel_.cols) {
      const int64_t cols = std::min<int64_t>(kernel_.cols, strip.end - j);
      const bool add = accumulate_ || super.depth.begin > 0;
      Step<T> step{depth, super.packed, 0, 0, packed, kernel_.cols, cols, add};
      if (plan_.direct_b)
        take_columns(j, super.depth, packed, step);
      else
        step.b += (j - strip.begin) * depth;
      multiply(super.rows,
               {panels.begin + some.begin, panels.begin + some.end},
               step,
               super.c.at(0, j - super.columns.begin),
               ahead);
    }
  }
}

template <typename In>
void Product<In>::run_super(const Super& super) const {
  pack_super(super);
  const int64_t strips = ceil_div(super.columns.size(), plan_.strip_columns);
  parallel_for(plan_.row_groups * plan_.column_groups, 1, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const Range group = part(strips, plan_.column_groups, task % plan_.column_groups);
      const int64_t first = super.columns.begin + group.begin * plan_.strip_columns;
      const int64_t last = super.columns.begin + group.end * plan_.strip_columns;
      run_task(super,
               part(super.rows.panels, plan_.row_groups, task / plan_.column_groups),
               {first, std::min(super.columns.end, last)});
    }
  });
}

template <typename In>
void Product<In>::put_row(const T* from, int64_t n, Result<In> to) const {
  if (to.col_stride == 1) return narrow_row(from, to.data, n);
  for (int64_t j = 0; j < n; ++j) to.data[j * to.col_stride] = static_cast<In>(from[j]);
}

// The f32 sums of 16-bit results begin as the old C.
template <typename In>
void Product<In>::widen_result(const Super& super) const {
  parallel_for(super.rows.count, kRowGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Result<In> from = c_.at(super.rows.begin + i, super.columns.begin);
      T* const to = super.c.at(i, 0).data;
      if (from.col_stride == 1) {
        widen_row(from.data, to, super.columns.size());
      } else {
        for (int64_t j = 0; j < super.columns.size(); ++j)
          to[j] = static_cast<T>(from.data[j * from.col_stride]);
      }
    }
  });
}

template <typename In>
void Product<In>::narrow_result(const Super& super) const {
  parallel_for(super.rows.count, kRowGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      put_row(super.c.at(i, 0).data,
              super.columns.size(),
              c_.at(super.rows.begin + i, super.columns.begin));
  });
}

template <typename In>
void Product<In>::run_shared(void* workspace) const {
  const uintptr_t aligned = (reinterpret_cast<uintptr_t>(workspace) + 63) & ~uintptr_t{63};
  T* const packed = reinterpret_cast<T*>(aligned);
  for (int64_t n0 = 0; n0 < plan_.n; n0 += plan_.super_n)
    for (int64_t m0 = 0; m0 < plan_.m; m0 += plan_.super_m) {
      Super super{panelled({m0, std::min(plan_.m, m0 + plan_.super_m)}),
                  {n0, std::min(plan_.n, n0 + plan_.super_n)},
                  {},
                  packed,
                  {}};
      if constexpr (is_half<In>)
        super.c = {packed + plan_.packed_elements, super.columns.size(), 1};
      else
        super.c = c_.at(m0, n0);
      if (is_half<In> && accumulate_) widen_result(super);
      for (int64_t p = 0; p < plan_.k; p += plan_.depth) {
        super.depth = plan_.chain(p);
        run_super(super);
      }
      if constexpr (is_half<In>) narrow_result(super);
    }
}

}  // namespace

size_t gemm_workspace_bytes(const GemmShape& shape, DType dtype, int64_t batch_count) {
  const GemmPlan plan = make_gemm_plan(shape, dtype, batch_count);
  if (plan.local) return 0;
  const int64_t elements = plan.packed_elements + plan.scratch_elements;
  return static_cast<size_t>(elements) * (dtype == DType::kF64 ? 8 : 4) + 63;  // room to align
}

template <typename T>
void gemm_batched(const GemmShape& shape,
                  const GemmBatch& batch,
                  const T* a,
                  const T* b,
                  T* c,
                  bool accumulate,
                  void* workspace) {
  const GemmPlan plan = make_gemm_plan(shape, dtype_of<T>(), batch.count);
  const auto item = [&](int64_t i) {
    return Product<T>(plan,
                      shape,
                      a + i * batch.stride_a,
                      b + i * batch.stride_b,
                      {c + i * batch.stride_c, shape.ldc, 1},
                      accumulate);
  };
  if (!plan.local) {
    for (int64_t i = 0; i < batch.count; ++i) item(i).run_shared(workspace);
    return;
  }
  const int64_t tasks = item(0).local_tasks();
  parallel_for(batch.count * tasks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) item(task / tasks).run_local(task % tasks);
  });
}

template <typename T>
void gemm(const GemmShape& shape, const T* a, const T* b, T* c, bool accumulate, void* workspace) {
  gemm_batched(shape, {}, a, b, c, accumulate, workspace);
}

#define RIDGE_INSTANTIATE(T)                                                    \
  template void gemm<T>(const GemmShape&, const T*, const T*, T*, bool, void*); \
  template void gemm_batched<T>(                                                \
      const GemmShape&, const GemmBatch&, const T*, const T*, T*, bool, void*);
RIDGE_INSTANTIATE(float)
RIDGE_INSTANTIATE(double)
RIDGE_INSTANTIATE(F16)
RIDGE_INSTANTIATE(BF16)
#undef RIDGE_INSTANTIATE

}  // namespace ridge::cpu
