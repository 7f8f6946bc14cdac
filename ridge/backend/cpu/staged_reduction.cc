#include "ridge/backend/cpu/staged_reduction.h"

#include <algorithm>

#include "ridge/backend/cpu/cpu_isa.h"
#include "ridge/base/alignment.h"
#include "ridge/base/cpu/parallel.h"

namespace ridge::cpu {
namespace {

// Elements a thread takes at a time.
constexpr int64_t kGrain = 16384;

// Rows of a tile that become one partial result: a column adds no more terms one after the other,
// so that the error of a sum stays small.
constexpr int64_t kTileRows = 64;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

template <typename T>
void divide(void* y, int64_t n, double divisor) {
  for (int64_t i = 0; i < n; ++i) static_cast<T*>(y)[i] /= static_cast<T>(divisor);
}

}  // namespace

// Axes that are reduced, or kept, together.
struct StagedReduction::Run {
  int64_t size;
  bool reduced;
};

StagedReduction::StagedReduction(const TensorType& x,
                                 const std::vector<int64_t>& axes,
                                 Kind kind,
                                 double divisor)
    : dtype_(static_cast<int>(x.dtype)), is_max_(kind == kMax) {
  std::vector<Run> runs;
  for (size_t i = 0; i < x.shape.size(); ++i) {
    if (x.shape[i] == 1) continue;
    const bool reduced = std::find(axes.begin(), axes.end(), static_cast<int64_t>(i)) != axes.end();
    if (!runs.empty() && runs.back().reduced == reduced)
      runs.back().size *= x.shape[i];
    else
      runs.push_back({x.shape[i], reduced});
  }
  plan(std::move(runs));
  if (stages_.empty())  // nothing but axes of size 1: a copy
    stages_.push_back({.geometry = {1, 1, x.elements(), 1.0},
                       .tiles = ceil_div(x.elements(), kReduceColumns),
                       .grain = kGrain / kReduceColumns,
                       .results = x.elements()});
  stages_.back().geometry.divisor = divisor;
  // Partial sums of 16-bit floats are f32; a largest element keeps its dtype.
  is_widened_ = !is_max_ && is_float(x.dtype) && size_of(x.dtype) == 2;
  const size_t size = is_widened_ ? sizeof(float) : size_of(x.dtype);
  for (size_t i = 0; i + 1 < stages_.size(); ++i) {
    stages_[i].offset = workspace_bytes_;
    workspace_bytes_ += aligned_bytes(static_cast<size_t>(stages_[i].results) * size);
  }
}

// Each run becomes stages that shrink it to 1, the longest first, as what follows is shorter then.
void StagedReduction::plan(std::vector<Run> runs) {
  for (;;) {
    auto longest = runs.end();
    for (auto run = runs.begin(); run != runs.end(); ++run)
      if (run->reduced && run->size > 1 && (longest == runs.end() || run->size >= longest->size))
        longest = run;
    if (longest == runs.end()) return;
    int64_t outer = 1, inner = 1;
    for (auto run = runs.begin(); run != longest; ++run) outer *= run->size;
    for (auto run = longest + 1; run != runs.end(); ++run) inner *= run->size;
    const int64_t columns = std::min(inner, kReduceColumns);
    const int64_t chunk = inner == 1 ? kReduceChunk : kTileRows;
    const int64_t chunks = ceil_div(longest->size, chunk);
    const int64_t work = std::min(chunk, longest->size) * columns;
    stages_.push_back({.geometry = {longest->size, chunk, inner, 1.0},
                       .tiles = outer * chunks * ceil_div(inner, kReduceColumns),
                       .grain = std::max<int64_t>(1, kGrain / work),
                       .results = outer * chunks * inner});
    longest->size = chunks;
  }
}

void* StagedReduction::results_of(size_t index, void* y, void* workspace) const {
  return index + 1 == stages_.size() ? y : static_cast<char*>(workspace) + stages_[index].offset;
}

void StagedReduction::run_stage(size_t index, const void* x, void* y) const {
  const bool is_last = index + 1 == stages_.size();
  const ReduceKernels& kernels = for_isa(avx2::reduce_kernels, avx512::reduce_kernels);
  const ReduceKernel reduce =
      is_max_ ? kernels.max[dtype_]
              : kernels.sum[is_widened_ && index > 0][is_widened_ && !is_last][dtype_];
  parallel_for(stages_[index].tiles, stages_[index].grain, [&](int64_t begin, int64_t end) {
    reduce(stages_[index].geometry, x, y, begin, end);
  });
}

void StagedReduction::run(const void* x, void* y, void* workspace) const {
  for (size_t i = 0; i < stages_.size(); ++i) {
    void* results = results_of(i, y, workspace);
    run_stage(i, x, results);
    x = results;
  }
}

void* StagedReduction::first_results(void* y, void* workspace) const {
  return results_of(0, y, workspace);
}

void StagedReduction::finish(void* y, void* workspace) const {
  for (size_t i = 1; i < stages_.size(); ++i)
    run_stage(i, results_of(i - 1, y, workspace), results_of(i, y, workspace));
  const Stage& only = stages_.front();
  if (stages_.size() > 1 || only.geometry.divisor == 1.0) return;
  const auto run = dtype_ == static_cast<int>(DType::kF64) ? divide<double> : divide<float>;
  run(y, only.results, only.geometry.divisor);
}

}  // namespace ridge::cpu
