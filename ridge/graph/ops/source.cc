#include "ridge/graph/ops/source.h"

#include <algorithm>

#include "ridge/graph/ops/registry.h"

namespace ridge {

std::vector<TensorType> Input::infer(std::span<const TensorType>) const {
  check(!input_name.empty(), "[input] an input has no name");
  const TensorType type{dtype, shape};
  check(batch >= -1 && batch < type.rank(),
        "[input] batch axis of '{}' out of range; got {}, expected -1 to {}",
        input_name,
        batch,
        type.rank() - 1);
  return {type};
}

std::vector<BatchFlow> Input::batch_flow(const BatchFlowContext&) const {
  return {batch < 0 ? BatchFlow::none() : BatchFlow::split(batch)};
}

void Input::fields(FieldVisitor& v) {
  v.visit("name", input_name);
  v.visit("dtype", dtype);
  v.visit("shape", shape);
  v.visit("batch", batch);
}

std::vector<TensorType> Constant::infer(std::span<const TensorType>) const {
  const TensorType type{dtype, shape};
  check_type(type, "constant");
  const size_t count = is_float(dtype) ? values.size() : ints.size();
  check(values.empty() != is_float(dtype) && ints.empty() == is_float(dtype),
        "[constant] {} is given by field '{}'",
        name_of(dtype),
        is_float(dtype) ? "values" : "ints");
  check(count == 1 || static_cast<int64_t>(count) == type.elements(),
        "[constant] wrong number of elements for {}; got {}, expected 1 or {}",
        to_string(type),
        count,
        type.elements());
  dispatch(dtype, [&]<typename T>(TypeTag<T>) {
    const auto is_kept = [&](auto v) {
      const auto kept = static_cast<decltype(v)>(convert<T>(v));
      check(kept == v || (v != v && kept != kept),
            "[constant] {} is not a value of dtype {}",
            v,
            name_of(dtype));
    };
    if constexpr (is_float_type<T>)
      std::for_each(values.begin(), values.end(), is_kept);
    else
      std::for_each(ints.begin(), ints.end(), is_kept);
  });
  return {type};
}

std::vector<BatchFlow> Constant::batch_flow(const BatchFlowContext&) const {
  return {BatchFlow::none(is_splat() ? ~0u : 0u)};
}

void Constant::fields(FieldVisitor& v) {
  v.visit("dtype", dtype);
  v.visit("shape", shape);
  v.visit("values", values);
  v.visit("ints", ints);
}

std::vector<TensorType> Iota::infer(std::span<const TensorType>) const {
  const TensorType type{dtype, shape};
  check_type(type, "iota");
  check(dtype != DType::kBool, "[iota] dtype not accepted; got bool");
  check(axis >= 0 && axis < type.rank(), "[iota] axis out of range; got {}", axis);
  const int64_t last = shape[static_cast<size_t>(axis)] - 1;
  const bool fits = dispatch(dtype, [&]<typename T>(TypeTag<T>) {
    // Whole numbers up to 2^digits are exact in a float; f16 and bf16 have 11 and 8 digits.
    if constexpr (std::is_same_v<T, F16>)
      return last <= 2048;
    else if constexpr (std::is_same_v<T, BF16>)
      return last <= 256;
    else if constexpr (std::is_floating_point_v<T>)
      return last <= int64_t{1} << std::numeric_limits<T>::digits;
    else
      return last <= static_cast<int64_t>(std::numeric_limits<T>::max());
  });
  check(fits, "[iota] dtype {} does not hold {} exactly", name_of(dtype), last);
  return {type};
}

std::vector<BatchFlow> Iota::batch_flow(const BatchFlowContext&) const {
  return {BatchFlow::none(~(1u << axis))};
}

void Iota::fields(FieldVisitor& v) {
  v.visit("dtype", dtype);
  v.visit("shape", shape);
  v.visit("axis", axis);
}

Value input(Graph& graph, std::string name, TensorType type, int64_t batch) {
  check(graph.find_input(name) == nullptr, "[input] two inputs are named '{}'", name);
  auto op = std::make_shared<Input>();
  op->input_name = name;
  op->dtype = type.dtype;
  op->shape = std::move(type.shape);
  op->batch = batch;
  return {&graph.add(std::move(op), {}, Site{std::move(name)}), 0};
}

Value constant(Graph& graph, TensorType type, double value) {
  return constant(graph, std::move(type), std::vector<double>{value});
}

Value constant(Graph& graph, TensorType type, const std::vector<double>& values) {
  auto op = std::make_shared<Constant>();
  op->dtype = type.dtype;
  op->shape = std::move(type.shape);
  dispatch(op->dtype, [&]<typename T>(TypeTag<T>) {
    for (double value : values) {
      if constexpr (is_float_type<T>) {
        op->values.push_back(static_cast<double>(convert<T>(value)));
      } else {
        const auto whole = static_cast<int64_t>(convert<T>(value));
        check(static_cast<double>(whole) == value,
              "[constant] {} is not a value of dtype {}",
              value,
              name_of(op->dtype));
        op->ints.push_back(whole);
      }
    }
  });
  return {&graph.add(std::move(op), {}), 0};
}

Value constant_like(Value like, double value) { return constant(like.graph(), like.type(), value); }

Value iota(Graph& graph, TensorType type, int64_t axis) {
  auto op = std::make_shared<Iota>();
  op->axis = normalize_axis(axis, type.rank(), "iota");
  op->dtype = type.dtype;
  op->shape = std::move(type.shape);
  return {&graph.add(std::move(op), {}), 0};
}

void register_source(OpRegistry& r) {
  r.add<Input>();
  r.add<Constant>();
  r.add<Iota>();
}

}  // namespace ridge
