// Reductions over any axes, and argmax.
#include "ridge/graph/ops/reduce.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "ridge/backend/cpu/cpu_isa.h"
#include "ridge/backend/cpu/cpu_kernels.h"
#include "ridge/backend/cpu/staged_reduction.h"
#include "ridge/base/alignment.h"
#include "ridge/base/cpu/parallel.h"

namespace ridge::cpu {
namespace {

const Choice kVectorized{"vectorized"};

// Elements a thread takes at a time.
constexpr int64_t kGrain = 16384;

template <typename T>
std::unique_ptr<HostKernel> make_reduction(const Node& node) {
  constexpr bool kIsMean = std::is_same_v<T, ReduceMean>;
  const double count = static_cast<double>(node.inputs[0].type().elements()) /
                       static_cast<double>(node.outputs[0].elements());
  const auto kind = std::is_same_v<T, ReduceMax> ? StagedReduction::kMax : StagedReduction::kSum;
  auto reduction = std::make_shared<const StagedReduction>(
      node.inputs[0].type(), node.op_as<T>().axes, kind, kIsMean ? count : 1.0);
  const size_t workspace_bytes = reduction->workspace_bytes();
  return std::make_unique<HostKernel>(
      [reduction = std::move(reduction)](const KernelArgs& args) {
        reduction->run(args.inputs[0], args.outputs[0], args.workspace);
      },
      workspace_bytes);
}

// Sums of bytes: over the last axes that lie beside each other first, and of these sums, in i32,
// over the others.
class SumOfBytes {
 public:
  explicit SumOfBytes(const Node& node) : is_signed_(node.inputs[0].dtype() == DType::kI8) {
    Shape shape = node.inputs[0].shape();
    std::vector<int64_t> axes = node.op_as<ReduceSumI8>().axes;
    const int64_t last = axes.back();
    inner_ = numel({shape.begin() + last + 1, shape.end()});
    for (int64_t axis = last; !axes.empty() && axes.back() == axis; --axis) {
      n_ *= std::exchange(shape[static_cast<size_t>(axis)], 1);
      axes.pop_back();
    }
    outer_ = numel(shape) / inner_;
    if (axes.empty()) return;
    const TensorType sums{DType::kI32, shape};
    others_.emplace(sums, axes, StagedReduction::kSum, 1.0);
    sums_bytes_ = aligned_bytes(static_cast<size_t>(sums.bytes()));
  }

  size_t workspace_bytes() const {
    return sums_bytes_ + (others_ ? others_->workspace_bytes() : 0);
  }

  void run(const KernelArgs& args) const {
    const ReduceKernels& kernels = for_isa(avx2::reduce_kernels, avx512::reduce_kernels);
    const void* const x = args.inputs[0];
    auto* const sums = static_cast<int32_t*>(others_ ? args.workspace : args.outputs[0]);
    const int64_t grain = std::max<int64_t>(1, kGrain / (n_ * inner_));
    parallel_for(outer_, grain, [&](int64_t begin, int64_t end) {
      if (is_signed_)
        kernels.sum_i8(static_cast<const int8_t*>(x), sums, n_, inner_, begin, end);
      else
        kernels.sum_u8(static_cast<const uint8_t*>(x), sums, n_, inner_, begin, end);
    });
    if (others_)
      others_->run(sums, args.outputs[0], static_cast<std::byte*>(args.workspace) + sums_bytes_);
  }

 private:
  bool is_signed_;
  int64_t outer_ = 1, n_ = 1, inner_ = 1;
  size_t sums_bytes_ = 0;
  std::optional<StagedReduction> others_;
};

std::unique_ptr<HostKernel> make_sum_of_bytes(const Node& node) {
  SumOfBytes sum(node);
  const size_t bytes = sum.workspace_bytes();
  return std::make_unique<HostKernel>(
      [sum = std::move(sum)](const KernelArgs& args) { sum.run(args); }, bytes);
}

std::unique_ptr<HostKernel> make_argmax(const Node& node) {
  const TensorType& x = node.inputs[0].type();
  const auto axis = static_cast<size_t>(node.op_as<ArgMax>().axis);
  const int64_t n = x.shape[axis], limit = node.op_as<ArgMax>().looked_at(n);
  const int64_t outer = numel({x.shape.begin(), x.shape.begin() + node.op_as<ArgMax>().axis});
  const int64_t inner = x.elements() / n / outer;
  const int64_t grain = std::max<int64_t>(1, kGrain / (n * inner));
  return std::make_unique<HostKernel>([=,
                                       size = size_of(x.dtype),
                                       dtype = static_cast<int>(x.dtype)](const KernelArgs& args) {
    const ArgMaxKernel run = for_isa(avx2::reduce_kernels, avx512::reduce_kernels).argmax[dtype];
    const auto* const from = static_cast<const std::byte*>(args.inputs[0]);
    auto* const to = static_cast<int64_t*>(args.outputs[0]);
    parallel_for(outer, grain, [&](int64_t begin, int64_t end) {
      if (limit == n) return run(from, to, n, inner, begin, end);
      for (int64_t i = begin; i < end; ++i)
        run(from + static_cast<size_t>(i * n * inner) * size, to + i * inner, limit, inner, 0, 1);
    });
  });
}

}  // namespace

void add_reduce_kernels(KernelTable& table) {
  table.add(ReduceSum::kTraits.name, kVectorized, make_reduction<ReduceSum>);
  table.add(ReduceSumI8::kTraits.name, kVectorized, make_sum_of_bytes);
  table.add(ReduceMean::kTraits.name, kVectorized, make_reduction<ReduceMean>);
  table.add(ReduceMax::kTraits.name, kVectorized, make_reduction<ReduceMax>);
  table.add(ArgMax::kTraits.name, kVectorized, make_argmax);
}

}  // namespace ridge::cpu
