#include "ridge/import/aten/import_context.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <numeric>

#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "ridge/import/aten/node_context.h"
#include "ridge/import/aten/op_table.h"

namespace ridge::aten {
namespace {

bool is_in_order(const std::vector<int64_t>& perm) { return std::ranges::is_sorted(perm); }

Datum given(const PlacedType& placed, Value memory) {
  Datum datum{placed.type};
  if (is_in_order(placed.order))
    datum.value = memory;
  else if (placed.order == kToImage)
    datum.image = memory;
  else
    datum.value = transpose(memory, inverse(placed.order));
  return datum;
}

}  // namespace

std::vector<int64_t> inverse(const std::vector<int64_t>& perm) {
  std::vector<int64_t> back(perm.size());
  for (size_t i = 0; i < perm.size(); ++i)
    back[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  return back;
}

ImportContext::ImportContext(const AtenGraph& source,
                             Graph& graph,
                             std::span<const void* const> constants)
    : source_(source), graph_(graph), constants_(constants), data_(source.values.size()) {
  for (size_t i = 0; i < source.inputs.size(); ++i) {
    const AtenInput& from = source.inputs[i];
    data_[i].type = from.type.type;
    if (from.is_constant && i < constants.size() && constants[i] != nullptr) continue;
    const TensorType memory{from.type.type.dtype, from.type.lying()};
    data_[i] = given(from.type, input(graph, input_name(i), memory));
  }
}

const TensorType& ImportContext::type(size_t number) const {
  return source_.values.at(number).type;
}

bool ImportContext::is_image(size_t number) const {
  return data_[number].image && !data_[number].value;
}

// A tensor of the state, which has the constant's elements in the order that the graph reads.
Value ImportContext::constant(size_t number, const std::vector<int64_t>& perm) {
  std::string name = fmt::format("constant {}:", number);
  for (const int64_t axis : perm) name += fmt::format("{}", axis);
  if (const auto at = moved_.find(name); at != moved_.end()) return at->second;
  const PlacedType& placed = source_.inputs[number].type;
  const std::vector<int64_t> from = inverse(placed.order);
  TensorType type{placed.type.dtype, {}};
  StateConstant elements;
  for (const int64_t axis : perm) {
    type.shape.push_back(placed.type.shape[static_cast<size_t>(axis)]);
    elements.perm.push_back(from[static_cast<size_t>(axis)]);
  }
  if (is_in_order(elements.perm))
    elements.perm.clear();
  else
    elements.lying = placed.lying();
  const auto* const address = static_cast<const std::byte*>(constants_[number]);
  elements.bytes = {address, static_cast<size_t>(placed.type.bytes())};
  elements.owner = {address, [](const void*) {}};  // the caller's, who keeps it
  state_.push_back({.name = name,
                    .type = type,
                    .constant = std::make_shared<const StateConstant>(std::move(elements))});
  return moved_[name] = input(graph_, name, type);
}

Value ImportContext::derived(size_t number, std::string_view what, FunctionRef<Value(Value)> make) {
  if (!is_constant(number)) return make(value(number));
  const std::string name = fmt::format("constant {}: {}", number, what);
  if (const auto at = moved_.find(name); at != moved_.end()) return at->second;
  std::vector<int64_t> perm(type(number).shape.size());
  std::iota(perm.begin(), perm.end(), 0);
  const Value whole = constant(number, perm);
  auto graph = std::make_shared<Graph>();
  const Value made = make(input(*graph, whole.node->op_as<Input>().input_name, whole.type()));
  input(*graph, name, made.type());
  graph->add_output("made", made, name);
  state_.push_back({.name = name,
                    .type = made.type(),
                    .role = StateRole::kPacked,
                    .derivation = std::move(graph)});
  return moved_[name] = input(graph_, name, made.type());
}

Value ImportContext::value(size_t number) {
  Datum& datum = data_.at(number);
  if (datum.value) return datum.value;
  if (datum.image) return datum.value = transpose(datum.image, kFromImage);
  std::vector<int64_t> perm(datum.type.shape.size());
  std::iota(perm.begin(), perm.end(), 0);
  check(number < source_.inputs.size(), "value {} is not there", number);
  return datum.value = constant(number, perm);
}

Value ImportContext::image(size_t number) {
  Datum& datum = data_.at(number);
  check(type(number).rank() == 4, "it has {} dimensions, not 4", type(number).rank());
  if (datum.image) return datum.image;
  return datum.image = moved(number, kToImage);
}

Value ImportContext::moved(size_t number, const std::vector<int64_t>& perm) {
  Datum& datum = data_.at(number);
  check(std::ssize(perm) == type(number).rank(),
        "it has {} dimensions, not {}",
        type(number).rank(),
        perm.size());
  if (!datum.value && !datum.image) return constant(number, perm);
  if (!datum.value) {
    std::vector<int64_t> of_image;
    const std::vector<int64_t> place = inverse(kToImage);
    for (const int64_t axis : perm) of_image.push_back(place[static_cast<size_t>(axis)]);
    return transpose(datum.image, of_image);
  }
  return transpose(datum.value, perm);
}

void ImportContext::build(size_t number) {
  const AtenNode& node = source_.nodes[number];
  const OpRow* const row = find_op(node.op);
  check(row != nullptr, "the operator is not supported");
  const SiteScope scope(graph_, node.name);
  NodeContext context(*this, node);
  row->build(context);
  for (size_t i = 0; i < node.results.size(); ++i) {
    if (!node.results[i].read) continue;
    Datum datum = context.result(i);
    const Value& made = datum.value ? datum.value : datum.image;
    check(static_cast<bool>(made), "result {} is not supported", i);
    const TensorType& wanted = node.results[i].type;
    TensorType got = made.type();
    if (!datum.value) got.shape = {made.dim(0), made.dim(3), made.dim(1), made.dim(2)};
    check(got == wanted, "result {} is {}, not {}", i, to_string(got), to_string(wanted));
    datum.type = wanted;
    set(node.first_result + i, std::move(datum));
  }
}

void ImportContext::give_up(size_t number) {
  const AtenNode& node = source_.nodes[number];
  for (size_t i = 0; i < node.results.size(); ++i) {
    if (!node.results[i].read) continue;
    const TensorType& type = node.results[i].type;
    const size_t value = node.first_result + i;
    set(value, {.type = type, .value = input(graph_, fmt::format("given {}", value), type)});
  }
}

std::vector<std::vector<int64_t>> ImportContext::add_outputs() {
  std::vector<std::vector<int64_t>> orders;
  for (size_t i = 0; i < source_.outputs.size(); ++i) {
    const AtenOutput& output = source_.outputs[i];
    std::vector<int64_t> order = output.type.order;
    if (output.is_free) {
      order.resize(type(output.value).shape.size());
      std::iota(order.begin(), order.end(), 0);
      if (is_image(output.value)) order = kToImage;
    }
    Value memory = order == kToImage ? image(output.value) : moved(output.value, order);
    // Its memory is the caller's, and no other output's.
    bool is_taken = memory.node->is<Input>();
    for (const Output& other : graph_.outputs()) is_taken = is_taken || other.value == memory;
    if (is_taken) memory = copy(memory);
    graph_.add_output(output_name(i), memory);
    orders.push_back(std::move(order));
  }
  return orders;
}

std::string input_name(size_t number) { return fmt::format("input {}", number); }
std::string output_name(size_t number) { return fmt::format("output {}", number); }

std::vector<Refusal> refusals(const AtenGraph& source) {
  Graph graph("forward");
  ImportContext context(source, graph, {});
  std::vector<Refusal> refused;
  for (size_t i = 0; i < source.nodes.size(); ++i) try {
      context.build(i);
    } catch (const OutOfMemory&) {
      throw;
    } catch (const UserError& error) {
      refused.push_back({i, error.what()});
      context.give_up(i);
    }
  return refused;
}

ImportedGraph import_graph(const AtenGraph& source, std::span<const void* const> constants) {
  ImportedGraph imported{only_entry(Graph("forward")), {}};
  ImportContext context(source, imported.program.entries[0], constants);
  for (size_t i = 0; i < source.nodes.size(); ++i) try {
      context.build(i);
    } catch (const OutOfMemory&) {
      throw;
    } catch (const UserError& error) {
      throw UserError(fmt::format(
          "node '{}' ({}): {}", source.nodes[i].name, source.nodes[i].op, error.what()));
    }
  imported.orders = context.add_outputs();
  imported.program.state = context.state();
  return imported;
}

}  // namespace ridge::aten
