// Norm, softmax and cross-entropy, forward and backward, on demand: bench/row_ops.py has them run
// in turn with PyTorch's and with a copy.
//
//   bench_row_ops DEVICE norm|softmax|cross_entropy f32|bf16|f16 ROWS COLUMNS
//
// Writes a line that describes the run. Then it reads a number of repetitions a line from stdin,
// runs so many and answers with the seconds that they took. Bytes are each large operand read once
// plus each large result written once.
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/exit_code.h"
#include "ridge/base/clock.h"
#include "ridge/base/error.h"
#include "ridge/graph/autodiff.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/norm.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/softmax.h"
#include "ridge/graph/ops/source.h"
#include "ridge/run/backends.h"
#include "ridge/run/program.h"
#include "ridge/run/tuning.h"

namespace ridge {
namespace {

struct Shape {
  DType dtype;
  int64_t rows, columns;
  TensorType matrix() const { return {dtype, {rows, columns}}; }
  TensorType row() const { return {dtype, {columns}}; }
};

struct Chain {
  ProgramGraphs graphs;
  int matrices = 0;  ///< Matrices (rows, columns) that are read or written.
};

// All operands are state, and are there before each run: entries share the bytes of other inputs.
Value operand(Chain& chain, Graph& graph, const std::string& name, const TensorType& type) {
  const auto has_name = [&](const StateEntry& entry) { return entry.name == name; };
  if (std::ranges::none_of(chain.graphs.state, has_name))
    chain.graphs.state.push_back({name, type});
  return input(graph, name, type);
}

// Operands of 16 bits are computed with in f32 and results are rounded once, as a training step in
// mixed precision and PyTorch's operators have it.
Value computed(Value operand) {
  return size_of(operand.dtype()) == 2 ? cast(operand, DType::kF32) : operand;
}

void add_forward(Chain& chain, const std::function<Value(Graph&)>& build) {
  Graph graph("forward");
  const Value y = build(graph);
  graph.add_output("y", y);
  chain.graphs.entries.push_back(std::move(graph));
}

void add_backward(Chain& chain, const Shape& shape, const std::function<Value(Graph&)>& build) {
  Graph graph("backward");
  const Value y = build(graph);
  std::vector<Value> operands;
  for (const auto& node : graph.nodes())
    if (node->is<Input>()) operands.push_back({node.get(), 0});
  const Value dy = operand(chain, graph, "dy", shape.matrix());
  const auto made =
      vector_jacobian_product(std::vector<Value>{y}, std::vector<Value>{dy}, operands);
  for (size_t i = 0; i < made.size(); ++i) graph.add_output(fmt::format("d{}", i), made[i]);
  chain.graphs.entries.push_back(std::move(graph));
}

Chain norm_chain(const Shape& shape) {
  Chain chain;
  const auto build = [&](Graph& graph) {
    const auto read = [&](const char* name, const TensorType& type) {
      return computed(operand(chain, graph, name, type));
    };
    const Value x = read("x", shape.matrix()), gamma = read("gamma", shape.row());
    return cast(layer_norm(x, gamma, read("beta", shape.row())), shape.dtype);
  };
  add_forward(chain, build);
  add_backward(chain, shape, build);
  chain.matrices = 5;
  return chain;
}

Chain softmax_chain(const Shape& shape) {
  Chain chain;
  const auto build = [&](Graph& graph) {
    return cast(softmax(computed(operand(chain, graph, "x", shape.matrix()))), shape.dtype);
  };
  add_forward(chain, build);
  add_backward(chain, shape, build);
  chain.matrices = 5;
  return chain;
}

// The mean loss and its gradient, in one: a step never needs the loss alone.
Chain cross_entropy_chain(const Shape& shape) {
  Chain chain;
  Graph graph("loss");
  const Value x = operand(chain, graph, "x", shape.matrix());
  const Value targets = operand(chain, graph, "targets", {DType::kI64, {shape.rows}});
  const Value loss = reduce_mean(cross_entropy(computed(x), targets));
  graph.add_output("loss", loss);
  graph.add_output("gradient", gradients(loss, std::vector<Value>{x})[0]);
  chain.graphs.entries.push_back(std::move(graph));
  chain.matrices = 2;
  return chain;
}

Chain make_chain(std::string_view name, const Shape& shape) {
  if (name == "norm") return norm_chain(shape);
  if (name == "softmax") return softmax_chain(shape);
  if (name == "cross_entropy") return cross_entropy_chain(shape);
  throw UserError(fmt::format("there is no chain '{}'", name),
                  "take norm, softmax or cross_entropy");
}

// Numbers of some size that do not repeat within a row, or classes below `columns`.
Tensor filled(const TensorType& type, int64_t columns) {
  constexpr int64_t kPeriod = 999983;
  Tensor tensor(type);
  const int64_t some = std::min(kPeriod, tensor.elements());
  for (int64_t i = 0; i < some; ++i)
    tensor.set(i,
               is_float(type.dtype) ? static_cast<double>(i * 7919 % 2001 - 1000) * 4e-3
                                    : static_cast<double>(i * 7919 % columns));
  const size_t bytes =
      static_cast<size_t>(some) * (tensor.bytes() / static_cast<size_t>(tensor.elements()));
  auto* const first = static_cast<std::byte*>(tensor.data());
  for (size_t at = bytes; at < tensor.bytes(); at += bytes)
    std::memcpy(first + at, first, std::min(bytes, tensor.bytes() - at));
  return tensor;
}

int64_t parse_size(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  check(error == std::errc() && end == text.data() + text.size() && value >= 1,
        "'{}' is no number of rows or columns",
        text);
  return value;
}

void run(const std::vector<std::string>& words) {
  const std::string& device = words[0];
  const auto dtype = parse_dtype(words[2]);
  check(dtype && is_float(*dtype), "'{}' is no dtype of floats", words[2]);
  const Shape shape{*dtype, parse_size(words[3]), parse_size(words[4])};
  Chain chain = make_chain(words[1], shape);
  const std::vector<StateEntry> operands = chain.graphs.state;
  const auto backend = make_backend(device);
  Tuning tuning(device, false);
  ProgramOptions options;
  if (size_of(*dtype) == 2) {
    options.passes.precision = *dtype;
    options.passes.highest = SemanticClass::kPrecision;
  }
  options.plan.choose =
      tuning.choose(words.size() > 5 ? KernelRange::kAnyBits : KernelRange::kSameBits);
  State state(*backend);
  Program program(std::move(chain.graphs), state, options);
  for (const StateEntry& entry : operands)
    state.write(entry.name, filled(entry.type, shape.columns));
  const int64_t bytes = chain.matrices * shape.matrix().bytes();
  fmt::print("{{\"bytes\": {}, \"device\": \"{}\"}}\n", bytes, device);
  std::fflush(stdout);
  for (int count; std::scanf("%d", &count) == 1;) {
    program.synchronize();
    const int64_t start = now_ns();
    for (int i = 0; i < count; ++i)
      for (size_t entry = 0; entry < program.entries().size(); ++entry) program.run(entry);
    program.synchronize();
    fmt::print("{{\"seconds\": {:.9f}}}\n", static_cast<double>(now_ns() - start) * 1e-9);
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace ridge

int main(int argc, char** argv) {
  const bool is_fastest = argc == 7 && std::string_view(argv[6]) == "fastest";
  if (argc != 6 && !is_fastest) {
    fmt::print(stderr,
               "usage: bench_row_ops DEVICE norm|softmax|cross_entropy f32|bf16|f16 ROWS COLUMNS "
               "[fastest]\n");
    return 2;
  }
  return ridge::bench::exit_code(
      [&] { ridge::run(std::vector<std::string>(argv + 1, argv + argc)); });
}
