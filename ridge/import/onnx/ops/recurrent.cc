// Recurrent layers, unrolled over time.
#include <algorithm>

#include "ridge/graph/ops/activation.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "ridge/import/onnx/op_table.h"
#include "ridge/import/onnx/ops/axes.h"

namespace ridge::onnx {
namespace {

constexpr int64_t kMostSteps = 4096;

using Function = Value (*)(Value);

Function activation_of(const std::string& name) {
  if (name == "Sigmoid") return ridge::sigmoid;
  if (name == "Tanh") return ridge::tanh;
  check(name == "Relu", "activation '{}' is not supported", name);
  return ridge::relu;
}

// Letters: T steps, B rows of the batch, I inputs, H hidden, G gates.
struct Layer {
  int64_t gates = 1, hidden = 1;
  Value products;     // (T, B, G H): inputs by their weights, with their bias
  Value recurrent;    // (G H, H)
  Value hidden_bias;  // (G H), or null
  Value peepholes;    // (3 H), or null
  std::vector<Function> functions;

  Value gate(Value x, int64_t number) const {
    return slice(x, -1, number * hidden, (number + 1) * hidden);
  }
};

struct Carried {
  Value h, c;  // (B, H); c of LSTMs alone
};

using Step = Carried (*)(const NodeContext& n, const Layer& layer, Value x, const Carried& before);

Carried rnn_step(const NodeContext&, const Layer& layer, Value x, const Carried& before) {
  Value sum = x + matmul(before.h, layer.recurrent, false, true);
  if (layer.hidden_bias) sum = sum + layer.hidden_bias;
  return {layer.functions[0](sum), {}};
}

Carried gru_step(const NodeContext& n, const Layer& layer, Value x, const Carried& before) {
  const int64_t hidden = layer.hidden;
  const bool is_linear = n.integer("linear_before_reset", 0) != 0;
  const auto of_gate = [&](Value from, int64_t gate) {
    const Value weights = slice(layer.recurrent, 0, gate * hidden, (gate + 1) * hidden);
    return matmul(from, weights, false, true);
  };
  const auto biased = [&](Value value, int64_t gate) {
    return layer.hidden_bias ? value + layer.gate(layer.hidden_bias, gate) : value;
  };
  const Value z = layer.functions[0](layer.gate(x, 0) + biased(of_gate(before.h, 0), 0));
  const Value r = layer.functions[0](layer.gate(x, 1) + biased(of_gate(before.h, 1), 1));
  const Value recurrent =
      is_linear ? r * biased(of_gate(before.h, 2), 2) : biased(of_gate(r * before.h, 2), 2);
  const Value candidate = layer.functions[1](layer.gate(x, 2) + recurrent);
  return {(1.0 - z) * candidate + z * before.h, {}};
}

// Gates in ONNX's order: input, output, forget, cell.
Carried lstm_step(const NodeContext& n, const Layer& layer, Value x, const Carried& before) {
  check(n.integer("input_forget", 0) == 0, "it couples input and forget gates");
  Value sum = x + matmul(before.h, layer.recurrent, false, true);
  if (layer.hidden_bias) sum = sum + layer.hidden_bias;
  const auto peeped = [&](Value gate, int64_t number, Value cell) {
    return layer.peepholes ? gate + layer.gate(layer.peepholes, number) * cell : gate;
  };
  const Value i = layer.functions[0](peeped(layer.gate(sum, 0), 0, before.c));
  const Value f = layer.functions[0](peeped(layer.gate(sum, 2), 2, before.c));
  const Value c = f * before.c + i * layer.functions[1](layer.gate(sum, 3));
  const Value o = layer.functions[0](peeped(layer.gate(sum, 1), 1, c));
  return {o * layer.functions[2](c), c};
}

// Direction `d` of an input (D, ...), without that axis.
Value direction_of(Value x, int64_t d) {
  Shape shape = x.shape();
  check(!shape.empty() && d < shape[0], "an input is of {} directions", to_string(shape));
  shape.erase(shape.begin());
  return reshape(slice(x, 0, d, d + 1), shape);
}

std::vector<Function> functions_of(const NodeContext& n,
                                   int64_t d,
                                   std::vector<std::string> names) {
  if (const Attribute* given = n.find("activations"))
    for (size_t i = 0; i < names.size(); ++i) {
      const size_t at = static_cast<size_t>(d) * names.size() + i;
      check(at < given->texts.size(), "it has {} activations", given->texts.size());
      check(is_printable(given->texts[at]), "an activation is no text");
      names[i] = given->texts[at];
    }
  std::vector<Function> functions;
  for (const std::string& name : names) functions.push_back(activation_of(name));
  return functions;
}

struct Form {
  int64_t gates;
  std::vector<std::string> functions;
  Step step;
};

// x (T, B, I).
Layer layer_of(const NodeContext& n, const Form& form, Value x, int64_t d) {
  Layer layer;
  layer.gates = form.gates;
  layer.functions = functions_of(n, d, form.functions);
  layer.recurrent = direction_of(n.value(2), d);
  layer.hidden = layer.recurrent.dim(1);
  check(layer.recurrent.dim(0) == form.gates * layer.hidden,
        "its weights are {}",
        to_string(layer.recurrent.type()));
  layer.products = matmul(x, direction_of(n.value(1), d), false, true);
  if (n.has(3)) {
    const Value both = direction_of(n.value(3), d);
    const int64_t half = form.gates * layer.hidden;
    check(both.dim(0) == 2 * half, "its biases are {}", to_string(both.type()));
    layer.products = layer.products + slice(both, 0, 0, half);
    layer.hidden_bias = slice(both, 0, half, 2 * half);
  }
  if (n.has(7)) layer.peepholes = direction_of(n.value(7), d);
  return layer;
}

struct Ran {
  std::vector<Value> steps;  // (B, H) each, in the order of time
  Carried last;
};

Ran run(const NodeContext& n,
        const Form& form,
        Value x,
        int64_t d,
        bool is_backward,
        bool batch_first) {
  const Layer layer = layer_of(n, form, x, d);
  const int64_t steps = x.dim(0), batch = x.dim(1);
  const TensorType type{x.dtype(), {batch, layer.hidden}};
  const auto initial = [&](size_t input) {
    if (!n.has(input)) return constant(n.graph(), type, 0.0);
    const Value all = n.value(input);
    return direction_of(batch_first ? transpose(all, {1, 0, 2}) : all, d);
  };
  Carried carried{initial(5), form.gates == 4 ? initial(6) : Value{}};
  Ran ran;
  for (int64_t step = 0; step < steps; ++step) {
    const int64_t t = is_backward ? steps - 1 - step : step;
    const Value now =
        reshape(slice(layer.products, 0, t, t + 1), {batch, form.gates * layer.hidden});
    carried = form.step(n, layer, now, carried);
    ran.steps.push_back(carried.h);
  }
  if (is_backward) std::reverse(ran.steps.begin(), ran.steps.end());
  ran.last = carried;
  return ran;
}

Value stacked(std::vector<Value> values, int64_t axis) {
  for (Value& value : values) {
    Shape shape = value.shape();
    shape.insert(shape.begin() + axis, 1);
    value = reshape(value, shape);
  }
  return concat(std::move(values), axis);
}

void recurrent(NodeContext& n, const Form& form) {
  check(n.rank(0) == 3 && n.rank(1) == 3 && n.rank(2) == 3, "its inputs have not 3 dimensions");
  check(!n.has_attribute("clip"), "clip is not supported");
  const bool batch_first = n.integer("layout", 0) != 0;
  const Value x = batch_first ? transpose(n.value(0), {1, 0, 2}) : n.value(0);
  check(x.dim(0) <= kMostSteps, "it has {} steps", x.dim(0));
  if (n.has(4))
    for (const int64_t length : n.integers(4, "list of lengths"))
      check(length == x.dim(0), "sequences of {} in {} steps", length, x.dim(0));
  const std::string direction = n.text("direction", "forward");
  check(direction == "forward" || direction == "reverse" || direction == "bidirectional",
        "direction '{}' is not known",
        direction);
  const int64_t directions = direction == "bidirectional" ? 2 : 1;
  std::vector<Value> sequences, hidden, cells;
  for (int64_t d = 0; d < directions; ++d) {
    const Ran ran = run(n, form, x, d, direction == "reverse" || d == 1, batch_first);
    sequences.push_back(stacked(ran.steps, 0));  // (T, B, H)
    hidden.push_back(ran.last.h);
    if (ran.last.c) cells.push_back(ran.last.c);
  }
  const auto last = [&](const std::vector<Value>& values) {
    return stacked(values, batch_first ? 1 : 0);
  };
  const Value all = stacked(sequences, 1);  // (T, D, B, H)
  n.give(0, batch_first ? transpose(all, {2, 0, 1, 3}) : all);
  n.give(1, last(hidden));
  if (n.wants(2) && !cells.empty()) n.give(2, last(cells));
}

void rnn(NodeContext& n) { recurrent(n, {1, {"Tanh"}, rnn_step}); }
void gru(NodeContext& n) { recurrent(n, {3, {"Sigmoid", "Tanh"}, gru_step}); }
void lstm(NodeContext& n) { recurrent(n, {4, {"Sigmoid", "Tanh", "Tanh"}, lstm_step}); }

constexpr OpRow kRecurrentOps[] = {
    {"GRU", gru},
    {"LSTM", lstm},
    {"RNN", rnn},
};

}  // namespace

std::span<const OpRow> recurrent_ops() { return kRecurrentOps; }

}  // namespace ridge::onnx
