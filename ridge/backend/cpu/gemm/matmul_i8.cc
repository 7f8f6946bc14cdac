// Matrix product of bytes by gemm_i8.
#include "ridge/graph/ops/matmul_i8.h"

#include "ridge/backend/cpu/cpu_kernels.h"
#include "ridge/backend/cpu/gemm/product_i8.h"

namespace ridge::cpu {
namespace {

I8Problem problem_of(const Node& node, bool is_packed) {
  const auto& op = node.op_as<MatMulI8>();
  const TensorType &a = node.inputs[MatMulI8::kA].type(), &b = node.inputs[MatMulI8::kB].type();
  const Shape& y = node.outputs[0].shape;
  I8Problem problem;
  GemmShape& s = problem.shape;
  s.m = y[y.size() - 2];
  s.n = y.back();
  s.k = a.shape[a.shape.size() - (op.transpose_a ? 2 : 1)];
  s.transpose_a = op.transpose_a;
  s.transpose_b = op.transpose_b;
  s.lda = op.transpose_a ? s.m : s.k;
  s.ldb = op.transpose_b ? s.k : s.n;
  s.ldc = s.n;
  problem.batch = {.count = node.outputs[0].elements() / (s.m * s.n),
                   .stride_a = s.m * s.k,
                   .stride_b = b.rank() == 2 ? 0 : s.k * s.n,
                   .stride_c = s.m * s.n};
  problem.a_is_signed = a.dtype == DType::kI8;
  problem.b_is_signed = b.dtype == DType::kI8;
  problem.b_is_packed = is_packed;
  return problem;
}

std::unique_ptr<HostKernel> make_either(const Node& node, bool is_packed) {
  const I8Problem problem = problem_of(node, is_packed);
  return std::make_unique<HostKernel>(
      [problem, arguments = I8Arguments(node, node.op_as<MatMulI8>())](const KernelArgs& args) {
        gemm_i8(problem, arguments.operands(args), arguments.results(args), args.workspace);
      },
      gemm_i8_workspace_bytes(problem));
}

std::vector<PackedOperand> operands_of(const Node& node) {
  if (node.inputs[MatMulI8::kB].rank() != 2) return {};
  const GemmShape shape = problem_of(node, /*is_packed=*/true).shape;
  return {packed_i8_operand(shape)};
}

}  // namespace

void add_matmul_i8_kernels(KernelTable& table) {
  table.add(
      "matmul_i8",
      {"gemm_i8"},
      [](const Node& node) { return make_either(node, false); },
      nullptr,
      {.operands = operands_of, .make = [](const Node& node) { return make_either(node, true); }});
}

}  // namespace ridge::cpu
