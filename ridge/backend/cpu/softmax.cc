// Softmax, log-softmax and cross-entropy.
#include "ridge/graph/ops/softmax.h"

#include <algorithm>

#include "ridge/backend/cpu/cpu_isa.h"
#include "ridge/backend/cpu/cpu_kernels.h"
#include "ridge/backend/cpu/isa/softmax_kernels.h"
#include "ridge/base/cpu/parallel.h"

namespace ridge::cpu {
namespace {

const Choice kVectorized{"vectorized"};

// Elements a thread takes at a time; a row costs several passes over it.
constexpr int64_t kGrain = 8192;

const SoftmaxKernels& kernels() { return for_isa(avx2::softmax_kernels, avx512::softmax_kernels); }

using RowsTable = RowsKernel (SoftmaxKernels::*)[kElements];

std::unique_ptr<HostKernel> make_rows(const Node& node, RowsTable table) {
  const TensorType& x = node.inputs[0].type();
  const int64_t n = x.shape.back(), rows = x.elements() / n;
  const size_t row_bytes = static_cast<size_t>(n) * size_of(x.dtype);
  return std::make_unique<HostKernel>(
      [=, dtype = static_cast<int>(x.dtype)](const KernelArgs& args) {
        const RowsKernel run = (kernels().*table)[dtype];
        parallel_for(rows, std::max<int64_t>(1, kGrain / n), [&](int64_t begin, int64_t end) {
          const size_t offset = static_cast<size_t>(begin) * row_bytes;
          run(static_cast<const char*>(args.inputs[0]) + offset,
              static_cast<char*>(args.outputs[0]) + offset,
              end - begin,
              n);
        });
      });
}

// Position of element `flat` in the shape.
Shape index_of(int64_t flat, const Shape& shape) {
  Shape index(shape.size());
  for (size_t i = shape.size(); i-- > 0; flat /= shape[i]) index[i] = flat % shape[i];
  return index;
}

void check_targets(const CrossEntropyRows& rows, const Shape& shape, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const int64_t target = rows.is_i64 ? static_cast<const int64_t*>(rows.targets)[r]
                                       : static_cast<const int32_t*>(rows.targets)[r];
    const bool fits = (target >= 0 && target < rows.n) || target == rows.ignore_index;
    if (!fits) [[unlikely]]
      throw UserError(fmt::format(
          "[cross_entropy] target {} at {} is no class; expected 0 to {}, or {} to ignore the row",
          target,
          to_string(index_of(r, shape)),
          rows.n - 1,
          rows.ignore_index));
  }
}

std::unique_ptr<HostKernel> make_cross_entropy(const Node& node) {
  const TensorType &logits = node.inputs[0].type(), &targets = node.inputs[1].type();
  const CrossEntropy& op = node.op_as<CrossEntropy>();
  const CrossEntropyRows geometry{.logits = nullptr,
                                  .targets = nullptr,
                                  .is_i64 = targets.dtype == DType::kI64,
                                  .loss = nullptr,
                                  .n = logits.shape.back(),
                                  .ignore_index = op.ignore_index,
                                  .label_smoothing = op.label_smoothing};
  return std::make_unique<HostKernel>(
      [geometry, shape = targets.shape, dtype = static_cast<int>(logits.dtype)](
          const KernelArgs& args) {
        CrossEntropyRows rows = geometry;
        rows.logits = args.inputs[0];
        rows.targets = args.inputs[1];
        rows.loss = args.outputs[0];
        const CrossEntropyKernel run = kernels().cross_entropy[dtype];
        const int64_t grain = std::max<int64_t>(1, kGrain / rows.n);
        parallel_for(numel(shape), grain, [&](int64_t begin, int64_t end) {
          check_targets(rows, shape, begin, end);
          run(rows, begin, end);
        });
      });
}

}  // namespace

void add_softmax_kernels(KernelTable& table) {
  table.add(Softmax::kTraits.name, kVectorized, [](const Node& node) {
    return make_rows(node, &SoftmaxKernels::softmax);
  });
  table.add(LogSoftmax::kTraits.name, kVectorized, [](const Node& node) {
    return make_rows(node, &SoftmaxKernels::log_softmax);
  });
  table.add(CrossEntropy::kTraits.name, kVectorized, make_cross_entropy);
}

}  // namespace ridge::cpu
