// Numbers of cuDNN's reference, written down a second time: the stand-in is no mirror.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace ridge::test::dnn_reference {

// Codes.
inline constexpr int kSuccess{0}, kBadParam{2000}, kNotFinalized{2004}, kAttributeType{2010},
    kNotSupported{3000}, kExecutionFailed{5000};
// Kinds of descriptors.
inline constexpr int kPointwise{0}, kConvolution{1}, kEngine{2}, kConfig{3}, kHeuristics{4},
    kPlan{5}, kKnob{7}, kForward{10}, kGradWeight{11}, kGradInput{12}, kPointwiseOperation{13},
    kGraph{15}, kPack{16}, kTensor{17}, kMatmul{18}, kMatmulOperation{19}, kReduction{21},
    kReductionOperation{22}, kReshapeOperation{31};
// Types of attributes.
inline constexpr int kHandleType{0}, kDataType{1}, kBool{2}, kInt64{3}, kFloat{4}, kPointer{6},
    kConvolutionMode{7}, kHeuristicMode{8}, kKnobType{9}, kNumericalNote{11}, kPointwiseMode{14},
    kDescriptor{15}, kReductionType{18}, kBehaviorNote{19};

// The attributes that may be set on a kind, their type, and whether they must be set.
struct Rule {
  int kind, type;
  std::vector<int> attributes;
  bool required = true;
};
inline const Rule kRules[] = {
    {kConvolution, kDataType, {100}},
    {kConvolution, kConvolutionMode, {101}},
    {kConvolution, kInt64, {102, 103, 104, 105, 106}},
    {kHeuristics, kHeuristicMode, {200}},
    {kHeuristics, kDescriptor, {201}},
    {kConfig, kDescriptor, {300}},
    {kConfig, kDescriptor, {302}, false},
    {kPlan, kHandleType, {400}},
    {kPlan, kDescriptor, {401}},
    {kKnob, kKnobType, {600}},
    {kKnob, kInt64, {601}},
    {kForward, kFloat, {700, 701}},
    {kForward, kDescriptor, {702, 703, 704, 705}},
    {kGradInput, kFloat, {706, 707}},
    {kGradInput, kDescriptor, {708, 709, 710, 711}},
    {kGradWeight, kFloat, {712, 713}},
    {kGradWeight, kDescriptor, {714, 715, 716, 717}},
    {kGraph, kHandleType, {800}},
    {kGraph, kDescriptor, {801}},
    {kTensor, kInt64, {900, 902, 903, 906}},
    {kTensor, kDataType, {901}},
    {kTensor, kBool, {907, 908}, false},
    {kPack, kInt64, {1000}},
    {kPack, kPointer, {1001, 1003}},
    {kEngine, kDescriptor, {1300}},
    {kEngine, kInt64, {1301}},
    {kPointwise, kPointwiseMode, {0}},
    {kPointwise, kDataType, {1}},
    {kPointwise, kInt64, {9}, false},
    {kPointwiseOperation, kDescriptor, {750, 751, 753}},
    {kPointwiseOperation, kDescriptor, {752, 758}, false},
    {kMatmul, kDataType, {1500}},
    {kMatmulOperation, kDescriptor, {1520, 1521, 1522, 1523}},
    {kReduction, kReductionType, {1600}},
    {kReduction, kDataType, {1601}},
    {kReductionOperation, kDescriptor, {1610, 1611, 1612}},
    {kReshapeOperation, kDescriptor, {2200, 2201}},
};

/// The type of the attribute; -1: the kind has none.
inline int type_of(int kind, int attribute) {
  for (const Rule& each : kRules)
    if (each.kind == kind && std::ranges::count(each.attributes, attribute) > 0) return each.type;
  return -1;
}

inline size_t size_of(int type) {
  if (type == kBool) return 1;
  return type == kInt64 || type == kPointer || type == kDescriptor || type == kHandleType ? 8 : 4;
}

}  // namespace ridge::test::dnn_reference
