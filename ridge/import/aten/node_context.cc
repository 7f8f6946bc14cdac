#include "ridge/import/aten/node_context.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ridge/graph/autodiff.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"

namespace ridge::aten {

NodeContext::NodeContext(ImportContext& import, const AtenNode& node)
    : import_(import), node_(node), data_(node.results.size()) {}

const Argument& NodeContext::argument(size_t i) const {
  check(i < node_.arguments.size(), "argument {} is missing", i);
  return node_.arguments[i];
}

bool NodeContext::has(size_t i) const {
  return i < node_.arguments.size() && argument(i).get<None>() == nullptr;
}

bool NodeContext::is_tensor(size_t i) const {
  return i < node_.arguments.size() && argument(i).get<ValueNumber>() != nullptr;
}

size_t NodeContext::number(size_t i) const {
  const auto* const value = argument(i).get<ValueNumber>();
  check(value != nullptr, "argument {} is no tensor", i);
  return value->number;
}

std::vector<std::optional<size_t>> NodeContext::tensors(size_t i) const {
  const auto* const list = argument(i).get<Argument::List>();
  check(list != nullptr, "argument {} is no list", i);
  std::vector<std::optional<size_t>> numbers;
  for (const Argument& each : *list) {
    if (each.get<None>() != nullptr) {
      numbers.emplace_back();
      continue;
    }
    const auto* const value = each.get<ValueNumber>();
    check(value != nullptr, "argument {} is no list of tensors", i);
    numbers.emplace_back(value->number);
  }
  return numbers;
}

int64_t NodeContext::integer(size_t i) const {
  const auto* const value = argument(i).get<int64_t>();
  check(value != nullptr, "argument {} is no integer", i);
  return *value;
}

double NodeContext::number_at(size_t i) const {
  const Argument& value = argument(i);
  if (const auto* const real = value.get<double>()) return *real;
  if (const auto* const truth = value.get<bool>()) return *truth ? 1.0 : 0.0;
  const int64_t whole = integer(i);
  const auto real = static_cast<double>(whole);
  // 2^63 itself is no i64.
  check(std::abs(real) < 0x1p63 ? static_cast<int64_t>(real) == whole : whole == INT64_MIN,
        "argument {} is {}, which f64 does not hold",
        i,
        whole);
  return real;
}

DType NodeContext::number_dtype(size_t i) const {
  const Argument& value = argument(i);
  if (value.get<double>() != nullptr) return DType::kF32;
  if (value.get<bool>() != nullptr) return DType::kBool;
  static_cast<void>(integer(i));
  return DType::kI64;
}

bool NodeContext::flag(size_t i) const {
  const auto* const value = argument(i).get<bool>();
  check(value != nullptr, "argument {} is no bool", i);
  return *value;
}

std::string NodeContext::text(size_t i) const {
  const auto* const value = argument(i).get<std::string>();
  check(value != nullptr, "argument {} is no text", i);
  return *value;
}

std::vector<int64_t> NodeContext::list(size_t i) const {
  std::vector<int64_t> numbers;
  if (!has(i)) return numbers;
  if (const auto* const one = argument(i).get<int64_t>()) return {*one};
  const auto* const list = argument(i).get<Argument::List>();
  check(list != nullptr, "argument {} is no list", i);
  for (const Argument& each : *list) {
    const auto* const number = each.get<int64_t>();
    check(number != nullptr, "argument {} is no list of integers", i);
    numbers.push_back(*number);
  }
  return numbers;
}

int64_t NodeContext::axis(size_t i, int64_t rank) const {
  return normalize_axis(integer(i), std::max<int64_t>(rank, 1), "axis");
}

int64_t NodeContext::size(size_t i, int64_t axis) const {
  check(axis < rank(i), "argument {} has no dimensions", i);
  return shape(i)[static_cast<size_t>(axis)];
}

std::vector<int64_t> NodeContext::axes(size_t i, int64_t rank) const {
  std::vector<int64_t> axes = list(i);
  if (rank == 0) {
    for (const int64_t axis : axes) normalize_axis(axis, 1, "axes");
    return {};
  }
  if (axes.empty()) {
    axes.resize(static_cast<size_t>(rank));
    std::iota(axes.begin(), axes.end(), 0);
  }
  for (int64_t& axis : axes) axis = normalize_axis(axis, rank, "axes");
  std::ranges::sort(axes);
  check(std::ranges::adjacent_find(axes) == axes.end(), "an axis is named twice");
  return axes;
}

const TensorType& NodeContext::result_type(size_t i) const {
  check(wants(i), "nobody reads result {}", i);
  return node_.results[i].type;
}

namespace {

Value image_form(NodeContext& n, size_t i) {
  const int64_t rank = n.rank(i);
  if (rank == 4) return n.image(i);
  const Value x = n.value(i);
  if (rank == 0) return x;
  Shape shape(static_cast<size_t>(4 - rank), 1);
  shape.insert(shape.end(), x.shape().begin(), x.shape().end());
  return transpose(reshape(x, shape), kToImage);
}

bool prefers_images(const NodeContext& n, const std::vector<size_t>& operands) {
  bool any = false;
  for (const size_t i : operands) {
    if (!n.is_tensor(i)) continue;
    if (n.rank(i) > 4) return false;
    any = any || n.is_image(i);
  }
  return any;
}

// The kinds of dtypes, each of which takes in those before it.
int kind(DType dtype) { return dtype == DType::kBool ? 0 : is_float(dtype) ? 2 : 1; }

DType wider(DType a, DType b) {
  if (a == b) return a;
  if (kind(a) != kind(b)) return kind(a) > kind(b) ? a : b;
  if (size_of(a) == size_of(b)) return is_float(a) ? DType::kF32 : DType::kI16;
  return size_of(a) > size_of(b) ? a : b;
}

}  // namespace

Value scalar(NodeContext& n, size_t argument, DType dtype) {
  double value = n.number_at(argument);
  if (dtype == DType::kBool) value = value != 0 ? 1.0 : 0.0;
  return constant(n.graph(), {dtype, {}}, value);
}

void each_element(NodeContext& n,
                  const std::vector<size_t>& operands,
                  const std::vector<DType>& dtypes,
                  const std::function<Value(const std::vector<Value>&)>& apply) {
  const bool as_image = prefers_images(n, operands);
  std::vector<Value> values;
  for (size_t k = 0; k < operands.size(); ++k) {
    const size_t i = operands[k];
    if (!n.is_tensor(i))
      values.push_back(scalar(n, i, dtypes[k]));
    else
      values.push_back(cast(as_image ? image_form(n, i) : n.value(i), dtypes[k]));
  }
  Value result = cast(apply(values), n.result_type().dtype);
  const Shape& shape = n.result_type().shape;
  if (as_image && shape.size() == 4)
    return n.give_image(0, broadcast(result, {shape[0], shape[2], shape[3], shape[1]}));
  n.give(broadcast(result, shape));
}

void each_element(NodeContext& n,
                  const std::vector<size_t>& operands,
                  DType dtype,
                  const std::function<Value(const std::vector<Value>&)>& apply) {
  each_element(n, operands, std::vector<DType>(operands.size(), dtype), apply);
}

DType promoted(const NodeContext& n, const std::vector<size_t>& operands) {
  std::optional<DType> ranks[3];  // tensors, tensors without dimensions, numbers
  for (const size_t i : operands) {
    const bool is_tensor = n.is_tensor(i);
    std::optional<DType>& of = ranks[!is_tensor ? 2 : n.rank(i) == 0 ? 1 : 0];
    const DType dtype = is_tensor ? n.dtype(i) : n.number_dtype(i);
    of = of ? wider(*of, dtype) : dtype;
  }
  std::optional<DType> result;
  for (const std::optional<DType>& of : ranks) {
    if (!of) continue;
    if (!result || kind(*of) > kind(*result)) result = of;
  }
  check(result.has_value(), "it has no operands");
  return *result;
}

std::vector<Value> gradients_of(Value y, Value dy, const std::vector<Value>& of, size_t first) {
  const Value outputs[] = {y}, seeds[] = {dy};
  return vector_jacobian_product(outputs, seeds, of, first);
}

}  // namespace ridge::aten
