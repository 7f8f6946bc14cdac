// Compares cublaslt_api.h and cublaslt.h with NVIDIA's own header, where one is installed, while
// this file is compiled.
#include <gtest/gtest.h>

#ifdef RIDGE_TEST_CUBLASLT_HEADER
#include <cublasLt.h>

#include <type_traits>

#include "ridge/backend/cuda/blas/cublaslt.h"
#include "tests/backend/cuda/vendor_header.h"

namespace ridge::cuda {
namespace {

RIDGE_CALL(BlasLibrary::create, cublasLtCreate);
RIDGE_CALL(BlasLibrary::destroy, cublasLtDestroy);
RIDGE_CALL(BlasLibrary::matmul_create, cublasLtMatmulDescCreate);
RIDGE_CALL(BlasLibrary::matmul_destroy, cublasLtMatmulDescDestroy);
RIDGE_CALL(BlasLibrary::matmul_set, cublasLtMatmulDescSetAttribute);
RIDGE_CALL(BlasLibrary::layout_create, cublasLtMatrixLayoutCreate);
RIDGE_CALL(BlasLibrary::layout_destroy, cublasLtMatrixLayoutDestroy);
RIDGE_CALL(BlasLibrary::layout_set, cublasLtMatrixLayoutSetAttribute);
RIDGE_CALL(BlasLibrary::preference_create, cublasLtMatmulPreferenceCreate);
RIDGE_CALL(BlasLibrary::preference_destroy, cublasLtMatmulPreferenceDestroy);
RIDGE_CALL(BlasLibrary::preference_set, cublasLtMatmulPreferenceSetAttribute);
RIDGE_CALL(BlasLibrary::propose, cublasLtMatmulAlgoGetHeuristic);
RIDGE_CALL(BlasLibrary::algorithm_get, cublasLtMatmulAlgoConfigGetAttribute);
RIDGE_CALL(BlasLibrary::matmul, cublasLtMatmul);
static_assert(
    !test::Alike<decltype(BlasLibrary::matmul), decltype(cublasLtCreate)>::value);  // it can fail
static_assert(std::is_same_v<decltype(&cublasLtGetVersion), size_t (*)()>);
static_assert(std::is_same_v<decltype(&cublasLtGetStatusName), const char* (*)(cublasStatus_t)>);
static_assert(std::is_same_v<decltype(&cublasLtGetStatusString), const char* (*)(cublasStatus_t)>);

RIDGE_IS(BlasResult::kSuccess, CUBLAS_STATUS_SUCCESS);
RIDGE_IS(BlasResult::kNotInitialized, CUBLAS_STATUS_NOT_INITIALIZED);
RIDGE_IS(BlasResult::kAllocFailed, CUBLAS_STATUS_ALLOC_FAILED);
RIDGE_IS(BlasResult::kInvalidValue, CUBLAS_STATUS_INVALID_VALUE);
RIDGE_IS(BlasResult::kArchMismatch, CUBLAS_STATUS_ARCH_MISMATCH);
RIDGE_IS(BlasResult::kExecutionFailed, CUBLAS_STATUS_EXECUTION_FAILED);
RIDGE_IS(BlasResult::kInternalError, CUBLAS_STATUS_INTERNAL_ERROR);
RIDGE_IS(BlasResult::kNotSupported, CUBLAS_STATUS_NOT_SUPPORTED);
RIDGE_IS(BlasType::kF32, CUDA_R_32F);
RIDGE_IS(BlasType::kF64, CUDA_R_64F);
RIDGE_IS(BlasType::kF16, CUDA_R_16F);
RIDGE_IS(BlasType::kI8, CUDA_R_8I);
RIDGE_IS(BlasType::kI32, CUDA_R_32I);
RIDGE_IS(BlasType::kBF16, CUDA_R_16BF);
RIDGE_IS(BlasCompute::kF32, CUBLAS_COMPUTE_32F);
RIDGE_IS(BlasCompute::kF64, CUBLAS_COMPUTE_64F);
RIDGE_IS(BlasCompute::kI32, CUBLAS_COMPUTE_32I);
RIDGE_IS(BlasCompute::kF32FastTf32, CUBLAS_COMPUTE_32F_FAST_TF32);
RIDGE_IS(BlasOperation::kNone, CUBLAS_OP_N);
RIDGE_IS(BlasOperation::kTranspose, CUBLAS_OP_T);
RIDGE_IS(BlasMatmulAttribute::kTransposeA, CUBLASLT_MATMUL_DESC_TRANSA);
RIDGE_IS(BlasMatmulAttribute::kTransposeB, CUBLASLT_MATMUL_DESC_TRANSB);
RIDGE_IS(BlasMatmulAttribute::kEpilogue, CUBLASLT_MATMUL_DESC_EPILOGUE);
RIDGE_IS(BlasMatmulAttribute::kBiasPointer, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
RIDGE_IS(BlasMatmulAttribute::kAuxPointer, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER);
RIDGE_IS(BlasMatmulAttribute::kAuxLine, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD);
RIDGE_IS(BlasEpilogueKind::kBias, CUBLASLT_EPILOGUE_BIAS);
RIDGE_IS(BlasEpilogueKind::kGelu, CUBLASLT_EPILOGUE_GELU);
RIDGE_IS(BlasEpilogueKind::kGeluAux, CUBLASLT_EPILOGUE_GELU_AUX);
RIDGE_IS(BlasEpilogueKind::kGeluBias, CUBLASLT_EPILOGUE_GELU_BIAS);
RIDGE_IS(BlasEpilogueKind::kGeluAuxBias, CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
RIDGE_IS(BlasEpilogueKind::kGeluSlope, CUBLASLT_EPILOGUE_DGELU);
RIDGE_IS(BlasLayoutAttribute::kBatchCount, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
RIDGE_IS(BlasLayoutAttribute::kBatchOffset, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
RIDGE_IS(BlasPreferenceAttribute::kMostWorkspaceBytes, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
RIDGE_IS(BlasPreferenceAttribute::kReductionSchemes, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
RIDGE_IS(BlasPreferenceAttribute::kLeastAlignmentA, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
RIDGE_IS(BlasPreferenceAttribute::kLeastAlignmentB, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
RIDGE_IS(BlasPreferenceAttribute::kLeastAlignmentC, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
RIDGE_IS(BlasPreferenceAttribute::kLeastAlignmentD, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
RIDGE_IS(BlasAlgorithmAttribute::kId, CUBLASLT_ALGO_CONFIG_ID);
RIDGE_IS(BlasAlgorithmAttribute::kTile, CUBLASLT_ALGO_CONFIG_TILE_ID);
RIDGE_IS(BlasAlgorithmAttribute::kSplitK, CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
RIDGE_IS(BlasAlgorithmAttribute::kReductionScheme, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME);
RIDGE_IS(BlasAlgorithmAttribute::kSwizzle, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING);
RIDGE_IS(BlasAlgorithmAttribute::kCustomOption, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION);
RIDGE_IS(BlasAlgorithmAttribute::kStages, CUBLASLT_ALGO_CONFIG_STAGES_ID);
RIDGE_IS(BlasAlgorithmAttribute::kInnerShape, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID);
RIDGE_IS(BlasAlgorithmAttribute::kClusterShape, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID);
RIDGE_IS(kReductionNone, CUBLASLT_REDUCTION_SCHEME_NONE);
RIDGE_IS(kReductionInPlace, CUBLASLT_REDUCTION_SCHEME_INPLACE);
RIDGE_IS(kReductionComputeType, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
RIDGE_IS(kReductionOutputType, CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE);

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
