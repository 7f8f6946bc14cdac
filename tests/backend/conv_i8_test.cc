// Convolutions of bytes against their definition (conv_i8.h), by each kernel, and by each form of
// the instructions that the machine has.
#include "ridge/graph/ops/conv_i8.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "ridge/backend/cpu/conv/depthwise_i8.h"
#include "ridge/backend/cpu/cpu_backend.h"
#include "ridge/backend/cpu/cpu_isa.h"
#include "ridge/backend/cpu/gemm/gemm_i8.h"
#include "ridge/backend/ref/ref_backend.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/graph/ops/source.h"
#include "ridge/run/evaluate.h"
#include "tests/backend/gemm_problem.h"
#include "tests/backend/i8_forms.h"

namespace ridge::cpu {
namespace {

using ConvI8 = I8Test;

using Bytes = std::vector<uint8_t>;

int64_t number_of(uint8_t byte, bool is_signed) {
  return is_signed ? int64_t{static_cast<int8_t>(byte)} : int64_t{byte};
}

int64_t between(Random& random, int64_t low, int64_t high) {
  return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
}

// Wrong quantizations.
enum class Wrong : uint8_t {
  kNothing,
  kScaleDoubled,     // of the last channel
  kZeroOff,          // the zero point of the result, by one
  kPairsSaturate,    // sums of two products, at 16 bits
  kPadsWithZero,     // and not with the zero point
  kFirstWeightZero,  // for all channels
  kNoImageZero,
  kTruncates,
  kNoLimits,
  kBiasOfNeighbour,
  kOtherSign,  // of the bytes of the image
  kLastTapMissing,
  kCount
};

// A convolution with all that belongs to its results.
struct Convolution {
  Shape x, w;
  WindowFields window;
  int64_t groups = 1;
  bool x_is_signed = false, w_is_signed = true;
  Bytes image, weights, w_zero;
  uint8_t x_zero = 0;
  std::vector<float> scale, bias;
  std::vector<int32_t> sum_bias;
  int32_t zero = 0, low = -128, high = 255;

  Shape y() const {
    return {x[0],
            window.positions(0, x[1], w[0], "test"),
            window.positions(1, x[2], w[1], "test"),
            w[3]};
  }
  int64_t depth() const { return w[0] * w[1] * w[2]; }
  ConvGeometry geometry() const { return {window, groups, x, w, y()}; }

  void fill(Random& random) {
    const bool extreme = random() % 5 == 0;
    const auto some_bytes = [&](int64_t count) {
      static constexpr uint8_t kLimits[] = {0x80, 0x7f, 0xff, 0x00};
      Bytes bytes(static_cast<size_t>(count));
      for (uint8_t& b : bytes) b = extreme ? kLimits[random() % 4] : static_cast<uint8_t>(random());
      return bytes;
    };
    const auto floats = [&](int64_t count, float low, float high) {
      std::uniform_real_distribution<float> uniform(low, high);
      std::vector<float> values(static_cast<size_t>(count));
      for (float& v : values) v = uniform(random);
      return values;
    };
    const int64_t channels = w[3];
    x_is_signed = random() % 2 != 0;
    w_is_signed = random() % 3 != 0;
    image = some_bytes(numel(x));
    weights = some_bytes(numel(w));
    x_zero = static_cast<uint8_t>(random());
    // The one that adds nothing, one for all, or one for each channel.
    const auto kind = random() % 3;
    w_zero = kind == 0 ? Bytes{static_cast<uint8_t>(w_is_signed ? 0 : 128)}
                       : some_bytes(kind == 1 ? 1 : channels);
    const float size = 40.0f / (9000.0f * std::sqrt(static_cast<float>(depth())));
    scale = floats(random() % 2 != 0 ? channels : 1, 0.5f * size, 1.5f * size);
    const auto added = random() % 3;
    if (added == 1) bias = floats(channels, -60, 60);
    static constexpr float kOdd[] = {std::numeric_limits<float>::infinity(),
                                     -std::numeric_limits<float>::infinity(),
                                     std::numeric_limits<float>::quiet_NaN()};
    if (added == 1 && channels > 2) bias[static_cast<size_t>(channels / 2)] = kOdd[random() % 3];
    for (int64_t o = 0; added == 2 && o < channels; ++o)
      sum_bias.push_back(static_cast<int32_t>(random()) >> 12);
    zero = static_cast<int32_t>(between(random, 0, 127));
    if (random() % 2 == 0) return;
    low = static_cast<int32_t>(between(random, 0, 100));
    high = static_cast<int32_t>(between(random, low, 127));
  }

  int32_t sum(int64_t n, int64_t i, int64_t j, int64_t o, Wrong wrong = Wrong::kNothing) const {
    const bool is_signed = x_is_signed != (wrong == Wrong::kOtherSign);
    const int64_t first = o / (w[3] / groups) * w[2];
    const bool is_each = w_zero.size() > 1 && wrong != Wrong::kFirstWeightZero;
    const int64_t zero_w = number_of(w_zero[is_each ? static_cast<size_t>(o) : 0], w_is_signed);
    const int64_t zero_x = wrong == Wrong::kNoImageZero ? 0 : number_of(x_zero, x_is_signed);
    int64_t sum = 0, pair = 0, count = 0;
    for (int64_t a = 0; a < w[0]; ++a)
      for (int64_t b = 0; b < w[1]; ++b)
        for (int64_t c = 0; c < w[2]; ++c) {
          const int64_t row = i * window.stride[0] - window.padding[0] + a * window.dilation[0];
          const int64_t column = j * window.stride[1] - window.padding[1] + b * window.dilation[1];
          const bool is_inside = row >= 0 && row < x[1] && column >= 0 && column < x[2];
          const int64_t at = ((n * x[1] + row) * x[2] + column) * x[3] + first + c;
          const int64_t weight = number_of(
              weights[static_cast<size_t>(((a * w[1] + b) * w[2] + c) * w[3] + o)], w_is_signed);
          const int64_t beyond = wrong == Wrong::kPadsWithZero ? 0 : zero_x;
          const int64_t pixel =
              is_inside ? number_of(image[static_cast<size_t>(at)], is_signed) : beyond;
          if (wrong == Wrong::kLastTapMissing && count == depth() - 1) continue;
          pair += (pixel - zero_x) * (weight - zero_w);
          if (++count % 2 == 1 && count < depth()) continue;
          if (wrong == Wrong::kPairsSaturate) pair = std::clamp<int64_t>(pair, -32768, 32767);
          sum += pair;
          pair = 0;
        }
    if (!sum_bias.empty()) sum += sum_bias[static_cast<size_t>(o)];
    return static_cast<int32_t>(static_cast<uint32_t>(sum + pair));
  }

  template <typename T>
  T result(int32_t sum, int64_t o, Wrong wrong) const {
    if constexpr (std::is_same_v<T, int32_t>) return sum;
    const auto channel = static_cast<size_t>(o), channels = static_cast<size_t>(w[3]);
    float factor = scale[scale.size() > 1 ? channel : 0];
    if (wrong == Wrong::kScaleDoubled && channel + 1 == channels) factor *= 2;
    float value = static_cast<float>(sum) * factor;
    const size_t biased = wrong == Wrong::kBiasOfNeighbour ? (channel + 1) % channels : channel;
    if (!bias.empty()) value += bias[biased];
    if constexpr (std::is_same_v<T, float>) return value;
    if (std::isnan(value)) return 0;
    const float whole = wrong == Wrong::kTruncates ? std::trunc(value) : std::nearbyint(value);
    const double moved = static_cast<double>(whole) + zero + (wrong == Wrong::kZeroOff ? 1 : 0);
    const bool is_limited = wrong != Wrong::kNoLimits;
    const double least = std::numeric_limits<T>::min(), most = std::numeric_limits<T>::max();
    return static_cast<T>(std::clamp(moved,
                                     is_limited ? std::max<double>(least, low) : least,
                                     is_limited ? std::min<double>(most, high) : most));
  }

  template <typename T>
  std::vector<T> wanted(Wrong wrong = Wrong::kNothing) const {
    const Shape shape = y();
    std::vector<T> results;
    for (int64_t n = 0; n < shape[0]; ++n)
      for (int64_t i = 0; i < shape[1]; ++i)
        for (int64_t j = 0; j < shape[2]; ++j)
          for (int64_t o = 0; o < shape[3]; ++o)
            results.push_back(result<T>(sum(n, i, j, o, wrong), o, wrong));
    return results;
  }

  // Operands and results of a group, at bytes that may lie elsewhere.
  I8Operands operands(const uint8_t* image_at, const uint8_t* weights_at, int64_t group = 0) const {
    const int64_t column = group * (w[3] / groups);
    return {.a = image_at,
            .b = weights_at + column,
            .a_zero = {&x_zero, false},
            .b_zero = {w_zero.data() + (w_zero.size() > 1 ? column : 0), w_zero.size() > 1}};
  }
  template <typename T>
  I8Results results(T* c, int64_t group = 0) const {
    const int64_t column = group * (w[3] / groups);
    const bool is_sum = std::is_same_v<T, int32_t>;
    return {.c = c + column,
            .dtype = dtype_of<T>(),
            .column_scale = is_sum ? nullptr : scale.data() + (scale.size() > 1 ? column : 0),
            .has_scale_each_column = scale.size() > 1,
            .bias = is_sum || bias.empty() ? nullptr : bias.data() + column,
            .sum_bias = sum_bias.empty() ? nullptr : sum_bias.data() + column,
            .zero = zero,
            .low = low,
            .high = high};
  }
};

std::string describe(const Convolution& c) {
  return fmt::format("x {}{} w {}{} stride {} padding {} dilation {} groups {}",
                     c.x_is_signed ? "i8" : "u8",
                     to_string(c.x),
                     c.w_is_signed ? "i8" : "u8",
                     to_string(c.w),
                     to_string(c.window.stride),
                     to_string(c.window.padding),
                     to_string(c.window.dilation),
                     c.groups);
}

// Convolutions at random: depthwise ones, single pixels, groups, and what a tile of channels does
// not fit.
Convolution random_convolution(Random& random, bool is_depthwise) {
  static constexpr int64_t kChannels[] = {
      1, 2, 3, 5, 8, 16, 17, 31, 32, 33, 48, 64, 65, 96, 100, 130};
  const auto channels = [&] { return kChannels[random() % std::size(kChannels)]; };
  Convolution c;
  c.groups = is_depthwise ? channels() : random() % 4 == 0 ? between(random, 2, 4) : 1;
  const int64_t each = is_depthwise ? 1 : channels();
  const int64_t out = is_depthwise ? 1 : std::max<int64_t>(1, channels() / c.groups);
  c.w = {between(random, 1, 5), between(random, 1, 5), each, out * c.groups};
  if (random() % 4 == 0) c.w[0] = c.w[1] = 1;
  if (random() % 4 == 0) c.w[0] = c.w[1] = 3;
  c.x = {between(random, 1, 2), 0, 0, each * c.groups};
  for (size_t d = 0; d < 2; ++d) {
    c.window.stride[d] = between(random, 1, 3);
    c.window.dilation[d] = random() % 3 == 0 ? 2 : 1;
    c.window.padding[d] = between(random, 0, c.w[d] - 1);
    c.window.padding[d + 2] = between(random, 0, c.w[d]);
    const int64_t reach = c.window.dilation[d] * (c.w[d] - 1) + 1;
    const int64_t padding = c.window.padding[d] + c.window.padding[d + 2];
    c.x[d + 1] = std::max<int64_t>(1, reach - padding) + between(random, 0, 7);
  }
  c.fill(random);
  return c;
}

std::vector<Convolution> random_convolutions(uint64_t seed, int count, bool is_depthwise) {
  Random random(seed);
  std::vector<Convolution> cases;
  for (int i = 0; i < count; ++i) cases.push_back(random_convolution(random, is_depthwise));
  return cases;
}

GemmI8Windows windows_of(const Convolution& c, const uint8_t* image, int64_t group) {
  const Shape y = c.y();
  const int64_t first = group * c.w[2];
  return {.images = image + first,
          .bytes = numel(c.x) - first,
          .size = {c.x[1], c.x[2]},
          .pitch = c.x[3],
          .channels = c.w[2],
          .windows = {y[1], y[2]},
          .kernel = {c.w[0], c.w[1]},
          .stride = {c.window.stride[0], c.window.stride[1]},
          .padding = {c.window.padding[0], c.window.padding[1]},
          .dilation = {c.window.dilation[0], c.window.dilation[1]},
          .beyond = c.x_zero};
}

// The product of the windows and the weights, to `y`.
template <typename T>
void multiply_windows(
    const Convolution& c, I8Form form, const uint8_t* image, const uint8_t* weights, T* y) {
  const Shape shape = c.y();
  I8Problem problem;
  problem.shape = {.m = shape[0] * shape[1] * shape[2],
                   .n = c.w[3] / c.groups,
                   .k = c.depth(),
                   .lda = c.depth(),
                   .ldb = c.w[3],
                   .ldc = c.w[3]};
  problem.a_is_signed = c.x_is_signed;
  problem.b_is_signed = c.w_is_signed;
  problem.form = form;
  std::vector<char> workspace(gemm_i8_workspace_bytes(problem));
  for (int64_t group = 0; group < c.groups; ++group) {
    const GemmI8Windows windows = windows_of(c, image, group);
    I8Operands operands = c.operands(image, weights, group);
    operands.windows = &windows;
    gemm_i8(problem, operands, c.results(y, group), workspace.data());
  }
}

template <typename T>
void convolve_depthwise(
    const Convolution& c, I8Form form, const uint8_t* image, const uint8_t* weights, T* y) {
  const DepthwiseI8 convolution(c.geometry(), c.x_is_signed, c.w_is_signed, form);
  std::vector<char> workspace(convolution.workspace_bytes());
  convolution.run(c.operands(image, weights), c.results(y), workspace.data());
}

template <typename T, typename Run>
std::vector<T> made_by(const Run& run, const Convolution& c, I8Form form) {
  std::vector<T> y(static_cast<size_t>(numel(c.y())), T{77});
  run(c, form, c.image.data(), c.weights.data(), y.data());
  return y;
}

template <typename T, typename Run>
void expect_definition(const Run& run, const Convolution& c) {
  const std::vector<T> wanted = c.wanted<T>();
  for (const I8Form form : i8_forms())
    ASSERT_TRUE(same_bits(made_by<T>(run, c, form), wanted)) << name_of(form) << " " << describe(c);
}

constexpr auto kByWindows = [](const Convolution& c, I8Form form, auto... at) {
  multiply_windows(c, form, at...);
};
constexpr auto kDepthwise = [](const Convolution& c, I8Form form, auto... at) {
  convolve_depthwise(c, form, at...);
};

template <typename Run>
void expect_definition(const Run& run, const std::vector<Convolution>& cases) {
  for (const Convolution& c : cases) {
    expect_definition<int32_t>(run, c);
    expect_definition<float>(run, c);
    expect_definition<int8_t>(run, c);
    expect_definition<uint8_t>(run, c);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST_F(ConvI8, ProductsOfWindowsFollowTheDefinition) {
  expect_definition(kByWindows, random_convolutions(1, 40, false));
}

TEST_F(ConvI8, DepthwiseOnesFollowTheDefinition) {
  expect_definition(kDepthwise, random_convolutions(2, 60, true));
}

// A depth that is packed in several chunks, which begin and end within pixels and lines.
TEST_F(ConvI8, DeepWindowsFollowTheDefinition) {
  Random random(3);
  for (const int64_t channels : {320, 250}) {
    Convolution c;
    c.x = {1, 12, 12, channels};
    c.w = {3, 3, channels, 5};
    c.window.padding = {1, 1, 1, 1};
    c.fill(random);
    expect_definition<int32_t>(kByWindows, c);
    c.window.dilation = {1, 2};
    c.window.padding = {1, 2, 1, 2};
    expect_definition<int8_t>(kByWindows, c);
  }
}

TEST_F(ConvI8, SameBitsForAnyThreads) {
  Random random(4);
  for (const bool is_depthwise : {false, true}) {
    Convolution c;
    c.x = {2, 40, 33, 96};
    c.w = {3, 3, is_depthwise ? 1 : 96, 96};
    c.groups = is_depthwise ? 96 : 1;
    c.window.padding = {1, 1, 1, 1};
    c.fill(random);
    for (const I8Form form : i8_forms()) {
      set_num_threads(1);
      const auto run = [&] {
        return is_depthwise ? made_by<uint8_t>(kDepthwise, c, form)
                            : made_by<uint8_t>(kByWindows, c, form);
      };
      const Bytes alone = run();
      for (const int threads : {2, 5}) {
        set_num_threads(threads);
        ASSERT_TRUE(same_bits(run(), alone)) << name_of(form) << " " << describe(c);
      }
    }
  }
}

TEST_F(ConvI8, TouchesNothingBeside) {
  const auto expect_for = [](const auto& run, const std::vector<Convolution>& cases) {
    int round = 0;
    for (const Convolution& c : cases) {
      const bool at_end = ++round % 3 != 0;
      Guarded<uint8_t> image(c.image, at_end), weights(c.weights, at_end);
      const Bytes wanted = c.wanted<uint8_t>();
      Guarded<uint8_t> y(Bytes(wanted.size(), 77), at_end);
      for (const I8Form form : i8_forms()) {
        run(c, form, image.data(), weights.data(), y.data());
        ASSERT_TRUE(same_bits(y.values(), wanted)) << name_of(form) << " " << describe(c);
      }
    }
  };
  expect_for(kByWindows, random_convolutions(5, 24, false));
  expect_for(kDepthwise, random_convolutions(6, 24, true));
}

// Each of the wrong quantizations has to be seen by the cases above.
TEST_F(ConvI8, CasesTellWrongQuantizationsApart) {
  std::vector<Convolution> cases = random_convolutions(1, 24, false);
  for (Convolution& c : random_convolutions(2, 24, true)) cases.push_back(std::move(c));
  for (int i = 1; i < static_cast<int>(Wrong::kCount); ++i) {
    const bool is_seen = std::any_of(cases.begin(), cases.end(), [&](const Convolution& c) {
      return !same_bits(c.wanted<uint8_t>(static_cast<Wrong>(i)), c.wanted<uint8_t>()) &&
             !same_bits(c.wanted<int8_t>(static_cast<Wrong>(i)), c.wanted<int8_t>());
    });
    EXPECT_TRUE(is_seen) << "wrong quantization " << i;
  }
}

// ---- the op ----

Tensor tensor_of(TensorType type, const void* bytes) {
  Tensor tensor(type);
  std::memcpy(tensor.data(), bytes, static_cast<size_t>(type.elements()) * size_of(type.dtype));
  return tensor;
}

// A graph of the op alone.
struct OpGraph {
  Graph graph{"convolution"};
  NamedTensors tensors;
  Value y;

  OpGraph(const Convolution& c, DType to) {
    std::vector<Value> inputs;
    const auto add = [&](DType dtype, const Shape& shape, const void* bytes) {
      const std::string name = fmt::format("{}", inputs.size());
      inputs.push_back(input(graph, name, {dtype, shape}));
      tensors.emplace(name, tensor_of({dtype, shape}, bytes));
    };
    const auto lanes = [](size_t count) {
      return count > 1 ? Shape{static_cast<int64_t>(count)} : Shape{};
    };
    const DType x = c.x_is_signed ? DType::kI8 : DType::kU8;
    const DType w = c.w_is_signed ? DType::kI8 : DType::kU8;
    Conv2dI8 op;
    op.window = c.window;
    op.groups = c.groups;
    op.to = to;
    add(x, c.x, c.image.data());
    add(w, c.w, c.weights.data());
    add(x, {}, &c.x_zero);
    add(w, lanes(c.w_zero.size()), c.w_zero.data());
    if (op.is_scaled()) add(DType::kF32, lanes(c.scale.size()), c.scale.data());
    const auto zero = static_cast<uint8_t>(c.zero);  // of both types
    if (op.is_rounded()) {
      add(to, {}, &zero);
      const int32_t least = to == DType::kI8 ? -128 : 0;
      op.limits = {std::max(c.low, least), std::min(c.high, least + 255)};
    }
    if (op.is_scaled() && !c.bias.empty()) add(DType::kF32, {c.w[3]}, c.bias.data());
    if (op.is_scaled() && !c.sum_bias.empty()) add(DType::kI32, {c.w[3]}, c.sum_bias.data());
    y = add_node(std::move(op), inputs);
    graph.add_output("y", y);
  }
};

template <typename T>
std::vector<T> elements_of(const Tensor& tensor) {
  std::vector<T> elements(static_cast<size_t>(tensor.elements()));
  std::memcpy(elements.data(), tensor.data(), elements.size() * sizeof(T));
  return elements;
}

template <typename T>
void expect_op(const Convolution& c, Backend& backend) {
  const OpGraph op(c, dtype_of<T>());
  const size_t choices = backend.candidates(*op.y.node).size();
  for (size_t i = 0; i < choices; ++i) {
    const ChooseKernel choose = [&](const Node&, const std::vector<Choice>&) { return i; };
    const Tensor y = evaluate(op.graph, backend, op.tensors, choose).at("y");
    ASSERT_TRUE(same_bits(elements_of<T>(y), c.wanted<T>())) << i << " " << describe(c);
  }
}

TEST_F(ConvI8, TheOpFollowsTheDefinition) {
  const auto cpu = make_cpu_backend(), reference = make_ref_backend();
  for (const bool is_depthwise : {false, true})
    for (Convolution& c : random_convolutions(7, 12, is_depthwise))
      for (Backend* const backend : {cpu.get(), reference.get()}) {
        Convolution sums = c;
        sums.sum_bias.clear();  // results of i32 have no bias
        expect_op<int32_t>(sums, *backend);
        expect_op<float>(c, *backend);
        expect_op<int8_t>(c, *backend);
        expect_op<uint8_t>(c, *backend);
        if (HasFatalFailure()) return;
      }
}

// Sessions pack constant weights by ops, which a backend runs.
TEST_F(ConvI8, PackedWeightsGiveTheSameBits) {
  const auto backend = make_cpu_backend();
  for (const Convolution& c : random_convolutions(8, 12, false)) {
    const OpGraph op(c, DType::kU8);
    const size_t choice = backend->candidates(*op.y.node).size() - 1;
    const std::vector<PackedOperand> operands = backend->packed_operands(*op.y.node, choice);
    ASSERT_EQ(operands.size(), c.groups == 1 ? 1u : 0u);
    if (operands.empty()) continue;
    Graph pack("pack");
    const TensorType type = op.y.node->inputs[Conv2dI8::kB].type();
    pack.add_output("packed", operands[0].pack(input(pack, "w", type)));
    const Tensor packed = evaluate(pack, *backend, {{"w", op.tensors.at("1")}}).at("packed");
    std::vector<const void*> inputs;
    for (size_t i = 0; i < op.y.node->inputs.size(); ++i)
      inputs.push_back(i == Conv2dI8::kB ? packed.data()
                                         : op.tensors.at(fmt::format("{}", i)).data());
    Bytes y(static_cast<size_t>(numel(c.y())));
    void* output = y.data();
    const auto kernel = backend->instantiate_packed(*op.y.node, choice);
    std::vector<char> workspace(kernel->workspace_bytes());
    const auto stream = backend->make_stream();
    kernel->launch(*stream, {inputs, {&output, 1}, workspace.data()});
    ASSERT_TRUE(same_bits(y, c.wanted<uint8_t>())) << describe(c);
  }
}

}  // namespace
}  // namespace ridge::cpu
