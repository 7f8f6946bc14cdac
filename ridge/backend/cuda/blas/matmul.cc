#include "ridge/backend/cuda/blas/matmul.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "ridge/backend/cuda/blas/epilogue.h"
#include "ridge/backend/cuda/driver/library_workspace.h"
#include "ridge/backend/cuda/driver/node_kernel.h"
#include "ridge/base/alignment.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/fused_matmul.h"
#include "ridge/graph/ops/source.h"

namespace ridge::cuda {
namespace {

constexpr int kMostProposals = 16;
constexpr uint64_t kMostWorkspaceBytes = uint64_t{32} << 20;  // NVIDIA's advice for Hopper

// A node as the library sees it: row-major C = op(A) op(B) is column-major C^T = op(B)^T op(A)^T,
// so that its first matrix is our B.
struct Problem {
  int64_t m, n, k, batches;
  bool transpose_a, transpose_b;
  DType factors;  // dtype of what is multiplied
  DType result;
  bool tf32;
  bool rounds;  // the factors, into the workspace
  std::optional<BlasEpilogue> epilogue;

  std::string text() const {
    return fmt::format("{}{} x {}{} x {}, {} to {}{}{}, {} at a time",
                       m,
                       transpose_a ? " transposed" : "",
                       k,
                       transpose_b ? " transposed" : "",
                       n,
                       name_of(factors),
                       name_of(result),
                       tf32 ? " in TF32" : "",
                       epilogue ? " with " + epilogue->name() : "",
                       batches);
  }
  size_t bytes_of_a() const { return static_cast<size_t>(batches * m * k) * size_of(factors); }
  size_t bytes_of_b() const { return static_cast<size_t>(batches * k * n) * size_of(factors); }
  bool has_bias() const { return epilogue && epilogue->bias >= 0; }
  bool has_aux() const { return epilogue && (epilogue->aux >= 0 || epilogue->aux_result >= 0); }
};

Problem problem_of(const MatMul& op, const TensorType& a, const TensorType& y) {
  const size_t rank = y.shape.size();
  Problem p{};
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
std::optional<Problem> problem_of(const Node& node) {
  if (node.is<MatMul>())
    return problem_of(node.op_as<MatMul>(), node.inputs[0].type(), node.outputs[0]);
  if (!node.is<FusedMatMul>()) return std::nullopt;
  const auto& op = node.op_as<FusedMatMul>();
  Problem p = problem_of(op.product, node.inputs[0].type(), product_type(op, node.input_types()));
  p.epilogue = blas_epilogue(node);
  if (!p.epilogue) return std::nullopt;
  return p;
}

BlasType blas_type(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return BlasType::kF64;
    case DType::kF16:
      return BlasType::kF16;
    case DType::kBF16:
      return BlasType::kBF16;
    default:
      return BlasType::kF32;
  }
}

// The library's description of a problem.
class Description {
 public:
  Description(const BlasLibraryRef& library, const Problem& p)
      : library_(library),
        problem_(p),
        matmul_(make_matmul()),
        // Column-major, with its lines as columns.
        b_(make_layout(p.factors, p.transpose_b ? p.k : p.n, p.transpose_b ? p.n : p.k)),
        a_(make_layout(p.factors, p.transpose_a ? p.m : p.k, p.transpose_a ? p.k : p.m)),
        c_(make_layout(p.result, p.n, p.m)) {
    set(BlasMatmulAttribute::kTransposeA, operation(p.transpose_b));
    set(BlasMatmulAttribute::kTransposeB, operation(p.transpose_a));
    if (!p.epilogue) return;
    set(BlasMatmulAttribute::kEpilogue, p.epilogue->kind());
    // Proposals depend on how addresses are aligned.
    const auto* const any = reinterpret_cast<const void*>(uintptr_t{kBufferAlignment});
    set_places(any, any);
    if (p.has_aux()) set(BlasMatmulAttribute::kAuxLine, p.n);
  }

  BlasMatmulHandle matmul() const { return matmul_.get(); }
  /// Sets the addresses of the epilogue's operands for the next call, as far as it has them. The
  /// library reads them in the call; nothing is allocated here.
  void set_places(const void* bias, const void* aux) const {
    if (problem_.has_bias()) set(BlasMatmulAttribute::kBiasPointer, bias);
    if (problem_.has_aux()) set(BlasMatmulAttribute::kAuxPointer, aux);
  }
  BlasLayoutHandle a() const { return a_.get(); }
  BlasLayoutHandle b() const { return b_.get(); }
  BlasLayoutHandle c() const { return c_.get(); }

 private:
  OwnedByBlas<BlasMatmulHandle> make_matmul() const {
    BlasCompute compute = problem_.tf32 ? BlasCompute::kF32FastTf32 : BlasCompute::kF32;
    BlasType scale = BlasType::kF32;
    if (problem_.factors == DType::kF64) compute = BlasCompute::kF64, scale = BlasType::kF64;
    BlasMatmulHandle handle = nullptr;
    library_->check(library_->matmul_create(&handle, compute, scale), "{}", problem_.text());
    return {library_, handle, &BlasLibrary::matmul_destroy};
  }

  static BlasOperation operation(bool transpose) {
    return transpose ? BlasOperation::kTranspose : BlasOperation::kNone;
  }

  template <typename T>
  void set(BlasMatmulAttribute attribute, T value) const {
    library_->check(library_->matmul_set(matmul_.get(), attribute, &value, sizeof value),
                    "{}",
                    problem_.text());
  }

  OwnedByBlas<BlasLayoutHandle> make_layout(DType dtype, int64_t rows, int64_t columns) const {
    BlasLayoutHandle handle = nullptr;
    library_->check(library_->layout_create(&handle,
                                            blas_type(dtype),
                                            static_cast<uint64_t>(rows),
                                            static_cast<uint64_t>(columns),
                                            rows),
                    "{}",
                    problem_.text());
    OwnedByBlas<BlasLayoutHandle> made(library_, handle, &BlasLibrary::layout_destroy);
    if (problem_.batches == 1) return made;
    const auto count = static_cast<int32_t>(problem_.batches);
    const int64_t offset = rows * columns;
    library_->check(
        library_->layout_set(handle, BlasLayoutAttribute::kBatchCount, &count, sizeof count),
        "{}",
        problem_.text());
    library_->check(
        library_->layout_set(handle, BlasLayoutAttribute::kBatchOffset, &offset, sizeof offset),
        "{}",
        problem_.text());
    return made;
  }

  BlasLibraryRef library_;
  Problem problem_;
  OwnedByBlas<BlasMatmulHandle> matmul_;
  OwnedByBlas<BlasLayoutHandle> b_, a_, c_;
};

// ---- choices ----

OwnedByBlas<BlasPreferenceHandle> make_preference(const BlasLibraryRef& library) {
  BlasPreferenceHandle handle = nullptr;
  library->check(library->preference_create(&handle), "");
  OwnedByBlas<BlasPreferenceHandle> made(library, handle, &BlasLibrary::preference_destroy);
  const auto set = [&](BlasPreferenceAttribute attribute, auto value) {
    library->check(library->preference_set(handle, attribute, &value, sizeof value),
                   "attribute {}",
                   static_cast<int>(attribute));
  };
  set(BlasPreferenceAttribute::kMostWorkspaceBytes, kMostWorkspaceBytes);
  // In place, blocks add to C in the order in which they come; in the type of C, parts are rounded
  // before they are added.
  set(BlasPreferenceAttribute::kReductionSchemes, uint32_t{kReductionComputeType});
  for (const auto attribute : {BlasPreferenceAttribute::kLeastAlignmentA,
                               BlasPreferenceAttribute::kLeastAlignmentB,
                               BlasPreferenceAttribute::kLeastAlignmentC,
                               BlasPreferenceAttribute::kLeastAlignmentD})
    set(attribute, static_cast<uint32_t>(kBufferAlignment));
  return made;
}

// How an algorithm is configured.
struct Configuration {
  int32_t id = 0;
  uint32_t tile = 0, split_k = 1, reduction = 0, swizzle = 0, custom = 0, stages = 0;
  uint16_t inner = 0, cluster = 0;

  /// Settings at their default are left out of the name.
  std::string name(const Problem& problem) const {
    std::string text = "cublaslt";
    if (problem.tf32) text += "_tf32";
    if (problem.epilogue) text += "_" + problem.epilogue->name();
    text += fmt::format("_{}_tile{}", id, tile);
    const auto add = [&](const char* what, uint32_t value, uint32_t usual) {
      if (value != usual) text += fmt::format("_{}{}", what, value);
    };
    add("stages", stages, 0);
    add("split", split_k, 1);
    add("swizzle", swizzle, 0);
    add("custom", custom, 0);
    add("inner", inner, 0);
    add("cluster", cluster, 0);
    return text;
  }
  bool is_same_each_run() const { return split_k <= 1 || reduction == kReductionComputeType; }
};

Configuration configuration_of(const BlasLibrary& library, const BlasAlgorithm& algorithm) {
  Configuration c;
  const auto get = [&](BlasAlgorithmAttribute attribute, auto& value) {
    size_t written = 0;
    return library.algorithm_get(&algorithm, attribute, &value, sizeof value, &written);
  };
  const auto need = [&](BlasAlgorithmAttribute attribute, auto& value) {
    library.check(get(attribute, value), "attribute {}", static_cast<int>(attribute));
  };
  need(BlasAlgorithmAttribute::kId, c.id);
  need(BlasAlgorithmAttribute::kTile, c.tile);
  need(BlasAlgorithmAttribute::kSplitK, c.split_k);
  need(BlasAlgorithmAttribute::kReductionScheme, c.reduction);
  need(BlasAlgorithmAttribute::kSwizzle, c.swizzle);
  need(BlasAlgorithmAttribute::kCustomOption, c.custom);
  need(BlasAlgorithmAttribute::kStages, c.stages);
  // Algorithms of older kinds have no such shapes, and some versions then give an error.
  if (!get(BlasAlgorithmAttribute::kInnerShape, c.inner).ok()) c.inner = 0;
  if (!get(BlasAlgorithmAttribute::kClusterShape, c.cluster).ok()) c.cluster = 0;
  return c;
}

// ---- the kernel ----

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
  BlasMatmul(std::shared_ptr<const Blas> blas, const Problem& problem, const BlasChoice& choice)
      : blas_(std::move(blas)),
        problem_(problem),
        description_(blas_->library(), problem),
        algorithm_(choice.algorithm),
        name_(choice.choice.name),
        blas_bytes_(choice.workspace_bytes) {}

  void set_casts(std::unique_ptr<NodeKernel> a, std::unique_ptr<NodeKernel> b) {
    cast_a_ = std::move(a);
    cast_b_ = std::move(b);
  }
  void set_bias_cast(std::unique_ptr<NodeKernel> bias) { cast_bias_ = std::move(bias); }

  // Rounded operands lie behind the workspace of the algorithm.
  size_t workspace_bytes() const override {
    const size_t reserved = reserved_workspace_bytes(blas_bytes_);
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
    // Factors of f64 or f32, as the sums are; read in the call.
    const double one = 1, zero = 0;
    const float one_f32 = 1, zero_f32 = 0;
    const bool is_f64 = problem_.factors == DType::kF64;
    const void* const alpha = is_f64 ? static_cast<const void*>(&one) : &one_f32;
    const void* const beta = is_f64 ? static_cast<const void*>(&zero) : &zero_f32;
    const BlasLibrary& library = *blas_->library();
    library.check(library.matmul(blas_->handle(),
                                 description_.matmul(),
                                 alpha,
                                 b,
                                 description_.b(),
                                 a,
                                 description_.a(),
                                 beta,
                                 y,
                                 description_.c(),
                                 y,
                                 description_.c(),
                                 &algorithm_,
                                 library_workspace(args.workspace, blas_bytes_),
                                 blas_bytes_,
                                 queue.handle()),
                  "{}, by {}",
                  problem_.text(),
                  name_);
  }

 private:
  std::byte* behind_workspace(const KernelArgs& args) const {
    return static_cast<std::byte*>(args.workspace) + reserved_workspace_bytes(blas_bytes_);
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
    description_.set_places(bias, aux);
    return args.outputs[static_cast<size_t>(epilogue.result)];
  }

  static void run_cast(const NodeKernel& cast, ridge::Stream& stream, const void* from, void* to) {
    const std::array<const void*, 1> inputs{from};
    const std::array<void*, 1> outputs{to};
    // The addresses are read in the call.
    cast.launch(stream, {inputs, outputs, nullptr});
  }

  std::shared_ptr<const Blas> blas_;
  Problem problem_;
  Description description_;
  BlasAlgorithm algorithm_;
  std::string name_;
  size_t blas_bytes_;
  std::unique_ptr<NodeKernel> cast_a_, cast_b_;  // null where the factors are not rounded
  std::unique_ptr<NodeKernel> cast_bias_;        // null without a bias: the library takes D's type
};

}  // namespace

std::vector<BlasChoice> blas_choices(const Blas& blas, const Node& node) {
  const std::optional<Problem> found = problem_of(node);
  if (!found || found->batches > std::numeric_limits<int32_t>::max()) return {};
  const Problem& problem = *found;
  blas.device().ensure_current();
  const BlasLibrary& library = *blas.library();
  const Description description(blas.library(), problem);
  const auto preference = make_preference(blas.library());
  std::array<BlasProposal, kMostProposals> proposals{};
  int count = 0;
  const BlasStatus status = library.propose(blas.handle(),
                                            description.matmul(),
                                            description.b(),
                                            description.a(),
                                            description.c(),
                                            description.c(),
                                            preference.get(),
                                            kMostProposals,
                                            proposals.data(),
                                            &count);
  if (status.result == BlasResult::kNotSupported) return {};
  library.check(status, "{}", problem.text());
  std::vector<BlasChoice> choices;
  for (int i = 0; i < std::min(count, kMostProposals); ++i) {
    const BlasProposal& each = proposals[static_cast<size_t>(i)];
    if (each.state != BlasResult::kSuccess || each.workspace_bytes > kMostWorkspaceBytes) continue;
    const Configuration configuration = configuration_of(library, each.algorithm);
    std::string name = configuration.name(problem);
    const bool is_known = std::any_of(choices.begin(), choices.end(), [&](const BlasChoice& known) {
      return known.choice.name == name;
    });
    if (is_known || !configuration.is_same_each_run()) continue;
    choices.push_back({{std::move(name), kBlasBits + static_cast<int>(choices.size())},
                       each.algorithm,
                       each.workspace_bytes});
  }
  return choices;
}

std::unique_ptr<NodeKernel> make_blas_kernel(
    std::shared_ptr<const Blas> blas,
    const Node& node,
    const BlasChoice& choice,
    const std::function<std::unique_ptr<NodeKernel>(const Node&)>& make) {
  const std::optional<Problem> found = problem_of(node);
  check_internal(found.has_value(), "no product for node '{}'", node.site.name);
  const Problem& problem = *found;
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
