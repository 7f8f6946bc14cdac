// Kernels of single ops that move, look up, add by index and reduce, on random shapes: the CPU's
// bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/gather.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/softmax.h"
#include "ridge/graph/ops/source.h"
#include "tests/backend/cuda_kernels/printed_cases.h"
#include "tests/backend/cuda_kernels/test_limits.h"
#include "tests/support/case_builder.h"
#include "tests/support/scale.h"

namespace ridge::test {
namespace {

// Draws shapes and all that a node of them needs.
class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed), graph_("case") {}

  int64_t upto(int64_t most) { return random_.integer(1, most); }
  int64_t below(int64_t limit) { return random_.integer(0, limit - 1); }
  bool chance(double p) { return random_.chance(p); }
  Graph& graph() { return graph_; }

  // Sizes of 1 and multiples of 8 among them, not many elements in all.
  Shape shape(int64_t rank) {
    Shape made;
    int64_t left = 6000;
    for (int64_t i = 0; i < rank; ++i) {
      int64_t size = chance(0.15) ? 1 : upto(std::min<int64_t>(left, rank == 1 ? 5000 : 40));
      if (chance(0.4) && size >= 8) size = size / 8 * 8;
      made.push_back(size);
      left = std::max<int64_t>(1, left / size);
    }
    return made;
  }
  DType dtype(bool is_number = false) {
    using enum DType;
    static constexpr DType kSome[] = {kF32, kBF16, kF16, kF64, kI64, kI32, kU8, kI16, kBool};
    return kSome[below(is_number ? 8 : 9)];
  }
  Value operand(DType dtype, Shape shape) {
    return input(graph_, name_of_number(graph_.inputs().size()), {dtype, std::move(shape)});
  }
  DType index_dtype() { return chance(0.5) ? DType::kI64 : DType::kI32; }

 private:
  Random random_;
  Graph graph_;
};

// Makes `wanted` cases, of seeds from 1 on, and compares them with the CPU. `make` gives a null
// Value where the draw is no op, and may set the limit of indices.
template <typename Make>
void expect_random(int wanted, Make make, Fill how = Fill::kSpecial) {
  Cases all;
  for (uint64_t seed = 1; all.size() < static_cast<size_t>(wanted); ++seed) {
    Draw draw(seed);
    int64_t limit = 0;
    const Value made = make(draw, limit);
    if (!made || made.node->is<Input>()) continue;
    ASSERT_TRUE(all.add(*made.node, seed, how, limit)) << all.refusal();
  }
  all.expect_bits_of_cpu();
}

TEST(PrintedOps, Transposes) {
  expect_random(cases(40), [](Draw& draw, int64_t&) {
    const int64_t rank = draw.upto(5);
    std::vector<int64_t> perm(static_cast<size_t>(rank));
    std::iota(perm.begin(), perm.end(), int64_t{0});
    for (size_t i = perm.size(); i > 1; --i)
      std::swap(perm[i - 1], perm[static_cast<size_t>(draw.below(static_cast<int64_t>(i)))]);
    const DType dtype = draw.dtype();
    return transpose(draw.operand(dtype, draw.shape(rank)), perm);
  });
}

TEST(PrintedOps, SlicesAndReshapes) {
  expect_random(cases(40), [](Draw& draw, int64_t&) -> Value {
    const int64_t rank = draw.below(5);
    const Shape shape = draw.shape(rank);
    const Value x = draw.operand(draw.dtype(), shape);
    if (draw.chance(0.1)) return reshape(x, {-1, 1});
    if (draw.chance(0.1)) return copy(x);
    if (draw.chance(0.1)) return barrier(x, x);
    std::vector<int64_t> start, stop, step;
    const int64_t round = draw.chance(0.5) ? 8 : 1;
    for (const int64_t size : shape) {
      start.push_back(draw.below(size) / round * round);
      stop.push_back(start.back() + draw.upto(size - start.back()));
      step.push_back(draw.chance(0.7) ? 1 : draw.upto(3));
    }
    return slice(x, start, stop, step);
  });
}

TEST(PrintedOps, Pads) {
  expect_random(cases(40), [](Draw& draw, int64_t&) {
    const Shape shape = draw.shape(draw.below(5));
    const DType dtype = draw.dtype();
    std::vector<int64_t> low, high, interior;
    const int64_t scale = draw.chance(0.5) ? 8 : 1;
    for (size_t i = 0; i < shape.size(); ++i) {
      low.push_back(draw.chance(0.5) ? 0 : draw.below(3) * scale);
      high.push_back(draw.chance(0.5) ? 0 : draw.below(3) * scale);
      interior.push_back(draw.chance(0.8) ? 0 : draw.below(3));
    }
    const double value = dtype == DType::kBool ? 1.0 : draw.chance(0.5) ? 0.0 : 3.0;
    return pad(draw.operand(dtype, shape), low, high, interior, value);
  });
}

TEST(PrintedOps, Concatenations) {
  expect_random(cases(30), [](Draw& draw, int64_t&) {
    Shape shape = draw.shape(draw.upto(4));
    const int64_t axis = draw.below(std::ssize(shape));
    const DType dtype = draw.dtype();
    const int64_t count = draw.chance(0.1) ? 70 : 1 + draw.upto(6);
    if (count == 70)
      for (int64_t& size : shape) size = std::min<int64_t>(size, 3);
    std::vector<Value> operands;
    for (int64_t i = 0; i < count; ++i) {
      if (draw.chance(0.5)) shape[static_cast<size_t>(axis)] = draw.upto(4) * 4;
      operands.push_back(draw.operand(dtype, shape));
    }
    return concat(operands, axis);
  });
}

TEST(PrintedOps, ConstantsRampsAndOneHots) {
  expect_random(cases(40), [](Draw& draw, int64_t& limit) -> Value {
    const DType dtype = draw.dtype();
    const Shape shape = draw.shape(draw.below(4));
    if (draw.chance(0.3)) {
      std::vector<double> values(static_cast<size_t>(numel(shape)));
      for (double& each : values)
        each = is_float(dtype) ? static_cast<double>(draw.below(1000)) / 7 - 70
                               : static_cast<double>(draw.below(2));
      return constant(draw.graph(), {dtype, shape}, values);
    }
    if (draw.chance(0.3)) return constant(draw.graph(), {dtype, shape}, 1.0);
    if (dtype != DType::kBool && !shape.empty() && draw.chance(0.5)) {
      Shape small = shape;  // 8 bits hold no more
      for (int64_t& size : small) size = std::min<int64_t>(size, 200);
      return iota(draw.graph(), {dtype, small}, draw.below(std::ssize(small)));
    }
    const int64_t depth = draw.upto(50);
    limit = depth + 2;
    return one_hot(draw.operand(draw.index_dtype(), shape), depth, draw.dtype());
  });
}

// A broadcast that a graph writes out is a loop over elements.
TEST(PrintedOps, Broadcasts) {
  expect_random(cases(30), [](Draw& draw, int64_t&) {
    const Shape to = draw.shape(1 + draw.below(4));
    Shape from = to;
    for (int64_t& size : from)
      if (draw.chance(0.5)) size = 1;
    if (draw.chance(0.3)) from.erase(from.begin());
    return broadcast(draw.operand(draw.dtype(), from), to);
  });
}

TEST(PrintedOps, Lookups) {
  expect_random(cases(40), [](Draw& draw, int64_t& limit) -> Value {
    const Shape shape = draw.shape(draw.upto(4));
    const Value x = draw.operand(draw.dtype(true), shape);
    if (draw.chance(0.2)) {
      limit = shape.back();
      return pick(x, draw.operand(draw.index_dtype(), Shape(shape.begin(), shape.end() - 1)));
    }
    const int64_t axis = draw.below(std::ssize(shape));
    limit = shape[static_cast<size_t>(axis)];
    const Shape places = draw.chance(0.2) ? Shape{} : Shape{draw.upto(9), draw.upto(5)};
    return gather(x, draw.operand(draw.index_dtype(), places), axis);
  });
}

// Rows with none, few and many updates; of sizes that take one to three passes of sorting.
TEST(PrintedOps, AddsByIndexInTheOrderOfTheIndices) {
  expect_random(cases(40), [](Draw& draw, int64_t& limit) -> Value {
    const int64_t size = draw.chance(0.3)    ? draw.upto(4)
                         : draw.chance(0.05) ? 65536 + draw.upto(1000)
                                             : draw.upto(700);
    const bool is_large = size > 60000;
    const int64_t count = draw.chance(0.2) ? 1000 + draw.upto(1500) : draw.upto(300);
    const int64_t inner = is_large ? 1 : draw.chance(0.3) ? draw.upto(5) : draw.upto(40) * 4;
    const int64_t outer = is_large || count > 999 || draw.chance(0.6) ? 1 : draw.upto(3);
    limit = draw.chance(0.3) ? std::min<int64_t>(size, 2) : size;
    const DType dtype = draw.dtype(true);
    const Value updates = draw.operand(dtype, {outer, count, inner});
    const Value indices = draw.operand(draw.index_dtype(), {count});
    if (draw.chance(0.5)) return scatter_add(updates, indices, 1, size);
    return scatter_add_to(draw.operand(dtype, {outer, size, inner}), updates, indices, 1);
  });
}

Value reduced(Draw& draw, Value x, std::vector<int64_t> axes) {
  const int64_t kind = draw.below(3);
  const bool keepdims = draw.chance(0.3);
  if (kind == 0) return reduce_max(x, axes, keepdims);
  if (kind == 1 && is_float(x.dtype())) return reduce_mean(x, axes, keepdims);
  return reduce_sum(x, axes, keepdims);
}

// Any axes; stages of rows and of columns, several of each.
Value random_reduction(Draw& draw, int64_t&) {
  Shape shape = draw.shape(draw.below(5));
  if (draw.chance(0.15)) shape = {draw.upto(3), 2000 + draw.upto(5000), 1};
  if (draw.chance(0.2)) shape = {draw.upto(300), draw.upto(18)};
  if (draw.chance(0.1)) shape = {draw.upto(3), 5000, 4};
  std::vector<int64_t> axes;
  for (int64_t i = 0; i < std::ssize(shape); ++i)
    if (draw.chance(0.5)) axes.push_back(i);
  if (axes.empty() && !shape.empty()) axes.push_back(draw.below(std::ssize(shape)));
  return reduced(draw, draw.operand(draw.dtype(true), shape), axes);
}

TEST(PrintedOps, Reductions) { expect_random(cases(60), random_reduction); }
TEST(PrintedOps, ReductionsOfZerosOfEitherSign) {
  expect_random(cases(20), random_reduction, Fill::kZeros);
}

TEST(PrintedOps, PlacesOfTheLargest) {
  const auto make = [](Draw& draw, int64_t& limit) {
    Shape shape = draw.shape(draw.upto(4));
    if (draw.chance(0.2)) shape = {draw.upto(3), 4000 + draw.upto(500)};
    limit = draw.chance(0.5) ? 3 : 0;  // many that are equal
    return argmax(draw.operand(draw.dtype(true), shape), draw.below(std::ssize(shape)));
  };
  expect_random(cases(30), make);
  expect_random(cases(10), make, Fill::kZeros);
}

// Each of those that check indices says which is wrong, and touches nothing else.
TEST(PrintedOps, IndicesOutOfRangeAreReported) {
  constexpr int64_t kIgnored = -100;
  const std::map<std::string, Value (*)(Value rows, Value nine, Value at)> ops = {
      {"gather", [](Value, Value nine, Value at) { return gather(nine, at); }},
      {"scatter_add", [](Value rows, Value, Value at) { return scatter_add(rows, at, 0, 9); }},
      {"pick", [](Value rows, Value, Value at) { return pick(rows, at); }},
      {"cross_entropy", [](Value rows, Value, Value at) {
         return cross_entropy(rows, at, {.ignore_index = kIgnored});
       }}};
  for (const auto& [name, make] : ops)
    for (const int64_t wrong : {int64_t{-1}, int64_t{9}, INT64_MIN, INT64_MAX}) {
      SCOPED_TRACE(fmt::format("{} of {}", name, wrong));
      Graph graph("wrong");
      const Value rows = input(graph, "rows", {DType::kF32, {70, 9}}),
                  nine = input(graph, "nine", {DType::kF32, {9, 4}}),
                  at = input(graph, "at", {DType::kI64, {70}});
      const Node& node = *make(rows, nine, at).node;
      Cases all;
      ASSERT_TRUE(all.add(node, 1, Fill::kTame)) << all.refusal();
      EXPECT_EQ(all.kernel(0).index_limit, 9);
      NamedTensors inputs, outputs;
      inputs.emplace("0", Tensor(node.inputs[0].type()));
      inputs.emplace("1", Tensor(at.type()));
      if (name == "cross_entropy") inputs.at("1").set(3, kIgnored);
      inputs.at("1").span<int64_t>()[68] = wrong;
      const HostFault fault = all.run_with(inputs, outputs);
      EXPECT_EQ(fault.place, 69u);
      EXPECT_EQ(fault.index, wrong);
    }
}

// ---- functions of f64 ----

TEST(PrintedOps, FunctionsOfF64AreNearTheReference) {
  Cases all;
  Graph graph("wide");
  const Value x = input(graph, "x", {DType::kF64, {3000}});
  for (const Value value : {exp(x), log(x), tanh(x), erf(x)}) {
    ASSERT_TRUE(all.add(*value.node, 5, Fill::kTame)) << all.refusal();
    EXPECT_FALSE(cuda::print_kernel(*value.node, kH200).kernel->same_bits);
  }
  all.expect_results();
}

}  // namespace
}  // namespace ridge::test
