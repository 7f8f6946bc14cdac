// Matrix product by the packed GEMM.
#include "ridge/graph/ops/matmul.h"

#include "ridge/backend/cpu/cpu_isa.h"
#include "ridge/backend/cpu/cpu_kernels.h"
#include "ridge/backend/cpu/gemm.h"

namespace ridge::cpu {
namespace {

GemmShape gemm_shape(const MatMul& op, const Shape& a, const Shape& b) {
  const size_t rows = a.size() - 2, columns = a.size() - 1;
  return {.m = a[op.transpose_a ? columns : rows],
          .n = b[op.transpose_b ? rows : columns],
          .k = a[op.transpose_a ? rows : columns],
          .transpose_a = op.transpose_a,
          .transpose_b = op.transpose_b,
          .lda = a[columns],
          .ldb = b[columns],
          .ldc = b[op.transpose_b ? rows : columns]};
}

// What packed_gemm multiplies.
GemmProducts packed_products(const MatMul& op) {
  if (op.round_to == DType::kF32) return GemmProducts::kOwn;
  return op.round_to == DType::kF16 ? GemmProducts::kRoundedToF16 : GemmProducts::kRounded;
}

template <bool kPairs>
std::unique_ptr<HostKernel> make_matmul(const Node& node) {
  const TensorType &a = node.inputs[0].type(), &b = node.inputs[1].type();
  GemmShape shape = gemm_shape(node.op_as<MatMul>(), a.shape, b.shape);
  shape.products = kPairs ? GemmProducts::kPairs : packed_products(node.op_as<MatMul>());
  const GemmBatch batch{.count = a.elements() / (shape.m * shape.k),
                        .stride_a = shape.m * shape.k,
                        .stride_b = shape.k * shape.n,
                        .stride_c = shape.m * shape.n};
  return dispatch_float(a.dtype, "matmul", [&]<typename T>(TypeTag<T>) {
    return std::make_unique<HostKernel>(
        [shape, batch](const KernelArgs& args) {
          gemm_batched(shape,
                       batch,
                       static_cast<const T*>(args.inputs[0]),
                       static_cast<const T*>(args.inputs[1]),
                       static_cast<T*>(args.outputs[0]),
                       /*accumulate=*/false,
                       args.workspace);
        },
        gemm_workspace_bytes(shape, a.dtype, batch.count));
  });
}

bool is_for_pairs(const Node& node) {
  const bool is_bf16 = node.inputs[0].dtype() == DType::kBF16;
  return has_bf16_pairs() && (is_bf16 || node.op_as<MatMul>().round_to == DType::kBF16);
}

}  // namespace

void add_matmul_kernels(KernelTable& table) {
  table.add("matmul", {"bf16_pairs_gemm", 1}, make_matmul<true>, is_for_pairs);
  table.add("matmul", {"packed_gemm"}, make_matmul<false>);
}

}  // namespace ridge::cpu
