#include "ridge/tune/onnx/wide_source.h"

#include <cstring>
#include <set>

#include "ridge/graph/ops/attention.h"
#include "ridge/graph/ops/conv_i8.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/gather.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/matmul_i8.h"
#include "ridge/graph/ops/source.h"

namespace ridge {
namespace {

DType widened(DType dtype) { return is_float(dtype) ? DType::kF64 : dtype; }

// The same elements in f64, in the order in which they lie.
std::shared_ptr<const StateConstant> widened(const StateConstant& constant, DType dtype) {
  const size_t count = constant.bytes.size() / size_of(dtype);
  const auto wide = std::make_shared<std::vector<double>>(count);
  dispatch_float(dtype, "widened", [&]<typename T>(TypeTag<T>) {
    for (size_t i = 0; i < count; ++i) {
      T element;  // which may lie unaligned
      std::memcpy(&element, constant.bytes.data() + i * sizeof(T), sizeof(T));
      (*wide)[i] = convert<double>(element);
    }
  });
  return std::make_shared<const StateConstant>(
      StateConstant{.bytes = std::as_bytes(std::span(*wide)),
                    .owner = wide,
                    .perm = constant.perm,
                    .lying = constant.lying});
}

template <typename T>
std::shared_ptr<const Op> with(const Node& node, DType T::* field) {
  T op = node.op_as<T>();
  op.*field = widened(op.*field);
  return std::make_shared<const T>(std::move(op));
}

// Ops take their dtypes from their operands, but for those that name one.
std::shared_ptr<const Op> widened(const Node& node) {
  if (node.is<Constant>()) return with(node, &Constant::dtype);
  if (node.is<Iota>()) return with(node, &Iota::dtype);
  if (node.is<Cast>()) return with(node, &Cast::to);
  if (node.is<OneHot>()) return with(node, &OneHot::to);
  if (node.is<MatMul>() && is_float(node.inputs[0].dtype())) {
    MatMul op = node.op_as<MatMul>();
    op.accumulate = DType::kF64;
    op.round_to = DType::kF32;
    op.f32_result = op.tf32 = false;
    return std::make_shared<const MatMul>(std::move(op));
  }
  return node.op;
}

class Widening {
 public:
  Widening(const Graph& from, const std::set<std::string>& state, std::optional<DType> operands)
      : from_(from), state_(state), operands_(operands), to_(from.name()) {
    to_.set_binding(from.binding());
  }

  Graph run() {
    for (const auto& node : from_.nodes()) values_.push_back(results_of(*node));
    for (const Output& output : from_.outputs())
      to_.add_output(output.name, mapped(output.value), output.updates);
    return std::move(to_);
  }

 private:
  Value mapped(const Value& value) const {
    return values_.at(static_cast<size_t>(value.node->id)).at(static_cast<size_t>(value.index));
  }

  std::vector<Value> results_of(const Node& node) {
    if (node.is<Input>()) return {input_of(node.op_as<Input>())};
    std::vector<Value> inputs;
    for (const Value& input : node.inputs) inputs.push_back(mapped(input));
    if (node.is<MatMulI8>() || node.is<Conv2dI8>())
      return {product_of_bytes(node, std::move(inputs))};
    const bool is_rounded = operands_ && node.op->traits().op_class == OpClass::kContraction &&
                            !node.is<Attention>() && inputs[0].dtype() == DType::kF64;
    if (is_rounded)
      for (Value& input : inputs) input = rounded(input);
    Node& made = to_.add(widened(node), std::move(inputs), node.site);
    std::vector<Value> results;
    for (size_t i = 0; i < made.outputs.size(); ++i) {
      const Value result{&made, static_cast<int>(i)};
      results.push_back(is_rounded && !node.is<MatMul>() ? rounded(result) : result);
    }
    return results;
  }

  // Sums of bytes are exact, and f32 is what their scales are defined in.
  Value product_of_bytes(const Node& node, std::vector<Value> inputs) {
    for (Value& input : inputs)
      if (is_float(input.dtype())) input = cast(input, DType::kF32);
    const Value result{&to_.add(node.op, std::move(inputs), node.site), 0};
    return is_float(result.dtype()) ? cast(result, DType::kF64) : result;
  }

  // Constants are widened where they lie, data of a run when they come.
  Value input_of(const Input& op) {
    const bool is_state = state_.contains(op.input_name);
    const DType dtype = is_state ? widened(op.dtype) : op.dtype;
    const Value value = input(to_, op.input_name, {dtype, op.shape}, op.batch);
    return widened(dtype) == dtype ? value : cast(value, DType::kF64);
  }

  Value rounded(Value value) {
    return value.dtype() == DType::kF64 ? cast(cast(value, *operands_), DType::kF64) : value;
  }

  const Graph& from_;
  const std::set<std::string>& state_;
  std::optional<DType> operands_;
  Graph to_;
  std::vector<std::vector<Value>> values_;  ///< By id of the old node.
};

void widen(std::vector<StateEntry>& entries) {
  for (StateEntry& entry : entries) {
    check_internal(entry.derivation == nullptr, "[widen] '{}' is derived", entry.name);
    if (entry.constant != nullptr && is_float(entry.type.dtype))
      entry.constant = widened(*entry.constant, entry.type.dtype);
    entry.type.dtype = widened(entry.type.dtype);
  }
}

}  // namespace

std::vector<DataSpec> WideSource::outputs() const {
  std::vector<DataSpec> outputs = model_->outputs();
  for (DataSpec& output : outputs) output.dtype = widened(output.dtype);
  return outputs;
}

std::vector<StateEntry> WideSource::state() const {
  std::vector<StateEntry> entries = model_->state();
  widen(entries);
  return entries;
}

ProgramGraphs WideSource::build(const Binding& binding) const {
  ProgramGraphs graphs = model_->bind(binding);
  std::set<std::string> state;
  for (const StateEntry& entry : graphs.state) state.insert(entry.name);
  for (Graph& graph : graphs.entries) graph = Widening(graph, state, operands_).run();
  // bind() adds what all bindings share.
  graphs.state.erase(graphs.state.begin(), graphs.state.begin() + std::ssize(model_->state()));
  widen(graphs.state);
  return graphs;
}

}  // namespace ridge
