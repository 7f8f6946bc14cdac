// Ops that move elements, and those without inputs.
#include "ridge/graph/ops/shape.h"

#include <algorithm>

#include "ridge/export/onnx/export_table.h"
#include "ridge/export/onnx/ops/patterns.h"
#include "ridge/graph/ops/source.h"
#include "ridge/import/onnx/elements.h"

namespace ridge::onnx {
namespace {

// Inputs, constants and broadcasts are written where they are read.
void nothing(NodeExport&) {}

void identity(NodeExport& n) { n.give(n.add("Identity", {n.name(0)})); }

void reshape(NodeExport& n) {
  if (give_folded_product(n)) return;
  const SizedGraph& sized = n.to().sized();
  n.give(n.to().reshape(n.site(), n.name(0), sized.sizes(n.in(0)), sized.sizes(n.out())));
}

void transpose(NodeExport& n) {
  n.give(n.to().transpose(n.site(), n.name(0), n.op<Transpose>().perm));
}

void slice(NodeExport& n) {
  const SizedGraph& sized = n.to().sized();
  std::vector<Size> starts, stops;
  std::vector<int64_t> axes, steps;
  for (size_t axis = 0; axis < n.in(0).shape().size(); ++axis) {
    const Size start =
        sized.number(n.node(), [&](const Node& node) { return node.op_as<Slice>().start[axis]; });
    const Size stop =
        sized.number(n.node(), [&](const Node& node) { return node.op_as<Slice>().stop[axis]; });
    const Size step =
        sized.number(n.node(), [&](const Node& node) { return node.op_as<Slice>().step[axis]; });
    check(step.is_number(), "'{}' takes steps that depend on a dimension", n.site());
    if (start == Size{0} && step == Size{1} && stop == sized.size(n.in(0), axis)) continue;
    starts.push_back(start);
    stops.push_back(stop);
    axes.push_back(static_cast<int64_t>(axis));
    steps.push_back(step.factor);
  }
  if (axes.empty()) return identity(n);
  n.give(n.add("Slice",
               {n.name(0),
                n.to().shape(n.site(), starts),
                n.to().shape(n.site(), stops),
                n.to().integers(axes),
                n.to().integers(steps)}));
}

bool has_no_interior(const Node& node, int64_t) {
  const std::vector<int64_t>& interior = node.op_as<Pad>().interior;
  return std::all_of(interior.begin(), interior.end(), [](int64_t size) { return size == 0; });
}

void pad(NodeExport& n) {
  const Pad& op = n.op<Pad>();
  std::vector<int64_t> pads = op.low;
  pads.insert(pads.end(), op.high.begin(), op.high.end());
  const std::string value = n.to().scalar(n.out().dtype(), op.value);
  n.give(n.add("Pad", {n.name(0), n.to().integers(pads), value}));
}

void concat(NodeExport& n) {
  std::vector<std::string> names;
  for (size_t i = 0; i < n.node().inputs.size(); ++i) names.push_back(n.name(i));
  n.give(n.add("Concat", std::move(names), AttributeList().integer("axis", n.op<Concat>().axis)));
}

void iota(NodeExport& n) {
  const SizedGraph& sized = n.to().sized();
  const auto axis = static_cast<size_t>(n.op<Iota>().axis);
  const std::vector<Size> sizes = sized.sizes(n.out());
  std::string result = n.add("Range",
                             {n.to().scalar(DType::kI64, 0),
                              n.to().count(n.site(), sizes.at(axis)),
                              n.to().scalar(DType::kI64, 1)});
  if (n.out().dtype() != DType::kI64)
    result = n.add("Cast", {result}, AttributeList().integer("to", onnx_type_of(n.out().dtype())));
  if (sizes.size() > 1) {
    std::vector<Size> line(sizes.size(), Size{1});
    line[axis] = sizes[axis];
    result = n.to().reshape(n.site(), result, {sizes[axis]}, line);
    result = n.add("Expand", {result, n.to().shape(n.site(), sizes)});
  }
  n.give(result);
}

constexpr ExportRow kShapeRows[] = {
    {"barrier", identity},
    {"broadcast", nothing},
    {"concat", concat},
    {"constant", nothing},
    {"copy", identity},
    {"input", nothing},
    {"iota", iota},
    {"pad", pad, has_no_interior},
    {"reshape", reshape},
    {"slice", slice},
    {"transpose", transpose},
};

}  // namespace

std::span<const ExportRow> shape_exports() { return kShapeRows; }

}  // namespace ridge::onnx
