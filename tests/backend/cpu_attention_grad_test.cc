// The gradient of CPU attention against the reference backend in f64, in both forms.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstring>

#include "ridge/backend/ref/ref_backend.h"
#include "ridge/graph/autodiff.h"
#include "ridge/graph/ops/attention.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/reduce.h"
#include "tests/backend/cpu_runs.h"
#include "tests/support/gradient_check.h"

namespace ridge::test {
namespace {

const DType kFloatDTypes[] = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16};

struct Case {
  int64_t batch = 1, heads = 1, queries = 1, keys = 1, depth = 1, width = 1;
  bool causal = false;
  Shape mask = {};  // empty: none
  bool packed = false;
};

std::string describe(const Case& c, DType dtype) {
  return fmt::format("{} B {} H {} T {} S {} D {} E {} causal {} mask {} packed {}",
                     name_of(dtype),
                     c.batch,
                     c.heads,
                     c.queries,
                     c.keys,
                     c.depth,
                     c.width,
                     c.causal,
                     to_string(c.mask),
                     c.packed);
}

Case packed(int64_t batch, int64_t heads, int64_t length, int64_t depth, bool causal) {
  return {batch, heads, length, length, depth, depth, causal, {}, true};
}

// Inputs q, k and v, or qkv, then dy and perhaps the mask; outputs y, logsumexp and the gradients.
// Returns the node of the attention.
Node* build(const Case& c, CaseBuilder& b) {
  std::vector<Value> operands;
  if (c.packed) {
    operands = {b.input({c.batch, c.queries, 3 * c.heads * c.depth})};
  } else {
    operands = {b.input({c.batch, c.heads, c.queries, c.depth}),
                b.input({c.batch, c.heads, c.keys, c.depth}),
                b.input({c.batch, c.heads, c.keys, c.width})};
  }
  AttentionOptions options{.causal = c.causal};
  if (!c.mask.empty()) options.mask = b.input(DType::kBool, c.mask, 0, 1);
  const Value y = c.packed ? packed_attention(operands[0], c.heads, options)
                           : attention(operands[0], operands[1], operands[2], options);
  const Value results[] = {y}, seeds[] = {b.input(y.shape())};
  std::vector<Value> outputs{y, {y.node, 1}};
  for (Value gradient : vector_jacobian_product(results, seeds, operands))
    outputs.push_back(gradient);
  b.finish(outputs);
  return y.node;
}

// The results of `graph` in f64 on the reference backend, for the same numbers.
NamedTensors in_f64(const Case& c, const CaseBuilder& b) {
  CaseBuilder wide(DType::kF64, 1);
  build(c, wide);
  NamedTensors inputs;
  for (const auto& [name, tensor] : b.tensors()) {
    const bool is_mask = tensor.type().dtype == DType::kBool;
    Tensor copy({is_mask ? DType::kBool : DType::kF64, tensor.type().shape});
    for (int64_t i = 0; i < tensor.elements(); ++i) copy.set(i, tensor.at(i));
    inputs.emplace(name, std::move(copy));
  }
  return evaluate(wide.graph(), *make_ref_backend(), inputs);
}

std::string far_from_f64(const Case& c, DType dtype, uint64_t seed, double factor = 1.0) {
  CaseBuilder b(dtype, seed);
  build(c, b);
  const NamedTensors got = run_every_way(b), want = in_f64(c, b);
  std::string text;
  for (const auto& [name, tensor] : got) {
    Tensor wide({DType::kF64, tensor.type().shape});
    for (int64_t i = 0; i < tensor.elements(); ++i) wide.set(i, tensor.at(i));
    // The terms of a gradient, products of weights, dy and q, k or v, are not all small where their
    // sum is, as with one key.
    Tensor terms(wide.type());
    for (int64_t i = 0; i < terms.elements(); ++i) terms.set(i, 0.1);
    const double allowed = factor * tolerance(dtype, OpClass::kContraction);
    const std::string off = difference(wide, want.at(name), allowed, &terms);
    if (!off.empty()) text += name + ": " + off + "\n";
  }
  return text;
}

// A weight inherits the error of its score, a sum over the depth, and a difference of two sums is
// what the scores' gradients are: a few times the table's error of one sum. In 16 bits the gradient
// is computed from a y that is rounded, hence from a scalar product <y, dy> that is off.
double factor_of(DType dtype) { return size_of(dtype) == 2 ? 8.0 : 5.0; }

TEST(CpuAttentionGrad, CausalOfOddLengths) {
  for (DType dtype : kFloatDTypes)
    for (int64_t length : {1, 7, 65, 130})
      for (int64_t depth : {64, 17, 40}) {
        const Case separate{2, 2, length, length, depth, depth, true};
        EXPECT_EQ(far_from_f64(separate, dtype, 1, factor_of(dtype)), "")
            << describe(separate, dtype);
        const Case one = packed(2, 2, length, depth, true);
        EXPECT_EQ(far_from_f64(one, dtype, 2, factor_of(dtype)), "") << describe(one, dtype);
      }
}

TEST(CpuAttentionGrad, OtherShapesAndMasks) {
  const Case cases[] = {{1, 3, 70, 133, 24, 40, false},
                        {2, 1, 133, 70, 24, 40, true},
                        {1, 2, 70, 133, 16, 9, true},
                        {2, 2, 65, 97, 33, 17, false, {2, 1, 65, 97}},
                        {2, 3, 40, 40, 16, 16, true, {2, 1, 1, 40}},
                        {1, 2, 33, 200, 8, 8, false, {1, 2, 1, 200}},
                        {2, 2, 48, 48, 16, 16, true, {1, 1, 48, 48}, true}};
  for (DType dtype : kFloatDTypes)
    for (const Case& c : cases)
      EXPECT_EQ(far_from_f64(c, dtype, 3, factor_of(dtype)), "") << describe(c, dtype);
}

// One head is cut into ranges of keys, each with a dq of its own.
TEST(CpuAttentionGrad, RangesOfKeysAddUp) {
  for (DType dtype : kFloatDTypes)
    for (const Case& c : {Case{1, 1, 1100, 1100, 16, 16, true},
                          Case{1, 1, 70, 1600, 16, 8, false},
                          Case{1, 1, 600, 1100, 8, 8, true}})
      EXPECT_EQ(far_from_f64(c, dtype, 4, 2 * factor_of(dtype)), "") << describe(c, dtype);
}

TEST(CpuAttentionGrad, QueriesWithoutAKeyHaveNoGradient) {
  for (DType dtype : kFloatDTypes) {
    const int64_t keys = 150, depth = 8;
    CaseBuilder b(dtype, 5);
    const Value q = b.input({1, 1, 3, depth}), k = b.input({1, 1, keys, depth}),
                v = b.input({1, 1, keys, depth});
    std::vector<double> mask(3 * keys, 0.0);
    mask[keys + 100] = mask[keys + 140] = 1.0;  // query 1 sees two keys, no other any
    const Value allowed = b.given({DType::kBool, {1, 1, 3, keys}}, mask);
    const Value y = attention(q, k, v, {.mask = allowed});
    const Value results[] = {y}, seeds[] = {b.input(y.shape())}, wrt[] = {q, k, v};
    b.finish(vector_jacobian_product(results, seeds, wrt));
    const NamedTensors gradients = run_every_way(b);
    for (int64_t i = 0; i < depth; ++i) {
      EXPECT_EQ(gradients.at("y0").at(i), 0.0);
      EXPECT_NE(gradients.at("y0").at(depth + i), 0.0);
      EXPECT_EQ(gradients.at("y0").at(2 * depth + i), 0.0);
    }
    for (int64_t s = 0; s < keys; ++s)
      for (const char* name : {"y1", "y2"}) {
        const bool is_seen = s == 100 || s == 140;
        EXPECT_EQ(gradients.at(name).at(s * depth) != 0.0, is_seen) << name << " " << s;
      }
  }
}

// Blocks of keys that a mask forbids to a block of queries are left out, as those beyond a causal
// mask are: all results have the bits of that.
TEST(CpuAttentionGrad, AMaskOfTheLowerTriangleIsCausal) {
  const int64_t length = 200, depth = 16;
  std::vector<double> triangle;
  for (int64_t i = 0; i < length * length; ++i) triangle.push_back(i % length <= i / length);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    NamedTensors results[2];
    for (const bool causal : {false, true}) {
      CaseBuilder b(dtype, 7);
      const Shape shape{1, 2, length, depth};
      const Value q = b.input(shape), k = b.input(shape), v = b.input(shape), dy = b.input(shape);
      const Value mask = b.given({DType::kBool, {1, 1, length, length}}, triangle);
      AttentionOptions options;
      options.causal = causal;
      if (!causal) options.mask = mask;
      const Value y = attention(q, k, v, options);
      const Value ends[] = {y}, seeds[] = {dy}, wrt[] = {q, k, v};
      std::vector<Value> outputs = vector_jacobian_product(ends, seeds, wrt);
      outputs.push_back(y);
      b.finish(outputs);
      results[causal] = run_every_way(b);
    }
    EXPECT_EQ(bit_difference(results[0], results[1]), "") << name_of(dtype);
  }
}

// A query that sees one key has its value, whatever the score: no gradient, not even a rounding
// error of one, reaches q and k.
TEST(CpuAttentionGrad, OneKeyMakesTheScoresGradientZero) {
  for (DType dtype : kFloatDTypes)
    for (int64_t depth : {5, 64}) {
      CaseBuilder b(dtype, 10);
      build({2, 2, 1, 1, depth, depth, true}, b);
      const NamedTensors results = run_every_way(b);
      for (const char* name : {"y2", "y3"})
        for (int64_t i = 0; i < results.at(name).elements(); ++i)
          EXPECT_EQ(results.at(name).at(i), 0.0) << name_of(dtype) << " " << name;
    }
}

// The gradient of a gradient, and that of the logsumexp, come from the plain forms.
TEST(CpuAttentionGrad, SecondDerivative) {
  const auto cpu = make_cpu_backend(), reference = make_ref_backend();
  for (const Case& c : {Case{1, 2, 6, 6, 4, 4, true},
                        Case{1, 2, 5, 7, 4, 3, false, {1, 1, 5, 7}},
                        packed(2, 2, 5, 4, true)}) {
    CaseBuilder b(DType::kF64, 6);
    build(c, b);
    const GradientCheck check = check_gradients(b.graph(), b.tensors(), *cpu, *reference, 7);
    EXPECT_EQ(check.problem, "") << describe(c, DType::kF64);
    EXPECT_GE(check.inputs_checked, c.packed ? 2 : 4);
  }
}

// ---- memory ----

const Node* gradient_node(const Graph& graph) {
  for (const auto& node : graph.nodes())
    if (node->is<AttentionGrad>()) return node.get();
  return nullptr;
}

// No tensor of the graph grows with the square of the length, and no workspace more than linearly.
TEST(CpuAttentionGrad, MemoryIsLinearInTheLength) {
  const auto backend = make_cpu_backend();
  const auto bytes = [&](DType dtype, int64_t heads, int64_t length) {
    CaseBuilder b(dtype, 8);
    build({1, heads, length, length, 8, 8, true}, b);
    for (const auto& node : b.graph().nodes())
      for (const TensorType& type : node->outputs) EXPECT_LE(type.elements(), heads * length * 8);
    const Node* node = gradient_node(b.graph());
    return backend->instantiate(*node, 0)->workspace_bytes();
  };
  for (DType dtype : kFloatDTypes)
    for (int64_t heads : {1, 24})
      EXPECT_LE(static_cast<double>(bytes(dtype, heads, 16384)),
                2.01 * static_cast<double>(bytes(dtype, heads, 8192)))
          << name_of(dtype) << ", heads " << heads;
  // With each head one task, the workspace holds blocks alone, whatever the length.
  EXPECT_EQ(bytes(DType::kF32, 24, 1024), bytes(DType::kF32, 24, 4096));
}

// Memory that ends at a page without access.
class Guarded {
 public:
  explicit Guarded(size_t bytes) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t inside = (bytes + page - 1) / page * page;
    mapped_ = inside + page;
    base_ =
        static_cast<char*>(mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_NE(static_cast<void*>(base_), MAP_FAILED);
    EXPECT_EQ(mprotect(base_, inside, PROT_READ | PROT_WRITE), 0);
    data_ = base_ + inside - bytes;
  }
  ~Guarded() { munmap(base_, mapped_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  void* data() const { return data_; }

 private:
  char* base_;
  char* data_;
  size_t mapped_;
};

void launch_guarded(Backend& backend, const Node& node) {
  const auto kernel = backend.instantiate(node, 0);
  std::vector<std::unique_ptr<Guarded>> memory;
  const auto take = [&](size_t bytes) {
    memory.push_back(std::make_unique<Guarded>(bytes));
    return memory.back()->data();
  };
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  for (const TensorType& type : node.input_types())
    inputs.push_back(take(static_cast<size_t>(type.bytes())));
  for (const TensorType& type : node.outputs)
    outputs.push_back(take(static_cast<size_t>(type.bytes())));
  kernel->launch(*backend.make_stream(), {inputs, outputs, take(kernel->workspace_bytes())});
}

TEST(CpuAttentionGrad, TouchesNothingBehindItsOperands) {
  const CpuSettings restore;
  const auto backend = make_cpu_backend();
  for (cpu::Isa isa : cpu::kAllIsas) {
    if (!cpu::has_isa(isa)) continue;
    cpu::set_isa(isa);
    for (DType dtype : kFloatDTypes)
      for (const Case& c : {Case{1, 2, 5, 3, 1, 2, false},
                            Case{1, 1, 67, 70, 16, 17, true},
                            Case{1, 1, 40, 1100, 12, 32, false},
                            packed(1, 3, 67, 16, true),
                            packed(1, 3, 33, 7, true)}) {
        CaseBuilder b(dtype, 9);
        const Node* forward = build(c, b);
        launch_guarded(*backend, *forward);
        launch_guarded(*backend, *gradient_node(b.graph()));
      }
  }
}

}  // namespace
}  // namespace ridge::test
