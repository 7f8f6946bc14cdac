#include "ridge/backend/cuda/blas/matmul.h"

#include <array>
#include <optional>

#include "ridge/backend/cuda/driver/node_kernel.h"
#include "ridge/base/alignment.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/fused_matmul.h"
#include "ridge/graph/ops/source.h"

namespace ridge::cuda {
namespace {

BlasProblem problem_of(const MatMul& op, const TensorType& a, const TensorType& y) {
  const size_t rank = y.shape.size();
  BlasProblem p;
  p.m = y.shape[rank - 2], p.n = y.shape[rank - 1];
  p.k = a.shape[rank - (op.transpose_a ? 2 : 1)];
  p.batches = y.elements() / (p.m * p.n);
  p.transpose_a = op.transpose_a, p.transpose_b = op.transpose_b;
  p.result = y.dtype;
  p.rounds = op.round_to != DType::kF32;
  p.factors = p.rounds ? op.round_to : a.dtype;
  p.tf32 = op.tf32;
  return p;
}

// Nothing where the library has no such product.
std::optional<BlasProblem> problem_of(const Node& node) {
  if (node.is<MatMul>())
    return problem_of(node.op_as<MatMul>(), node.inputs[0].type(), node.outputs[0]);
  if (!node.is<FusedMatMul>()) return std::nullopt;
  const auto& op = node.op_as<FusedMatMul>();
  BlasProblem p =
      problem_of(op.product, node.inputs[0].type(), product_type(op, node.input_types()));
  p.epilogue = blas_epilogue(node);
  if (!p.epilogue) return std::nullopt;
  return p;
}

// Casts an operand into the workspace.
std::unique_ptr<NodeKernel> make_cast(
    const TensorType& from,
    DType to,
    const std::function<std::unique_ptr<NodeKernel>(const Node&)>& make) {
  Graph graph("cast");
  const Value x = input(graph, "x", from);
  std::unique_ptr<NodeKernel> kernel = make(*cast(x, to).node);
  check_internal(kernel != nullptr && kernel->workspace_bytes() == 0,
                 "no kernel without workspace casts {} to {}",
                 to_string(from),
                 name_of(to));
  return kernel;
}

class BlasMatmul final : public NodeKernel {
 public:
  BlasMatmul(std::shared_ptr<const Blas> blas, const BlasProblem& problem, const BlasChoice& choice)
      : problem_(problem), product_(std::move(blas), problem, choice) {}

  void set_casts(std::unique_ptr<NodeKernel> a, std::unique_ptr<NodeKernel> b) {
    cast_a_ = std::move(a);
    cast_b_ = std::move(b);
  }
  void set_bias_cast(std::unique_ptr<NodeKernel> bias) { cast_bias_ = std::move(bias); }

  // Rounded operands lie behind the workspace of the algorithm.
  size_t workspace_bytes() const override {
    const size_t reserved = product_.reserved_bytes();
    if (problem_.has_bias())
      return reserved + static_cast<size_t>(problem_.n) * size_of(problem_.result);
    if (!problem_.rounds) return reserved;
    return reserved + aligned_bytes(problem_.bytes_of_a()) + problem_.bytes_of_b();
  }
  void prepare() const override {
    for (const auto* cast : {&cast_a_, &cast_b_, &cast_bias_})
      if (*cast != nullptr) (*cast)->prepare();
  }
  void launch(ridge::Stream& stream, const KernelArgs& args) const override {
    Stream& queue = cuda_stream(stream);
    const void *a = args.inputs[0], *b = args.inputs[1];
    if (problem_.rounds) {
      std::byte* const rounded_a = behind_workspace(args);
      auto* const rounded_b = rounded_a + aligned_bytes(problem_.bytes_of_a());
      run_cast(*cast_a_, stream, a, rounded_a);
      run_cast(*cast_b_, stream, b, rounded_b);
      a = rounded_a, b = rounded_b;
    }
    void* y = args.outputs[0];
    if (problem_.epilogue) y = set_epilogue(stream, args);
    product_.launch(queue, a, b, y, args.workspace);
  }

 private:
  std::byte* behind_workspace(const KernelArgs& args) const {
    return static_cast<std::byte*>(args.workspace) + product_.reserved_bytes();
  }

  // Tells the library where the epilogue's operands lie, and returns where D does.
  void* set_epilogue(ridge::Stream& stream, const KernelArgs& args) const {
    const BlasEpilogue& epilogue = *problem_.epilogue;
    void* bias = nullptr;
    if (problem_.has_bias()) {
      bias = behind_workspace(args);
      run_cast(*cast_bias_, stream, args.inputs[static_cast<size_t>(epilogue.bias)], bias);
    }
    const void* aux = nullptr;
    if (epilogue.aux >= 0) aux = args.inputs[static_cast<size_t>(epilogue.aux)];
    if (epilogue.aux_result >= 0) aux = args.outputs[static_cast<size_t>(epilogue.aux_result)];
    product_.set_places(bias, aux);
    return args.outputs[static_cast<size_t>(epilogue.result)];
  }

  static void run_cast(const NodeKernel& cast, ridge::Stream& stream, const void* from, void* to) {
    const std::array<const void*, 1> inputs{from};
    const std::array<void*, 1> outputs{to};
    // The addresses are read in the call.
    cast.launch(stream, {inputs, outputs, nullptr});
  }

  BlasProblem problem_;
  BlasProduct product_;
  std::unique_ptr<NodeKernel> cast_a_, cast_b_;  // null where the factors are not rounded
  std::unique_ptr<NodeKernel> cast_bias_;        // null without a bias: the library takes D's type
};

}  // namespace

std::vector<BlasChoice> blas_choices(const Blas& blas, const Node& node) {
  const std::optional<BlasProblem> problem = problem_of(node);
  if (!problem) return {};
  return blas_algorithms(blas, *problem);
}

std::unique_ptr<NodeKernel> make_blas_kernel(
    std::shared_ptr<const Blas> blas,
    const Node& node,
    const BlasChoice& choice,
    const std::function<std::unique_ptr<NodeKernel>(const Node&)>& make) {
  const std::optional<BlasProblem> found = problem_of(node);
  check_internal(found.has_value(), "no product for node '{}'", node.site.name);
  const BlasProblem& problem = *found;
  auto made = std::make_unique<BlasMatmul>(std::move(blas), problem, choice);
  if (problem.rounds)
    made->set_casts(make_cast(node.inputs[0].type(), problem.factors, make),
                    make_cast(node.inputs[1].type(), problem.factors, make));
  if (problem.has_bias())
    made->set_bias_cast(make_cast(
        node.inputs[static_cast<size_t>(problem.epilogue->bias)].type(), problem.result, make));
  return made;
}

}  // namespace ridge::cuda
