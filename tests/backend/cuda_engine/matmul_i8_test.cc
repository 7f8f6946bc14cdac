// Products of bytes on a simulated GPU with the stand-in for cuBLASLt: printed loops around its
// products, weights that are packed once, picks that a plan names, and convolutions as such
// products, all with the bits of the CPU.
#include "ridge/graph/ops/matmul_i8.h"

#include "ridge/compile/pipeline.h"
#include "ridge/graph/ops/conv_i8.h"
#include "ridge/graph/ops/shape.h"
#include "tests/backend/cuda_engine/simulated_gpu.h"
#include "tests/backend/cuda_kernels/byte_product_forms.h"
#include "tests/support/own_program.h"
#include "tests/support/scale.h"

namespace ridge::test {
namespace {

class CudaMatMulI8 : public SimulatedGpu {
 protected:
  CudaMatMulI8() { fake_blas().reset(RIDGE_FAKE_CUDA); }
  void TearDown() override {
    expect_clean(fake_blas());
    expect_clean();
  }
};

int64_t count_products(const Graph& graph) {
  return std::ranges::count_if(graph.nodes(),
                               [](const auto& node) { return node->template is<MatMulI8>(); });
}

TEST_F(CudaMatMulI8, PrintedLoopsAroundTheProductAreRight) {
  const auto gpu = make_backend_with_blas();
  // A copy of bytes, a shift, a transposition, padding of each side, a single row, and batches.
  const ByteProductForm forms[] = {
      {.m = 5, .n = 8, .k = 12, .a = DType::kI8, .to = DType::kF32, .bias = DType::kF32},
      {.m = 7, .n = 9, .k = 70, .b = DType::kU8, .to = DType::kI8, .has_columns = true},
      {.m = 6,
       .n = 12,
       .k = 30,
       .leading = {2},
       .shares_b = false,
       .transpose_a = true,
       .transpose_b = true,
       .to = DType::kU8,
       .has_rows = true,
       .bias = DType::kI32,
       .scales_columns = true,
       .limits = {3, 250}},
      {.m = 1, .n = 4, .k = 300, .transpose_b = true},
  };
  for (const ByteProductForm& form : forms) {
    CaseBuilder built = byte_product_case(form);
    const Node& node = *built.graph().outputs()[0].value.node;
    EXPECT_EQ(names_of(*gpu, node), Names{"cublaslt_i8_1_tile1"});
    EXPECT_FALSE(gpu->candidates(node).at(0).other_bits);
    expect_near_reference(*gpu, built, node);
  }
}

// Entry "use": x by weights w of the state, to u8, as a matrix product or a convolution.
ProgramGraphs graphs_of(bool convolves) {
  ProgramGraphs graphs;
  graphs.state = {{"w", {DType::kI8, convolves ? Shape{3, 3, 2, 10} : Shape{18, 10}}}};
  Graph& use = graphs.entries.emplace_back("use");
  const auto one = [&](DType dtype, double value) { return constant(use, {dtype, {}}, value); };
  const Value x = input(use, "x", {DType::kU8, convolves ? Shape{1, 4, 5, 2} : Shape{6, 18}});
  const Value w = input(use, "w", graphs.state[0].type), zero = one(DType::kU8, 131);
  const ScaledTo to{
      .dtype = DType::kU8, .scale = one(DType::kF32, 0.0021), .zero = one(DType::kU8, 113)};
  use.add_output("y",
                 convolves ? conv2d_i8(x, w, zero, {}, {}, 1, to) : matmul_i8(x, w, zero, {}, to));
  return graphs;
}

// Results of two runs, before and after the weights changed.
NamedTensors run_twice(Backend& backend, bool convolves, const ProgramOptions& options = {}) {
  OwnProgram program(graphs_of(convolves), backend, options);
  const auto tensor = [&](std::string_view name, int64_t seed, int64_t least) {
    Tensor made(program.entries()[0].find_input(name)->outputs[0]);
    for (int64_t i = 0; i < made.elements(); ++i)
      made.set(i, static_cast<double>((i * 37 + seed) % 256 + least));
    return made;
  };
  NamedTensors results;
  for (const int run : {1, 2}) {
    const Tensor w = tensor("w", run * 11, -128), x = tensor("x", 5, 0);
    program.state().write("w", w);
    program.write(program.input(0, "x"), x.data());
    program.run(0);
    Tensor y(program.plan().entries[0].outputs[0].type);
    program.read(program.output(0, "y"), y.data());
    program.synchronize();
    results.emplace(fmt::format("y{}", run), std::move(y));
  }
  return results;
}

TEST_F(CudaMatMulI8, WeightsArePackedOnceAndAgainWhenTheyChange) {
  const auto gpu = make_backend_with_blas();
  for (const bool convolves : {false, true}) {
    const NamedTensors wanted = run_twice(*make_backend("cpu"), convolves);
    for (const bool packs : {true, false}) {
      SCOPED_TRACE(fmt::format("{} {}", convolves, packs));
      ProgramOptions options;
      options.plan.packs = packs;
      EXPECT_EQ(bit_difference(run_twice(*gpu, convolves, options), wanted), "");
      const OwnProgram program(graphs_of(convolves), *gpu, options);
      const auto& steps = program.plan().entries[0].steps;
      EXPECT_EQ(std::ranges::count_if(steps, [](const PlanStep& step) { return step.is_packed; }),
                packs ? 1 : 0);
    }
  }
}

TEST_F(CudaMatMulI8, APlanNamesTheAlgorithm) {
  fake_blas().set_algorithms({{.id = 21, .tile = 18}, {.id = 21, .tile = 20, .stages = 7}});
  const auto gpu = make_backend_with_blas();
  ProgramOptions options;
  options.plan.choose = [](const Node& node, const std::vector<Choice>& choices) {
    for (size_t i = 0; i < choices.size(); ++i)
      if (node.is<MatMulI8>() && choices[i].name == "cublaslt_i8_21_tile20_stages7") return i;
    return size_t{0};
  };
  const OwnProgram program(graphs_of(false), *gpu, options);
  Names picks;
  for (const PlanStep& step : program.plan().entries[0].steps)
    if (step.op == "matmul_i8") picks.push_back(step.choice_name);
  EXPECT_EQ(picks, Names{"cublaslt_i8_21_tile20_stages7"});
  EXPECT_EQ(bit_difference(run_twice(*gpu, false, options), run_twice(*make_backend("cpu"), false)),
            "");
}

// x (2, 6, 5, C) by 3 x 3 windows around each pixel, or by single ones of every second.
void build_convolution(CaseBuilder& b, int64_t window, int64_t groups) {
  constexpr int64_t kChannels = 4, kResults = 8;
  WindowFields fields;
  if (window == 1) fields.stride = {2, 1};
  if (window == 3) fields.padding = {1, 1, 1, 1};
  const Value x = bytes_of(b, DType::kU8, {2, 6, 5, kChannels});
  const Value w = bytes_of(b, DType::kI8, {window, window, kChannels / groups, kResults});
  b.finish({conv2d_i8(x,
                      w,
                      bytes_of(b, DType::kU8, {}),
                      bytes_of(b, DType::kI8, {kResults}),
                      fields,
                      groups,
                      {.dtype = DType::kI8,
                       .scale = b.input(DType::kF32, {kResults}, 1e-4, 1e-3),
                       .zero = bytes_of(b, DType::kI8, {}),
                       .bias = b.indices(DType::kI32, {kResults}, -60'000, 60'000)})});
}

TEST_F(CudaMatMulI8, ConvolutionsAreProductsOfBytes) {
  const auto ref = make_backend("ref");
  const auto with_blas = make_backend_with_blas(), without = make_backend_cuda();
  struct Case {
    int64_t window, groups;
    bool has_library;
    int64_t products;
  };
  // Without a library, and of groups, products are in f64.
  for (const Case& each :
       {Case{1, 1, true, 1}, Case{3, 1, true, 1}, Case{3, 2, true, 0}, Case{3, 1, false, 0}}) {
    SCOPED_TRACE(fmt::format("{} {} {}", each.window, each.groups, each.has_library));
    CaseBuilder b(DType::kU8, 5);
    build_convolution(b, each.window, each.groups);
    Backend& gpu = each.has_library ? *with_blas : *without;
    Graph graph = b.graph().clone();
    run_pipeline(graph, gpu, {.verify_each = true});
    EXPECT_EQ(count_products(graph), each.products);
    EXPECT_EQ(
        bit_difference(evaluate(graph, gpu, b.tensors()), evaluate(b.graph(), *ref, b.tensors())),
        "");
  }
}

}  // namespace
}  // namespace ridge::test
