// The binary interface of cuDNN's graphs, written down from its published reference, as much of it
// as is called: no header of NVIDIA is needed.
#pragma once

#include <cstdint>

namespace ridge::cuda {

using DnnHandle = struct OpaqueDnn*;
using DnnDescriptorHandle = struct OpaqueDnnDescriptor*;

/// The status that a call returns. The thousands are the kind of failure.
enum class DnnResult : int {
  kSuccess = 0,
  kNotInitialized = 1001,
  kSublibraryVersionMismatch = 1002,
  kSublibraryLoadingFailed = 1008,
  kBadParameter = 2000,
  kNotSupported = 3000,
  kArchMismatch = 3007,
  kInternalError = 4000,
  kCompilationFailed = 4001,
  kHostAllocationFailed = 4003,
  kDeviceAllocationFailed = 4004,
  kExecutionFailed = 5000,
};

/// The kind of a descriptor.
enum class DnnKind : int {
  kPointwise = 0,
  kConvolution = 1,
  kEngine = 2,
  kEngineConfig = 3,
  kHeuristics = 4,
  kPlan = 5,
  kKnobChoice = 7,
  kConvolutionForward = 10,
  kConvolutionGradWeight = 11,
  kConvolutionGradInput = 12,
  kPointwiseOperation = 13,
  kGraph = 15,
  kVariantPack = 16,
  kTensor = 17,
  kMatmul = 18,
  kMatmulOperation = 19,
  kReduction = 21,
  kReductionOperation = 22,
  kReshapeOperation = 31,
  kDeviceProperties = 38,  ///< Since 9.8.
};

/// The type of the values of an attribute.
enum class DnnType : int {
  kHandle = 0,
  kDataType = 1,
  kBoolean = 2,
  kInt64 = 3,
  kFloat = 4,
  kPointer = 6,
  kConvolutionMode = 7,
  kHeuristicMode = 8,
  kKnobType = 9,
  kNumericalNote = 11,
  kPointwiseMode = 14,
  kDescriptor = 15,
  kReductionOperator = 18,
  kBehaviorNote = 19,
  kChar = 24,
};

enum class DnnAttribute : int {
  kPointwiseMode = 0,
  kPointwiseComputeType = 1,
  kPointwiseAxis = 9,
  kConvolutionComputeType = 100,
  kConvolutionMode = 101,
  kConvolutionDilations = 102,
  kConvolutionStrides = 103,
  kConvolutionPostPaddings = 104,
  kConvolutionPrePaddings = 105,
  kConvolutionSpatialDims = 106,
  kHeuristicsMode = 200,
  kHeuristicsGraph = 201,
  kHeuristicsResults = 202,
  kHeuristicsDeviceProperties = 204,
  kConfigEngine = 300,
  kConfigKnobChoices = 302,
  kPlanHandle = 400,
  kPlanConfig = 401,
  kPlanWorkspaceBytes = 402,
  kPlanDeviceProperties = 407,
  kKnobChoiceType = 600,
  kKnobChoiceValue = 601,
  kForwardAlpha = 700,
  kForwardBeta = 701,
  kForwardConvolution = 702,
  kForwardW = 703,
  kForwardX = 704,
  kForwardY = 705,
  kGradInputAlpha = 706,
  kGradInputBeta = 707,
  kGradInputConvolution = 708,
  kGradInputW = 709,
  kGradInputDx = 710,
  kGradInputDy = 711,
  kGradWeightAlpha = 712,
  kGradWeightBeta = 713,
  kGradWeightConvolution = 714,
  kGradWeightDw = 715,
  kGradWeightX = 716,
  kGradWeightDy = 717,
  kPointwiseDescriptor = 750,
  kPointwiseX = 751,
  kPointwiseB = 752,
  kPointwiseY = 753,
  kPointwiseT = 758,
  kGraphHandle = 800,
  kGraphOperations = 801,
  kTensorByteAlignment = 900,
  kTensorDataType = 901,
  kTensorDimensions = 902,
  kTensorStrides = 903,
  kTensorUniqueId = 906,
  kTensorIsVirtual = 907,
  kTensorIsByValue = 908,
  kPackUniqueIds = 1000,
  kPackPointers = 1001,
  kPackWorkspace = 1003,
  kEngineGraph = 1300,
  kEngineIndex = 1301,
  kEngineNumericalNote = 1303,
  kEngineBehaviorNote = 1305,
  kMatmulComputeType = 1500,
  kMatmulA = 1520,
  kMatmulB = 1521,
  kMatmulC = 1522,
  kMatmulDescriptor = 1523,
  kReductionOperator = 1600,
  kReductionCompType = 1601,
  kReductionX = 1610,
  kReductionY = 1611,
  kReductionDescriptor = 1612,
  kReshapeX = 2200,
  kReshapeY = 2201,
  kDevicePropertiesJson = 2702,
};

enum class DnnDataType : int { kF32 = 0, kF64 = 1, kF16 = 2, kI32 = 4, kBF16 = 9, kBoolean = 11 };

enum class DnnConvolutionMode : int { kCrossCorrelation = 1 };

enum class DnnHeuristicMode : int { kFallback = 2, kA = 3 };

enum class DnnPointwiseMode : int {
  kAdd = 0,
  kMultiply = 1,
  kDivide = 6,
  kSubtract = 9,
  kExp = 13,
  kLog = 15,
  kGreaterOrEqual = 303,
  kIndex = 501,   ///< The place on an axis, of each element.
  kSelect = 601,  ///< Takes x or b by the truth of t.
};

enum class DnnReduction : int { kAdd = 0, kMax = 3 };

/// How an engine computes. An engine says all that hold.
enum class DnnNumericalNote : int {
  kTensorCore = 0,
  kDownConvertInputs = 1,
  kReducedPrecisionReduction = 2,
  kFft = 3,
  kNondeterministic = 4,
  kWinograd = 5,
  kWinogradTile4x4 = 6,
  kWinogradTile6x6 = 7,
  kWinogradTile13x13 = 8,
  kStrictNanPropagation = 9,
};

enum class DnnBehaviorNote : int { kRuntimeCompilation = 0 };

/// Knobs have numbers; none is ever turned here.
enum class DnnKnob : int {};

}  // namespace ridge::cuda
