// A task takes a range of columns over the whole depth, chain by chain, a few steps of depth at a
// time: a chain that is interrupted goes on from sums kept in cache, which changes no bit. Where
// rows of op(B) are contiguous some of them are read side by side; where columns are, a few columns
// over the whole depth. What comes next is fetched meanwhile.
#include "ridge/backend/cpu/gemm/gemm_thin.h"

#include <iterator>

#include "ridge/backend/cpu/cpu_isa.h"

namespace ridge::cpu {
namespace {

constexpr int64_t kRowSteps = 16;    // rows of op(B) read side by side; 32 are too many streams
constexpr int64_t kAheadPanels = 4;  // fetched ahead: panels of those rows
constexpr int64_t kRowBytes = 256 * 1024;  // packed at a time where columns are contiguous

void dots(const GemmKernels& kernels, const GemmDots<float>& d) { kernels.dots_f32(d); }
void dots(const GemmKernels& kernels, const GemmDots<double>& d) { kernels.dots_f64(d); }
void stream(const GemmStreams& kernels, const GemmStream<float>& s) { kernels.f32(s); }
void stream(const GemmStreams& kernels, const GemmStream<double>& s) { kernels.f64(s); }

template <typename T>
class ThinProduct {
 public:
  ThinProduct(const GemmPlan& plan, const GemmOperands<T>& operands, Range columns)
      : plan_(plan),
        kernels_(for_isa(avx2::gemm_kernels, avx512::gemm_kernels)),
        streams_(for_isa(avx2::gemm_stream_kernels, avx512::gemm_stream_kernels)),
        kernel_(kernel_of(kernels_, T{})),
        a_(operands.a),
        b_(operands.b),
        c_(operands.c),
        rows_({0, plan.m}, kernel_.rows),
        columns_(columns) {}

  void run(bool accumulate);

 private:
  int64_t panels() const { return ceil_div(columns_.size(), kernel_.cols); }
  int64_t first_of(int64_t panel) const { return columns_.begin + panel * kernel_.cols; }
  T* sums_of(int64_t panel) { return sums_ + panel * plan_.m * kernel_.cols; }

  void run_dots(bool accumulate);
  void dot_columns(Range columns, int64_t p, Range depth, bool add) const;
  int64_t next_chain(Range columns, int64_t p, Range depth, int64_t step) const;
  void run_rows(Range depth);
  void run_streams(bool accumulate);
  void stream_columns(Range columns, Range depth, int64_t first_row, bool add);
  const T* pack_block(int64_t panel, Range steps);
  void multiply(int64_t panel, Range depth, Range steps, GemmThinTile<T> tile);
  void put(bool add) const;

  const GemmPlan& plan_;
  const GemmKernels& kernels_;
  const GemmStreams& streams_;
  const GemmKernel<T>& kernel_;
  const PackGemmPanel<BitsOf<T>, T> pack_ = packing<T>(kernels_, GemmProducts::kOwn);
  const Operand<T> a_;
  const Operand<T> b_;
  const Result<T> c_;
  const PanelledRows rows_;
  const Range columns_;
  alignas(64) T packed_rows_[kThinRows * kGemmDepth];
  alignas(64) T packed_[kGemmColumns * kGemmColumns];
  alignas(64) T wide_rows_[kRowBytes / sizeof(T)];
  alignas(64) T sums_[kThinBytes / sizeof(T)];  // by panels of columns
};

template <typename T>
void ThinProduct<T>::run(bool accumulate) {
  if (b_.lane_stride != 1)
    return plan_.m <= GemmDots<T>::kRows ? run_dots(accumulate) : run_streams(accumulate);
  for (int64_t p = 0; p < plan_.k; p += plan_.depth) {
    const Range depth = plan_.chain(p);
    pack_rows(plan_, kernels_, a_, rows_, depth, packed_rows_);
    run_rows(depth);
    put(accumulate || p > 0);
  }
}

// The fewest rows: a few columns at a time over the whole depth, the fewest streams and the longest
// runs.
template <typename T>
void ThinProduct<T>::run_dots(bool accumulate) {
  const int64_t longest =
      static_cast<int64_t>(std::size(sums_)) / plan_.m / plan_.depth * plan_.depth;
  for (int64_t begin = 0; begin < plan_.k; begin += longest) {
    const Range depth{begin, std::min(begin + longest, plan_.k)};
    pack_({a_.at(0, begin),
           a_.lane_stride,
           a_.depth_stride,
           depth.size(),
           static_cast<int>(plan_.m),
           static_cast<int>(plan_.m),
           sums_});
    for (int64_t j = columns_.begin; j < columns_.end; j += GemmDots<T>::kLanes) {
      const Range some{j, std::min<int64_t>(j + GemmDots<T>::kLanes, columns_.end)};
      for (int64_t p = depth.begin; p < depth.end; p += plan_.depth)
        dot_columns(some, p, depth, accumulate || p > 0);
    }
  }
}

// Elements of op(B) from the chain at p to the chain that is worked on next: the next one in depth,
// or the first one of the columns that follow; 0 after the last.
template <typename T>
int64_t ThinProduct<T>::next_chain(Range columns, int64_t p, Range depth, int64_t step) const {
  if (p + plan_.depth < depth.end) return plan_.depth;
  if (columns.end + step > columns_.end) return 0;
  return step * b_.lane_stride + depth.begin - p;
}

// The chain that begins at p, which is part of `depth`.
template <typename T>
void ThinProduct<T>::dot_columns(Range columns, int64_t p, Range depth, bool add) const {
  constexpr int kLanes = GemmDots<T>::kLanes;
  alignas(64) T sums[GemmDots<T>::kRows * kLanes];
  dots(kernels_,
       {plan_.chain(p).size(),
        sums_ + (p - depth.begin) * plan_.m,
        static_cast<int>(plan_.m),
        b_.at(columns.begin, p),
        b_.lane_stride,
        static_cast<int>(columns.size()),
        next_chain(columns, p, depth, kLanes),
        sums});
  for (int64_t i = 0; i < plan_.m; ++i) {
    const T* from = sums + i * kLanes;
    T* to = c_.at(i, columns.begin).data;
    for (int64_t j = 0; j < columns.size(); ++j, to += c_.col_stride)
      *to = add ? *to + from[j] : from[j];
  }
}

// The rows are packed side by side, and each element of op(B) multiplies all of them: nothing is
// transposed. A few columns at a time over the whole depth, as above.
template <typename T>
void ThinProduct<T>::run_streams(bool accumulate) {
  constexpr int kWhole = GemmStream<T>::kWhole, kHalf = GemmStream<T>::kHalf;
  const int width = plan_.m <= kHalf ? kHalf : kWhole;
  const int64_t passes = ceil_div(plan_.m, width);
  const int64_t longest =
      kRowBytes / static_cast<int64_t>(sizeof(T)) / (passes * width) / plan_.depth * plan_.depth;
  for (int64_t begin = 0; begin < plan_.k; begin += longest) {
    const Range depth{begin, std::min(begin + longest, plan_.k)};
    for (int64_t pass = 0; pass < passes; ++pass) {
      const int64_t first = pass * width;
      pack_({a_.at(first, begin),
             a_.lane_stride,
             a_.depth_stride,
             depth.size(),
             static_cast<int>(std::min<int64_t>(width, plan_.m - first)),
             width,
             wide_rows_ + first * depth.size()});
    }
    for (int64_t j = columns_.begin; j < columns_.end; j += GemmStream<T>::kColumns)
      for (int64_t pass = 0; pass < passes; ++pass)
        stream_columns({j, std::min<int64_t>(j + GemmStream<T>::kColumns, columns_.end)},
                       depth,
                       pass * width,
                       accumulate || begin > 0);
  }
}

template <typename T>
void ThinProduct<T>::stream_columns(Range columns, Range depth, int64_t first_row, bool add) {
  constexpr int kColumns = GemmStream<T>::kColumns;
  constexpr int kWhole = GemmStream<T>::kWhole, kHalf = GemmStream<T>::kHalf;
  alignas(64) T sums[kColumns * kWhole] = {};
  GemmStream<T> part{};
  part.column_stride = b_.lane_stride;
  part.columns = static_cast<int>(columns.size());
  part.width = plan_.m <= kHalf ? kHalf : kWhole;
  part.sums = sums;
  const int64_t rows = std::min<int64_t>(part.width, plan_.m - first_row);
  const auto each_result = [&](auto body) {
    for (int64_t j = 0; j < columns.size(); ++j)
      for (int64_t i = 0; i < rows; ++i)
        body(sums[j * part.width + i], *c_.at(first_row + i, columns.begin + j).data);
  };
  if (add) each_result([](T& sum, T& c) { sum = c; });
  for (int64_t p = depth.begin; p < depth.end; p += plan_.depth) {
    part.depth = std::min(plan_.depth, depth.end - p);
    part.b = b_.at(columns.begin, p);
    part.ahead = next_chain(columns, p, depth, kColumns);
    part.rows = wide_rows_ + first_row * depth.size() + (p - depth.begin) * part.width;
    part.add = add || p > depth.begin;
    stream(streams_, part);
  }
  each_result([](T& sum, T& c) { c = sum; });
}

template <typename T>
void ThinProduct<T>::run_rows(Range depth) {
  GemmThinTile<T> tile{};
  tile.ahead_step = b_.depth_stride;
  for (int64_t p = depth.begin; p < depth.end; p += kRowSteps) {
    const Range steps{p, std::min(p + kRowSteps, depth.end)};
    for (int64_t i = 0; i < panels(); ++i) {
      // Panels beyond the last are the first ones of the rows that follow.
      const int64_t j = i + kAheadPanels, next = p + kRowSteps;
      tile.ahead = j < panels() ? b_.at(first_of(j), p)
                   : j - panels() < i && next + kRowSteps <= plan_.k
                       ? b_.at(first_of(j - panels()), next)
                       : b_.at(first_of(i), p);
      if (first_of(i) + kernel_.cols <= columns_.end) {
        tile.b = b_.at(first_of(i), p);
        tile.b_step = b_.depth_stride;
      } else {
        // Reading whole vectors would pass the end of op(B).
        tile.b = pack_block(i, steps);
        tile.b_step = kernel_.cols;
      }
      multiply(i, depth, steps, tile);
    }
  }
}

// Whole vectors of the steps of one panel, in packed_.
template <typename T>
const T* ThinProduct<T>::pack_block(int64_t panel, Range steps) {
  pack_({b_.at(first_of(panel), steps.begin),
         b_.lane_stride,
         b_.depth_stride,
         steps.size(),
         static_cast<int>(std::min<int64_t>(kernel_.cols, columns_.end - first_of(panel))),
         kernel_.cols,
         packed_});
  return packed_;
}

// Goes on with the chains of one panel of columns.
template <typename T>
void ThinProduct<T>::multiply(int64_t panel, Range depth, Range steps, GemmThinTile<T> tile) {
  tile.depth = steps.size();
  tile.resume = steps.begin > depth.begin;
  for (int64_t i = 0; i < rows_.panels; ++i) {
    const Range r = rows_.panel(i);
    tile.a = packed_rows_ + r.begin * depth.size() + (steps.begin - depth.begin) * r.size();
    tile.sums = sums_of(panel) + r.begin * kernel_.cols;
    tile.rows = static_cast<int>(r.size());
    kernel_.thin(tile);
  }
}

// Adds the finished chains to C, or stores them there.
template <typename T>
void ThinProduct<T>::put(bool add) const {
  for (int64_t i = 0; i < panels(); ++i) {
    const int64_t cols = std::min<int64_t>(kernel_.cols, columns_.end - first_of(i));
    for (int64_t row = 0; row < plan_.m; ++row) {
      const T* from = sums_ + (i * plan_.m + row) * kernel_.cols;
      T* to = c_.at(row, first_of(i)).data;
      for (int64_t j = 0; j < cols; ++j, to += c_.col_stride) *to = add ? *to + from[j] : from[j];
    }
  }
}

}  // namespace

template <typename T>
void run_thin_gemm_task(const GemmPlan& plan,
                        const GemmOperands<T>& operands,
                        bool accumulate,
                        int64_t task) {
  const int64_t begin = task * plan.strip_columns;
  ThinProduct<T>(plan, operands, {begin, std::min(plan.n, begin + plan.strip_columns)})
      .run(accumulate);
}

template void run_thin_gemm_task(const GemmPlan&, const GemmOperands<float>&, bool, int64_t);
template void run_thin_gemm_task(const GemmPlan&, const GemmOperands<double>&, bool, int64_t);

}  // namespace ridge::cpu
