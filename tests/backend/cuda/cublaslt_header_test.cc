// What cublaslt_api.h and cublaslt.h write down, against NVIDIA's own header, where one is
// installed: the compiler holds it.
#include <gtest/gtest.h>

#ifdef RIDGE_TEST_CUBLASLT_HEADER
#include <cublasLt.h>

#include <type_traits>

#include "ridge/backend/cuda/cublaslt.h"
#include "tests/backend/cuda/passed_alike.h"

namespace ridge::cuda {
namespace {

template <typename Theirs>
struct Function;
template <typename... Theirs>
struct Function<cublasStatus_t (*)(Theirs...)> {
  template <typename... Ours>
  static constexpr bool is(BlasCall<Ours...> BlasLibrary::*) {
    if constexpr (sizeof...(Ours) == sizeof...(Theirs))
      return (test::is_passed_alike<Ours, Theirs>() && ...);
    return false;
  }
};

#define RIDGE_SAME(theirs, ours) static_assert(Function<decltype(&theirs)>::is(&BlasLibrary::ours))
RIDGE_SAME(cublasLtCreate, create);
RIDGE_SAME(cublasLtDestroy, destroy);
RIDGE_SAME(cublasLtMatmulDescCreate, matmul_create);
RIDGE_SAME(cublasLtMatmulDescDestroy, matmul_destroy);
RIDGE_SAME(cublasLtMatmulDescSetAttribute, matmul_set);
RIDGE_SAME(cublasLtMatrixLayoutCreate, layout_create);
RIDGE_SAME(cublasLtMatrixLayoutDestroy, layout_destroy);
RIDGE_SAME(cublasLtMatrixLayoutSetAttribute, layout_set);
RIDGE_SAME(cublasLtMatmulPreferenceCreate, preference_create);
RIDGE_SAME(cublasLtMatmulPreferenceDestroy, preference_destroy);
RIDGE_SAME(cublasLtMatmulPreferenceSetAttribute, preference_set);
RIDGE_SAME(cublasLtMatmulAlgoGetHeuristic, propose);
RIDGE_SAME(cublasLtMatmulAlgoConfigGetAttribute, algorithm_get);
RIDGE_SAME(cublasLtMatmul, matmul);
#undef RIDGE_SAME
static_assert(!Function<decltype(&cublasLtCreate)>::is(&BlasLibrary::matmul));  // it can fail
static_assert(std::is_same_v<decltype(&cublasLtGetVersion), size_t (*)()>);
static_assert(std::is_same_v<decltype(&cublasLtGetStatusName), const char* (*)(cublasStatus_t)>);
static_assert(std::is_same_v<decltype(&cublasLtGetStatusString), const char* (*)(cublasStatus_t)>);

template <typename Ours, typename Theirs>
constexpr bool is(Ours ours, Theirs theirs) {
  return static_cast<int>(ours) == static_cast<int>(theirs);
}
static_assert(is(BlasResult::kSuccess, CUBLAS_STATUS_SUCCESS));
static_assert(is(BlasResult::kNotInitialized, CUBLAS_STATUS_NOT_INITIALIZED));
static_assert(is(BlasResult::kAllocFailed, CUBLAS_STATUS_ALLOC_FAILED));
static_assert(is(BlasResult::kInvalidValue, CUBLAS_STATUS_INVALID_VALUE));
static_assert(is(BlasResult::kArchMismatch, CUBLAS_STATUS_ARCH_MISMATCH));
static_assert(is(BlasResult::kExecutionFailed, CUBLAS_STATUS_EXECUTION_FAILED));
static_assert(is(BlasResult::kInternalError, CUBLAS_STATUS_INTERNAL_ERROR));
static_assert(is(BlasResult::kNotSupported, CUBLAS_STATUS_NOT_SUPPORTED));
static_assert(is(BlasType::kF32, CUDA_R_32F));
static_assert(is(BlasType::kF64, CUDA_R_64F));
static_assert(is(BlasType::kF16, CUDA_R_16F));
static_assert(is(BlasType::kBF16, CUDA_R_16BF));
static_assert(is(BlasCompute::kF32, CUBLAS_COMPUTE_32F));
static_assert(is(BlasCompute::kF64, CUBLAS_COMPUTE_64F));
static_assert(is(BlasCompute::kF32FastTf32, CUBLAS_COMPUTE_32F_FAST_TF32));
static_assert(is(BlasOperation::kNone, CUBLAS_OP_N));
static_assert(is(BlasOperation::kTranspose, CUBLAS_OP_T));
static_assert(is(BlasMatmulAttribute::kTransposeA, CUBLASLT_MATMUL_DESC_TRANSA));
static_assert(is(BlasMatmulAttribute::kTransposeB, CUBLASLT_MATMUL_DESC_TRANSB));
static_assert(is(BlasMatmulAttribute::kEpilogue, CUBLASLT_MATMUL_DESC_EPILOGUE));
static_assert(is(BlasMatmulAttribute::kBiasPointer, CUBLASLT_MATMUL_DESC_BIAS_POINTER));
static_assert(is(BlasMatmulAttribute::kAuxPointer, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER));
static_assert(is(BlasMatmulAttribute::kAuxLine, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD));
static_assert(is(BlasEpilogueKind::kBias, CUBLASLT_EPILOGUE_BIAS));
static_assert(is(BlasEpilogueKind::kGelu, CUBLASLT_EPILOGUE_GELU));
static_assert(is(BlasEpilogueKind::kGeluAux, CUBLASLT_EPILOGUE_GELU_AUX));
static_assert(is(BlasEpilogueKind::kGeluBias, CUBLASLT_EPILOGUE_GELU_BIAS));
static_assert(is(BlasEpilogueKind::kGeluAuxBias, CUBLASLT_EPILOGUE_GELU_AUX_BIAS));
static_assert(is(BlasEpilogueKind::kGeluSlope, CUBLASLT_EPILOGUE_DGELU));
static_assert(is(BlasLayoutAttribute::kBatchCount, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT));
static_assert(is(BlasLayoutAttribute::kBatchOffset, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET));
static_assert(is(BlasPreferenceAttribute::kMostWorkspaceBytes,
                 CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES));
static_assert(is(BlasPreferenceAttribute::kReductionSchemes,
                 CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK));
static_assert(is(BlasPreferenceAttribute::kLeastAlignmentA,
                 CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES));
static_assert(is(BlasPreferenceAttribute::kLeastAlignmentB,
                 CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES));
static_assert(is(BlasPreferenceAttribute::kLeastAlignmentC,
                 CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES));
static_assert(is(BlasPreferenceAttribute::kLeastAlignmentD,
                 CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES));
static_assert(is(BlasAlgorithmAttribute::kId, CUBLASLT_ALGO_CONFIG_ID));
static_assert(is(BlasAlgorithmAttribute::kTile, CUBLASLT_ALGO_CONFIG_TILE_ID));
static_assert(is(BlasAlgorithmAttribute::kSplitK, CUBLASLT_ALGO_CONFIG_SPLITK_NUM));
static_assert(is(BlasAlgorithmAttribute::kReductionScheme, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME));
static_assert(is(BlasAlgorithmAttribute::kSwizzle, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING));
static_assert(is(BlasAlgorithmAttribute::kCustomOption, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION));
static_assert(is(BlasAlgorithmAttribute::kStages, CUBLASLT_ALGO_CONFIG_STAGES_ID));
static_assert(is(BlasAlgorithmAttribute::kInnerShape, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID));
static_assert(is(BlasAlgorithmAttribute::kClusterShape, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID));
static_assert(is(kReductionNone, CUBLASLT_REDUCTION_SCHEME_NONE));
static_assert(is(kReductionInPlace, CUBLASLT_REDUCTION_SCHEME_INPLACE));
static_assert(is(kReductionComputeType, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
static_assert(is(kReductionOutputType, CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE));

static_assert(sizeof(BlasAlgorithm) == sizeof(cublasLtMatmulAlgo_t));
static_assert(sizeof(BlasProposal) == sizeof(cublasLtMatmulHeuristicResult_t));
static_assert(offsetof(BlasProposal, workspace_bytes) ==
              offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
static_assert(offsetof(BlasProposal, state) == offsetof(cublasLtMatmulHeuristicResult_t, state));

TEST(CublasLtHeader, AgreesWithOurs) { EXPECT_GE(CUBLAS_VERSION, 120000); }

}  // namespace
}  // namespace ridge::cuda
#else
TEST(CublasLtHeader, AgreesWithOurs) {
  GTEST_SKIP() << "no cublasLt.h here: the wheel nvidia-cublas brings one";
}
#endif
