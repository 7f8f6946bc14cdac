// The reference backend against values from PyTorch 2.15.0 on a CPU in f64: a second opinion on
// layouts and formulas. Images and weights are permuted from PyTorch's NCHW and OIHW.
#include "ridge/graph/ops/activation.h"
#include "ridge/graph/ops/attention.h"
#include "ridge/graph/ops/batch_norm.h"
#include "ridge/graph/ops/conv.h"
#include "ridge/graph/ops/norm.h"
#include "ridge/graph/ops/pool.h"
#include "ridge/graph/ops/softmax.h"
#include "tests/backend/ref_case.h"

namespace ridge::test {
namespace {

constexpr double kRounding = 1e-14;

// A f64 tensor of whole numbers: element i is (i * factor) % modulus - offset, times `scale`.
Value pattern(RefCase& c, const Shape& shape, int factor, int modulus, int offset, double scale) {
  Numbers values;
  for (int i = 0; i < numel(shape); ++i) values.push_back(scale * (i * factor % modulus - offset));
  return c.given({DType::kF64, shape}, values);
}

Value pattern(RefCase& c, const Shape& shape, int factor, int modulus, int offset) {
  return pattern(c, shape, factor, modulus, offset, 1.0);
}

// F.conv2d(F.pad(x, (2, 1, 1, 0)), w, stride=(2, 1), dilation=(1, 2), groups=2): asymmetric
// padding, and every field different in the two directions.
TEST(RefGolden, ConvolutionAndItsGradients) {
  RefCase c;
  const Value x = pattern(c, {1, 4, 5, 4}, 7, 11, 5), w = pattern(c, {2, 2, 2, 4}, 5, 9, 4);
  const WindowFields window{.stride = {2, 1}, .padding = {1, 2, 0, 1}, .dilation = {1, 2}};
  const Value y = conv2d(x, w, window, 2);
  const Value dy = pattern(c, y.shape(), 3, 7, 3);
  Conv2dGradInput dx;
  dx.window = window;
  dx.groups = 2;
  dx.size = {4, 5};
  Conv2dGradWeight dw;
  dw.window = window;
  dw.groups = 2;
  dw.size = {2, 2};
  const auto results = c.run_all({y, add_node(dx, {dy, w}), add_node(dw, {x, dy})});
  EXPECT_TRUE(same_numbers(
      results[0], {7,   -26, 10, -2, -4,  13, 0,   -16, -19, -21, -12, 27, 9,   8,   -14, -18,
                   -18, -18, 6,  -8, 14,  -4, -22, 8,   -6,  2,   -1,  3,  17,  -28, 2,   -2,
                   -2,  -11, 8,  -9, -31, 6,  -16, 13,  -5,  -10, 4,   -9, -11, -10, 10,  -20}));
  EXPECT_TRUE(same_numbers(
      results[1], {3,   3,   10,  16,  -18, 16,  24,  14,  24, -20, -18, -16, 10, -14, 3,  3,
                   -7,  6,   8,   8,   -18, -16, -14, -20, 3,  3,   13,  19,  17, 15,  19, 9,
                   -25, -15, -17, -15, -4,  -6,  -3,  -9,  17, -17, -11, -17, 3,  3,   10, 16,
                   -18, 16,  24,  14,  24,  -20, -18, -16, 6,  -5,  0,   -6,  0,  0,   0,  0,
                   0,   0,   0,   0,   0,   0,   0,   0,   0,  0,   0,   0,   0,  0,   0,  0}));
  EXPECT_TRUE(same_numbers(
      results[2], {-5,  -7,  10,  13, -17, 22, -8,  -8, 1,  0,   16,  10,  -16, -16, -20, -8,
                   -26, -26, -21, 2,  20,  14, -31, 46, 17, -21, -38, -21, 0,   14,  28,  -23}));
}

// Windows of 3 x 2, stride (2, 1), padding 1 on each side.
PoolFields golden_pool() {
  return {.kernel = {3, 2}, .window = {.stride = {2, 1}, .padding = {1, 1, 1, 1}}};
}

TEST(RefGolden, MaxPool) {
  RefCase c;
  const Value x = pattern(c, {1, 4, 5, 1}, 7, 11, 5);
  const Value y = max_pool2d(x, golden_pool());
  MaxPool2dGrad dx;
  dx.pool = golden_pool();
  const auto results = c.run_all({y, add_node(dx, {x, pattern(c, y.shape(), 6, 13, 6)})});
  EXPECT_TRUE(same_numbers(results[0], {-3, 4, 4, 5, 5, 3, 1, 4, 4, 4, 5, 5}));
  EXPECT_TRUE(
      same_numbers(results[1], {0, 0, 0, 4, 0, -6, 6, 0, 0, -2, 0, 0, 0, 0, -3, 4, 0, -4, 0, 0}));
}

std::vector<Numbers> average_pool(bool count_padding) {
  RefCase c;
  const Value x = pattern(c, {1, 4, 5, 1}, 7, 11, 5);
  const Value y = avg_pool2d(x, golden_pool(), count_padding);
  const Value dy = pattern(c, y.shape(), 6, 13, 6, 6.0);
  AvgPool2dGrad dx;
  dx.pool = golden_pool();
  dx.count_padding = count_padding;
  dx.size = {4, 5};
  return c.run_all({y * 6.0, add_node(dx, {dy})});
}

TEST(RefGolden, AveragePoolCountsPadding) {
  const auto results = average_pool(true);
  EXPECT_TRUE(same_numbers(results[0], {-8, -2, 4, -1, 5, 4, -3, -7, 2, 0, -2, 4}, kRounding));
  EXPECT_TRUE(same_numbers(
      results[1], {-6, 6, 5, 4, 3, -5, 6, 4, 2, 0, 1, 0, -1, -2, -3, 1, 0, -1, -2, -3}, kRounding));
}

TEST(RefGolden, AveragePoolLeavesPaddingOut) {
  const auto results = average_pool(false);
  EXPECT_TRUE(
      same_numbers(results[0], {-24, -3, 6, -1.5, 7.5, 12, -6, -7, 2, 0, -2, 8}, kRounding));
  EXPECT_TRUE(
      same_numbers(results[1],
                   {-18, 9, 7.5, 6, 1.5, -13, 9, 6.5, 4, -6.5, 5, 0, -1, -2, -8, 5, 0, -1, -2, -8},
                   kRounding));
}

TEST(RefGolden, LayerAndRmsNorm) {
  RefCase c;
  const Value x = c.given({DType::kF64, {2, 5}}, {1, -2, 0.5, 3, 4, 0.25, 0.25, -1, 2, 8});
  const Value gamma = c.list(DType::kF64, {1, 0.5, -2, 1.5, 3});
  const Value beta = c.list(DType::kF64, {0, 1, -1, 0.25, 2});
  const auto results = c.run_all({layer_norm(x, gamma, beta, 1e-3), rms_norm(x, gamma, 1e-3)});
  EXPECT_TRUE(same_numbers(results[0],
                           {-0.1436574692472838,
                            0.20988391913993942,
                            -0.23382683068115329,
                            1.471088488601912,
                            5.878751669676662,
                            -0.5162303122804294,
                            0.7418848438597854,
                            0.8146277643796911,
                            0.29693002838912996,
                            7.725463463473853},
                           kRounding));
  EXPECT_TRUE(same_numbers(results[1],
                           {0.4065242184362177,
                            -0.4065242184362177,
                            -0.4065242184362177,
                            1.82935898296298,
                            4.878290621234613,
                            0.06723443077912514,
                            0.03361721538956257,
                            0.5378754462330011,
                            0.8068131693495016,
                            6.454505354796013},
                           kRounding));
}

TEST(RefGolden, BatchNorm) {
  RefCase c;
  const Value x = c.given({DType::kF64, {4, 2}}, {1, -2, 0.5, 3, 4, 0.25, 0.25, -1});
  const auto result =
      batch_norm(x, c.list(DType::kF64, {1.5, -2}), c.list(DType::kF64, {0.5, 0.25}), 1e-3);
  const auto results = c.run_all({result.y, result.mean, result.variance});
  EXPECT_TRUE(same_numbers(results[0],
                           {0.06373132727647035,
                            2.4509098975086676,
                            -0.4348614415504207,
                            -2.88462924796689,
                            3.055287940237817,
                            0.04991728204466661,
                            -0.6841578259638663,
                            1.383802068413556},
                           kRounding));
  EXPECT_TRUE(same_numbers(results[1], {1.4375, 0.0625}));
  EXPECT_TRUE(same_numbers(results[2], {2.26171875, 3.51171875}, kRounding));
}

Numbers golden_entropy(double smoothing) {
  RefCase c;
  const Value logits = c.given({DType::kF64, {4, 5}}, {0.5, -1, 2, 0, 1, 3,  3,   -2, 0.25, 1,
                                                       0,   0,  0, 0, 0, 10, -10, 5,  1,    -4});
  const Value targets = c.list(DType::kI32, {2, 4, -7, 1});
  return c.run(cross_entropy(logits, targets, {.ignore_index = -7, .label_smoothing = smoothing}));
}

TEST(RefGolden, CrossEntropy) {
  EXPECT_TRUE(same_numbers(golden_entropy(0.0),
                           {0.5744379396277961, 2.791181415592025, 0, 20.006838752725947},
                           kRounding));
  EXPECT_TRUE(same_numbers(golden_entropy(0.1),
                           {0.7244379396277961, 2.7861814155920253, 0, 18.96683875272595},
                           kRounding));
}

TEST(RefGolden, Activations) {
  RefCase c;
  const Value x = c.list(DType::kF64, {-20, -6, -1.5, -0.25, 0, 0.25, 1.5, 6, 20});
  const auto results = c.run_all({gelu(x), gelu(x, GeluForm::kTanh), silu(x), sigmoid(x)});
  EXPECT_TRUE(same_numbers(results[0],
                           {0,
                            -5.919525869479969e-09,
                            -0.10021080190328704,
                            -0.10032341857926907,
                            0,
                            0.14967658142073093,
                            1.399789198096713,
                            5.999999994080474,
                            20},
                           kRounding));
  EXPECT_TRUE(same_numbers(results[1],
                           {0,
                            -8.43964897967453e-11,
                            -0.10042842301976707,
                            -0.100324649298315,
                            0,
                            0.149675350701685,
                            1.3995715769802328,
                            5.9999999999156035,
                            20},
                           kRounding));
  EXPECT_TRUE(same_numbers(results[2],
                           {-4.122307236380407e-08,
                            -0.014835738939808647,
                            -0.2736382857095345,
                            -0.10945587477855048,
                            0,
                            0.14054412522144952,
                            1.2263617142904655,
                            5.985164261060192,
                            19.999999958776925},
                           kRounding));
  EXPECT_TRUE(same_numbers(results[3],
                           {2.0611536181902037e-09,
                            0.0024726231566347743,
                            0.18242552380635635,
                            0.43782349911420193,
                            0.5,
                            0.5621765008857981,
                            0.8175744761936437,
                            0.9975273768433653,
                            0.9999999979388463},
                           kRounding));
}

// Two heads, three queries, four keys: `is_causal` counts both from the start.
TEST(RefGolden, AttentionCausalAndMasked) {
  RefCase c;
  const Value q = pattern(c, {1, 2, 3, 2}, 5, 7, 3, 0.5);
  const Value k = pattern(c, {1, 2, 4, 2}, 3, 8, 4, 0.5);
  const Value v = pattern(c, {1, 2, 4, 3}, 7, 10, 5);
  const Value mask = c.given({DType::kBool, {1, 1, 3, 4}}, {1, 0, 1, 1, 0, 1, 1, 0, 0, 0, 0, 1});
  const auto results = c.run_all(
      {attention(q, k, v, {.causal = true}), attention(q, k, v, {.scale = 0.5, .mask = mask})});
  EXPECT_TRUE(same_numbers(results[0],
                           {-5,
                            2,
                            -1,
                            -4.330238450673343,
                            2.669761549326657,
                            -0.33023845067334306,
                            -3.543056856109001,
                            3.4569431438909994,
                            0.45694314389099944,
                            -1,
                            -4,
                            3,
                            -0.10704180146517044,
                            -3.1070418014651704,
                            3.8929581985348296,
                            0.3349325101671631,
                            -2.665067489832837,
                            -2.2721265623727884},
                           kRounding));
  EXPECT_TRUE(same_numbers(results[1],
                           {-3.511962067419559,
                            0.2230795745820744,
                            0.4880379325804412,
                            -3.817574476193643,
                            3.182425523806356,
                            0.1824255238063563,
                            -2,
                            -5,
                            2,
                            -0.08575344049484629,
                            -3.0857534404948463,
                            0.5666561172533734,
                            0.37754066879814546,
                            -2.622459331201855,
                            0.6021339808166914,
                            2,
                            -1,
                            -4},
                           kRounding));
}

}  // namespace
}  // namespace ridge::test
