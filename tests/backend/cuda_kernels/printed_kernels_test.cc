// Printed kernels run on the CPU, thread by thread, against the CPU backend: the same bits.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>

#include "ridge/backend/cuda/print/scalar_text.h"
#include "ridge/graph/autodiff.h"
#include "ridge/graph/ops/activation.h"
#include "ridge/graph/ops/conv.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/fused.h"
#include "ridge/graph/ops/gather.h"
#include "ridge/graph/ops/norm.h"
#include "ridge/graph/ops/random.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/softmax.h"
#include "ridge/graph/ops/source.h"
#include "ridge/graph/text.h"
#include "tests/backend/cuda_kernels/printed_cases.h"
#include "tests/backend/cuda_kernels/row_graphs.h"
#include "tests/backend/cuda_kernels/test_limits.h"
#include "tests/support/has.h"
#include "tests/support/random_rows.h"
#include "tests/support/scale.h"

namespace ridge::test {
namespace {

using cuda::print_kernel;
using cuda::PrintedKernel;

// ---- elementwise bodies ----

template <typename T>
std::shared_ptr<const Op> op_of(T op = {}) {
  return std::make_shared<const T>(std::move(op));
}

// Those of one and two operands of one dtype.
std::vector<std::shared_ptr<const Op>> elementwise_ops() {
  Gelu by_tanh;
  by_tanh.tanh = true;
  return {op_of<Neg>(),        op_of<Abs>(),        op_of<Sign>(),    op_of<Exp>(),
          op_of<Log>(),        op_of<Sin>(),        op_of<Cos>(),     op_of<Tanh>(),
          op_of<Erf>(),        op_of<Sqrt>(),       op_of<Rsqrt>(),   op_of<Sigmoid>(),
          op_of<Relu>(),       op_of<Silu>(),       op_of<Gelu>(),    op_of(by_tanh),
          op_of<IsFinite>(),   op_of<LogicalNot>(), op_of<Add>(),     op_of<Sub>(),
          op_of<Mul>(),        op_of<Div>(),        op_of<Fmod>(),    op_of<Pow>(),
          op_of<Maximum>(),    op_of<Minimum>(),    op_of<Equal>(),   op_of<NotEqual>(),
          op_of<Less>(),       op_of<LessEqual>(),  op_of<Greater>(), op_of<GreaterEqual>(),
          op_of<LogicalAnd>(), op_of<LogicalOr>()};
}

constexpr auto kDTypes = [] {
  using enum DType;
  return std::array{kF32, kF32, kF32, kBF16, kF16, kF64, kBool, kI32, kI64, kU8};
}();

// Functions of f64, and powers, are CUDA's own: a test of theirs compares them with the reference.
bool is_of_cuda(const Op& op, DType dtype) {
  if (op.name() == "pow") return true;
  return dtype == DType::kF64 && op.traits().op_class == OpClass::kTranscendental &&
         op.name() != "rsqrt";
}

// The body as a loop of the graph, over inputs of its own.
const Node& loop_of(Graph& graph, const Graph& body, LoopDomain domain = {}) {
  std::vector<Value> from;
  for (const Node* node : body.inputs())
    from.push_back(input(graph, node->op_as<Input>().input_name, node->outputs[0]));
  return fused(graph, body, std::move(from), Site{"test"}, domain);
}

// Random fused bodies without rows: every op, dtype, kind of broadcast, dropout and total.
class RandomFlat {
 public:
  explicit RandomFlat(uint64_t seed) : random_(seed), body_("body") {
    const int rank = 1 + below(3);
    for (int i = 0; i < rank; ++i) shape_.push_back(1 + below(rank == 1 ? 700 : 23));
    if (below(3) == 0) shape_.back() = (shape_.back() + 7) / 8 * 8;
    if (below(6) == 0) shape_ = {3 + below(3000), 2};
  }

  // Null when the draw has no results.
  const Node* make(Graph& graph) {
    const int inputs = 1 + below(5), first = below(9), types = below(2) == 0 ? 2 : 10;
    for (int i = 0; i < inputs; ++i) add_input(kDTypes[(first + below(types)) % 10]);
    if (below(2) == 0) rng_ = input(body_, next_name(), {DType::kI64, {3}});
    const int ops = 1 + below(12);
    for (int tries = 0; made_ < ops && tries < 300; ++tries) add_op();
    const int results = 1 + below(3);
    const size_t first_made = values_.size() - static_cast<size_t>(made_);
    for (int i = 0; i < results && made_ > 0; ++i)
      add_result(values_[first_made + static_cast<size_t>(below(made_))]);
    if (count_ == 0) return nullptr;
    return &loop_of(graph, body_, has_total_ ? LoopDomain{numel(shape_), 0} : LoopDomain{});
  }

 private:
  int below(int64_t limit) { return static_cast<int>(random_() % static_cast<uint64_t>(limit)); }
  std::string next_name() { return name_of_number(body_.inputs().size()); }

  void add_input(DType dtype) {
    Shape shape = shape_;
    if (below(3) == 0) {
      for (int64_t& size : shape)
        if (below(2) == 0) size = 1;
      if (below(2) == 0 && shape.size() > 1) shape.erase(shape.begin());
    }
    const Value read = input(body_, next_name(), {dtype, shape});
    if (shape == shape_) return values_.push_back(read);
    Broadcast op;
    op.shape = shape_;
    values_.push_back({&body_.add(op_of(op), {read}), 0});
  }

  Value pick(DType dtype) {
    std::vector<Value> found;
    for (const Value& value : values_)
      if (value.dtype() == dtype) found.push_back(value);
    if (found.empty()) return {};
    const auto size = static_cast<int64_t>(found.size());
    return found[static_cast<size_t>(std::max(below(size), below(size)))];
  }

  void add(std::shared_ptr<const Op> op, std::vector<Value> inputs) {
    values_.push_back({&body_.add(std::move(op), std::move(inputs)), 0});
    ++made_;
  }

  void add_op() {
    static const auto ops = [] {
      auto all = elementwise_ops();
      for (int i = 0; i < 3; ++i) all.push_back(op_of<Cast>());
      for (int i = 0; i < 2; ++i)
        all.insert(all.end(), {op_of<Where>(), op_of<Add>(), op_of<Mul>()});
      all.insert(all.end(), {op_of<Dropout>(), op_of<Constant>()});
      return all;
    }();
    const auto& op = ops[static_cast<size_t>(below(static_cast<int64_t>(ops.size())))];
    if (dynamic_cast<const Constant*>(op.get()) != nullptr) return add_constant();
    const size_t back = static_cast<size_t>(below(std::min<int64_t>(4, std::ssize(values_))));
    const DType dtype = values_[values_.size() - 1 - back].dtype();
    if (dynamic_cast<const Where*>(op.get()) != nullptr) {
      if (const Value condition = pick(DType::kBool))
        add(op, {condition, pick(dtype), pick(dtype)});
      return;
    }
    if (!op->traits().dtypes.has(dtype)) return;
    if (dynamic_cast<const Dropout*>(op.get()) != nullptr) return add_dropout(dtype);
    if (dynamic_cast<const Cast*>(op.get()) != nullptr) {
      Cast cast;
      cast.to = kDTypes[below(std::size(kDTypes))];
      return add(op_of(cast), {pick(dtype)});
    }
    if (is_of_cuda(*op, dtype)) return;
    if (op->traits().min_inputs == 2) return add(op, {pick(dtype), pick(dtype)});
    add(op, {pick(dtype)});
  }

  void add_dropout(DType dtype) {
    static constexpr double kChances[] = {0.0, 0.1, 0.5, 0.9, 1.0 - 0x1p-40};
    if (!rng_ || dropouts_ == 3) return;
    ++dropouts_;
    Dropout op;
    op.p = kChances[below(std::size(kChances))];
    op.key = fmt::format("drop.{}", below(3));
    op.samples = below(2) == 0 ? 1 : shape_[0];
    add(op_of(op), {pick(dtype), rng_});
  }

  void add_constant() {
    const DType dtype = kDTypes[below(std::size(kDTypes))];
    const double number = any_number(random_, is_float(dtype));
    const double whole = dtype == DType::kBool ? below(2) : below(100);
    values_.push_back(constant(body_, {dtype, shape_}, is_float(dtype) ? number : whole));
    ++made_;
  }

  void add_result(Value value) {
    if (value.node->is<Constant>()) return;
    const bool can_reduce = value.dtype() == DType::kF32 || value.dtype() == DType::kF64;
    if (can_reduce && below(4) == 0) {
      const int kind = below(3);
      value = kind == 0 ? reduce_sum(value) : kind == 1 ? reduce_mean(value) : reduce_max(value);
      has_total_ = true;
    }
    body_.add_output(name_of_number(count_++), value);
  }

  std::mt19937_64 random_;
  Graph body_;
  Shape shape_;
  std::vector<Value> values_;
  Value rng_;
  int made_ = 0, dropouts_ = 0;
  size_t count_ = 0;
  bool has_total_ = false;
};

TEST(PrintedKernels, RandomElementwiseBodiesGiveTheBitsOfTheCpu) {
  constexpr size_t kBatch = 250;  // in a translation unit
  const int wanted = cases(200);
  uint64_t seed = 1;
  for (int done = 0; done < wanted;) {
    Cases all;
    while (done < wanted && all.size() < kBatch) {
      Graph graph("case");
      RandomFlat flat(seed);
      const Node* node = flat.make(graph);
      if (node != nullptr) {
        ASSERT_TRUE(all.add(*node, seed, Fill::kSpecial)) << all.refusal() << "\n" << print(*node);
        ++done;
      }
      ++seed;
    }
    all.expect_bits_of_cpu();
    if (HasFailure()) return;
  }
}

// Each op on many special numbers, a body for each dtype: what random bodies may not come to.
TEST(PrintedKernels, EveryOpGivesTheBitsOfTheCpuOnSpecialNumbers) {
  Cases all;
  for (const DType dtype : kAllDTypes)
    for (const int64_t size : {40000, 8191}) {
      // The short scale runs one of the two sizes for each dtype, in turn.
      if (!is_drawn(static_cast<size_t>(size) + static_cast<size_t>(dtype), 2)) continue;
      Graph body("body"), graph("case");
      const TensorType type{dtype, {size}};
      const Value a = input(body, "0", type), b = input(body, "1", type);
      const Value condition = input(body, "2", {DType::kBool, {size}});
      size_t results = 0;
      for (const auto& op : elementwise_ops()) {
        if (!op->traits().dtypes.has(dtype) || is_of_cuda(*op, dtype)) continue;
        std::vector<Value> from{a};
        if (op->traits().min_inputs == 2) from.push_back(b);
        body.add_output(name_of_number(results++), {&body.add(op, from), 0});
      }
      for (const DType to : kAllDTypes)
        if (to != dtype) body.add_output(name_of_number(results++), cast(a, to));
      body.add_output(name_of_number(results++), where(condition, a, b));
      ASSERT_TRUE(all.add(loop_of(graph, body), 7, Fill::kSpecial)) << all.refusal();
    }
  all.expect_bits_of_cpu();
}

// ---- bodies over rows ----

TEST(PrintedKernels, RandomRowsGiveTheBitsOfTheCpu) {
  Cases all;
  const int graphs = cases(40);
  for (int seed = 0; seed < graphs; ++seed) {
    RandomRows rows(DType::kF32, static_cast<uint64_t>(seed));
    all.add_loops(rows.build().graph().clone(), static_cast<uint64_t>(seed), 2);
  }
  EXPECT_GE(all.size(), static_cast<size_t>(graphs));
  all.expect_bits_of_cpu();
}

// Forward and gradient of what models are made of, for rows of several lengths and numbers.
TEST(PrintedKernels, LossesNormsAndSoftmaxGiveTheBitsOfTheCpu) {
  Cases all;
  const std::vector<std::pair<int64_t, int64_t>> sizes = {
      {3, 2}, {70, 10}, {5, 64}, {130, 65}, {66, 768}, {9, 2048}, {6, 2050}, {3, 7000}, {3, 5003}};
  size_t number = 0;
  for (const auto& [rows, columns] : sizes) {
    if (!is_drawn(number++, 2)) continue;
    const auto seed = static_cast<uint64_t>(rows * columns);
    all.add_loops(norm_gradient_of(rows, columns), seed, 0);
    CaseBuilder half(DType::kBF16, seed);
    const Value h = half.input({rows, columns});
    half.finish({cast(softmax(cast(h, DType::kF32)), DType::kBF16) * h});
    all.add_loops(half.graph().clone(), seed, 0);
    all.add_loops(loss_of(DType::kF32, rows, columns), seed, columns);
  }
  EXPECT_GE(all.size(), is_short_scale() ? 15u : 27u);
  all.expect_bits_of_cpu();
}

// The rows that fit a block differ from device to device; they decide how much of a row is kept and
// how many rows are summed at a time.
TEST(PrintedKernels, DevicesOfAllLimitsGiveTheBitsOfTheCpu) {
  for (const cuda::DeviceLimits& limits : {kA100, kRtx3090}) {
    Cases all(limits);
    all.add_loops(softmax_of(DType::kF32, 2, 30001), 1, 0);
    // Two sums of 1280 columns fit beside four rows in registers, and do not beside five.
    for (const auto& [rows, columns] :
         std::vector<std::pair<int64_t, int64_t>>{{70, 1024}, {68, 1280}}) {
      const Graph sums = norm_gradient_of(rows, columns);
      EXPECT_EQ(held_kernels(sums.clone(), limits).size(), columns == 1280 ? 1u : 0u);
      all.add_loops(sums.clone(), 2, 0);
    }
    EXPECT_GE(all.size(), 3u);
    all.expect_bits_of_cpu();
  }
}

// Rows that a warp holds in registers: norms both ways, beside a stream in f32, and those whose
// sizes or types do not allow that.
TEST(PrintedKernels, RowsInRegistersGiveTheBitsOfTheCpu) {
  Cases all;
  size_t held = 0;
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const auto& [rows, columns] :
         std::vector<std::pair<int64_t, int64_t>>{{132, 768}, {64, 64}, {260, 192}, {4, 1024}}) {
      CaseBuilder b(dtype, static_cast<uint64_t>(columns));
      const auto wide = [&](const Value& x) { return cast(x, DType::kF32); };
      const Value x = wide(b.input({rows, columns})) + wide(b.input({rows, columns}));
      const Value dy = wide(b.input({rows, columns}));
      const Value gamma = b.input(DType::kF32, {columns}, -1, 1),
                  beta = b.input(DType::kF32, {columns}, -1, 1);
      const Value y = layer_norm(x, gamma, beta), z = rms_norm(x, gamma);
      std::vector<Value> results = {cast(y, dtype), cast(z, dtype)};
      for (const Value& of : {y, z})
        for (const Value& gradient : vector_jacobian_product(
                 std::vector<Value>{of}, std::vector<Value>{dy}, std::vector<Value>{x, gamma}))
          results.push_back(gradient);
      b.finish(results);
      held += held_kernels(b.graph().clone(), kH200).size();
      all.add_loops(b.graph().clone(), 5, 0);
    }
  EXPECT_GE(held, 6u);
  all.expect_bits_of_cpu();
}

// Loops over long rows that reduce none of them, with sums over all rows: all threads of a block go
// over a row side by side, and each column still adds its rows in their order.
TEST(PrintedKernels, SumsOverLongRowsGiveTheBitsOfTheCpu) {
  Cases all;
  size_t number = 0;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF64})
    for (const auto& [rows, columns] :
         std::vector<std::pair<int64_t, int64_t>>{{130, 3072}, {67, 3073}, {66, 2051}}) {
      if (!is_drawn(number++, 4)) continue;
      CaseBuilder b(dtype, 3);
      const DType wide = dtype == DType::kF64 ? dtype : DType::kF32;
      const Value x = cast(b.input({rows, columns}), wide),
                  dy = cast(b.input({rows, columns}), wide);
      const Value dx = dy * (x + broadcast(b.input(wide, {columns}, -1, 1), {rows, columns})) * x;
      b.finish({cast(dx, dtype), reduce_sum(dx, {0}), reduce_sum(dy, {0})});
      all.add_loops(b.graph().clone(), 3, 0);
    }
  EXPECT_EQ(all.size(), is_short_scale() ? 3u : 9u);
  all.expect_bits_of_cpu();
}

// ---- what is refused, and what goes wrong ----

TEST(PrintedKernels, SaysWhyItRefuses) {
  Graph graph("refused");
  const Value x = input(graph, "x", {DType::kBF16, {4, 6, 8}});
  const auto why = [](Value value) { return print_kernel(*value.node, kH200).refusal; };
  EXPECT_EQ(why(constant(graph, {DType::kF32, {65537}}, std::vector<double>(65537, 0.5))),
            "lists 65537 elements; a source holds 65536");
  const Value w = input(graph, "w", {DType::kBF16, {1, 1, 8, 8}});
  const Value image = input(graph, "image", {DType::kBF16, {1, 4, 4, 8}});
  EXPECT_EQ(why(add_node(Conv2d{}, {image, w})), "is conv2d, which has no kernel of its own");
  EXPECT_EQ(why(exp(x)), "");
}

// The layers of a model share one kernel: no site is part of it. Another shape is another one.
TEST(PrintedKernels, TheNameIsThatOfTheSource) {
  const auto printed = [](std::string_view scope, int64_t size) {
    Graph graph("names");
    const SiteScope open(graph, scope);
    const Value x = input(graph, "x", {DType::kF32, {size}});
    return *print_kernel(*gelu(x).node, kH200).kernel;
  };
  const PrintedKernel first = printed("blocks.0", 64), again = printed("blocks.1", 64);
  EXPECT_EQ(first.name, again.name);
  EXPECT_EQ(first.source, again.source);
  EXPECT_THAT(first.name, testing::StartsWith("loop_gelu_"));
  EXPECT_NE(first.name, printed("blocks.0", 65).name);
}

TEST(PrintedKernels, NumbersKeepAllOfTheirBits) {
  using cuda::number_text;
  EXPECT_EQ(number_text(DType::kF32, 0.1f), "0.1f");
  EXPECT_EQ(number_text(DType::kF32, -3.0), "(-3.0f)");
  EXPECT_EQ(number_text(DType::kF32, -0.0), "(-0.0f)");
  EXPECT_EQ(number_text(DType::kF32, 0x1p-149), "float_of_bits(0x1u)");
  EXPECT_EQ(number_text(DType::kF64, 1e300), "1e+300");
  EXPECT_EQ(number_text(DType::kF64, INFINITY), "double_of_bits(0x7ff0000000000000ull)");
  EXPECT_EQ(number_text(DType::kI64, INT64_MIN), "static_cast<int64_t>(0x8000000000000000ull)");
}

}  // namespace
}  // namespace ridge::test
