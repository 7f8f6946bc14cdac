// Epilogues of cuBLASLt: which loops behind a product they are, and what comes of them, by a
// stand-in that has them from their published definitions.
#include <functional>
#include <map>

#include "ridge/backend/cuda/blas/epilogue.h"
#include "ridge/graph/autodiff.h"
#include "ridge/graph/ops/activation.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/fused_matmul.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "tests/backend/cuda/blas_test.h"
#include "tests/support/errors.h"
#include "tests/support/has.h"
#include "tests/support/scale.h"

namespace ridge::cuda {
namespace {

using test::has;
using test::Random;

// Builds a body from the product in f32 and the other operands as they are.
using Values = std::vector<Value>;
using Write = std::function<Values(Value product, const Values& others)>;

struct Layer {
  DType dtype = DType::kBF16;
  int64_t m = 5, n = 8, k = 7;
  MatMul product = {};
  std::vector<TensorType> others = {};
  Write write = nullptr;
  uint64_t seed = 1;
  LoopDomain domain = {};
  Shape leading = {};  // leading axes of the product
};

CaseBuilder build(const Layer& layer) {
  CaseBuilder b(layer.dtype, layer.seed);
  const auto shape = [&](bool transposed, int64_t rows, int64_t columns) {
    Shape made = layer.leading;
    made.insert(made.end(), {transposed ? columns : rows, transposed ? rows : columns});
    return made;
  };
  const Value left = b.input(shape(layer.product.transpose_a, layer.m, layer.k)),
              right = b.input(shape(layer.product.transpose_b, layer.k, layer.n));
  Values others, read;
  Graph body("fused"), alone("alone");
  const TensorType made =
      layer.product.infer(std::vector<TensorType>{left.type(), right.type()})[0];
  Values inputs{input(alone, "0", made)};
  const Value x = cast(input(body, "0", made), DType::kF32);
  for (const TensorType& type : layer.others) {
    others.push_back(b.input(type.dtype, type.shape, -2, 2));
    const std::string name = fmt::format("{}", inputs.size());
    inputs.push_back(input(alone, name, type));
    read.push_back(input(body, name, type));
  }
  for (const Value& result : layer.write(x, read))
    body.add_output(fmt::format("{}", body.outputs().size()), result);
  const auto& loop = fused(alone, body, inputs, Site{"loop"}, layer.domain).op_as<Fused>();
  Node& node = fused_matmul(b.graph(), layer.product, loop, left, right, others, Site{"layer"});
  Values results;
  for (size_t i = 0; i < node.outputs.size(); ++i) results.push_back({&node, static_cast<int>(i)});
  b.finish(results);
  return b;
}

std::optional<BlasEpilogue> found_for(const Layer& layer) {
  const CaseBuilder b = build(layer);
  return blas_epilogue(*const_cast<CaseBuilder&>(b).graph().outputs()[0].value.node);
}

Value with_row(Value x, Value row) { return x + broadcast(row, x.shape()); }

// ---- the layers that there are ----

struct Form {
  const char* name;
  int number;  // number of the library's epilogue
  bool has_bias = false, has_gelu = false, has_aux = false, is_slope = false, aux_is_first = false;
};
constexpr Form kBias{"bias", 4, true}, kGelu{"gelu", 32, false, true},
    kGeluAux{"gelu_aux", 160, false, true, true}, kGeluBias{"gelu_bias", 36, true, true},
    kGeluAuxBias{"gelu_aux_bias", 164, true, true, true},
    kAuxFirst{"gelu_aux_bias", 164, true, true, true, false, true},
    kSlope{"dgelu", 192, false, false, false, true};
constexpr Form kForms[] = {kBias, kGelu, kGeluAux, kGeluBias, kGeluAuxBias, kAuxFirst, kSlope};

// A layer in the form that passes write: over another shape of the same elements in between.
Layer layer_of(Form form, int64_t n = 8, DType dtype = DType::kBF16, int64_t m = 5, int64_t k = 7) {
  Layer layer{.dtype = dtype, .m = m, .n = n, .k = k};
  if (form.has_bias) layer.others.push_back({DType::kF32, {n}});
  if (form.is_slope) layer.others.push_back({dtype, {m, n}});
  layer.write = [=](Value product, const Values& others) {
    const Shape flat{m, n}, shape{1, m, n};
    const Value y = reshape(product, shape);
    if (form.is_slope) {
      const Value x = reshape(cast(others[0], DType::kF32), shape);
      const Value outputs[] = {gelu(x, GeluForm::kTanh)}, seeds[] = {y}, wrt[] = {x};
      const Value slope = vector_jacobian_product(outputs, seeds, wrt)[0];
      return Values{cast(reshape(slope, flat), dtype)};
    }
    const Value sum = form.has_bias ? with_row(y, others[0]) : y;
    const Value made = form.has_gelu ? gelu(sum, GeluForm::kTanh) : sum;
    Values results{cast(reshape(made, flat), dtype)};
    if (form.has_aux) results.push_back(reshape(cast(sum, dtype), flat));
    if (form.aux_is_first) std::swap(results[0], results[1]);
    return results;
  };
  return layer;
}

double gelu_of(double x) {
  const double root = std::sqrt(2 / M_PI);
  return x / 2 * (1 + std::tanh(root * (x + 0.044715 * x * x * x)));
}

// By a difference of fourth order: from no formula of a derivative.
double slope_of(double x) {
  constexpr double kStep = 1e-3;
  return (8 * (gelu_of(x + kStep) - gelu_of(x - kStep)) -
          (gelu_of(x + 2 * kStep) - gelu_of(x - 2 * kStep))) /
         (12 * kStep);
}

// Half of the last place of a 16-bit number as large as `x`.
double half_place(DType dtype, double x) {
  const int digits = dtype == DType::kBF16 ? 8 : 11, least = dtype == DType::kBF16 ? -126 : -14;
  const int exponent = x == 0 ? least : std::max(least, std::ilogb(x));
  return std::ldexp(1, exponent - digits);
}

void expect_rounded_once(const Tensor& got, int64_t i, double want, const char* what) {
  EXPECT_LE(std::fabs(got.at(i) - want), half_place(got.type().dtype, want) * (1 + 1e-6) + 1e-9)
      << what << " " << i << ": " << got.at(i) << " instead of " << want;
}

double product_at(const Layer& layer, const NamedTensors& tensors, int64_t i, int64_t j) {
  const Tensor &a = tensors.at("x0"), &b = tensors.at("x1");
  double sum = 0;
  for (int64_t s = 0; s < layer.k; ++s)
    sum += a.at(layer.product.transpose_a ? s * layer.m + i : i * layer.k + s) *
           b.at(layer.product.transpose_b ? j * layer.k + s : s * layer.n + j);
  return sum;
}

void expect_form(const Layer& layer, Form form, CaseBuilder& built, const NamedTensors& got) {
  for (int64_t at = 0; at < layer.m * layer.n; ++at) {
    double y = product_at(layer, built.tensors(), at / layer.n, at % layer.n);
    if (form.is_slope) {
      y *= slope_of(built.tensors().at("x2").at(at));
    } else if (form.has_bias) {
      // The library takes the bias in 16 bits.
      Tensor bias({layer.dtype, {1}});
      bias.set(0, built.tensors().at("x2").at(at % layer.n));
      y += bias.at(0);
    }
    const bool is_first = form.aux_is_first;
    if (form.has_aux) expect_rounded_once(got.at(is_first ? "y0" : "y1"), at, y, "aux");
    const double made = form.has_gelu ? gelu_of(y) : y;
    expect_rounded_once(got.at(is_first ? "y1" : "y0"), at, made, "result");
  }
}

class CudaBlasEpilogue : public CudaBlas {};

TEST_F(CudaBlasEpilogue, RandomLayersAreRoundedOnce) {
  const auto count = static_cast<uint64_t>(test::cases(140));
  for (uint64_t seed = 0; seed < count; ++seed) {
    Random random(seed);
    const Form form = kForms[seed % std::size(kForms)];
    // A matrix beside the product has to have columns of whole 16 bytes.
    int64_t n = random.integer(1, 40);
    if (form.has_aux || form.is_slope) n = 8 * random.integer(1, 5);
    const DType dtype = random.chance(0.5) ? DType::kBF16 : DType::kF16;
    Layer layer = layer_of(form, n, dtype, random.integer(2, 30), random.integer(1, 40));
    layer.product.transpose_a = random.chance(0.5);
    layer.product.transpose_b = random.chance(0.5);
    layer.seed = seed;
    SCOPED_TRACE(fmt::format("seed {}", seed));
    start_in_turn(seed);
    // The algorithm spoils its workspace: the bias must lie elsewhere.
    blas_.set_algorithms({{.id = 7, .workspace_bytes = seed % 2 == 0 ? size_t{0} : size_t{1000}}});
    CaseBuilder built = build(layer);
    const NamedTensors got = run_node(device(), built);
    expect_form(layer, form, built, got);
    ASSERT_EQ(library_lines("cublasLtMatmul").size(), 1u);
    EXPECT_THAT(library_lines("cublasLtMatmul")[0],
                testing::EndsWith(fmt::format(", epilogue {}", form.number)));
    expect_all_clean();
    if (HasFailure()) return;
  }
}

TEST_F(CudaBlasEpilogue, ChoicesSayWhatTheyDo) {
  const auto blas = make_blas(device());
  for (const Form& form : kForms) {
    CaseBuilder built = build(layer_of(form));
    const std::vector<BlasChoice> choices = blas_choices(*blas, node_of(built));
    ASSERT_EQ(choices.size(), 1u);
    EXPECT_EQ(choices[0].choice.name, fmt::format("cublaslt_{}_1_tile1", form.name));
  }
}

// Addresses are attributes of a descriptor: those of this launch are meant, not of the one before.
TEST_F(CudaBlasEpilogue, EachLaunchHasItsAddresses) {
  const DeviceRef gpu = device();
  const auto blas = make_blas(gpu);
  const PlainKernels plain(gpu);
  const Layer layer = layer_of(kGeluAuxBias);
  CaseBuilder built = build(layer);
  const Node& node = node_of(built);
  const auto kernel = make_blas_kernel(blas, node, blas_choices(*blas, node).at(0), plain);
  constexpr size_t kPlaces = 6, kPlace = 1024;
  const Arena arena(gpu, 2 * kPlaces * kPlace);
  TestStream stream(gpu);
  std::vector<const void*> inputs[2];
  std::vector<void*> outputs[2];
  blas_.clear_log();
  fake_.clear_log();
  for (size_t run = 0; run < 2; ++run) {
    const auto at = [&](size_t i) {
      return reinterpret_cast<void*>(arena.at((run * kPlaces + i) * kPlace, kPlace));
    };
    for (size_t i = 0; i < 3; ++i) {
      const Tensor& tensor = built.tensors().at(fmt::format("x{}", i));
      std::memcpy(at(i), tensor.data(), tensor.bytes());
      inputs[run].push_back(at(i));
    }
    outputs[run] = {at(3), at(4)};
    kernel->launch(stream, {inputs[run], outputs[run], at(5)});
  }
  EXPECT_EQ(lines({"cuMemAlloc_v2", "cuStreamSynchronize", "cuCtxSynchronize"}).size(), 0u);
  EXPECT_EQ(library_lines("cublasLtMatmulDescSetAttribute").size(), 4u);
  EXPECT_EQ(blas_.log().size(), 6u);
  stream.synchronize();
  NamedTensors got;
  for (size_t i = 0; i < 2; ++i) {
    Tensor& y = got.emplace(fmt::format("y{}", i), Tensor(node.outputs[i])).first->second;
    EXPECT_EQ(std::memcmp(outputs[0][i], outputs[1][i], y.bytes()), 0) << i;
    std::memcpy(y.data(), outputs[1][i], y.bytes());
  }
  expect_form(layer, kGeluAuxBias, built, got);
}

TEST_F(CudaBlasEpilogue, EachCallMayFail) {
  CaseBuilder built = build(layer_of(kGeluAuxBias));
  expect_each_may_fail(built);
}

TEST_F(CudaBlasEpilogue, AnErrorSaysWithWhat) {
  CaseBuilder built = build(layer_of(kBias));
  blas_.fail("cublasLtMatmul", 1, 13);
  EXPECT_THAT(test::user_error([&] { run_node(device(), built); }),
              has("cublasLtMatmul(5 x 7 x 8, bf16 to bf16 with bias, 1 at a time, by "
                  "cublaslt_bias_1_tile1) failed"));
}

// ---- loops that are none of them ----

// A layer with a bias and another body, whose result is rounded.
Layer with_body(std::function<Value(Value, const Values&)> body) {
  Layer layer = layer_of(kBias);
  layer.write = [body](Value x, const Values& others) {
    return Values{cast(body(x, others), DType::kBF16)};
  };
  return layer;
}
Value with_bias(Value x, const Values& others) { return with_row(x, others[0]); }

TEST(BlasEpilogues, OnlyWhatTheLibraryComputes) {
  EXPECT_TRUE(found_for(with_body(with_bias)).has_value());
  std::map<std::string, Layer> none = {
      {"GELU by erf", with_body([](Value x, const Values& others) {
         return gelu(with_bias(x, others), GeluForm::kErf);
       })},
      {"behind GELU", with_body([](Value x, const Values& others) {
         const Value y = gelu(with_bias(x, others), GeluForm::kTanh);
         return y + y;
       })},
      {"a matrix",
       with_body([](Value x, const Values& others) { return x + others[0] * others[0]; })},
      {"a column", layer_of(kBias, 5)},
      {"a bias of 16 bits", with_body([](Value x, const Values& others) {
         return x + cast(broadcast(others[0], x.shape()), DType::kF32);
       })},
      {"a difference", with_body([](Value x, const Values& others) {
         return x - broadcast(others[0], x.shape());
       })},
      {"a result of f32", with_body(with_bias)},
      {"a product of f32", with_body(with_bias)},
      {"several at a time", with_body(with_bias)},
      {"a sum of rows", with_body(with_bias)}};
  none.at("a matrix").others = {{DType::kF32, {5, 8}}};
  none.at("a column").others = {{DType::kF32, {5, 1}}};
  none.at("a bias of 16 bits").others[0].dtype = DType::kBF16;
  none.at("a result of f32").write = [](Value x, const Values& others) {
    return Values{with_bias(x, others)};
  };
  none.at("a product of f32").product.f32_result = true;
  none.at("several at a time").leading = {3};
  none.at("a sum of rows").domain = {40, 8};
  none.at("a sum of rows").write = [](Value x, const Values& others) {
    const Value y = with_bias(x, others);
    return Values{cast(y, DType::kBF16), reduce_sum(y, {0})};
  };
  for (const auto& [what, layer] : none) EXPECT_FALSE(found_for(layer).has_value()) << what;
}

// The second result may be GELU's input alone, in columns of whole 16 bytes.
TEST(BlasEpilogues, TheSecondResultIsWhatGeluReads) {
  for (const Form& form : {kGeluAuxBias, kSlope})
    for (const int64_t n : {8, 12})
      EXPECT_EQ(found_for(layer_of(form, n)).has_value(), n == 8) << form.name;
  Layer other = layer_of(kGeluAuxBias);
  other.write = [](Value x, const Values& others) {
    return Values{cast(gelu(with_row(x, others[0]), GeluForm::kTanh), DType::kBF16),
                  cast(x + x, DType::kBF16)};
  };
  EXPECT_FALSE(found_for(other).has_value());
}

// A slope that is off in one number, or of another operand in one place, is no derivative of GELU.
TEST(BlasEpilogues, ASlopeIsMatchedToTheLastNode) {
  const auto with = [](double cubic, bool mixes) {
    Layer layer = layer_of(kSlope);
    layer.others.push_back(layer.others[0]);
    layer.write = [=](Value dy, const Values& others) {
      const Value x = cast(others[0], DType::kF32);
      const Value other = mixes ? cast(others[1], DType::kF32) : x;
      const Value inner =
          (x + x * x * other * cubic) * (std::numbers::sqrt2 * std::numbers::inv_sqrtpi);
      const Value outputs[] = {x * 0.5 * (tanh(inner) + 1.0)}, seeds[] = {dy}, wrt[] = {x};
      return Values{cast(vector_jacobian_product(outputs, seeds, wrt)[0], DType::kBF16)};
    };
    return found_for(layer).has_value();
  };
  EXPECT_TRUE(with(0.044715, false));
  EXPECT_FALSE(with(0.0447, false));
  EXPECT_FALSE(with(0.044715, true));
}

}  // namespace
}  // namespace ridge::cuda
