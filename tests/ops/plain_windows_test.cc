// Plain forms of convolutions and pools, of random geometry, against the reference.
#include <gtest/gtest.h>

#include <functional>

#include "ridge/graph/ops/conv.h"
#include "ridge/graph/ops/conv_i8.h"
#include "ridge/graph/ops/pool.h"
#include "ridge/graph/ops/source.h"
#include "ridge/graph/text.h"
#include "ridge/run/backends.h"
#include "ridge/run/compare.h"
#include "ridge/run/evaluate.h"
#include "tests/support/case_builder.h"
#include "tests/support/scale.h"

namespace ridge::test {
namespace {

constexpr DType kFloatDTypes[] = {DType::kF32, DType::kF64, DType::kBF16, DType::kF16};

// Geometry by seed: strides, padding, and for convolutions dilation.
struct RandomWindow {
  explicit RandomWindow(uint64_t seed, bool is_pool) : random(seed) {
    for (size_t d = 0; d < 2; ++d) {
      kernel.push_back(random.integer(1, 4));
      window.stride[d] = random.integer(1, 3);
      if (!is_pool) window.dilation[d] = random.integer(1, 2);
      for (const size_t side : {d, d + 2}) window.padding[side] = random.integer(0, kernel[d] - 1);
      size.push_back(window.dilation[d] * (kernel[d] - 1) + random.integer(1, 9));
    }
    images = random.integer(1, 3);
  }

  Random random;
  std::vector<int64_t> kernel, size;
  WindowFields window;
  int64_t images;
};

// The node, the last but its inputs, by itself and by its plain form.
void expect_alike(CaseBuilder& built) {
  const Node& node = *built.graph().outputs()[0].value.node;
  Graph plain("plain");
  std::vector<Value> operands;
  for (const Node* each : built.graph().inputs())
    operands.push_back(input(plain, each->op_as<Input>().input_name, each->outputs[0]));
  std::vector<Value> of_node;
  for (const Value& value : node.inputs)
    of_node.push_back({plain.find_input(value.node->op_as<Input>().input_name), 0});
  ASSERT_TRUE(node.op->has_plain_form());
  const std::vector<Value> results = node.op->expand(of_node);
  for (size_t i = 0; i < results.size(); ++i)
    plain.add_output(built.graph().outputs()[i].name, results[i]);
  const auto ref = make_backend("ref");
  const NamedTensors want = evaluate(built.graph(), *ref, built.tensors()),
                     got = evaluate(plain, *ref, built.tensors());
  for (const auto& [name, tensor] : want)
    EXPECT_EQ(difference(
                  got.at(name), tensor, tolerance(tensor.type().dtype, node.op->traits().op_class)),
              "")
        << print(built.graph()) << print(plain);
}

void expect_alike(DType dtype, uint64_t seed, const std::function<Value(CaseBuilder&)>& build) {
  CaseBuilder built(dtype, seed);
  built.finish({build(built)});
  expect_alike(built);
}

TEST(PlainWindows, Pools) {
  for (uint64_t seed = 1; seed <= static_cast<uint64_t>(cases(200)); ++seed) {
    RandomWindow drawn(seed, true);
    const int64_t channels = drawn.random.integer(1, 5);
    const PoolFields pool{drawn.kernel, drawn.window};
    const bool counts = drawn.random.chance(0.5);
    const Shape x{drawn.images, drawn.size[0], drawn.size[1], channels};
    const DType dtype = kFloatDTypes[seed % 4];
    const Shape y = pool.output({dtype, x}, "test").shape;
    expect_alike(dtype, seed, [&](CaseBuilder& b) { return max_pool2d(b.input(x), pool); });
    expect_alike(dtype, seed, [&](CaseBuilder& b) { return avg_pool2d(b.input(x), pool, counts); });
    expect_alike(dtype, seed, [&](CaseBuilder& b) {
      MaxPool2dGrad op;
      op.pool = pool;
      // The numbers are few, so that many are equal: the first of the largest counts.
      std::vector<double> image(static_cast<size_t>(numel(x)));
      for (double& each : image) each = static_cast<double>(b.random().integer(0, 3));
      return add_node(std::move(op), {b.given({dtype, x}, image), b.input(y)});
    });
    expect_alike(dtype, seed, [&](CaseBuilder& b) {
      AvgPool2dGrad op;
      op.pool = pool;
      op.count_padding = counts;
      op.size = drawn.size;
      return add_node(std::move(op), {b.input(y)});
    });
  }
}

TEST(PlainWindows, Convolutions) {
  for (uint64_t seed = 1; seed <= static_cast<uint64_t>(cases(200)); ++seed) {
    RandomWindow drawn(seed, false);
    const int64_t groups = seed % 3 == 0 ? 1 : drawn.random.integer(1, 4);
    const int64_t in = groups * drawn.random.integer(1, 4);
    const int64_t out = seed % 5 == 0 ? in : groups * drawn.random.integer(1, 4);
    if (seed % 4 == 0) drawn.kernel = {1, 1}, drawn.window = {};  // single pixels
    const DType dtype = kFloatDTypes[seed % 4];
    const Shape x{drawn.images, drawn.size[0], drawn.size[1], in};
    const Shape w{drawn.kernel[0], drawn.kernel[1], in / groups, out};
    Conv2d op;
    op.window = drawn.window;
    op.groups = groups;
    const Shape y = op.infer(std::vector<TensorType>{{dtype, x}, {dtype, w}})[0].shape;
    expect_alike(dtype, seed, [&](CaseBuilder& b) {
      return conv2d(b.input(x), b.input(w), drawn.window, groups);
    });
    expect_alike(dtype, seed, [&](CaseBuilder& b) {
      Conv2dGradInput dx;
      dx.window = drawn.window, dx.groups = groups, dx.size = drawn.size;
      return add_node(std::move(dx), {b.input(y), b.input(w)});
    });
    expect_alike(dtype, seed, [&](CaseBuilder& b) {
      Conv2dGradWeight dw;
      dw.window = drawn.window, dw.groups = groups, dw.size = drawn.kernel;
      return add_node(std::move(dw), {b.input(x), b.input(y)});
    });
  }
}

// Pixels beyond the image are the zero point.
TEST(PlainWindows, ConvolutionsOfBytes) {
  constexpr DType kResults[] = {DType::kI32, DType::kF32, DType::kI8, DType::kU8};
  for (uint64_t seed = 1; seed <= static_cast<uint64_t>(cases(200)); ++seed) {
    RandomWindow drawn(seed, false);
    const int64_t groups = seed % 3 == 0 ? drawn.random.integer(2, 3) : 1;
    const int64_t in = drawn.random.integer(1, 4), out = groups * drawn.random.integer(1, 4);
    if (seed % 4 == 0) drawn.kernel = {1, 1}, drawn.window = {};  // single pixels
    const DType of_x = drawn.random.chance(0.5) ? DType::kI8 : DType::kU8,
                of_w = drawn.random.chance(0.5) ? DType::kI8 : DType::kU8;
    const Shape x{drawn.images, drawn.size[0], drawn.size[1], groups * in};
    const Shape w{drawn.kernel[0], drawn.kernel[1], in, out};
    expect_alike(of_x, seed, [&](CaseBuilder& b) {
      const auto bytes = [&](DType dtype, const Shape& shape) {
        const int64_t least = dtype == DType::kI8 ? -128 : 0;
        return b.indices(dtype, shape, least, least + 255);
      };
      Conv2dI8 op;
      op.window = drawn.window, op.groups = groups, op.to = kResults[seed % 4];
      std::vector<Value> inputs{
          bytes(of_x, x), bytes(of_w, w), bytes(of_x, {}), bytes(of_w, {out})};
      if (op.is_scaled()) inputs.push_back(b.input(DType::kF32, {out}, 1e-4, 1e-3));
      if (op.is_rounded()) inputs.push_back(bytes(op.to, {}));
      if (op.is_scaled()) inputs.push_back(b.indices(DType::kI32, {out}, -60'000, 60'000));
      return add_node(std::move(op), inputs);
    });
  }
}

}  // namespace
}  // namespace ridge::test
