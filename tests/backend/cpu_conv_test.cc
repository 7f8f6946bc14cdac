// CPU convolutions and matrix products, against sums written out here and the reference backend.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "ridge/backend/ref/ref_backend.h"
#include "ridge/graph/ops/conv.h"
#include "ridge/graph/ops/matmul.h"
#include "tests/backend/cpu_runs.h"
#include "tests/support/scale.h"

namespace ridge::test {
namespace {

const DType kFloatDTypes[] = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16};

struct Case {
  Shape x, w;
  WindowFields window;
  int64_t groups = 1;

  Shape y() const {
    return {x[0],
            window.positions(0, x[1], w[0], "test"),
            window.positions(1, x[2], w[1], "test"),
            w[3]};
  }
};

std::string describe(const Case& c) {
  return fmt::format("x {} w {} stride {} padding {} dilation {} groups {}",
                     to_string(c.x),
                     to_string(c.w),
                     to_string(c.window.stride),
                     to_string(c.window.padding),
                     to_string(c.window.dilation),
                     c.groups);
}

Case random_case(uint64_t seed) {
  Random random(seed);
  Case c;
  const std::vector<int64_t> group_counts{1, 1, 1, 2, 3, 5};
  c.groups = group_counts[size_t(random.integer(0, 5))];
  // One channel in and out a group makes it depthwise; also with several outputs a group.
  const bool depthwise = c.groups > 1 && random.chance(0.5);
  const int64_t in = depthwise ? 1 : random.integer(1, 6);
  const int64_t out = depthwise && random.chance(0.7) ? 1 : random.integer(1, 6);
  c.w = {random.integer(1, 4), random.integer(1, 4), in, out * c.groups};
  for (size_t d = 0; d < 2; ++d) {
    c.window.stride[d] = random.integer(1, 3);
    c.window.dilation[d] = random.integer(1, 3);
    c.window.padding[d] = random.chance(0.3) ? 0 : random.integer(0, 4);
    c.window.padding[d + 2] = random.chance(0.3) ? 0 : random.integer(0, 4);
  }
  const auto length = [&](size_t d) {
    const int64_t reach = c.window.dilation[d] * (c.w[d] - 1) + 1;
    const int64_t least = reach - c.window.padding[d] - c.window.padding[d + 2];
    return std::max<int64_t>(1, least) + random.integer(0, 7);
  };
  c.x = {random.integer(1, 3), length(0), length(1), in * c.groups};
  return c;
}

// All three directions of a case, on inputs x0 (x), x1 (w) and x2 (dy).
void build_all(const Case& c, CaseBuilder& b) {
  const Value x = b.input(c.x), w = b.input(c.w), dy = b.input(c.y());
  Conv2dGradInput to_input;
  to_input.window = c.window;
  to_input.groups = c.groups;
  to_input.size = {c.x[1], c.x[2]};
  Conv2dGradWeight to_weight;
  to_weight.window = c.window;
  to_weight.groups = c.groups;
  to_weight.size = {c.w[0], c.w[1]};
  b.finish({conv2d(x, w, c.window, c.groups),
            add_node(std::move(to_input), {dy, w}),
            add_node(std::move(to_weight), {x, dy})});
}

std::vector<double> numbers(const Tensor& tensor) {
  std::vector<double> numbers;
  for (int64_t i = 0; i < tensor.elements(); ++i) numbers.push_back(tensor.at(i));
  return numbers;
}

struct Sums {
  std::vector<double> y, dx, dw;
};

// The definition: every product x * w belongs to one element of y, and every term dy * w, x * dy
// to one of dx and of dw.
Sums sum_all(const Case& c, const NamedTensors& tensors) {
  const auto x = numbers(tensors.at("x0")), w = numbers(tensors.at("x1")),
             dy = numbers(tensors.at("x2"));
  const Shape ys = c.y();
  Sums sums{std::vector<double>(size_t(numel(ys))),
            std::vector<double>(size_t(numel(c.x))),
            std::vector<double>(size_t(numel(c.w)))};
  const int64_t outs = c.w[3] / c.groups;
  for (int64_t n = 0; n < ys[0]; ++n)
    for (int64_t i = 0; i < ys[1]; ++i)
      for (int64_t j = 0; j < ys[2]; ++j)
        for (int64_t o = 0; o < ys[3]; ++o)
          for (int64_t p = 0; p < c.w[0]; ++p)
            for (int64_t q = 0; q < c.w[1]; ++q)
              for (int64_t k = 0; k < c.w[2]; ++k) {
                const int64_t h =
                    i * c.window.stride[0] + p * c.window.dilation[0] - c.window.padding[0];
                const int64_t v =
                    j * c.window.stride[1] + q * c.window.dilation[1] - c.window.padding[1];
                if (h < 0 || h >= c.x[1] || v < 0 || v >= c.x[2]) continue;
                const int64_t channel = o / outs * c.w[2] + k;
                const auto at_x =
                    static_cast<size_t>(((n * c.x[1] + h) * c.x[2] + v) * c.x[3] + channel);
                const auto at_w = static_cast<size_t>(((p * c.w[1] + q) * c.w[2] + k) * c.w[3] + o);
                const auto at_y = static_cast<size_t>(((n * ys[1] + i) * ys[2] + j) * ys[3] + o);
                sums.y[at_y] += x[at_x] * w[at_w];
                sums.dx[at_x] += dy[at_y] * w[at_w];
                sums.dw[at_w] += dy[at_y] * x[at_x];
              }
  return sums;
}

std::string far_from(const Tensor& got, const std::vector<double>& want, DType dtype) {
  Tensor expected(TensorType{DType::kF64, got.type().shape});
  Tensor wide(expected.type());
  for (int64_t i = 0; i < got.elements(); ++i) {
    expected.set(i, want[size_t(i)]);
    wide.set(i, got.at(i));
  }
  return difference(wide, expected, tolerance(dtype, OpClass::kContraction));
}

void expect_near(const NamedTensors& results, const Sums& sums, DType dtype) {
  EXPECT_EQ(far_from(results.at("y0"), sums.y, dtype), "");
  EXPECT_EQ(far_from(results.at("y1"), sums.dx, dtype), "");
  EXPECT_EQ(far_from(results.at("y2"), sums.dw, dtype), "");
}

// Chooses the candidate of that name where there is one, else the one that all machines have.
ChooseKernel by_name(std::string name) {
  return [name](const Node&, const std::vector<Choice>& choices) {
    auto found = std::ranges::find(choices, name, &Choice::name);
    if (found == choices.end()) found = std::ranges::find(choices, "im2col_gemm", &Choice::name);
    return static_cast<size_t>(found - choices.begin());
  };
}

void check_case(const Case& c, DType dtype, uint64_t seed) {
  SCOPED_TRACE(describe(c) + " " + std::string(name_of(dtype)));
  CaseBuilder b(dtype, seed);
  build_all(c, b);
  const Sums sums = sum_all(c, b.tensors());
  const Node& first = *b.graph().outputs()[0].value.node;
  const CpuSettings restore;
  cpu::set_isa(cpu::Isa::kAvx2);  // Others have choices with bits of their own.
  for (const Choice& choice : make_cpu_backend()->candidates(first)) {
    SCOPED_TRACE(choice.name);
    expect_near(run_every_way(b, by_name(choice.name)), sums, dtype);
  }
}

// A case of bf16 by the choices of that name, with the same bits for any threads.
void check_bf16(const Case& c, std::string_view name, uint64_t seed) {
  SCOPED_TRACE(describe(c) + " by " + std::string(name));
  CaseBuilder b(DType::kBF16, seed);
  build_all(c, b);
  const auto backend = make_cpu_backend();
  for (const Output& output : b.graph().outputs()) {
    const auto choices = backend->candidates(*output.value.node);
    EXPECT_TRUE(std::ranges::count(choices, name, &Choice::name) == 1) << output.name;
  }
  const auto results = [&](int threads) {
    set_num_threads(threads);
    return evaluate(b.graph(), *backend, b.tensors(), by_name(std::string(name)));
  };
  const NamedTensors alone = results(1);
  expect_near(alone, sum_all(c, b.tensors()), DType::kBF16);
  for (const int threads : {2, 5}) EXPECT_EQ(bit_difference(results(threads), alone), "");
}

TEST(CpuConv, RandomGeometries) {
  for (uint64_t seed = 0; seed < 200; ++seed)
    check_case(random_case(seed), kFloatDTypes[seed % 4], seed);
}

// Beyond one chunk of patches, one block of channels, one tile.
TEST(CpuConv, LargerThanAChunk) {
  const WindowFields same{{1, 1}, {1, 1, 1, 1}, {1, 1}}, half{{2, 2}, {1, 1, 1, 1}, {1, 1}};
  const Case large[] = {{{3, 23, 21, 64}, {3, 3, 64, 20}, same},
                        {{2, 44, 43, 68}, {3, 3, 68, 18}, half},
                        {{3, 40, 48, 100}, {1, 1, 100, 30}, {}},
                        {{1, 20, 21, 87}, {3, 3, 1, 87}, same, 87},
                        {{2, 11, 12, 13}, {5, 5, 1, 13}, {{2, 1}, {2, 2, 2, 2}, {1, 1}}, 13}};
  // One dtype where time is short: the plain loops of the oracle are what takes it.
  const auto dtypes = std::min<size_t>(std::size(kFloatDTypes), static_cast<size_t>(cases(4)));
  for (size_t i = 0; i < dtypes; ++i)
    for (const Case& c : large) check_case(c, kFloatDTypes[i], 1);
}

// The choices by tiles and by vdpbf16ps, as far as the machine has them, are near the sums of the
// definition: with several chains of depth, pixels of several chunks, groups, strides and windows
// beyond the edge.
TEST(CpuConv, MultipliesBf16) {
  const WindowFields same{{1, 1}, {1, 1, 1, 1}, {1, 1}}, half{{2, 2}, {1, 1, 1, 1}, {1, 1}};
  const Case windows[] = {{{2, 9, 11, 96}, {3, 3, 96, 40}, same},
                          {{1, 44, 43, 20}, {3, 3, 20, 17}, half},
                          {{2, 12, 10, 3}, {7, 7, 3, 24}, {{2, 2}, {3, 3, 3, 3}, {1, 1}}},
                          {{1, 13, 12, 24}, {3, 2, 12, 22}, {{1, 2}, {2, 0, 1, 2}, {2, 1}}, 2}};
  const Case pixels[] = {{{2, 9, 8, 300}, {1, 1, 300, 20}, {}},
                         {{3, 21, 20, 32}, {1, 1, 16, 16}, {}, 2},
                         {{1, 5, 4, 1000}, {1, 1, 1000, 33}, {}}};
  const auto check = [&](std::string_view of_pixels, std::string_view of_windows) {
    for (const Case& c : windows) check_bf16(c, of_windows, 5);
    for (const Case& c : pixels)
      for (const std::string_view name : {of_pixels, of_windows}) check_bf16(c, name, 6);
  };
  const CpuSettings restore;
  if (cpu::has_isa(cpu::Isa::kAmx)) {
    cpu::set_isa(cpu::Isa::kAmx);
    check("amx_gemm", "im2col_amx_gemm");
  }
  if (!cpu::has_isa(cpu::Isa::kAvx512)) GTEST_SKIP() << "no AVX-512 here";
  cpu::set_isa(cpu::Isa::kAvx512);
  if (!cpu::has_bf16_pairs()) GTEST_SKIP() << "no AVX512-BF16 here";
  check("pairs_gemm", "im2col_pairs_gemm");
}

// Channels, sizes and padding that Winograd's form takes: tiles that end outside, blocks of tiles,
// chains of depth, vectors that fill half of a panel.
TEST(CpuConv, WinogradGeometries) {
  const auto with_padding = [](std::vector<int64_t> padding) {
    return WindowFields{{1, 1}, std::move(padding), {1, 1}};
  };
  const Case winograd[] = {{{2, 7, 6, 16}, {3, 3, 16, 32}, with_padding({1, 1, 1, 1})},
                           {{1, 3, 3, 48}, {3, 3, 48, 16}, with_padding({0, 0, 0, 0})},
                           {{1, 1, 2, 16}, {3, 3, 16, 16}, with_padding({2, 1, 1, 3})},
                           {{3, 17, 19, 16}, {3, 3, 16, 16}, with_padding({0, 3, 2, 0})},
                           {{1, 5, 4, 400}, {3, 3, 400, 48}, with_padding({1, 1, 1, 1})}};
  for (const Case& c : winograd) {
    CaseBuilder b(DType::kF32, 1);
    build_all(c, b);
    ASSERT_EQ(make_cpu_backend()->candidates(*b.graph().outputs()[0].value.node)[0].name,
              "winograd");
    check_case(c, DType::kF32, 2);
  }
}

// Kernels of each width that takes several pixels at once, and of one more.
TEST(CpuConv, DepthwiseWidths) {
  for (int64_t width = 1; width <= 8; ++width)
    for (const int64_t stride : {1, 2}) {
      const int64_t around = width / 2;
      const Case c{
          {1, 9, 21, 37}, {3, width, 1, 37}, {{1, stride}, {1, around, 1, around}, {1, 1}}, 37};
      check_case(c, kFloatDTypes[static_cast<size_t>(width) % 4], static_cast<uint64_t>(width));
    }
}

TEST(CpuConv, ChoicesWithEqualBitsAgree) {
  const auto backend = make_cpu_backend();
  int pairs = 0;
  for (const Case& c : {Case{{2, 9, 8, 300}, {1, 1, 300, 20}, {}},
                        Case{{1, 17, 23, 8}, {1, 1, 2, 12}, {}, 4},
                        Case{{1, 9, 8, 6}, {3, 3, 1, 6}, {}, 6}})
    for (DType dtype : kFloatDTypes) {
      CaseBuilder b(dtype, 4);
      build_all(c, b);
      for (const Output& output : b.graph().outputs()) {
        const auto choices = backend->candidates(*output.value.node);
        ASSERT_FALSE(choices.empty());
        EXPECT_EQ(std::ranges::count(choices, "im2col_gemm", &Choice::name), 1);
        for (size_t i = 1; i < choices.size(); ++i) {
          if (choices[i].bits != choices[0].bits) continue;
          ++pairs;
          const auto results = [&](size_t choice) {
            return evaluate(b.graph(), *backend, b.tensors(), [&](const Node&, const auto& all) {
              return std::min(choice, all.size() - 1);
            });
          };
          EXPECT_TRUE(results(0).at(output.name).same_bits(results(i).at(output.name)))
              << choices[i].name << " " << describe(c) << name_of(dtype);
        }
      }
    }
  EXPECT_GT(pairs, 0);
}

TEST(CpuConv, AgreesWithReference) {
  const auto cpu = make_cpu_backend(), reference = make_ref_backend();
  for (uint64_t seed = 300; seed < 360; ++seed) {
    const Case c = random_case(seed);
    CaseBuilder b(kFloatDTypes[seed % 4], seed);
    build_all(c, b);
    EXPECT_EQ(node_differences(b.graph(), b.tensors(), *cpu, *reference), "") << describe(c);
  }
}

// Infinite and NaN pixels stay within the windows that hold them.
TEST(CpuConv, SpecialValuesDoNotSpread) {
  const Case c{{1, 6, 6, 4}, {3, 3, 4, 4}, {{1, 1}, {1, 1, 1, 1}, {1, 1}}};
  CaseBuilder b(DType::kF32, 4);
  build_all(c, b);
  NamedTensors tensors = b.tensors();
  tensors.at("x0").set(0, NAN);  // pixel (0, 0)
  const NamedTensors results = run_every_way(b.graph(), tensors);
  const Tensor& y = results.at("y0");
  for (int64_t i = 0; i < 36; ++i)
    for (int64_t o = 0; o < 4; ++o)
      EXPECT_EQ(std::isnan(y.at(i * 4 + o)), i / 6 <= 1 && i % 6 <= 1) << i;
}

TEST(CpuMatMul, ShapesTransposesBatches) {
  const auto cpu = make_cpu_backend(), reference = make_ref_backend();
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed);
    const int64_t m = random.integer(1, 40), n = random.integer(1, 40), k = random.integer(1, 300);
    const bool ta = random.chance(0.5), tb = random.chance(0.5);
    Shape a{m, k}, b{k, n};
    if (ta) std::swap(a[0], a[1]);
    if (tb) std::swap(b[0], b[1]);
    for (int64_t rank = random.integer(0, 2); rank > 0; --rank) {
      const int64_t size = random.integer(1, 4);
      a.insert(a.begin(), size);
      b.insert(b.begin(), size);
    }
    const DType dtype = kFloatDTypes[seed % 4];
    CaseBuilder c(dtype, seed);
    MatMul op;
    op.transpose_a = ta;
    op.transpose_b = tb;
    op.accumulate = accumulate_dtype(dtype);
    c.finish({add_node(std::move(op), {c.input(a), c.input(b)})});
    run_every_way(c);
    EXPECT_EQ(node_differences(c.graph(), c.tensors(), *cpu, *reference), "")
        << to_string(a) << to_string(b);
  }
}

}  // namespace
}  // namespace ridge::test
