// Printed kernels run on the CPU, thread by thread, against the CPU backend: the same bits.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <deque>
#include <random>

#include "ridge/backend/cuda/scalar_text.h"
#include "ridge/compile/pipeline.h"
#include "ridge/graph/autodiff.h"
#include "ridge/graph/ops/activation.h"
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
#include "ridge/run/backends.h"
#include "ridge/run/evaluate.h"
#include "tests/backend/cuda_kernels/printed_on_host.h"
#include "tests/support/errors.h"
#include "tests/support/random_rows.h"
#include "tests/support/scale.h"

namespace ridge::test {
namespace {

using cuda::print_kernel;
using cuda::PrintedKernel;

std::string name_of_number(size_t i) { return fmt::format("{}", i); }

// The node alone, its inputs and outputs named by their numbers.
Graph alone(const Node& node) {
  Graph graph("alone");
  std::vector<Value> inputs;
  for (const Value& value : node.inputs)
    inputs.push_back(input(graph, name_of_number(inputs.size()), value.type()));
  Node& made = graph.add(node.op, std::move(inputs), node.site);
  for (size_t i = 0; i < made.outputs.size(); ++i)
    graph.add_output(name_of_number(i), {&made, static_cast<int>(i)});
  return graph;
}

const Node& node_of(const Graph& graph) { return *graph.nodes().back(); }

// Ordinary numbers and every kind of special one.
double any_number(std::mt19937_64& random, bool special) {
  static constexpr double kSpecial[] = {
      0.0,          -0.0,          1.0,    -1.0,    INFINITY, -INFINITY, NAN,    1e-45,
      -1e-45,       1e-40,         -3e-39, 1.2e-38, 3.4e38,   -3.4e38,   1e300,  -1e-310,
      2147483648.0, -2147483648.0, 88.5,   -103.5,  65520.0,  6e-8,      40000., -70.25};
  std::uniform_real_distribution<double> unit(-1, 1);
  const auto kind = random() % 8;
  if (special && kind == 0) return kSpecial[random() % std::size(kSpecial)];
  if (special && kind == 1) return std::ldexp(unit(random), static_cast<int>(random() % 300) - 150);
  if (kind == 2) return static_cast<double>(random() % 21) - 10;
  return 6 * unit(random);
}

enum class Fill : uint8_t {
  kTame,
  kSpecial,  ///< Infinities, NaN, subnormal numbers and the ends of ranges among others.
  kZeros,    ///< Zeros of both signs: which of equal numbers a maximum keeps.
};

void fill(Tensor& tensor, std::mt19937_64& random, Fill how) {
  const bool special = how == Fill::kSpecial;
  dispatch(tensor.type().dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (T& each : tensor.span<T>()) {
      each = convert<T>(how == Fill::kZeros ? (random() % 2 == 0 ? 0.0 : -0.0)
                                            : any_number(random, special));
      if constexpr (std::is_same_v<T, int64_t>)
        if (special && random() % 4 == 0) each = static_cast<T>(random() * uint64_t{0x100000001});
    }
  });
}

// The first element that differs, as text; NaN equals NaN.
std::string first_difference(const Tensor& got, const Tensor& wanted) {
  return dispatch(wanted.type().dtype, [&](auto tag) -> std::string {
    using T = typename decltype(tag)::type;
    for (int64_t i = 0; i < wanted.elements(); ++i) {
      const T &x = got.span<T>()[static_cast<size_t>(i)],
              &y = wanted.span<T>()[static_cast<size_t>(i)];
      if (std::memcmp(&x, &y, sizeof x) == 0) continue;
      if (std::isnan(got.at(i)) && std::isnan(wanted.at(i))) continue;
      return fmt::format("element {} is {:a}, not {:a}", i, got.at(i), wanted.at(i));
    }
    return "";
  });
}

// Nodes with their printed kernels, compiled together.
class Cases {
 public:
  // False where the node is refused; then refusal() says why.
  bool add(const Node& node, uint64_t seed, Fill how, int64_t index_limit = 0) {
    Case each{.graph = alone(node), .seed = seed, .how = how, .index_limit = index_limit};
    cuda::Printing printing = print_kernel(node_of(each.graph));
    refusal_ = printing.refusal;
    if (!printing.kernel) return false;
    each.kernel = std::move(*printing.kernel);
    host_.add(each.kernel);
    cases_.push_back(std::move(each));
    return true;
  }
  const std::string& refusal() const { return refusal_; }
  size_t size() const { return cases_.size(); }

  void expect_bits_of_cpu() {
    host_.build();
    const auto cpu = make_backend("cpu");
    for (Case& each : cases_) {
      SCOPED_TRACE(
          fmt::format("seed {}\n{}\n{}", each.seed, print(each.graph), each.kernel.source));
      const NamedTensors inputs = inputs_of(each);
      const NamedTensors wanted = evaluate(each.graph, *cpu, inputs);
      run(each, inputs, wanted, false);
      run(each, inputs, wanted, true);
      if (testing::Test::HasFailure()) return;
    }
  }

  // Of the first case.
  NamedTensors inputs() const { return inputs_of(cases_[0]); }
  // One run of it alone.
  HostFault run_with(const NamedTensors& inputs, NamedTensors& outputs) {
    host_.build();
    std::vector<const void*> from;
    std::vector<void*> to;
    for (size_t i = 0; i < inputs.size(); ++i) from.push_back(inputs.at(name_of_number(i)).data());
    for (const Output& output : cases_[0].graph.outputs())
      to.push_back(outputs.emplace(output.name, Tensor(output.value.type())).first->second.data());
    return host_.run(cases_[0].kernel, from, to, false);
  }

 private:
  struct Case {
    Graph graph;
    PrintedKernel kernel = {};
    uint64_t seed = 0;
    Fill how = Fill::kTame;
    int64_t index_limit = 0;
  };

  static NamedTensors inputs_of(const Case& each) {
    std::mt19937_64 random(each.seed);
    NamedTensors tensors;
    for (const Node* node : each.graph.inputs()) {
      Tensor tensor(node->outputs[0]);
      const DType dtype = tensor.type().dtype;
      fill(tensor, random, each.how);
      if (each.index_limit > 0 && is_integer(dtype))
        for (int64_t i = 0; i < tensor.elements(); ++i)
          tensor.set(i, static_cast<double>(random() % static_cast<uint64_t>(each.index_limit)));
      // {seed, step, first sample} of dropout: no batch begins so late that its numbers wrap.
      if (tensor.type() == TensorType{DType::kI64, {3}}) {
        int64_t& first = tensor.span<int64_t>()[2];
        first = static_cast<int64_t>(static_cast<uint64_t>(first) >> 20);
      }
      tensors.emplace(node->op_as<Input>().input_name, std::move(tensor));
    }
    return tensors;
  }

  // In place of what may be overwritten, and in memory of its own; nothing beside it is touched.
  void run(const Case& each,
           const NamedTensors& inputs,
           const NamedTensors& wanted,
           bool in_place) {
    constexpr size_t kGuard = 64;
    NamedTensors copies = inputs;
    std::vector<const void*> from;
    for (size_t i = 0; i < inputs.size(); ++i) from.push_back(copies.at(name_of_number(i)).data());
    std::deque<Tensor> own;
    std::vector<void*> to;
    std::vector<bool> taken(inputs.size(), false);
    for (size_t i = 0; i < wanted.size(); ++i) {
      const Tensor& result = wanted.at(name_of_number(i));
      void* place = nullptr;
      for (size_t k = 0; in_place && place == nullptr && k < inputs.size(); ++k) {
        Tensor& over = copies.at(name_of_number(k));
        if (taken[k] || over.bytes() != result.bytes() || over.elements() != result.elements() ||
            !node_of(each.graph).op->may_overwrite(i, k))
          continue;
        taken[k] = true;
        place = over.data();
      }
      if (place == nullptr) {
        own.emplace_back(TensorType{DType::kU8, {static_cast<int64_t>(result.bytes() + kGuard)}});
        std::memset(own.back().data(), 0x5a, own.back().bytes());
        place = own.back().data();
      }
      to.push_back(place);
    }
    EXPECT_EQ(host_.run(each.kernel, from, to, in_place).place, 0u);
    for (size_t i = 0; i < wanted.size(); ++i) {
      const Tensor& result = wanted.at(name_of_number(i));
      Tensor got(result.type());
      std::memcpy(got.data(), to[i], got.bytes());
      EXPECT_EQ(first_difference(got, result), "")
          << "output " << i << (in_place ? " in place" : "");
    }
    for (const Tensor& each_own : own) {
      const auto bytes = each_own.span<uint8_t>();
      for (size_t i = bytes.size() - kGuard; i < bytes.size(); ++i)
        EXPECT_EQ(bytes[i], 0x5a) << "written behind a result";
    }
  }

  PrintedOnHost host_;
  std::vector<Case> cases_;
  std::string refusal_;
};

// ---- elementwise bodies ----

template <typename T>
std::shared_ptr<const Op> op_of(T op = {}) {
  return std::make_shared<const T>(std::move(op));
}

// Those of one and two operands of one dtype.
std::vector<std::shared_ptr<const Op>> elementwise_ops() {
  Gelu by_tanh;
  by_tanh.tanh = true;
  return {op_of<Neg>(),        op_of<Abs>(),       op_of<Sign>(),     op_of<Exp>(),
          op_of<Log>(),        op_of<Tanh>(),      op_of<Erf>(),      op_of<Sqrt>(),
          op_of<Rsqrt>(),      op_of<Sigmoid>(),   op_of<Relu>(),     op_of<Silu>(),
          op_of<Gelu>(),       op_of(by_tanh),     op_of<IsFinite>(), op_of<LogicalNot>(),
          op_of<Add>(),        op_of<Sub>(),       op_of<Mul>(),      op_of<Div>(),
          op_of<Maximum>(),    op_of<Minimum>(),   op_of<Equal>(),    op_of<NotEqual>(),
          op_of<Less>(),       op_of<LessEqual>(), op_of<Greater>(),  op_of<GreaterEqual>(),
          op_of<LogicalAnd>(), op_of<LogicalOr>()};
}

constexpr DType kDTypes[] = {DType::kF32,
                             DType::kF32,
                             DType::kF32,
                             DType::kBF16,
                             DType::kF16,
                             DType::kF64,
                             DType::kBool,
                             DType::kI32,
                             DType::kI64,
                             DType::kU8};

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
    std::vector<Value> from;
    for (const Node* node : body_.inputs())
      from.push_back(input(graph, node->op_as<Input>().input_name, node->outputs[0]));
    const LoopDomain domain = has_total_ ? LoopDomain{numel(shape_), 0} : LoopDomain{};
    return &fused(graph, body_, std::move(from), Site{"test"}, domain);
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
    // Functions of f64 are refused, which a test of its own says.
    if (dtype == DType::kF64 && op->traits().op_class == OpClass::kTranscendental &&
        op->name() != "rsqrt")
      return;
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
      Graph body("body"), graph("case");
      const TensorType type{dtype, {size}};
      const Value a = input(body, "0", type), b = input(body, "1", type);
      const Value condition = input(body, "2", {DType::kBool, {size}});
      size_t results = 0;
      for (const auto& op : elementwise_ops()) {
        if (!op->traits().dtypes.has(dtype) || op->traits().min_inputs > 2) continue;
        if (dtype == DType::kF64 && op->traits().op_class == OpClass::kTranscendental &&
            op->name() != "rsqrt")
          continue;
        const bool is_binary = op->traits().min_inputs == 2;
        const std::vector<Value> from =
            is_binary ? std::vector<Value>{a, b} : std::vector<Value>{a};
        body.add_output(name_of_number(results++), {&body.add(op, from), 0});
      }
      for (const DType to : kAllDTypes)
        if (to != dtype) body.add_output(name_of_number(results++), cast(a, to));
      body.add_output(name_of_number(results++), where(condition, a, b));
      std::vector<Value> from;
      for (const Node* node : body.inputs())
        from.push_back(input(graph, node->op_as<Input>().input_name, node->outputs[0]));
      const Node& node = fused(graph, body, std::move(from), Site{"ops"});
      ASSERT_TRUE(all.add(node, 7, Fill::kSpecial)) << all.refusal();
    }
  all.expect_bits_of_cpu();
}

// ---- bodies over rows ----

// Every fused node of the graph behind the passes.
void add_fused(Cases& all, Graph graph, uint64_t seed, int64_t index_limit) {
  const auto cpu = make_backend("cpu");
  run_pipeline(graph, *cpu, {});
  for (const auto& node : graph.nodes())
    if (node->is<Fused>()) all.add(*node, seed, Fill::kTame, index_limit);
}

TEST(PrintedKernels, RandomRowsGiveTheBitsOfTheCpu) {
  Cases all;
  const int graphs = cases(40);
  for (int seed = 0; seed < graphs; ++seed) {
    RandomRows rows(DType::kF32, static_cast<uint64_t>(seed));
    add_fused(all, rows.build().graph().clone(), static_cast<uint64_t>(seed), 2);
  }
  EXPECT_GE(all.size(), static_cast<size_t>(graphs));
  all.expect_bits_of_cpu();
}

// Forward and gradient of what models are made of, for rows of several lengths and numbers.
TEST(PrintedKernels, LossesNormsAndSoftmaxGiveTheBitsOfTheCpu) {
  Cases all;
  const std::vector<std::pair<int64_t, int64_t>> sizes = {
      {3, 2}, {70, 10}, {5, 64}, {130, 65}, {66, 768}, {9, 2048}, {6, 2050}, {3, 7000}};
  for (const auto& [rows, columns] : sizes) {
    const auto seed = static_cast<uint64_t>(rows * columns);
    CaseBuilder norm(DType::kF32, seed);
    const Value x = norm.input({rows, columns}), dy = norm.input({rows, columns});
    const Value gamma = norm.input({columns}), beta = norm.input({columns});
    const std::vector<Value> wrt = {x, gamma, beta};
    norm.finish(vector_jacobian_product(
        std::vector<Value>{layer_norm(x, gamma, beta)}, std::vector<Value>{dy}, wrt));
    add_fused(all, norm.graph().clone(), seed, 0);

    CaseBuilder half(DType::kBF16, seed);
    const Value h = half.input({rows, columns});
    half.finish({cast(softmax(cast(h, DType::kF32)), DType::kBF16) * h});
    add_fused(all, half.graph().clone(), seed, 0);

    CaseBuilder loss(DType::kF32, seed);
    const Value logits = loss.input({rows, columns}, -8, 8);
    const Value targets = loss.indices(DType::kI64, {rows}, 0, columns - 1);
    const Value mean = reduce_mean(cross_entropy(logits, targets));
    loss.finish({mean, gradients(mean, std::vector<Value>{logits})[0]});
    add_fused(all, loss.graph().clone(), seed, columns);
  }
  EXPECT_GE(all.size(), 3 * sizes.size());
  all.expect_bits_of_cpu();
}

// Single nodes: reductions in each direction and broadcasts.
TEST(PrintedKernels, SingleNodesGiveTheBitsOfTheCpu) {
  Cases all;
  for (const DType dtype : {DType::kF32, DType::kF64})
    for (const Shape& shape : {Shape{300, 70}, Shape{2, 3, 2100}, Shape{70, 2, 9}}) {
      Graph graph("single");
      const Value x = input(graph, "x", {dtype, shape});
      const Value y = input(graph, "y", {dtype, {shape.back()}});
      const std::vector<Value> singles = {reduce_sum(x),
                                          reduce_mean(x, {-1}),
                                          reduce_max(x, {-1}),
                                          reduce_mean(x, {0}),
                                          broadcast(y, shape),
                                          sqrt(x),
                                          cast(x, DType::kBF16)};
      for (size_t i = 0; i < singles.size(); ++i)
        ASSERT_TRUE(all.add(*singles[i].node, i, Fill::kSpecial)) << all.refusal();
      for (const Value maximum : {singles[2], reduce_max(x)})
        for (uint64_t seed = 0; seed < 4; ++seed)
          ASSERT_TRUE(all.add(*maximum.node, seed, Fill::kZeros)) << all.refusal();
    }
  all.expect_bits_of_cpu();
}

// Norms and softmax given as one node: their plain form, whose order of additions is not that of
// the CPU's kernels for them. Against the reference, which sums in double.
TEST(PrintedKernels, NodesWithAPlainFormAreNearTheReference) {
  Graph graph("plain");
  const Value x = input(graph, "x", {DType::kF32, {70, 300}});
  const Value gamma = input(graph, "gamma", {DType::kF32, {300}});
  const Value beta = input(graph, "beta", {DType::kF32, {300}});
  const auto ref = make_backend("ref");
  for (const Value value : {layer_norm(x, gamma, beta), rms_norm(x, gamma), softmax(x)}) {
    Cases all;
    ASSERT_TRUE(all.add(*value.node, 3, Fill::kTame)) << all.refusal();
    EXPECT_FALSE(print_kernel(*value.node).kernel->same_bits);
    const NamedTensors inputs = all.inputs();
    NamedTensors outputs;
    all.run_with(inputs, outputs);
    const NamedTensors wanted = evaluate(alone(*value.node), *ref, inputs);
    const Tensor &y = outputs.at("0"), &exact = wanted.at("0");
    for (int64_t i = 0; i < y.elements(); ++i)
      ASSERT_NEAR(y.at(i), exact.at(i), 1e-5 * std::max(1.0, std::fabs(exact.at(i)))) << i;
  }
}

// ---- what is refused, and what goes wrong ----

TEST(PrintedKernels, SaysWhyItRefuses) {
  Graph graph("refused");
  const Value x = input(graph, "x", {DType::kF64, {4, 6, 8}});
  const Value z = input(graph, "z", {DType::kF32, {4, 6, 8}});
  const auto why = [](Value value) { return print_kernel(*value.node).refusal; };
  EXPECT_EQ(why(exp(x)),
            "holds exp, which is a function of f64, which has no fixed sequence of operations");
  EXPECT_EQ(why(reduce_sum(z, {1})), "reduces axes between others");
  EXPECT_EQ(why(transpose(z, {0, 2, 1})), "is transpose, which is no loop over elements");
  EXPECT_EQ(why(exp(z)), "");
}

TEST(PrintedKernels, AnIndexOutOfRangeIsReported) {
  Graph graph("pick");
  const Value x = input(graph, "x", {DType::kF32, {70, 9}});
  const Value at = input(graph, "at", {DType::kI64, {70}});
  Cases all;
  const Value picked = pick(x, at);
  ASSERT_EQ(print_kernel(*picked.node).kernel->index_limit, 9);
  ASSERT_TRUE(all.add(*picked.node, 1, Fill::kTame)) << all.refusal();
  NamedTensors inputs, outputs;
  inputs.emplace("0", Tensor(x.type()));
  inputs.emplace("1", Tensor(at.type()));
  inputs.at("1").set(68, -1);
  const HostFault fault = all.run_with(inputs, outputs);
  EXPECT_EQ(fault.place, 69u);
  EXPECT_EQ(fault.index, -1);
}

// The layers of a model share one kernel: no site is part of it. Another shape is another one.
TEST(PrintedKernels, TheNameIsThatOfTheSource) {
  const auto printed = [](std::string_view scope, int64_t size) {
    Graph graph("names");
    const SiteScope open(graph, scope);
    const Value x = input(graph, "x", {DType::kF32, {size}});
    return *print_kernel(*gelu(x).node).kernel;
  };
  const PrintedKernel first = printed("blocks.0", 64), again = printed("blocks.1", 64);
  EXPECT_EQ(first.name, again.name);
  EXPECT_EQ(first.source, again.source);
  EXPECT_TRUE(first.name.starts_with("loop_gelu_")) << first.name;
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
