// Constants, index ramps and one-hot vectors: results that are written and hardly read.
#include "ridge/graph/ops/source.h"

#include <cstring>

#include "ridge/backend/cuda/print/kernel_text.h"
#include "ridge/backend/cuda/print/scalar_text.h"
#include "ridge/base/tensor.h"
#include "ridge/graph/ops/gather.h"

namespace ridge::cuda {
namespace {

// A list of constants is part of the source, which a compiler has to read.
constexpr int64_t kMostListed = 1 << 16;

std::string whole_text(DType dtype, int64_t value) {
  return is_float(dtype) ? number_text(dtype, static_cast<double>(value))
                         : number_text(dtype, value);
}

// The bytes of an element as a number.
uint64_t bits_at(const Tensor& tensor, int64_t i) {
  const size_t size = size_of(tensor.type().dtype);
  uint64_t bits = 0;
  std::memcpy(
      &bits, static_cast<const std::byte*>(tensor.data()) + static_cast<size_t>(i) * size, size);
  return bits;
}

PrintedKernel print_splat(const Node& node, const Constant& op) {
  constexpr int64_t kWidth = 4;
  KernelText text(node);
  const int64_t n = node.outputs[0].elements();
  const std::string_view type = stored_type(op.dtype);
  const std::string out = text.output(0);
  text.lines.line("Pack<{}, {}> all;", type, kWidth);
  text.lines.line("for (int k = 0; k < {}; ++k) set(all.at[k], {});", kWidth, constant_text(node));
  text.open_stride(ceil_div(n, kWidth));
  text.lines.line(
      "store<{0}>({1} + i * {0}, all{2});",
      kWidth,
      out,
      n % kWidth == 0 ? "" : fmt::format(", {} - static_cast<int64_t>(i) * {}", n, kWidth));
  text.finish_stride("", ceil_div(n, kWidth));
  return text.result("constant", fmt::format("{} elements of one value.", n));
}

// Element by element, as bits.
PrintedKernel print_list(const Node& node, const Constant& op) {
  const int64_t n = node.outputs[0].elements();
  if (n > kMostListed)
    throw Refused{fmt::format("lists {} elements; a source holds {}", n, kMostListed)};
  Tensor tensor(node.outputs[0]);
  dispatch(op.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const std::span<T> elements = tensor.span<T>();
    for (size_t i = 0; i < elements.size(); ++i)
      elements[i] = op.values.empty() ? convert<T>(op.ints[i]) : convert<T>(op.values[i]);
  });
  KernelText text(node);
  const std::string type = unit_type(size_of(op.dtype));
  std::string list;
  for (int64_t i = 0; i < n; ++i)
    list += fmt::format("{}{:#x}ull,", i % 8 == 0 ? "\n    " : " ", bits_at(tensor, i));
  const std::string name = fmt::format("{}_elements", KernelText::kName);
  text.declare(fmt::format("\nconstexpr {} {}[{}] = {{{}}};\n", type, name, n, list));
  const std::string out = text.output(0, type);
  text.open_stride(n);
  text.lines.line("{}[i] = {}[i];", out, name);
  text.finish_stride("", n);
  return text.result("constant", fmt::format("{} elements.", n));
}

PrintedKernel print_iota(const Node& node, const Iota& op) {
  KernelText text(node);
  int64_t inner = 1;
  for (size_t i = op.shape.size(); i-- > static_cast<size_t>(op.axis) + 1;) inner *= op.shape[i];
  const int64_t n = node.outputs[0].elements(), size = op.shape[static_cast<size_t>(op.axis)];
  const std::string out = text.output(0);
  text.open_stride(n);
  // No size is beyond what the dtype holds.
  text.lines.line(
      "set({}[i], static_cast<{}>(i / {} % {}));", out, value_type(op.dtype), inner, size);
  text.finish_stride("", n);
  return text.result("iota", fmt::format("Each of {} numbers {} times in a row.", size, inner));
}

PrintedKernel print_one_hot(const Node& node, const OneHot& op) {
  KernelText text(node);
  const int64_t n = node.outputs[0].elements();
  const std::string in = text.input(0), out = text.output(0);
  text.open_stride(n);
  text.lines.line(
      "const bool hot = {}[i / {}] == static_cast<int64_t>(i % {});", in, op.depth, op.depth);
  text.lines.line("set({}[i], hot ? {} : {});", out, whole_text(op.to, 1), whole_text(op.to, 0));
  text.finish_stride("", n);
  return text.result("one_hot", fmt::format("{} rows of {}.", n / op.depth, op.depth));
}

}  // namespace

std::optional<PrintedKernel> print_source(const Node& node) {
  if (node.is<Constant>()) {
    const auto& op = node.op_as<Constant>();
    return op.is_splat() ? print_splat(node, op) : print_list(node, op);
  }
  if (node.is<Iota>()) return print_iota(node, node.op_as<Iota>());
  if (node.is<OneHot>()) return print_one_hot(node, node.op_as<OneHot>());
  return std::nullopt;
}

}  // namespace ridge::cuda
