#include "ridge/import/aten/aten_graph.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "ridge/io/json.h"

namespace ridge::aten {
namespace {

constexpr std::string_view kFormat = "ridge.aten/1";
constexpr int kMostNested = 4;

std::vector<int64_t> integers(const JsonValue& value, std::string_view where) {
  std::vector<int64_t> list;
  for (const JsonValue& each : value.as_array(where)) list.push_back(each.as_integer(where));
  return list;
}

PlacedType placed(const JsonValue& sizes_and_strides,
                  size_t first,
                  const TensorType& type,
                  std::string_view where) {
  const auto& parts = sizes_and_strides.as_array(where);
  check(parts.size() > first, "{}: there are no strides", where);
  return {type, dense_order(type.shape, integers(parts[first], where), where)};
}

DType dtype_named(const std::string& name, std::string_view where) {
  const std::optional<DType> dtype = parse_dtype(name);
  check(dtype.has_value(), "{}: there is no dtype '{}'", where, name);
  return *dtype;
}

TensorType tensor_type(const JsonValue& value, std::string_view where) {
  const auto& parts = value.as_array(where);
  check(parts.size() >= 2, "{}: a type has a dtype and sizes", where);
  TensorType type{dtype_named(parts[0].as_string(where), where), integers(parts[1], where)};
  check_type(type, where);
  return type;
}

class Reader {
 public:
  AtenGraph read(const JsonValue& root) {
    const std::string_view where = "graph";
    check(root.at("format", where).as_string(where) == kFormat,
          "the graph is not of format {}",
          kFormat);
    for (const JsonValue& each : root.at("inputs", where).as_array(where)) read_input(each);
    for (const JsonValue& each : root.at("nodes", where).as_array(where)) read_node(each);
    for (const JsonValue& each : root.at("outputs", where).as_array(where)) read_output(each);
    return std::move(graph_);
  }

 private:
  void read_input(const JsonValue& value) {
    const std::string where = fmt::format("input {}", graph_.inputs.size());
    const TensorType type = tensor_type(value, where);
    AtenInput input{placed(value, 2, type, where)};
    const auto& parts = value.as_array(where);
    if (parts.size() > 3) {
      check(parts.size() == 4 && parts[3].as_string(where) == "constant",
            "{}: only 'constant' stands behind a type",
            where);
      input.is_constant = true;
    }
    graph_.inputs.push_back(std::move(input));
    graph_.values.push_back({true, type});
  }

  void read_node(const JsonValue& value) {
    const std::string where = fmt::format("node {}", graph_.nodes.size());
    const auto& parts = value.as_array(where);
    check(parts.size() == 4, "{}: it has {} parts, not 4", where, parts.size());
    AtenNode node{parts[0].as_string(where), parts[1].as_string(where)};
    for (const JsonValue& each : parts[2].as_array(where))
      node.arguments.push_back(argument(each, where, 0));
    node.first_result = graph_.values.size();
    for (const JsonValue& each : parts[3].as_array(where)) {
      AtenNode::Result result;
      result.read = !std::holds_alternative<std::nullptr_t>(each.data());
      if (result.read) result.type = tensor_type(each, where);
      node.results.push_back(result);
      graph_.values.push_back(std::move(result));
    }
    graph_.nodes.push_back(std::move(node));
  }

  void read_output(const JsonValue& value) {
    const std::string where = fmt::format("output {}", graph_.outputs.size());
    const auto& parts = value.as_array(where);
    check(parts.size() == 2 || parts.size() == 3, "{}: it has {} parts", where, parts.size());
    const size_t number = value_number(parts[0], where);
    const TensorType& type = graph_.values[number].type;
    const bool is_free = std::holds_alternative<std::nullptr_t>(parts[1].data());
    graph_.outputs.push_back(
        {number, is_free ? PlacedType{type, {}} : placed(value, 1, type, where), is_free});
    if (parts.size() == 3) read_over(parts[2].as_integer(where), where);
  }

  void read_over(int64_t number, std::string_view where) {
    check(number >= 0 && number < std::ssize(graph_.inputs), "{}: no input {}", where, number);
    AtenOutput& output = graph_.outputs.back();
    const auto at = static_cast<size_t>(number);
    const AtenInput& input = graph_.inputs[at];
    check(!input.is_constant && input.type.type == output.type.type &&
              input.type.order == output.type.order,
          "{}: it is not written over input {}, which is constant or lies otherwise",
          where,
          number);
    for (const AtenOutput& other : graph_.outputs)
      check(other.over != at, "{}: another output is written over input {}", where, number);
    output.over = at;
  }

  // The number of a value that stands before it.
  size_t value_number(const JsonValue& value, std::string_view where) const {
    const int64_t number = value.as_integer(where);
    check(number >= 0 && number < std::ssize(graph_.values) &&
              graph_.values[static_cast<size_t>(number)].read,
          "{}: there is no value {}",
          where,
          number);
    return static_cast<size_t>(number);
  }

  Argument argument(const JsonValue& value, std::string_view where, int depth) const {
    return std::visit(
        [&]<typename T>(const T& data) -> Argument {
          if constexpr (std::is_same_v<T, std::nullptr_t>) {
            return {None{}};
          } else if constexpr (std::is_same_v<T, uint64_t>) {
            throw UserError(fmt::format("{}: an integer is too large", where));
          } else if constexpr (std::is_same_v<T, JsonValue::Array>) {
            check(depth < kMostNested, "{}: lists are nested too deep", where);
            Argument::List list;
            for (const JsonValue& each : data) list.push_back(argument(each, where, depth + 1));
            return {std::move(list)};
          } else if constexpr (std::is_same_v<T, JsonValue::Object>) {
            check(data.size() == 1, "{}: an object has one member", where);
            return tagged(data[0].first, data[0].second, where);
          } else {
            return {data};
          }
        },
        value.data());
  }

  Argument tagged(const std::string& tag, const JsonValue& value, std::string_view where) const {
    if (tag == "v") return {ValueNumber{value_number(value, where)}};
    if (tag == "d") return {dtype_named(value.as_string(where), where)};
    check(tag == "f", "{}: an argument is tagged '{}'", where, tag);
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const std::string& text = value.as_string(where);
    if (text == "inf") return {kInfinity};
    if (text == "-inf") return {-kInfinity};
    check(text == "nan", "{}: a number is '{}'", where, text);
    return {std::numeric_limits<double>::quiet_NaN()};
  }

  AtenGraph graph_;
};

}  // namespace

std::vector<int64_t> dense_order(const Shape& shape,
                                 const std::vector<int64_t>& strides,
                                 std::string_view where) {
  check(strides.size() == shape.size(),
        "{}: {} strides for {}",
        where,
        strides.size(),
        to_string(shape));
  const auto is_dense = [&](const std::vector<int64_t>& order) {
    int64_t wanted = 1;
    for (size_t i = order.size(); i-- > 0;) {
      const auto axis = static_cast<size_t>(order[i]);
      if (shape[axis] == 1) continue;
      if (strides[axis] != wanted) return false;
      wanted *= shape[axis];
    }
    return true;
  };
  std::vector<int64_t> order(shape.size());
  std::iota(order.begin(), order.end(), 0);
  if (is_dense(order)) return order;
  if (shape.size() == 4 && is_dense({0, 2, 3, 1})) return {0, 2, 3, 1};
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return strides[static_cast<size_t>(a)] > strides[static_cast<size_t>(b)];
  });
  check(is_dense(order), "{}: elements of {} lie with gaps or twice", where, to_string(shape));
  return order;
}

Shape PlacedType::lying() const {
  Shape shape;
  for (const int64_t axis : order) shape.push_back(type.shape[static_cast<size_t>(axis)]);
  return shape;
}

AtenGraph parse_aten_graph(std::string_view text) {
  return read_aten_graph(parse_json(text, "graph of ATen operators"));
}

AtenGraph read_aten_graph(const JsonValue& value) { return Reader().read(value); }

}  // namespace ridge::aten
