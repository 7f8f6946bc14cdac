// Operators with graphs of their own. What decides which of them run, and how often, is known while
// the model is imported: branches are chosen, loops unrolled.
#include <algorithm>

#include "ridge/graph/ops/shape.h"
#include "ridge/import/onnx/op_table.h"
#include "ridge/import/onnx/ops/axes.h"

namespace ridge::onnx {
namespace {

constexpr int64_t kMostIterations = 10000;

const GraphProto& graph_of(const NodeContext& n, std::string_view name) {
  const Attribute* attribute = n.find(name);
  check(attribute != nullptr && attribute->graph != nullptr, "its graph '{}' is missing", name);
  return *attribute->graph;
}

// The outputs of a graph inside the node, for those inputs.
std::vector<DatumPtr> run_body(NodeContext& n,
                               const GraphProto& body,
                               const std::vector<DatumPtr>& inputs) {
  check(body.inputs.size() == inputs.size(),
        "its graph has {} inputs; expected {}",
        body.inputs.size(),
        inputs.size());
  Scope scope{.parent = &n.scope(),
              .opsets = n.scope().opsets,
              .attributes = n.scope().attributes,
              .depth = n.scope().depth + 1};
  for (size_t i = 0; i < inputs.size(); ++i) scope.values[body.inputs[i].name] = inputs[i];
  return n.import().import_graph(body, scope);
}

void give_all(NodeContext& n, const std::vector<DatumPtr>& values) {
  check(values.size() >= n.outputs(),
        "its graph has {} outputs; expected {}",
        values.size(),
        n.outputs());
  for (size_t i = 0; i < n.outputs(); ++i) n.give(i, values[i]);
}

bool is_true(const DatumPtr& datum, std::string_view what) {
  check(!datum->is_refused, "its {} comes of a node that is not imported", what);
  check(datum->known.has_value() && datum->known->elements() == 1, "its {} is data of a run", what);
  return datum->known->at(0) != 0.0;
}

void if_of(NodeContext& n) {
  const bool condition = is_true(n.datum(0), "condition");
  give_all(n, run_body(n, graph_of(n, condition ? "then_branch" : "else_branch"), {}));
}

// Results of all iterations, stacked along `axis`; one that was refused refuses them all.
DatumPtr stacked(NodeContext& n, const std::vector<DatumPtr>& parts, int64_t axis) {
  check(!parts.empty(), "it gives results of no iteration");
  std::vector<Value> values;
  for (const DatumPtr& part : parts) {
    if (part->is_refused) return part;
    Value value = n.import().value(*part);
    Shape shape = value.shape();
    const int64_t at = normalize_axis(axis, std::ssize(shape) + 1, "axis");
    shape.insert(shape.begin() + at, 1);
    values.push_back(reshape(value, shape));
    axis = at;
  }
  return make_datum(parts[0]->name, concat(std::move(values), axis));
}

void loop(NodeContext& n) {
  const GraphProto& body = graph_of(n, "body");
  const int64_t most = n.has(0) ? n.whole(0, "number of iterations") : INT64_MAX;
  bool goes_on = !n.has(1) || is_true(n.datum(1), "condition");
  std::vector<DatumPtr> carried;
  for (size_t i = 2; i < n.inputs(); ++i) carried.push_back(n.datum(i));
  std::vector<std::vector<DatumPtr>> collected;
  for (int64_t i = 0; i < most && goes_on; ++i) {
    check(i < kMostIterations, "it runs more than {} times", kMostIterations);
    Tensor condition({DType::kBool, {}});
    condition.set(0, 1.0);
    std::vector<DatumPtr> inputs{make_datum("", Known::scalar(i)),
                                 make_datum("", Known(std::move(condition)))};
    inputs.insert(inputs.end(), carried.begin(), carried.end());
    const std::vector<DatumPtr> outputs = run_body(n, body, inputs);
    check(outputs.size() > carried.size(), "its graph has {} outputs", outputs.size());
    goes_on = is_true(outputs[0], "condition");
    std::copy_n(outputs.begin() + 1, carried.size(), carried.begin());
    collected.resize(outputs.size() - 1 - carried.size());
    for (size_t k = 0; k < collected.size(); ++k)
      collected[k].push_back(outputs[1 + carried.size() + k]);
  }
  for (size_t i = 0; i < n.outputs(); ++i) {
    if (i < carried.size())
      n.give(i, carried[i]);
    else if (n.wants(i)) {
      check(i - carried.size() < collected.size(), "it gives results of no iteration");
      n.give(i, stacked(n, collected[i - carried.size()], 0));
    }
  }
}

struct ScanAxis {
  int64_t axis = 0;
  bool is_backward = false;
};

ScanAxis scan_axis(const NodeContext& n, const char* axes, const char* directions, size_t i) {
  const auto axis = n.list(axes), direction = n.list(directions);
  return {i < axis.size() ? axis[i] : 0, i < direction.size() && direction[i] != 0};
}

void scan(NodeContext& n) {
  const GraphProto& body = graph_of(n, "body");
  const int64_t scanned = n.integer("num_scan_inputs");
  check(scanned >= 1 && scanned <= static_cast<int64_t>(n.inputs()), "it scans {} inputs", scanned);
  const size_t states = n.inputs() - static_cast<size_t>(scanned);
  std::vector<DatumPtr> carried;
  for (size_t i = 0; i < states; ++i) carried.push_back(n.datum(i));
  int64_t count = -1;
  std::vector<Value> rows;
  std::vector<ScanAxis> axes;
  for (size_t i = states; i < n.inputs(); ++i) {
    ScanAxis axis = scan_axis(n, "scan_input_axes", "scan_input_directions", i - states);
    axis.axis = normalize_axis(axis.axis, n.rank(i), "scan_input_axes");
    const int64_t size = n.shape(i)[static_cast<size_t>(axis.axis)];
    check((count < 0 || size == count) && size <= kMostIterations, "it scans {} elements", size);
    count = size;
    axes.push_back(axis);
    rows.push_back(n.value(i));
  }
  std::vector<std::vector<DatumPtr>> collected;
  for (int64_t i = 0; i < count; ++i) {
    std::vector<DatumPtr> inputs = carried;
    for (size_t k = 0; k < rows.size(); ++k) {
      const int64_t at = axes[k].is_backward ? count - 1 - i : i;
      Shape shape = rows[k].shape();
      shape.erase(shape.begin() + axes[k].axis);
      inputs.push_back(make_datum("", reshape(slice(rows[k], axes[k].axis, at, at + 1), shape)));
    }
    const std::vector<DatumPtr> outputs = run_body(n, body, inputs);
    check(outputs.size() >= states, "its graph has {} outputs", outputs.size());
    std::copy_n(outputs.begin(), states, carried.begin());
    collected.resize(outputs.size() - states);
    for (size_t k = 0; k < collected.size(); ++k) collected[k].push_back(outputs[states + k]);
  }
  for (size_t i = 0; i < n.outputs(); ++i) {
    if (i < states) {
      n.give(i, carried[i]);
    } else if (n.wants(i)) {
      check(i - states < collected.size(), "its graph has too few outputs");
      const ScanAxis axis = scan_axis(n, "scan_output_axes", "scan_output_directions", i - states);
      std::vector<DatumPtr>& parts = collected[i - states];
      if (axis.is_backward) std::reverse(parts.begin(), parts.end());
      n.give(i, stacked(n, parts, axis.axis));
    }
  }
}

constexpr OpRow kControlOps[] = {
    {.name = "If", .build = if_of, .is_control = true},
    {.name = "Loop", .build = loop, .is_control = true},
    {.name = "Scan", .build = scan, .first = 9, .is_control = true},
};

}  // namespace

std::span<const OpRow> control_ops() { return kControlOps; }

}  // namespace ridge::onnx
