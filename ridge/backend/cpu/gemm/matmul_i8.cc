// Matrix product of bytes by gemm_i8.
#include "ridge/graph/ops/matmul_i8.h"

#include "ridge/backend/cpu/cpu_kernels.h"
#include "ridge/backend/cpu/gemm/gemm_i8.h"
#include "ridge/backend/cpu/gemm/gemm_plan.h"
#include "ridge/backend/cpu/isa/gemm/gemm_i8_kernels.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"

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
  const auto& op = node.op_as<MatMulI8>();
  const auto is_each = [&](size_t input) {
    return node.inputs.size() > input && node.inputs[input].rank() == 1;
  };
  const bool a_each = is_each(MatMulI8::kAZero), b_each = is_each(MatMulI8::kBZero);
  const bool scale_each = op.is_scaled() && is_each(MatMulI8::kScale);
  const size_t bias = op.is_scaled() && node.inputs.size() > op.bias() ? op.bias() : 0;
  return std::make_unique<HostKernel>(
      [=, to = op.to, is_scaled = op.is_scaled(), is_rounded = op.is_rounded()](
          const KernelArgs& args) {
        const auto floats = [&](size_t input) {
          return static_cast<const float*>(args.inputs[input]);
        };
        I8Results results{.c = args.outputs[0], .dtype = to};
        if (is_scaled) results.column_scale = floats(MatMulI8::kScale);
        results.has_scale_each_column = scale_each;
        if (bias != 0) results.bias = floats(bias);
        if (is_rounded) {
          const void* const zero = args.inputs[MatMulI8::kZero];
          results.zero = to == DType::kI8 ? int32_t{*static_cast<const int8_t*>(zero)}
                                          : int32_t{*static_cast<const uint8_t*>(zero)};
        }
        gemm_i8(problem,
                {.a = args.inputs[MatMulI8::kA],
                 .b = args.inputs[MatMulI8::kB],
                 .a_zero = {args.inputs[MatMulI8::kAZero], a_each},
                 .b_zero = {args.inputs[MatMulI8::kBZero], b_each}},
                results,
                args.workspace);
      },
      gemm_i8_workspace_bytes(problem));
}

// The four bytes of each i32, from the lowest on.
Value bytes_of(Value x) {
  std::vector<Value> bytes;
  for (int i = 0; i < 4; ++i) {
    const Value byte = cast(x, DType::kU8);
    Shape shape = x.shape();
    shape.push_back(1);
    bytes.push_back(reshape(cast(byte, DType::kI8), shape));
    const Value rest = x - cast(byte, DType::kI32);
    x = cast(cast(rest, DType::kF64) / 256.0, DType::kI32);  // exact
  }
  return concat(bytes, x.rank());
}

// The ops that make of op(B) what pack_i8() makes of it.
Value packed(Value b, const GemmShape& shape) {
  if (b.dtype() == DType::kU8) b = cast(cast(b, DType::kI16) - 128.0, DType::kI8);
  const bool along = shape.transpose_b;
  const int64_t tiles = ceil_div(shape.k, kI8Steps), panels = ceil_div(shape.n, kI8Lanes);
  const int64_t more_steps = tiles * kI8Steps - shape.k;
  const int64_t more_columns = panels * kI8Lanes - shape.n;
  Value sums = reduce_sum(cast(b, DType::kI32), {along ? 1 : 0});
  if (more_columns > 0) sums = pad(sums, {0}, {more_columns});
  if (more_steps > 0 || more_columns > 0)
    b = pad(b,
            {0, 0},
            along ? std::vector{more_columns, more_steps} : std::vector{more_steps, more_columns});
  if (along)
    b = transpose(reshape(b, {panels, kI8Lanes, tiles, 16, 4}), {0, 2, 3, 1, 4});
  else
    b = transpose(reshape(b, {tiles, 16, 4, panels, kI8Lanes}), {3, 0, 1, 4, 2});
  return concat({reshape(b, {-1}), reshape(bytes_of(sums), {-1})}, 0);
}

std::vector<PackedOperand> operands_of(const Node& node) {
  if (node.inputs[MatMulI8::kB].rank() != 2) return {};
  const GemmShape shape = problem_of(node, /*is_packed=*/true).shape;
  return {{.input = MatMulI8::kB,
           .layout = shape.transpose_b ? "i8.t" : "i8",
           .pack = [shape](Value b) { return packed(b, shape); },
           .only_constants = true}};
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
