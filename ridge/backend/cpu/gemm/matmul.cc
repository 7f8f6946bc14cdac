// Matrix product by the packed GEMM.
#include "ridge/graph/ops/matmul.h"

#include "ridge/backend/cpu/cpu_isa.h"
#include "ridge/backend/cpu/cpu_kernels.h"
#include "ridge/backend/cpu/gemm/gemm.h"
#include "ridge/backend/cpu/gemm/gemm_amx.h"
#include "ridge/backend/cpu/gemm/gemm_panels.h"
#include "ridge/backend/cpu/gemm/gemm_plan.h"
#include "ridge/backend/cpu/gemm/product_kernel.h"
#include "ridge/backend/cpu/half_rows.h"
#include "ridge/base/cpu/cpu_info.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/fused_matmul.h"
#include "ridge/graph/ops/shape.h"

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

// The type in which packed_gemm multiplies for `op`.
GemmProducts packed_products(const MatMul& op) {
  if (op.round_to == DType::kF32) return GemmProducts::kOwn;
  return op.round_to == DType::kF16 ? GemmProducts::kRoundedToF16 : GemmProducts::kRounded;
}

constexpr int64_t kWidened = 16384;  // elements that pay for a thread

template <typename T>
void widen(const T* from, float* to, int64_t count) {
  if constexpr (is_half<T>)
    parallel_for(count, kWidened, [=](int64_t begin, int64_t end) {
      widen_row(from + begin, to + begin, end - begin);
    });
}

GemmShape product_shape(const Node& node, GemmProducts products) {
  GemmShape shape =
      gemm_shape(node.op_as<MatMul>(), node.inputs[0].type().shape, node.inputs[1].type().shape);
  shape.products = products;
  return shape;
}

GemmBatch batch_of(const Node& node, const GemmShape& shape) {
  return {.count = node.inputs[0].type().elements() / (shape.m * shape.k),
          .stride_a = shape.m * shape.k,
          .stride_b = shape.k * shape.n,
          .stride_c = shape.m * shape.n};
}

template <bool kPairs>
ProductKernel make_matmul(const Node& node) {
  const GemmShape shape =
      product_shape(node, kPairs ? GemmProducts::kPairs : packed_products(node.op_as<MatMul>()));
  return make_batched_product(node.inputs[0].dtype(), "matmul", shape, batch_of(node, shape));
}

// 16-bit factors whose sum stays in f32: both are widened first, which is exact.
std::unique_ptr<HostKernel> make_f32_result(const Node& node) {
  const TensorType &a = node.inputs[0].type(), &b = node.inputs[1].type();
  const GemmShape shape = gemm_shape(node.op_as<MatMul>(), a.shape, b.shape);
  const GemmBatch batch = batch_of(node, shape);
  const int64_t left = a.elements(), right = b.elements();
  return dispatch_float(a.dtype, "matmul", [&]<typename T>(TypeTag<T>) {
    return std::make_unique<HostKernel>(
        [shape, batch, left, right](const KernelArgs& args) {
          auto* const wide_a = static_cast<float*>(args.workspace);
          float* const wide_b = wide_a + left;
          widen(static_cast<const T*>(args.inputs[0]), wide_a, left);
          widen(static_cast<const T*>(args.inputs[1]), wide_b, right);
          gemm_batched(shape,
                       batch,
                       wide_a,
                       wide_b,
                       static_cast<float*>(args.outputs[0]),
                       /*accumulate=*/false,
                       nullptr);
        },
        static_cast<size_t>(left + right) * sizeof(float));
  });
}

// Rows up to which packing at each launch is worth a packed copy of the weights: where it
// transposes or rounds them a product is 1.3 to 1.5 times as fast with one at 32 rows, 1.1 times at
// 128 and 1.05 times at 512; where it only copies them, 1.1 to 1.6 times up to 64 rows, and 1.05
// to 1.1 times in models whose weights come from memory. Smaller weights lie in the caches,
// whichever way.
constexpr int64_t kRowsThatPay = 128, kRowsOfCopies = 256;
constexpr int64_t kFewestCopied = 64 * 1024;

std::vector<PackedOperand> panels_of(const Node& node) {
  const TensorType& b = node.inputs[1].type();
  if (b.shape.size() != 2) return {};
  const GemmShape shape = product_shape(node, packed_products(node.op_as<MatMul>()));
  const std::optional<GemmPanels> panels = gemm_panels(shape, b.dtype);
  const bool only_copies = shape.products == GemmProducts::kOwn && !shape.transpose_b;
  if (!panels || shape.m > (only_copies ? kRowsOfCopies : kRowsThatPay) ||
      (only_copies && shape.n * shape.k < kFewestCopied))
    return {};
  PackedOperand weights = panels_operand(1, shape, *panels);
  weights.only_constants = only_copies;
  return {std::move(weights)};
}

ProductKernel make_packed(const Node& node) {
  return make_packed_product(node.inputs[0].dtype(),
                             product_shape(node, packed_products(node.op_as<MatMul>())));
}

template <typename In, typename Out>
ProductKernel make_amx_of(const Node& node, bool has_panels) {
  const GemmShape shape = product_shape(node, GemmProducts::kOwn);
  return has_panels ? make_amx_packed_product<In, Out>(shape)
                    : make_amx_product<In, Out>(shape, batch_of(node, shape));
}

ProductKernel make_amx_either(const Node& node, bool has_panels) {
  if (node.inputs[0].dtype() == DType::kF32) return make_amx_of<float, float>(node, has_panels);
  if (node.outputs[0].dtype == DType::kF32) return make_amx_of<BF16, float>(node, has_panels);
  return make_amx_of<BF16, BF16>(node, has_panels);
}

ProductKernel make_amx(const Node& node) { return make_amx_either(node, false); }
ProductKernel make_amx_packed(const Node& node) { return make_amx_either(node, true); }

std::vector<PackedOperand> amx_operands_of(const Node& node) {
  if (node.inputs[1].type().shape.size() != 2) return {};
  return {amx_operand(1, product_shape(node, GemmProducts::kOwn))};
}

bool is_f32_result(const Node& node) { return node.op_as<MatMul>().f32_result; }

bool is_plain(const Node& node) { return !is_f32_result(node); }

bool multiplies_bf16(const Node& node) {
  return node.inputs[0].dtype() == DType::kBF16 || node.op_as<MatMul>().round_to == DType::kBF16;
}

bool is_for_pairs(const Node& node) {
  return has_bf16_pairs() && multiplies_bf16(node) && !is_f32_result(node);
}

bool is_for_amx(const Node& node) { return has_amx() && multiplies_bf16(node); }

void add_pairs_kernel(KernelTable& table) {
  table.add(
      "matmul",
      {"bf16_pairs_gemm", 1},
      [](const Node& node) { return make_alone(make_matmul<true>(node)); },
      is_for_pairs);
}

}  // namespace

void add_matmul_kernels(KernelTable& table) {
  add_product<MatMul, FusedMatMul>(table,
                                   {.choice = {"bf16_amx_gemm", 2},
                                    .make = make_amx,
                                    .accepts = is_for_amx,
                                    .packed_operands = amx_operands_of,
                                    .make_packed = make_amx_packed});
  // The choice to take comes first.
  if (cpu_info().fast_bf16) add_pairs_kernel(table);
  add_product<MatMul, FusedMatMul>(table,
                                   {.choice = {"packed_gemm"},
                                    .make = make_matmul<false>,
                                    .accepts = is_plain,
                                    .packed_operands = panels_of,
                                    .make_packed = make_packed});
  table.add("matmul", {"packed_gemm"}, make_f32_result, is_f32_result);
  if (!cpu_info().fast_bf16) add_pairs_kernel(table);
}

}  // namespace ridge::cpu
