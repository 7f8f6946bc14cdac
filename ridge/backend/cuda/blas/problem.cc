#include "ridge/backend/cuda/blas/problem.h"

#include <algorithm>
#include <array>
#include <limits>

#include "ridge/backend/cuda/driver/library_workspace.h"
#include "ridge/base/alignment.h"

namespace ridge::cuda {
namespace {

constexpr int kMostProposals = 16;
constexpr uint64_t kMostWorkspaceBytes = uint64_t{32} << 20;  // NVIDIA's advice for Hopper

BlasType blas_type(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return BlasType::kF64;
    case DType::kF16:
      return BlasType::kF16;
    case DType::kBF16:
      return BlasType::kBF16;
    case DType::kI8:
      return BlasType::kI8;
    case DType::kI32:
      return BlasType::kI32;
    default:
      return BlasType::kF32;
  }
}

// The type that products are summed in, and that of the factors alpha and beta.
struct Sums {
  BlasCompute compute;
  BlasType scale;
};

Sums sums_of(const BlasProblem& problem) {
  if (problem.is_of_bytes()) return {BlasCompute::kI32, BlasType::kI32};
  if (problem.factors == DType::kF64) return {BlasCompute::kF64, BlasType::kF64};
  return {problem.tf32 ? BlasCompute::kF32FastTf32 : BlasCompute::kF32, BlasType::kF32};
}

}  // namespace

std::string BlasProblem::text() const {
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

std::string BlasProblem::name() const {
  std::string text = "cublaslt";
  if (is_of_bytes()) text += "_i8";
  if (tf32) text += "_tf32";
  if (epilogue) text += "_" + epilogue->name();
  return text;
}

// The library's description of a problem. Row-major C = op(A) op(B) is column-major
// C^T = op(B)^T op(A)^T, so that its first matrix is our B.
class BlasProduct::Description {
 public:
  Description(const BlasLibraryRef& library, const BlasProblem& p)
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
  /// The library reads them in the call; nothing is allocated here.
  void set_places(const void* bias, const void* aux) const {
    if (problem_.has_bias()) set(BlasMatmulAttribute::kBiasPointer, bias);
    if (problem_.has_aux()) set(BlasMatmulAttribute::kAuxPointer, aux);
  }
  BlasLayoutHandle a() const { return a_.get(); }
  BlasLayoutHandle b() const { return b_.get(); }
  BlasLayoutHandle c() const { return c_.get(); }

 private:
  OwnedByBlas<BlasMatmulHandle> make_matmul() const {
    const Sums sums = sums_of(problem_);
    BlasMatmulHandle handle = nullptr;
    library_->check(
        library_->matmul_create(&handle, sums.compute, sums.scale), "{}", problem_.text());
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
  BlasProblem problem_;
  OwnedByBlas<BlasMatmulHandle> matmul_;
  OwnedByBlas<BlasLayoutHandle> b_, a_, c_;
};

// ---- algorithms ----

namespace {

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
  std::string name(const BlasProblem& problem) const {
    std::string text = fmt::format("{}_{}_tile{}", problem.name(), id, tile);
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

}  // namespace

std::vector<BlasChoice> blas_algorithms(const Blas& blas, const BlasProblem& problem) {
  if (problem.batches > std::numeric_limits<int32_t>::max()) return {};
  blas.device().ensure_current();
  const BlasLibrary& library = *blas.library();
  const BlasProduct::Description description(blas.library(), problem);
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
    const int bits = problem.is_of_bytes() ? 0 : kBlasBits + static_cast<int>(choices.size());
    choices.push_back({{std::move(name), bits}, each.algorithm, each.workspace_bytes, problem.m});
  }
  return choices;
}

// ---- a product ----

BlasProduct::BlasProduct(std::shared_ptr<const Blas> blas,
                         const BlasProblem& problem,
                         const BlasChoice& choice)
    : blas_(std::move(blas)),
      problem_(problem),
      description_(std::make_unique<const Description>(blas_->library(), problem)),
      algorithm_(choice.algorithm),
      name_(choice.choice.name),
      workspace_bytes_(choice.workspace_bytes) {}

BlasProduct::~BlasProduct() = default;

size_t BlasProduct::reserved_bytes() const { return reserved_workspace_bytes(workspace_bytes_); }

void BlasProduct::set_places(const void* bias, const void* aux) const {
  description_->set_places(bias, aux);
}

void BlasProduct::launch(
    Stream& stream, const void* a, const void* b, void* result, void* workspace) const {
  // Factors of the type that sums_of() says; read in the call.
  struct Scalars {
    double f64;
    float f32;
    int32_t i32;
    const void* of(BlasType type) const {
      if (type == BlasType::kF64) return &f64;
      return type == BlasType::kI32 ? static_cast<const void*>(&i32) : &f32;
    }
  };
  constexpr Scalars kOne{1, 1, 1}, kZero{0, 0, 0};
  const BlasType scale = sums_of(problem_).scale;
  const BlasLibrary& library = *blas_->library();
  library.check(library.matmul(blas_->handle(),
                               description_->matmul(),
                               kOne.of(scale),
                               b,
                               description_->b(),
                               a,
                               description_->a(),
                               kZero.of(scale),
                               result,
                               description_->c(),
                               result,
                               description_->c(),
                               &algorithm_,
                               library_workspace(workspace, workspace_bytes_),
                               workspace_bytes_,
                               stream.handle()),
                "{}, by {}",
                problem_.text(),
                name_);
}

}  // namespace ridge::cuda
