#include "tests/support/case_builder.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ridge/graph/ops/source.h"

namespace ridge::test {

double Random::uniform(double low, double high) {
  return low + (high - low) * static_cast<double>(engine_() >> 11) * 0x1p-53;
}

int64_t Random::integer(int64_t low, int64_t high) {
  return low + static_cast<int64_t>(engine_() % static_cast<uint64_t>(high - low + 1));
}

Value CaseBuilder::add_input(TensorType type) {
  const std::string name = fmt::format("x{}", tensors_.size());
  tensors_.emplace(name, Tensor(type));
  return ridge::input(graph_, name, std::move(type));
}

Tensor& CaseBuilder::tensor_of(Value value) {
  return tensors_.at(value.node->op_as<Input>().input_name);
}

Value CaseBuilder::input(Shape shape, double low, double high) {
  return input(dtype_, std::move(shape), low, high);
}

Value CaseBuilder::input(DType dtype, Shape shape, double low, double high) {
  if (dtype == DType::kBool) return indices(dtype, std::move(shape), 0, 1);
  if (is_integer(dtype)) {
    const bool is_signed = dtype != DType::kU8 && dtype != DType::kU16;
    const auto first = static_cast<int64_t>(std::floor(4.0 * low));
    return indices(dtype,
                   std::move(shape),
                   is_signed ? first : std::max<int64_t>(first, 0),
                   static_cast<int64_t>(std::ceil(4.0 * high)));
  }
  const Value value = add_input({dtype, std::move(shape)});
  Tensor& tensor = tensor_of(value);
  for (int64_t i = 0; i < tensor.elements(); ++i) tensor.set(i, random_.uniform(low, high));
  return value;
}

Value CaseBuilder::separated(Shape shape) {
  if (!is_float(dtype_)) return input(std::move(shape));
  const Value value = add_input({dtype_, std::move(shape)});
  Tensor& tensor = tensor_of(value);
  std::vector<int64_t> order(static_cast<size_t>(tensor.elements()));
  std::iota(order.begin(), order.end(), int64_t{0});
  for (size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1],
              order[static_cast<size_t>(random_.integer(0, static_cast<int64_t>(i) - 1))]);
  const double middle = static_cast<double>(order.size() / 2);
  for (size_t i = 0; i < order.size(); ++i)
    tensor.set(static_cast<int64_t>(i),
               (static_cast<double>(order[i]) - middle) * 0.0625 + 0.03125);
  return value;
}

Value CaseBuilder::indices(DType dtype, Shape shape, int64_t low, int64_t high) {
  const Value value = add_input({dtype, std::move(shape)});
  Tensor& tensor = tensor_of(value);
  for (int64_t i = 0; i < tensor.elements(); ++i)
    tensor.set(i, static_cast<double>(random_.integer(low, high)));
  return value;
}

Value CaseBuilder::given(TensorType type, const std::vector<double>& values) {
  const Value value = add_input(std::move(type));
  Tensor& tensor = tensor_of(value);
  for (size_t i = 0; i < values.size(); ++i) tensor.set(static_cast<int64_t>(i), values[i]);
  return value;
}

void CaseBuilder::finish(const std::vector<Value>& outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) graph_.add_output(fmt::format("y{}", i), outputs[i]);
}

}  // namespace ridge::test
