// Numbers of cuDNN's reference, written down a second time: the stand-in is no mirror.
#pragma once

#include <cstddef>

namespace ridge::test::dnn_reference {

enum Status {
  kSuccess = 0,
  kBadParam = 2000,
  kNotFinalized = 2004,
  kAttributeType = 2010,
  kNotSupported = 3000,
  kExecutionFailed = 5000,
};
enum Kind {
  kPointwise = 0,
  kConvolution = 1,
  kEngine = 2,
  kConfig = 3,
  kHeuristics = 4,
  kPlan = 5,
  kKnob = 7,
  kForward = 10,
  kGradWeight = 11,
  kGradInput = 12,
  kPointwiseOperation = 13,
  kGraph = 15,
  kPack = 16,
  kTensor = 17,
  kMatmul = 18,
  kMatmulOperation = 19,
  kReduction = 21,
  kReductionOperation = 22,
  kReshapeOperation = 31,
};
enum Type {
  kHandleType = 0,
  kDataType = 1,
  kBool = 2,
  kInt64 = 3,
  kFloat = 4,
  kPointer = 6,
  kConvolutionMode = 7,
  kHeuristicMode = 8,
  kKnobType = 9,
  kNumericalNote = 11,
  kPointwiseMode = 14,
  kDescriptor = 15,
  kReductionType = 18,
  kBehaviorNote = 19,
};

// What may be set on a kind, of which type, and whether it must be.
struct Rule {
  int kind, attribute, type;
  bool required;
};
inline constexpr Rule kRules[] = {
    {kConvolution, 100, kDataType, true},
    {kConvolution, 101, kConvolutionMode, true},
    {kConvolution, 102, kInt64, true},
    {kConvolution, 103, kInt64, true},
    {kConvolution, 104, kInt64, true},
    {kConvolution, 105, kInt64, true},
    {kConvolution, 106, kInt64, true},
    {kHeuristics, 200, kHeuristicMode, true},
    {kHeuristics, 201, kDescriptor, true},
    {kConfig, 300, kDescriptor, true},
    {kConfig, 302, kDescriptor, false},
    {kPlan, 400, kHandleType, true},
    {kPlan, 401, kDescriptor, true},
    {kKnob, 600, kKnobType, true},
    {kKnob, 601, kInt64, true},
    {kForward, 700, kFloat, true},
    {kForward, 701, kFloat, true},
    {kForward, 702, kDescriptor, true},
    {kForward, 703, kDescriptor, true},
    {kForward, 704, kDescriptor, true},
    {kForward, 705, kDescriptor, true},
    {kGradInput, 706, kFloat, true},
    {kGradInput, 707, kFloat, true},
    {kGradInput, 708, kDescriptor, true},
    {kGradInput, 709, kDescriptor, true},
    {kGradInput, 710, kDescriptor, true},
    {kGradInput, 711, kDescriptor, true},
    {kGradWeight, 712, kFloat, true},
    {kGradWeight, 713, kFloat, true},
    {kGradWeight, 714, kDescriptor, true},
    {kGradWeight, 715, kDescriptor, true},
    {kGradWeight, 716, kDescriptor, true},
    {kGradWeight, 717, kDescriptor, true},
    {kGraph, 800, kHandleType, true},
    {kGraph, 801, kDescriptor, true},
    {kTensor, 900, kInt64, true},
    {kTensor, 901, kDataType, true},
    {kTensor, 902, kInt64, true},
    {kTensor, 903, kInt64, true},
    {kTensor, 906, kInt64, true},
    {kTensor, 907, kBool, false},
    {kTensor, 908, kBool, false},
    {kPack, 1000, kInt64, true},
    {kPack, 1001, kPointer, true},
    {kPack, 1003, kPointer, true},
    {kEngine, 1300, kDescriptor, true},
    {kEngine, 1301, kInt64, true},
    {kPointwise, 0, kPointwiseMode, true},
    {kPointwise, 1, kDataType, true},
    {kPointwise, 9, kInt64, false},
    {kPointwiseOperation, 750, kDescriptor, true},
    {kPointwiseOperation, 751, kDescriptor, true},
    {kPointwiseOperation, 752, kDescriptor, false},
    {kPointwiseOperation, 753, kDescriptor, true},
    {kPointwiseOperation, 758, kDescriptor, false},
    {kMatmul, 1500, kDataType, true},
    {kMatmulOperation, 1520, kDescriptor, true},
    {kMatmulOperation, 1521, kDescriptor, true},
    {kMatmulOperation, 1522, kDescriptor, true},
    {kMatmulOperation, 1523, kDescriptor, true},
    {kReduction, 1600, kReductionType, true},
    {kReduction, 1601, kDataType, true},
    {kReductionOperation, 1610, kDescriptor, true},
    {kReductionOperation, 1611, kDescriptor, true},
    {kReductionOperation, 1612, kDescriptor, true},
    {kReshapeOperation, 2200, kDescriptor, true},
    {kReshapeOperation, 2201, kDescriptor, true},
};

inline const Rule* rule_of(int kind, int attribute) {
  for (const Rule& each : kRules)
    if (each.kind == kind && each.attribute == attribute) return &each;
  return nullptr;
}

inline size_t size_of(int type) {
  if (type == kBool) return 1;
  return type == kInt64 || type == kPointer || type == kDescriptor || type == kHandleType ? 8 : 4;
}

}  // namespace ridge::test::dnn_reference
