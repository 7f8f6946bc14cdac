#include "tests/backend/cuda_kernels/printed_cases.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <deque>
#include <utility>

#include "ridge/compile/pipeline.h"
#include "ridge/graph/ops/fused.h"
#include "ridge/graph/ops/source.h"
#include "ridge/graph/text.h"
#include "ridge/run/backends.h"
#include "ridge/run/compare.h"

namespace ridge::test {

using cuda::print_kernel;
using cuda::PrintedKernel;

std::string name_of_number(size_t i) { return fmt::format("{}", i); }

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

namespace {

const Node& node_of(const Graph& graph) { return *graph.nodes().back(); }

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

// Empty where the results are near the reference's.
std::string far_from_reference(const Graph& lone,
                               const NamedTensors& operands,
                               const NamedTensors& got) {
  const auto reference = make_backend("ref");
  const NamedTensors wanted = evaluate(lone, *reference, operands);
  const Op& op = *node_of(lone).op;
  for (const auto& [name, want] : wanted) {
    const double allowed = tolerance(want.type().dtype, op.traits().op_class);
    if (std::string text = difference(got.at(name), want, allowed); !text.empty()) return text;
  }
  return {};
}

}  // namespace

size_t choose_packed(const Node& /*node*/, const std::vector<Choice>& choices) {
  for (size_t i = 0; i < choices.size(); ++i)
    if (choices[i].name == "packed_gemm") return i;
  return 0;
}

bool Cases::add(const Node& node, uint64_t seed, Fill how, int64_t index_limit, Print print_node) {
  return add(Case{.graph = lone_node(node), .seed = seed, .how = how, .index_limit = index_limit},
             print_node);
}

void Cases::add_loops(Graph graph, uint64_t seed, int64_t index_limit, Print print_node) {
  // Approximations are for those who let sums take another order too.
  const PipelineOptions options{.highest = print_node == cuda::print_approx_kernel
                                               ? SemanticClass::kReassociation
                                               : PipelineOptions{}.highest};
  run_pipeline(graph, *make_backend("cpu"), options);
  for (const auto& node : graph.nodes())
    if (node->is<Fused>()) add(*node, seed, Fill::kTame, index_limit, print_node);
}

bool Cases::add(const Node& node, NamedTensors operands, Print print_node) {
  return add(Case{.graph = lone_node(node), .operands = std::move(operands)}, print_node);
}

void Cases::add(CaseBuilder built, Print print_node) {
  const Node& node = *built.graph().outputs()[0].value.node;
  NamedTensors operands;
  for (const Value& value : node.inputs)
    operands.emplace(name_of_number(operands.size()),
                     built.tensors().at(value.node->op_as<Input>().input_name));
  ASSERT_TRUE(add(node, std::move(operands), print_node)) << refusal_;
}

bool Cases::add(Case each, Print print_node) {
  cuda::Printing printing = print_node(node_of(each.graph), limits_);
  refusal_ = printing.refusal;
  if (!printing.kernel) return false;
  each.kernel = std::move(*printing.kernel);
  host_.add(each.kernel);
  cases_.push_back(std::move(each));
  return true;
}

void Cases::expect(const Check& check) {
  host_.build();
  for (const Case& each : cases_) {
    SCOPED_TRACE(fmt::format("seed {}\n{}\n{}", each.seed, print(each.graph), each.kernel.source));
    const NamedTensors inputs = inputs_of(each), got = run(each, inputs, false);
    check(each.graph, inputs, got);
    EXPECT_EQ(bit_difference(run(each, inputs, true), got), "") << "other bits in one block";
    if (testing::Test::HasFailure()) return;
  }
}

void Cases::expect_bits_of_cpu() {
  for (const Case& each : cases_) EXPECT_TRUE(each.kernel.same_bits) << print(each.graph);
  expect_results();
}

void Cases::expect_results() {
  size_t number = 0;
  expect([&](const Graph&, const NamedTensors& inputs, const NamedTensors& got) {
    const Case& each = cases_[number++];
    if (!each.kernel.same_bits) {
      EXPECT_EQ(far_from_reference(each.graph, inputs, got), "");
      return;
    }
    const auto cpu = make_backend("cpu");
    EXPECT_EQ(bit_difference(got, evaluate(each.graph, *cpu, inputs, choose_packed)), "");
  });
}

HostFault Cases::run_with(const NamedTensors& inputs, NamedTensors& outputs) {
  host_.build();
  std::vector<const void*> from;
  std::vector<void*> to;
  for (size_t i = 0; i < inputs.size(); ++i) from.push_back(inputs.at(name_of_number(i)).data());
  for (const Output& output : cases_[0].graph.outputs())
    to.push_back(outputs.emplace(output.name, Tensor(output.value.type())).first->second.data());
  return host_.run(cases_[0].kernel, from, to, false);
}

NamedTensors Cases::inputs_of(const Case& each) {
  if (!each.operands.empty()) return each.operands;
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

// Operands lie among bytes of NaN, and results among others: where AddressSanitizer, linked or
// preloaded, has its own around them, among none.
NamedTensors Cases::run(const Case& each, const NamedTensors& inputs, bool in_one_block) {
  const size_t guard = ::dlsym(RTLD_DEFAULT, "__asan_init") != nullptr ? 0 : 64;
  struct Memory {
    Tensor bytes;
    uint8_t around;
  };
  std::deque<Memory> memory;
  const auto take = [&](int64_t bytes, uint8_t around) {
    Tensor& made =
        memory.emplace_back(Tensor({DType::kU8, {bytes + 2 * static_cast<int64_t>(guard)}}), around)
            .bytes;
    std::memset(made.data(), around, made.bytes());
    return static_cast<std::byte*>(made.data()) + guard;
  };
  std::vector<const void*> from;
  std::vector<void*> places, to;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& own = inputs.at(name_of_number(i));
    places.push_back(take(static_cast<int64_t>(own.bytes()), 0xff));
    std::memcpy(places.back(), own.data(), own.bytes());
    from.push_back(places.back());
  }
  const Node& node = node_of(each.graph);
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    void* place = nullptr;
    for (size_t k = 0; in_one_block && place == nullptr && k < inputs.size(); ++k) {
      const TensorType& over = inputs.at(name_of_number(k)).type();
      if (over.bytes() == node.outputs[i].bytes() &&
          over.elements() == node.outputs[i].elements() && node.op->may_overwrite(i, k))
        place = std::exchange(places[k], nullptr);
    }
    to.push_back(place != nullptr ? place : take(node.outputs[i].bytes(), 0x5a));
  }
  EXPECT_EQ(host_.run(each.kernel, from, to, in_one_block).place, 0u);
  NamedTensors results;
  for (const Output& output : each.graph.outputs()) {
    Tensor& got = results.emplace(output.name, Tensor(output.value.type())).first->second;
    std::memcpy(got.data(), to[static_cast<size_t>(output.value.index)], got.bytes());
  }
  for (const Memory& own : memory) {
    const auto bytes = own.bytes.span<uint8_t>();
    for (size_t i = 0; i < guard; ++i)
      EXPECT_TRUE(bytes[i] == own.around && bytes[bytes.size() - 1 - i] == own.around)
          << "written beside an operand or a result";
  }
  return results;
}

}  // namespace ridge::test
