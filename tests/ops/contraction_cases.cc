#include "ridge/graph/ops/attention.h"
#include "ridge/graph/ops/conv.h"
#include "ridge/graph/ops/matmul.h"
#include "tests/support/op_audit.h"

namespace ridge::test {
namespace {

OpSample product(std::string label, Shape a, Shape b_shape, bool ta, bool tb) {
  return {"matmul", std::move(label), [=](CaseBuilder& b) -> std::vector<Value> {
            return {matmul(b.input(a), b.input(b_shape), ta, tb)};
          }};
}

const OpSamples kMatMul({
    product("plain", {5, 7}, {7, 3}, false, false),
    product("transposed a", {7, 5}, {7, 3}, true, false),
    product("transposed b", {5, 7}, {3, 7}, false, true),
    product("both transposed", {7, 5}, {3, 7}, true, true),
    product("batched", {2, 3, 5, 7}, {2, 3, 7, 4}, false, false),
    product("folded batch", {2, 3, 7}, {7, 4}, false, false),
    product("broadcast batch", {3, 5, 7}, {1, 4, 7}, false, true),
    product("beyond one tile", {67, 45}, {45, 70}, false, false),
    product("one row", {1, 33}, {33, 17}, false, false),
});

struct ConvolutionCase {
  std::string label;
  Shape x, w;
  WindowFields window;
  int64_t groups = 1;
};

std::vector<ConvolutionCase> convolution_cases() {
  return {
      {"3x3", {2, 6, 5, 3}, {3, 3, 3, 4}, {{1, 1}, {1, 1, 1, 1}, {1, 1}}},
      {"1x1", {2, 4, 5, 3}, {1, 1, 3, 6}, {}},
      {"stride and uneven padding", {1, 7, 8, 2}, {3, 2, 2, 3}, {{2, 3}, {0, 1, 2, 0}, {1, 1}}},
      {"dilation", {1, 9, 8, 2}, {3, 2, 2, 3}, {{1, 1}, {1, 0, 1, 1}, {2, 3}}},
      {"groups", {2, 5, 5, 6}, {3, 3, 2, 9}, {{1, 1}, {1, 1, 1, 1}, {1, 1}}, 3},
      {"depthwise", {2, 5, 6, 5}, {3, 3, 1, 5}, {{2, 1}, {1, 1, 1, 1}, {1, 1}}, 5},
      {"depthwise with multiplier", {1, 5, 6, 3}, {3, 3, 1, 6}, {{1, 1}, {1, 1, 1, 1}, {1, 1}}, 3}};
}

Shape output_shape(const ConvolutionCase& c) {
  return {c.x[0],
          c.window.positions(0, c.x[1], c.w[0], "test"),
          c.window.positions(1, c.x[2], c.w[1], "test"),
          c.w[3]};
}

std::vector<OpSample> convolutions() {
  std::vector<OpSample> samples;
  for (const ConvolutionCase& c : convolution_cases()) {
    samples.push_back({"conv2d", c.label, [c](CaseBuilder& b) -> std::vector<Value> {
                         return {conv2d(b.input(c.x), b.input(c.w), c.window, c.groups)};
                       }});
    samples.push_back({"conv2d_grad_input", c.label, [c](CaseBuilder& b) -> std::vector<Value> {
                         Conv2dGradInput op;
                         op.window = c.window;
                         op.groups = c.groups;
                         op.size = {c.x[1], c.x[2]};
                         return {add_node(std::move(op), {b.input(output_shape(c)), b.input(c.w)})};
                       }});
    samples.push_back({"conv2d_grad_weight", c.label, [c](CaseBuilder& b) -> std::vector<Value> {
                         Conv2dGradWeight op;
                         op.window = c.window;
                         op.groups = c.groups;
                         op.size = {c.w[0], c.w[1]};
                         return {add_node(std::move(op), {b.input(c.x), b.input(output_shape(c))})};
                       }});
  }
  return samples;
}

const OpSamples kConvolutions(convolutions());

OpSample attention_sample(std::string label, int64_t t, int64_t s, bool causal, Shape mask) {
  return {"attention", std::move(label), [=](CaseBuilder& b) -> std::vector<Value> {
            AttentionOptions options{.causal = causal};
            if (!mask.empty()) options.mask = b.input(DType::kBool, mask, 0, 1);
            return {attention(
                b.input({2, 3, t, 4}), b.input({2, 3, s, 4}), b.input({2, 3, s, 5}), options)};
          }};
}

const OpSamples kAttention({
    attention_sample("full", 5, 7, false, {}),
    attention_sample("causal", 9, 9, true, {}),
    attention_sample("causal, fewer keys", 6, 4, true, {}),
    attention_sample("mask", 5, 7, false, {2, 1, 5, 7}),
    attention_sample("key mask and causal", 7, 7, true, {2, 1, 1, 7}),
    attention_sample("beyond one tile", 70, 133, false, {}),
});

}  // namespace
}  // namespace ridge::test
