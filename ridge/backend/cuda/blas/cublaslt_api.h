// The binary interface of cuBLASLt, written down from its published reference, as much of it as is
// called: no header of NVIDIA is needed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ridge::cuda {

using BlasHandle = struct OpaqueBlas*;
using BlasMatmulHandle = struct OpaqueBlasMatmul*;
using BlasLayoutHandle = struct OpaqueBlasLayout*;
using BlasPreferenceHandle = struct OpaqueBlasPreference*;

/// The status that a call returns. Only those are named that Ridge tells apart; others keep their
/// number.
enum class BlasResult : int {
  kSuccess = 0,
  kNotInitialized = 1,
  kAllocFailed = 3,
  kInvalidValue = 7,
  kArchMismatch = 8,
  kExecutionFailed = 13,
  kInternalError = 14,
  kNotSupported = 15,
};

/// The type of the elements of a matrix, and of the factors alpha and beta.
enum class BlasType : int { kF32 = 0, kF64 = 1, kF16 = 2, kI8 = 3, kI32 = 10, kBF16 = 14 };

/// In what products are made and summed.
enum class BlasCompute : int { kF32 = 68, kF64 = 70, kI32 = 72, kF32FastTf32 = 77 };

enum class BlasOperation : int { kNone = 0, kTranspose = 1 };

enum class BlasMatmulAttribute : int {
  kTransposeA = 3,
  kTransposeB = 4,
  kEpilogue = 7,
  kBiasPointer = 8,  ///< Address of the bias of an epilogue that has one, of the type of D.
  kAuxPointer = 11,  ///< Address of GELU's input: written by kGeluAux..., read by kGeluSlope.
  kAuxLine = 12,     ///< From column to column of that, in elements; a multiple of 8.
};

/// The op that is applied to a product before it is written.
enum class BlasEpilogueKind : uint32_t {
  kBias = 4,
  kGelu = 32,
  kGeluAux = 32 | 128,
  kGeluBias = 32 | 4,
  kGeluAuxBias = 32 | 128 | 4,
  kGeluSlope = 64 | 128,  ///< The library calls it DGELU.
};

enum class BlasLayoutAttribute : int { kBatchCount = 5, kBatchOffset = 6 };

enum class BlasPreferenceAttribute : int {
  kMostWorkspaceBytes = 1,
  kReductionSchemes = 3,
  kLeastAlignmentA = 5,
  kLeastAlignmentB = 6,
  kLeastAlignmentC = 7,
  kLeastAlignmentD = 8,
};

/// The attributes that configure an algorithm.
enum class BlasAlgorithmAttribute : int {
  kId = 0,
  kTile = 1,
  kSplitK = 2,
  kReductionScheme = 3,
  kSwizzle = 4,
  kCustomOption = 5,
  kStages = 6,
  kInnerShape = 7,    ///< Two bytes, as is the next; the others have four.
  kClusterShape = 8,  ///< Since 11.8.
};

/// How the parts of a depth that was split are added up, as bits of a mask.
enum BlasReductionScheme : uint32_t {
  kReductionNone = 0,
  kReductionInPlace = 1,      ///< In C, by blocks in turn.
  kReductionComputeType = 2,  ///< In the workspace, by a second kernel.
  kReductionOutputType = 4,   ///< Likewise, rounded to the type of C first.
};

struct BlasAlgorithm {
  uint64_t data[8];
};

/// A proposal of the library.
struct BlasProposal {
  BlasAlgorithm algorithm;
  size_t workspace_bytes;
  BlasResult state;
  float waves;
  int reserved[4];
};

}  // namespace ridge::cuda
