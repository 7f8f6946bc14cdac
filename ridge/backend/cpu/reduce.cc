// Reductions over any axes, and argmax.
#include "ridge/graph/ops/reduce.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "ridge/backend/cpu/cpu_isa.h"
#include "ridge/backend/cpu/cpu_kernels.h"
#include "ridge/backend/cpu/isa/reduce_kernels.h"
#include "ridge/base/parallel.h"

namespace ridge::cpu {
namespace {

const Choice kVectorized{"vectorized"};

// Elements a thread takes at a time.
constexpr int64_t kGrain = 16384;

// Elements of a row, or rows of a tile, that become one partial result. A lane adds no more than 64
// terms one after the other, so that the error of a sum stays small.
constexpr int64_t kRowChunk = 2048;
constexpr int64_t kFewestRows = 64;
constexpr int64_t kMostRows = 512;
constexpr int64_t kTileElements = 32768;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Runs of axes that are reduced, or kept, together.
struct Run {
  int64_t size;
  bool reduced;
};

std::vector<Run> merged_runs(const Shape& shape, const std::vector<int64_t>& axes) {
  std::vector<Run> runs;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1) continue;
    const bool reduced = std::find(axes.begin(), axes.end(), static_cast<int64_t>(i)) != axes.end();
    if (!runs.empty() && runs.back().reduced == reduced)
      runs.back().size *= shape[i];
    else
      runs.push_back({shape[i], reduced});
  }
  return runs;
}

struct Stage {
  ReduceStage geometry;
  int64_t tiles;
  int64_t grain;
  int64_t results;
  size_t offset = 0;  ///< Of the results in the workspace; the last stage's are the output.
};

// Each run becomes stages that shrink it to 1, the longest first, as what follows is shorter then.
std::vector<Stage> plan_stages(std::vector<Run> runs) {
  std::vector<Stage> stages;
  for (;;) {
    auto longest = runs.end();
    for (auto run = runs.begin(); run != runs.end(); ++run)
      if (run->reduced && run->size > 1 && (longest == runs.end() || run->size >= longest->size))
        longest = run;
    if (longest == runs.end()) return stages;
    int64_t outer = 1, inner = 1;
    for (auto run = runs.begin(); run != longest; ++run) outer *= run->size;
    for (auto run = longest + 1; run != runs.end(); ++run) inner *= run->size;
    const int64_t columns = std::min(inner, kReduceColumns);
    const int64_t chunk =
        inner == 1 ? kRowChunk : std::clamp(kTileElements / columns, kFewestRows, kMostRows);
    const int64_t chunks = ceil_div(longest->size, chunk);
    const int64_t work = std::min(chunk, longest->size) * columns;
    stages.push_back({.geometry = {longest->size, chunk, inner, 1.0},
                      .tiles = outer * chunks * ceil_div(inner, kReduceColumns),
                      .grain = std::max<int64_t>(1, kGrain / work),
                      .results = outer * chunks * inner});
    longest->size = chunks;
  }
}

// A reduction of one node: the stages, and which kernels run them.
class Reduction {
 public:
  Reduction(const Node& node, const std::vector<int64_t>& axes, double divisor, bool is_max)
      : dtype_(static_cast<int>(node.inputs[0].dtype())), is_max_(is_max) {
    const TensorType& x = node.inputs[0].type();
    stages_ = plan_stages(merged_runs(x.shape, axes));
    if (stages_.empty())  // nothing but axes of size 1: a copy
      stages_.push_back({.geometry = {1, 1, x.elements(), 1.0},
                         .tiles = ceil_div(x.elements(), kReduceColumns),
                         .grain = kGrain / kReduceColumns,
                         .results = x.elements()});
    stages_.back().geometry.divisor = divisor;
    // Partial sums of 16-bit floats are f32; a largest element keeps its dtype.
    is_widened_ = !is_max && is_float(x.dtype) && size_of(x.dtype) == 2;
    const size_t size = is_widened_ ? sizeof(float) : size_of(x.dtype);
    for (size_t i = 0; i + 1 < stages_.size(); ++i) {
      stages_[i].offset = workspace_bytes_;
      workspace_bytes_ += (static_cast<size_t>(stages_[i].results) * size + 63) / 64 * 64;
    }
  }

  size_t workspace_bytes() const { return workspace_bytes_; }

  void run(const KernelArgs& args) const {
    const void* x = args.inputs[0];
    for (size_t i = 0; i < stages_.size(); ++i) {
      const bool last = i + 1 == stages_.size();
      void* y = last ? args.outputs[0] : static_cast<char*>(args.workspace) + stages_[i].offset;
      const ReduceKernel reduce = kernel(i == 0, last);
      parallel_for(stages_[i].tiles, stages_[i].grain, [&](int64_t begin, int64_t end) {
        reduce(stages_[i].geometry, x, y, begin, end);
      });
      x = y;
    }
  }

 private:
  ReduceKernel kernel(bool first, bool last) const {
    const ReduceKernels& kernels = for_isa(avx2::reduce_kernels, avx512::reduce_kernels);
    if (is_max_) return kernels.max[dtype_];
    return kernels.sum[is_widened_ && !first][is_widened_ && !last][dtype_];
  }

  int dtype_;
  bool is_max_;
  bool is_widened_ = false;
  std::vector<Stage> stages_;
  size_t workspace_bytes_ = 0;
};

template <typename T>
std::unique_ptr<HostKernel> make_reduction(const Node& node) {
  constexpr bool kIsMean = std::is_same_v<T, ReduceMean>;
  const double count = static_cast<double>(node.inputs[0].type().elements()) /
                       static_cast<double>(node.outputs[0].elements());
  auto reduction = std::make_shared<const Reduction>(
      node, node.op_as<T>().axes, kIsMean ? count : 1.0, std::is_same_v<T, ReduceMax>);
  const size_t workspace_bytes = reduction->workspace_bytes();
  return std::make_unique<HostKernel>(
      [reduction = std::move(reduction)](const KernelArgs& args) { reduction->run(args); },
      workspace_bytes);
}

std::unique_ptr<HostKernel> make_argmax(const Node& node) {
  const TensorType& x = node.inputs[0].type();
  const auto axis = static_cast<size_t>(node.op_as<ArgMax>().axis);
  const int64_t n = x.shape[axis];
  const int64_t outer = numel({x.shape.begin(), x.shape.begin() + node.op_as<ArgMax>().axis});
  const int64_t inner = x.elements() / n / outer;
  const int64_t grain = std::max<int64_t>(1, kGrain / (n * inner));
  return std::make_unique<HostKernel>([=,
                                       dtype = static_cast<int>(x.dtype)](const KernelArgs& args) {
    const ArgMaxKernel run = for_isa(avx2::reduce_kernels, avx512::reduce_kernels).argmax[dtype];
    parallel_for(outer, grain, [&](int64_t begin, int64_t end) {
      run(args.inputs[0], static_cast<int64_t*>(args.outputs[0]), n, inner, begin, end);
    });
  });
}

}  // namespace

void add_reduce_kernels(KernelTable& table) {
  table.add(ReduceSum::kTraits.name, kVectorized, make_reduction<ReduceSum>);
  table.add(ReduceMean::kTraits.name, kVectorized, make_reduction<ReduceMean>);
  table.add(ReduceMax::kTraits.name, kVectorized, make_reduction<ReduceMax>);
  table.add(ArgMax::kTraits.name, kVectorized, make_argmax);
}

}  // namespace ridge::cpu
