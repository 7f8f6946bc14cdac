// Looking up by index: each thread finds the index of what it copies. An index out of range is
// reported, and read as 0.
#include "ridge/graph/ops/gather.h"

#include <algorithm>

#include "ridge/backend/cuda/print/kernel_text.h"
#include "ridge/backend/cuda/print/scalar_text.h"

namespace ridge::cuda {
namespace {

// x (outer, size, inner), indices (count) -> (outer, count, inner); inner in units of what a thread
// copies.
struct Lookup {
  int64_t outer = 1, size = 1, inner = 1, count = 1;
  int64_t bytes = 0;  // bytes of a unit
};

Lookup lookup_of(const Node& node) {
  const TensorType& x = node.inputs[0].type();
  const auto axis = static_cast<size_t>(node.op_as<Gather>().axis);
  Lookup made{.size = x.shape[axis],
              .count = node.inputs[1].type().elements(),
              .bytes = static_cast<int64_t>(size_of(x.dtype))};
  for (size_t i = 0; i < axis; ++i) made.outer *= x.shape[i];
  for (size_t i = axis + 1; i < x.shape.size(); ++i) made.inner *= x.shape[i];
  for (; made.inner % 2 == 0 && made.bytes < 16; made.inner /= 2) made.bytes *= 2;
  return made;
}

PrintedKernel print_lookup(const Node& node, const Lookup& g) {
  KernelText text(node);
  const std::string type = unit_type(static_cast<size_t>(g.bytes));
  const int64_t n = g.outer * g.count * g.inner;
  const std::string in = text.input(0, type), at = text.input(1), out = text.output(0, type);
  const std::string fault = text.fault();
  const std::string_view index = index_type_of(std::max(n, g.outer * g.size * g.inner));
  text.open_stride(n);
  Lines& lines = text.lines;
  lines.line("const {0} number = i, column = number % {1}, place = number / {1} % {2};",
             index,
             g.inner,
             g.count);
  lines.line("const int64_t index = {}[place];", at);
  lines.line("const bool is_in = index >= 0 && index < {};", g.size);
  lines.line("if (!is_in && column == 0) report({}, place, index);", fault);
  lines.line("const {} row = number / {} * {} + (is_in ? static_cast<{}>(index) : 0);",
             index,
             g.inner * g.count,
             g.size,
             index);
  lines.line("{}[i] = {}[row * {} + column];", out, in, g.inner);
  text.finish_stride("", n);
  PrintedKernel made =
      text.result(node.op->name(), fmt::format("{} times {} bytes by index.", n, g.bytes));
  made.index_limit = g.size;
  return made;
}

PrintedKernel print_pick(const Node& node) {
  const TensorType& x = node.inputs[0].type();
  KernelText text(node);
  const std::string type = unit_type(size_of(x.dtype));
  const int64_t n = node.outputs[0].elements(), columns = x.shape.back();
  const int64_t limit = node.op_as<Pick>().columns_of(columns);
  const std::string in = text.input(0, type), at = text.input(1), out = text.output(0, type);
  const std::string fault = text.fault();
  text.open_stride(n);
  Lines& lines = text.lines;
  lines.line("const int64_t index = {}[i];", at);
  lines.line("const bool is_in = index >= 0 && index < {};", limit);
  lines.line("if (!is_in) report({}, i, index);", fault);
  lines.line("{}[i] = {}[static_cast<int64_t>(i) * {} + (is_in ? index : 0)];", out, in, columns);
  text.finish_stride("", n);
  PrintedKernel made = text.result("pick", fmt::format("One of {} from {} rows.", columns, n));
  made.index_limit = limit;
  return made;
}

}  // namespace

std::optional<PrintedKernel> print_gather(const Node& node) {
  if (node.is<Gather>()) return print_lookup(node, lookup_of(node));
  if (node.is<Pick>()) return print_pick(node);
  return std::nullopt;
}

}  // namespace ridge::cuda
