// Parameters that are packed for the kernels that read them: the bits of those that are not, and
// never those of yesterday.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "ridge/backend/cpu/cpu_backend.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/base/cpu/scale_rows.h"
#include "ridge/base/cpu/transposed_copy.h"
#include "ridge/graph/ops/conv.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/gather.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "ridge/run/compare.h"
#include "ridge/run/evaluate.h"
#include "ridge/run/program.h"
#include "tests/support/lazy_backend.h"
#include "tests/support/scale.h"

namespace ridge::test {
namespace {

struct Product {
  int64_t m, k, n;
  bool transposed = false;
  DType dtype = DType::kF32;
  DType precision = DType::kF32;

  TensorType x() const { return {dtype, {m, k}}; }
  TensorType w() const { return {dtype, transposed ? Shape{n, k} : Shape{k, n}}; }
};

// Entry "use": x w + 1. With `trains` another one that updates w.
ProgramGraphs graphs_of(const Product& product, bool trains = false) {
  ProgramGraphs graphs;
  graphs.state = {{"w", product.w()}};
  Graph& use = graphs.entries.emplace_back("use");
  const Value w = input(use, "w", product.w());
  use.add_output("y", matmul(input(use, "x", product.x()), w, false, product.transposed) + 1.0);
  if (!trains) return graphs;
  Graph& train = graphs.entries.emplace_back("train");
  train.add_output("new", input(train, "w", product.w()) * 0.5 + 0.125, "w");
  return graphs;
}

ProgramOptions options_of(const Product& product, bool packs) {
  ProgramOptions options;
  options.passes.precision = product.precision;
  options.plan.packs = packs;
  return options;
}

Tensor random_tensor(const TensorType& type, uint64_t seed) {
  std::mt19937_64 random(seed);
  Tensor tensor(type);
  for (int64_t i = 0; i < tensor.elements(); ++i)
    tensor.set(i, static_cast<double>(random() >> 11) * 0x1p-52 - 1);
  return tensor;
}

NamedTensors run(Program& program, const Tensor& x) {
  program.write(program.input(0, "x"), x.data());
  program.run(0);
  NamedTensors results;
  Tensor y(program.plan().entries[0].outputs[0].type);
  program.read(program.output(0, "y"), y.data());
  program.synchronize();
  results.emplace("y", std::move(y));
  return results;
}

bool is_packed(const Program& program) {
  for (const PlanStep& step : program.plan().entries[0].steps)
    if (step.is_packed) return true;
  return false;
}

Product random_product(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto size = [&](uint64_t most) { return static_cast<int64_t>(random() % most) + 1; };
  Product product{.m = size(random() % 8 == 0 ? 700 : 128),
                  .k = size(random() % 2 == 0 ? 60 : 900),
                  .n = size(random() % 8 == 0 ? 1300 : 150)};
  product.transposed = random() % 2 == 0;
  constexpr DType kDTypes[] = {DType::kF32, DType::kF32, DType::kF64};
  product.dtype = kDTypes[random() % 3];
  constexpr DType kPrecisions[] = {DType::kF32, DType::kBF16, DType::kF16};
  if (product.dtype == DType::kF32) product.precision = kPrecisions[random() % 3];
  return product;
}

TEST(Packed, ProductsHaveTheBitsOfTheUnpacked) {
  const int threads = num_threads();
  int packed = 0, rounded = 0, in_f64 = 0;
  const int all = cases(300);
  for (int i = 0; i < all; ++i) {
    const auto seed = static_cast<uint64_t>(i);
    const Product product = random_product(seed);
    const auto cpu = make_cpu_backend();
    State state(*cpu);
    state.declare(graphs_of(product).state);
    state.write("w", random_tensor(product.w(), seed));
    Program plain(graphs_of(product), state, options_of(product, false));
    Program packs(graphs_of(product), state, options_of(product, true));
    EXPECT_FALSE(is_packed(plain));
    packed += is_packed(packs);
    rounded += is_packed(packs) && product.precision != DType::kF32;
    in_f64 += is_packed(packs) && product.dtype == DType::kF64;
    const Tensor x = random_tensor(product.x(), seed + 1000);
    set_num_threads(1);
    const NamedTensors wanted = run(plain, x);
    for (const int count : {1, 2, 7}) {
      set_num_threads(count);
      EXPECT_EQ(bit_difference(run(packs, x), wanted), "")
          << "seed " << seed << ": " << product.m << " x " << product.k << " x " << product.n
          << " by " << count << " threads";
    }
    set_num_threads(threads);
    if (HasFailure()) return;
  }
  EXPECT_GT(packed, all / 4);
  EXPECT_GT(rounded, 0);
  EXPECT_GT(in_f64, 0);
}

struct Convolution {
  TensorType x, w;
  WindowFields window;
};

// Few tiles for Winograd's, whose weights are transformed beforehand.
Convolution winograd_convolution(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto size = [&](uint64_t most) { return static_cast<int64_t>(random() % most) + 1; };
  const int64_t in = 16 * size(5), out = 16 * size(5);
  return {{DType::kF32, {size(2), 2 + size(20), 2 + size(20), in}},
          {DType::kF32, {3, 3, in, out}},
          {.padding = {1, 1, 1, 1}}};
}

// Products of the pixels themselves, and of patches in one chain of depth or in several.
Convolution random_convolution(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto size = [&](uint64_t most) { return static_cast<int64_t>(random() % most) + 1; };
  const DType dtype = random() % 4 == 0 ? DType::kF64 : DType::kF32;
  WindowFields window;
  int64_t kernel[] = {1, 1}, spans[] = {1, 1};
  for (size_t d = 0; d < 2 && random() % 3 != 0; ++d) {
    kernel[d] = size(4);
    window.stride[d] = size(3);
    window.dilation[d] = size(2);
    spans[d] = (kernel[d] - 1) * window.dilation[d] + 1;
  }
  for (size_t i = 0; i < 4; ++i)
    window.padding[i] = static_cast<int64_t>(random() % static_cast<uint64_t>(spans[i % 2]));
  const int64_t in = size(random() % 4 == 0 ? 500 : 40), out = size(100);
  return {{dtype, {size(3), spans[0] + size(16) - 1, spans[1] + size(16) - 1, in}},
          {dtype, {kernel[0], kernel[1], in, out}},
          window};
}

TEST(Packed, ConvolutionsHaveTheBitsOfTheUnpacked) {
  const int threads = num_threads();
  int by_patches = 0, in_f64 = 0;
  const int all = cases(200);
  for (int i = 0; i < all; ++i) {
    const auto seed = static_cast<uint64_t>(i);
    const auto [x, w, window] = i % 10 == 0 ? winograd_convolution(seed) : random_convolution(seed);
    const auto graphs = [&x = x, &w = w, &window = window] {
      ProgramGraphs made;
      made.state = {{"w", w}};
      Graph& use = made.entries.emplace_back("use");
      const Value y = conv2d(input(use, "x", x), input(use, "w", w), window, 1);
      // A loop behind it, whose smaller operand has a row of channels.
      const Value bias = input(use, "b", {x.dtype, {w.shape[3]}});
      use.add_output("y", maximum(y + broadcast(bias, y.shape()), constant_like(y, 0.0)));
      made.state.push_back({"b", bias.type()});
      return made;
    };
    const auto cpu = make_cpu_backend();
    State state(*cpu);
    state.declare(graphs().state);
    state.write("w", random_tensor(w, seed));
    state.write("b", random_tensor({x.dtype, {w.shape[3]}}, seed + 500));
    Program plain(graphs(), state, options_of({}, false));
    Program packs(graphs(), state, options_of({}, true));
    const std::string& choice = packs.plan().entries[0].steps[0].choice_name;
    if (choice != "depthwise" && w.shape[3] >= 16 && x.shape[0] * x.shape[1] > 64) {
      EXPECT_TRUE(is_packed(packs)) << seed << '\n' << print(packs.plan());
    }
    by_patches += is_packed(packs) && choice == "im2col_gemm";
    in_f64 += is_packed(packs) && x.dtype == DType::kF64;
    const Tensor data = random_tensor(x, seed + 1000);
    set_num_threads(1);
    const NamedTensors wanted = run(plain, data);
    for (const int count : {1, 2, 7}) {
      set_num_threads(count);
      for (Program* program : {&plain, &packs})
        EXPECT_EQ(bit_difference(run(*program, data), wanted), "")
            << "seed " << seed << " by " << count << " threads";
    }
    set_num_threads(threads);
    if (HasFailure()) return;
  }
  EXPECT_GT(by_patches, all / 10);
  EXPECT_GT(in_f64, 0);
}

// Elements as a file may hold them: in another order of axes, at an address that is a multiple of
// nothing, and still to be scaled.
struct Lying {
  LyingElements elements;
  std::shared_ptr<std::vector<std::byte>> memory;

  std::span<const std::byte> bytes() const { return std::span(*memory).subspan(1); }
};

Lying lying_elements(const Tensor& tensor,
                     const std::vector<int64_t>& perm,
                     std::vector<double> scale = {}) {
  std::vector<int64_t> back(perm.size());
  for (size_t i = 0; i < perm.size(); ++i)
    back[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  const Tensor moved = perm.empty() ? tensor : transposed_copy(tensor.type(), tensor.data(), back);
  Lying lying{{moved.type(), perm, std::move(scale)},
              std::make_shared<std::vector<std::byte>>(moved.bytes() + 1)};
  std::memcpy(lying.memory->data() + 1, moved.data(), moved.bytes());
  return lying;
}

// A number for each place on the last axis.
std::vector<double> random_scale(const TensorType& type, uint64_t seed) {
  const Tensor numbers = random_tensor({DType::kF64, {type.shape.back()}}, seed + 77);
  const auto all = numbers.span<double>();
  return {all.begin(), all.end()};
}

Tensor scaled(Tensor tensor, const std::vector<double>& scale) {
  const TensorType& type = tensor.type();
  if (!scale.empty())
    scale_rows(type.dtype, tensor.data(), type.elements() / type.shape.back(), scale);
  return tensor;
}

// Whether the operand has a kernel for elements that lie so; it has to make what the ops make.
bool is_packed_as_by_ops(Backend& cpu,
                         const PackedOperand& operand,
                         const Tensor& weights,
                         const Lying& lying) {
  const auto kernel = operand.kernel(lying.elements);
  if (kernel == nullptr) return false;
  EXPECT_EQ(kernel->workspace_bytes(), 0u);
  Graph graph("pack");
  graph.add_output("packed", operand.pack(input(graph, "w", weights.type())));
  const NamedTensors by_ops = evaluate(graph, cpu, {{"w", scaled(weights, lying.elements.scale)}});
  const Tensor& want = by_ops.at("packed");
  const DeviceMemory got(cpu, want.bytes());
  std::memset(got.get(), 0xff, want.bytes());
  const void* const from = lying.bytes().data();
  void* const to = got.get();
  kernel->launch(*cpu.make_stream(), {{&from, 1}, {&to, 1}});
  EXPECT_EQ(std::memcmp(to, want.data(), want.bytes()), 0)
      << to_string(weights.type()) << " as " << operand.layout;
  return true;
}

TEST(Packed, KernelsMakeWhatOpsMake) {
  const auto cpu = make_cpu_backend();
  const std::vector<int64_t> as_it_is, by_output{2, 3, 1, 0}, odd{1, 0, 3, 2}, turned{1, 0};
  int convolutions = 0, by_winograd = 0, products = 0;
  const int all = cases(200);
  for (int i = 0; i < all && !HasFailure(); ++i) {
    const auto seed = static_cast<uint64_t>(i);
    Graph graph("nodes");
    const auto [x, w, window] = i % 4 == 0 ? winograd_convolution(seed) : random_convolution(seed);
    const Value y = conv2d(input(graph, "x", x), input(graph, "w", w), window, 1);
    const Tensor of_conv = random_tensor(w, seed);
    const std::vector<double> scale = random_scale(w, seed);
    for (size_t choice = 0; choice < cpu->candidates(*y.node).size(); ++choice)
      for (const PackedOperand& operand : cpu->packed_operands(*y.node, choice)) {
        const auto is_packed_from = [&](const Lying& lying) {
          return is_packed_as_by_ops(*cpu, operand, of_conv, lying);
        };
        const bool is_winograd = operand.layout.starts_with("winograd");
        EXPECT_TRUE(is_packed_from(lying_elements(of_conv, as_it_is)));
        EXPECT_TRUE(is_packed_from(lying_elements(of_conv, by_output)));
        EXPECT_TRUE(is_packed_from(lying_elements(of_conv, by_output, scale)));
        EXPECT_EQ(is_packed_from(lying_elements(of_conv, as_it_is, scale)), !is_winograd);
        EXPECT_EQ(is_packed_from(lying_elements(of_conv, odd)), !is_winograd);
        ++(is_winograd ? by_winograd : convolutions);
      }
    Product p = random_product(seed);
    p.m = 40 + p.m % 80;
    const Value z = matmul(input(graph, "a", p.x()), input(graph, "b", p.w()), false, p.transposed);
    const Tensor of_product = random_tensor(p.w(), seed);
    for (const PackedOperand& operand : cpu->packed_operands(*z.node, 0)) {
      for (const auto& perm : {as_it_is, turned})
        EXPECT_TRUE(
            is_packed_as_by_ops(*cpu, operand, of_product, lying_elements(of_product, perm)));
      ++products;
    }
    EXPECT_FALSE(HasFailure()) << "seed " << seed;
  }
  EXPECT_GT(convolutions, all / 4);
  EXPECT_GT(by_winograd, all / 8);
  EXPECT_GT(products, all / 4);
}

// No copy of them is made first.
TEST(Packed, ConstantsArePackedWhereTheyLie) {
  for (int i = 0; i < cases(40); ++i) {
    const auto seed = static_cast<uint64_t>(i);
    const auto [x, w, window] = i % 2 == 0 ? winograd_convolution(seed) : random_convolution(seed);
    const auto graphs = [&x = x, &w = w, &window = window] {
      ProgramGraphs made;
      made.state = {{"w", w}};
      Graph& use = made.entries.emplace_back("use");
      use.add_output("y", conv2d(input(use, "x", x), input(use, "w", w), window, 1));
      return made;
    };
    const auto cpu = make_cpu_backend();
    const Tensor weights = random_tensor(w, seed), data = random_tensor(x, seed + 1000);
    State written(*cpu), constant(*cpu);
    written.declare(graphs().state);
    const std::vector<double> scale = i % 3 == 0 ? random_scale(w, seed) : std::vector<double>();
    written.write("w", scaled(weights, scale));
    Program plain(graphs(), written, options_of({}, false));
    const Lying lying = lying_elements(weights, {2, 3, 1, 0}, scale);
    ProgramGraphs of_constant = graphs();
    of_constant.state[0].constant = std::make_shared<const StateConstant>(StateConstant{
        lying.bytes(), lying.memory, lying.elements.perm, lying.elements.lying.shape, scale});
    Program packs(std::move(of_constant), constant, options_of({}, true));
    EXPECT_EQ(bit_difference(run(packs, data), run(plain, data)), "") << "seed " << seed;
    if (!is_packed(packs)) continue;
    const Plan& plan = packs.plan();
    EXPECT_THAT(print(plan), testing::HasSubstr("packed of \"w\""));
    EXPECT_EQ(plan.passing_peak_bytes, 0);
    EXPECT_EQ(plan.derivation_bytes, 0);
    EXPECT_EQ(constant.bytes(), plan.state_bytes - plan.passing_bytes);
    if (HasFailure()) return;
  }
}

// No copy of a table is made, however it lies.
TEST(Packed, TablesOfConstantsAreGatheredWhereTheyLie) {
  const TensorType type{DType::kF32, {50, 7}}, indices{DType::kI64, {3}};
  const Tensor rows = random_tensor(type, 1);
  const Lying lying = lying_elements(rows, {});
  const auto cpu = make_cpu_backend();
  LazyBackend device;
  for (Backend* const backend : {cpu.get(), static_cast<Backend*>(&device)}) {
    ProgramGraphs graphs;
    graphs.state = {{"w", type}};
    graphs.state[0].constant =
        std::make_shared<const StateConstant>(StateConstant{lying.bytes(), lying.memory});
    Graph& use = graphs.entries.emplace_back("use");
    use.add_output("y", gather(input(use, "w", type), input(use, "x", indices)));
    State state(*backend);
    Program program(std::move(graphs), state, options_of({}, true));
    ASSERT_TRUE(is_packed(program));
    Tensor x(indices);
    for (int64_t i = 0; i < 3; ++i) x.set(i, static_cast<double>(40 - 13 * i));
    const NamedTensors results = run(program, x);
    const Tensor& y = results.at("y");
    for (int64_t i = 0; i < 21; ++i) EXPECT_EQ(y.at(i), rows.at((40 - i / 7 * 13) * 7 + i % 7));
    EXPECT_EQ(state.bytes() == 0, backend->is_host());
  }
}

TEST(Packed, NothingIsReadThatWasPackedFromOldWeights) {
  for (int i = 0; i < cases(10); ++i) {
    const auto seed = static_cast<uint64_t>(i);
    Product product = random_product(seed);
    product.m = 40 + product.m % 80;
    product.n += 16;
    product.transposed = true;
    // Pairs of bf16 are not packed, where there are any.
    if (product.precision == DType::kBF16) product.precision = DType::kF16;
    const auto cpu = make_cpu_backend();
    LazyBackend lazy({.schedule = LazyOptions::Schedule::kRandom, .seed = seed});
    for (Backend* const backend : {cpu.get(), static_cast<Backend*>(&lazy)}) {
      State state(*backend);
      Program trains(graphs_of(product, true), state, options_of(product, true));
      Program packs(graphs_of(product), state, options_of(product, true));
      Program plain(graphs_of(product), state, options_of(product, false));
      ASSERT_TRUE(is_packed(packs));
      // Each step would cost packing anew, and a step that updates w reads it as it lies.
      EXPECT_FALSE(is_packed(trains));
      state.write("w", random_tensor(product.w(), seed));
      const Tensor x = random_tensor(product.x(), seed + 1000);
      NamedTensors last;
      for (int step = 0; step < 4; ++step) {
        const NamedTensors evaluated = run(packs, x);
        EXPECT_EQ(bit_difference(evaluated, run(plain, x)), "") << step;
        EXPECT_EQ(bit_difference(evaluated, run(packs, x)), "") << step;
        if (step > 0) {
          EXPECT_NE(bit_difference(evaluated, last), "") << step;
        }
        last = evaluated;
        if (step == 1)
          state.write("w", random_tensor(product.w(), seed + 7));
        else
          trains.run(1);
      }
      trains.synchronize();
    }
  }
}

TEST(Packed, TwoProductsShareOneCopy) {
  const Product product{.m = 128, .k = 96, .n = 80, .transposed = true};
  ProgramGraphs graphs = graphs_of(product);
  Graph& more = graphs.entries.emplace_back("more");
  const Value w = input(more, "w", product.w()), x = input(more, "x", product.x());
  more.add_output("y", matmul(x, w, false, true));
  more.add_output("z", matmul(x * 2.0, w, false, true));
  const auto cpu = make_cpu_backend();
  State state(*cpu);
  const Program program(std::move(graphs), state, options_of(product, true));
  ASSERT_EQ(program.plan().state.size(), 2u);
  EXPECT_THAT(program.plan().state[1].name, testing::StartsWith("w:panels"));
  EXPECT_EQ(program.plan().roles[1], StateRole::kPacked);
  for (const EntryPlan& entry : program.plan().entries)
    EXPECT_EQ(entry.derived, std::vector<size_t>{0});
  const std::string text = print(program.plan());
  EXPECT_THAT(text, testing::HasSubstr("derivation \"pack w:panels"));
  EXPECT_THAT(text, testing::HasSubstr("by packed_gemm packed @"));
}

// A convolution that gathers its patches at each run has room for them in the arena; by packed
// weights it needs none.
TEST(Packed, AnArenaHasNoRoomForPatchesOfPackedConvolutions) {
  const TensorType x{DType::kF32, {1, 20, 20, 8}}, w{DType::kF32, {3, 3, 8, 40}};
  const auto graphs = [&] {
    ProgramGraphs made;
    made.state = {{"w", w}};
    Graph& use = made.entries.emplace_back("use");
    use.add_output("y", conv2d(input(use, "x", x), input(use, "w", w), {}, 1));
    return made;
  };
  const auto cpu = make_cpu_backend();
  State state(*cpu);
  const Program plain(graphs(), state, options_of({}, false));
  const Program packs(graphs(), state, options_of({}, true));
  ASSERT_TRUE(is_packed(packs));
  EXPECT_LT(packs.plan().arena_bytes, plain.plan().arena_bytes);
}

// A constant is read where it lies, copied where it lies in another order, or packed and gone.
TEST(Packed, AStateTakesTheMemoryThatThePlanSays) {
  Product product{.m = 128, .k = 96, .n = 80, .transposed = true};
  const auto lying = std::make_shared<const Tensor>(random_tensor(product.w(), 3));
  const std::span<const std::byte> bytes{static_cast<const std::byte*>(lying->data()),
                                         lying->bytes()};
  const auto cpu = make_cpu_backend();
  LazyBackend lazy;
  // Weights that are rounded to f16 on the way, or lie on a device, are packed by ops from a copy;
  // others are packed from where they lie.
  const DType kinds[] = {DType::kF32, DType::kF16};
  for (int i = 0; i < 16; ++i) {
    Backend* const backend = i & 1 ? static_cast<Backend*>(&lazy) : cpu.get();
    const bool packs = (i & 2) != 0, is_moved = (i & 4) != 0;
    product.precision = kinds[i / 8];
    ProgramGraphs graphs = graphs_of(product);
    auto constant = std::make_shared<StateConstant>(bytes, lying);
    if (is_moved) constant->perm = {1, 0}, constant->lying = {product.k, product.n};
    graphs.state[0].constant = std::move(constant);
    State state(*backend);
    Program program(std::move(graphs), state, options_of(product, packs));
    ASSERT_EQ(is_packed(program), packs);
    run(program, random_tensor(product.x(), 4));
    const Plan& plan = program.plan();
    const bool is_copied = is_moved || !backend->is_host();
    EXPECT_EQ(state.bytes(), plan.allocated_state_bytes());
    EXPECT_EQ(state.bytes() > 0, packs || is_copied);
    EXPECT_EQ(plan.passing_peak_bytes > 0,
              packs && is_copied && (product.precision == DType::kF16 || !backend->is_host()));
    EXPECT_EQ(plan.total_bytes(),
              state.bytes() + plan.arena_bytes + plan.staging_bytes + plan.deriving_bytes());
  }
}

}  // namespace
}  // namespace ridge::test
