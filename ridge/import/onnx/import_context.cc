#include "ridge/import/onnx/import_context.h"

#include <algorithm>
#include <cstring>

#include "ridge/backend/ref/ref_backend.h"
#include "ridge/base/cpu/scale_rows.h"
#include "ridge/base/cpu/transposed_copy.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "ridge/import/onnx/late_convolution.h"
#include "ridge/import/onnx/node_context.h"
#include "ridge/import/onnx/op_table.h"
#include "ridge/io/checksum.h"
#include "ridge/run/evaluate.h"

namespace ridge::onnx {
namespace {

constexpr int64_t kMaxNodes = 200000;  // loops are unrolled, functions written out
constexpr int kMaxScopes = 64;
constexpr int64_t kConstantElements = 16;  // what is larger is a buffer of the state
constexpr int64_t kSplatElements = int64_t{1} << 20;
// Bounds of what is computed while a model is imported: of one node, of all small ones, which
// compute shapes and indices, and of all others, such as weights that are dequantized.
constexpr double kFoldedWork = 1 << 26;
constexpr double kAllFoldedWork = 1 << 29;
constexpr double kSmallFoldedWork = 1 << 14;
constexpr double kFoldedNode = 1 << 13;  // the work of computing anything at all
constexpr int64_t kMostFoldedDequantized = 4096;
// Bytes that an import may make beside four times those that it reads.
constexpr size_t kMadeBytes = size_t{1} << 30;
constexpr size_t kNodesNamed = 10;
constexpr const char* kNoOperator = "the operator is not supported";

// A constant of exactly these elements, or of one that all are equal to.
Value constant_of(Graph& graph, const Known& known, int64_t elements) {
  auto op = std::make_shared<Constant>();
  op->dtype = known.dtype();
  op->shape = known.shape();
  dispatch(known.dtype(), [&]<typename T>(TypeTag<T>) {
    for (int64_t i = 0; i < elements; ++i) {
      if constexpr (is_float_type<T>)
        op->values.push_back(static_cast<double>(known.element<T>(i)));
      else
        op->ints.push_back(static_cast<int64_t>(known.element<T>(i)));
    }
  });
  return {&graph.add(std::move(op), {}), 0};
}

bool is_splat(const Known& known) {
  if (known.elements() > kSplatElements) return false;
  const size_t size = size_of(known.dtype());
  const std::byte* bytes = known.bytes().data();
  return known.bytes().size() == size ||
         std::memcmp(bytes, bytes + size, known.bytes().size() - size) == 0;
}

// How many of the first axes lead to the same elements, whichever of their places one takes; 0
// where that is so for axes of size 1 alone.
size_t repeated_axes(const Known& known) {
  const Bytes bytes = known.bytes();
  for (size_t axes = known.shape().size(); axes-- > 1;) {
    const Shape front(known.shape().begin(), known.shape().begin() + static_cast<int64_t>(axes));
    const auto times = static_cast<size_t>(numel(front));
    const size_t part = bytes.size() / times;
    if (times > 1 && std::memcmp(bytes.data(), bytes.data() + part, bytes.size() - part) == 0)
      return axes;
  }
  return 0;
}

// True where the last two axes, the only ones of more than one element, hold one element up to the
// diagonal and another one above it.
bool is_triangle(const Known& known) {
  const Shape& shape = known.shape();
  if (shape.size() < 2 || known.is_empty()) return false;
  const auto rows = static_cast<size_t>(shape[shape.size() - 2]);
  const auto columns = static_cast<size_t>(shape.back());
  if (rows < 2 || columns < 2 || rows * columns != static_cast<size_t>(known.elements()))
    return false;
  const size_t size = size_of(known.dtype());
  const std::byte* const bytes = known.bytes().data();
  const auto is_same = [&](size_t a, size_t b) {
    return std::memcmp(bytes + a * size, bytes + b * size, size) == 0;
  };
  if (is_same(0, 1) || known.at(0) == known.at(1)) return false;
  for (size_t i = 0; i < rows * columns; ++i)
    if (!is_same(i, i % columns <= i / columns ? 0 : 1)) return false;
  return true;
}

// The elements of a triangle by indices, which take no memory: masks of causal models are such.
Value triangle_of(Graph& graph, const Known& known) {
  Shape rows = known.shape(), columns = rows;
  rows.back() = columns[columns.size() - 2] = 1;
  const auto indices = [&](const Shape& shape) {
    return reshape(iota(graph, {DType::kI64, {numel(shape)}}, 0), shape);
  };
  const Value row = indices(rows), column = indices(columns);
  if (known.dtype() == DType::kBool) return known.at(0) != 0 ? ge(row, column) : lt(row, column);
  const size_t size = size_of(known.dtype());
  const auto element = [&](size_t i) {
    const Bytes bytes = known.bytes().subspan(i * size, size);
    return constant_of(graph, {known.dtype(), {}, bytes, known.owner()}, 1);
  };
  return where(ge(row, column), element(0), element(1));
}

// Products read the bytes of such weights, and nobody the numbers that these stand for.
bool are_byte_weights(const std::vector<DatumPtr>& results) {
  return std::ranges::any_of(results, [](const DatumPtr& result) {
    return result != nullptr && result->dequantized != nullptr &&
           numel(result->shape) > kMostFoldedDequantized;
  });
}

Cost cost_of(const Graph& graph) {
  Cost total;
  for (const auto& node : graph.nodes()) {
    const Cost cost = node->op->cost(node->input_types(), node->outputs);
    total.flops += cost.flops;
    total.bytes += cost.bytes;
  }
  return total;
}

}  // namespace

// Sites end in ":op.number", and are printed on a line.
std::string site_of(const NodeProto& node) {
  std::string site = !node.name.empty()                                  ? node.name
                     : !node.outputs.empty() && !node.outputs[0].empty() ? node.outputs[0]
                                                                         : node.op;
  std::replace_if(
      site.begin(),
      site.end(),
      [](char c) { return c == ':' || static_cast<unsigned char>(c) <= ' ' || c >= 0x7f; },
      '_');
  return site.empty() ? "node" : site;
}

DatumPtr make_datum(std::string name, Known known) {
  auto datum = std::make_shared<Datum>();
  datum->name = std::move(name);
  datum->dtype = known.dtype();
  datum->shape = known.shape();
  datum->known = std::move(known);
  return datum;
}

DatumPtr make_datum(std::string name, Value value) {
  auto datum = std::make_shared<Datum>();
  datum->name = std::move(name);
  datum->dtype = value.dtype();
  datum->shape = value.shape();
  datum->value = value;
  return datum;
}

DatumPtr make_image_datum(std::string name, Value image) {
  auto datum = std::make_shared<Datum>();
  datum->name = std::move(name);
  datum->dtype = image.dtype();
  datum->shape = {image.dim(0), image.dim(3), image.dim(1), image.dim(2)};
  datum->image = image;
  return datum;
}

DatumPtr make_refused_datum(std::string name) {
  auto datum = std::make_shared<Datum>();
  datum->name = std::move(name);
  datum->is_refused = true;
  return datum;
}

DatumPtr Scope::find(const std::string& name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent) {
    const auto found = scope->values.find(name);
    if (found != scope->values.end()) return found->second;
  }
  return nullptr;
}

ImportContext::ImportContext(const ModelProto& model,
                             ModelElements& elements,
                             Graph& graph,
                             ConvNorms norms)
    : elements_(elements), graph_(graph), norms_(norms), folding_(make_ref_backend()) {
  // The first of two of one name counts.
  for (const FunctionProto& function : model.functions)
    functions_.emplace(
        std::pair<std::string_view, std::string_view>(function.domain, function.name), &function);
}

Known ImportContext::read(const TensorProto& tensor) {
  Known known = elements_.read(tensor);
  if (read_.insert(&tensor).second) read_bytes_ += known.bytes().size();
  return known;
}

Value ImportContext::value(Datum& datum) {
  if (datum.value) return datum.value;
  if (!datum.known)
    datum.value = transpose(image(datum), {0, 3, 1, 2});
  else if (datum.is_global && datum.known->elements() > kConstantElements &&
           !is_triangle(*datum.known))
    datum.value =
        buffer(datum.known->type(), {datum.known->bytes(), datum.known->owner()}, datum.name);
  else
    datum.value = stored(*datum.known, datum.name);
  return datum.value;
}

Value ImportContext::image(Datum& datum) {
  if (datum.image) return datum.image;
  if (datum.convolution)
    datum.image = onnx::build(*this, *datum.convolution);
  else if (datum.known)
    datum.image = moved(datum, {0, 2, 3, 1});
  else
    datum.image = transpose(datum.value, {0, 2, 3, 1});
  return datum.image;
}

Value ImportContext::stored(const Known& known, const std::string& name) {
  check(!known.is_empty(), "'{}' has no elements", name);
  if (is_splat(known)) return constant_of(graph_, known, 1);
  if (is_triangle(known)) return triangle_of(graph_, known);
  if (const auto axes = static_cast<int64_t>(repeated_axes(known)); axes > 0) {
    const Shape part(known.shape().begin() + axes, known.shape().end());
    const size_t bytes = static_cast<size_t>(numel(part)) * size_of(known.dtype());
    const Value once =
        stored({known.dtype(), part, known.bytes().first(bytes), known.owner()}, name);
    return broadcast(once, known.shape());
  }
  if (known.elements() <= kConstantElements) return constant_of(graph_, known, known.elements());
  count_made(known);
  Checksum sum;
  sum.update(as_bytes(to_string(known.type())));
  sum.update(known.bytes());
  return buffer(known.type(),
                {known.bytes(), known.owner()},
                fmt::format("{}#{}", name, checksum_text(sum.value())));
}

Value ImportContext::moved(Datum& datum,
                           const std::vector<int64_t>& perm,
                           const std::vector<double>& scale) {
  std::string how;
  for (const int64_t axis : perm) how += fmt::format("{}", axis);
  if (!scale.empty()) how += ":scaled#" + checksum_text(checksum(std::as_bytes(std::span(scale))));
  Value& value = datum.moved[how];
  if (value) return value;
  const std::string name = fmt::format("{}:{}", datum.name, how);
  const Known& known = *datum.known;
  const Shape shape = transposed_shape(known.shape(), perm);
  if (datum.is_initializer && datum.is_global && known.elements() > kConstantElements &&
      !is_splat(known))
    return value = buffer({known.dtype(), shape},
                          {known.bytes(), known.owner(), perm, known.shape(), scale},
                          name);
  const Known as_moved = known.transposed(perm);
  if (scale.empty() || known.is_empty()) return value = stored(as_moved, name);
  Tensor scaled = as_moved.tensor();
  scale_rows(known.dtype(), scaled.data(), known.elements() / shape.back(), scale);
  return value = stored(Known(std::move(scaled)), name);
}

Value ImportContext::buffer(const TensorType& type,
                            StateConstant constant,
                            const std::string& name) {
  const auto [number, is_new] = numbers_.emplace(name, state_.size());
  if (!is_new) {
    const StateEntry& there = state_[number->second];
    check(there.type == type && there.constant->is_same(constant),
          "two constants are named '{}'",
          name);
    return {graph_.find_input(name), 0};
  }
  const Value value = input(graph_, name, type);
  state_.push_back({.name = name,
                    .type = type,
                    .constant = std::make_shared<const StateConstant>(std::move(constant))});
  return value;
}

void ImportContext::load_initializers(const GraphProto& graph, Scope& scope) {
  check(!graph.has_sparse, "the model has sparse initializers, which are not supported");
  for (const TensorProto& tensor : graph.initializers) {
    DatumPtr datum;
    if (can_read(tensor.data_type)) {
      datum = make_datum(tensor.name, read(tensor));
      datum->is_initializer = true;
      datum->is_global = scope.parent == nullptr;
    } else {
      refuse({.name = tensor.name, .op = "initializer"},
             fmt::format("dtype {} is not supported", onnx_type_name(tensor.data_type)),
             true);
      datum = make_refused_datum(tensor.name);
    }
    check(scope.values.emplace(tensor.name, datum).second,
          "two initializers, or an input of a fixed value, are named '{}'",
          tensor.name);
  }
}

std::vector<DatumPtr> ImportContext::import_graph(const GraphProto& graph, Scope& scope) {
  check(scope.depth <= kMaxScopes, "graphs or functions lie more than {} deep", kMaxScopes);
  load_initializers(graph, scope);
  for (const NodeProto& node : graph.nodes) import_node(node, scope);
  std::vector<DatumPtr> outputs;
  for (const ValueInfo& output : graph.outputs) {
    outputs.push_back(scope.find(output.name));
    check(outputs.back() != nullptr, "nothing gives the output '{}'", output.name);
  }
  return outputs;
}

std::vector<DatumPtr> ImportContext::inputs_of(const NodeProto& node, const Scope& scope) const {
  std::vector<DatumPtr> inputs;
  for (const std::string& name : node.inputs) {
    inputs.push_back(name.empty() ? nullptr : scope.find(name));
    check(name.empty() || inputs.back() != nullptr,
          "node '{}' ({}) reads '{}', which no node before it gives",
          site_of(node),
          node.op,
          name);
  }
  while (!inputs.empty() && inputs.back() == nullptr) inputs.pop_back();
  return inputs;
}

void ImportContext::import_node(const NodeProto& node, Scope& scope) {
  imported_nodes_ += 1 + std::ssize(node.inputs) / 8 + std::ssize(node.outputs) / 8;
  check(imported_nodes_ <= kMaxNodes, "the model has more than {} nodes", kMaxNodes);
  check(!node.outputs.empty(), "node '{}' ({}) has no outputs", site_of(node), node.op);
  if (const FunctionProto* function = find_function(node))
    return call_function(*function, node, scope);
  std::vector<DatumPtr> inputs = inputs_of(node, scope);
  const auto version = scope.opsets->find(node.domain);
  const OpRow* row =
      find_op(node.domain, node.op, version == scope.opsets->end() ? 1 : version->second);
  const bool is_ready = std::none_of(inputs.begin(), inputs.end(), [](const DatumPtr& input) {
    return input != nullptr && input->is_refused;
  });
  std::vector<DatumPtr> results;
  if (row == nullptr) {
    refuse(node, kNoOperator, true);
  } else if (is_ready) {
    try {
      results = build(*row, node, std::move(inputs), scope);
    } catch (const UserError& error) {
      refuse(node, error.message());
    }
    for (size_t i = 0; i < results.size(); ++i)
      if (results[i] == nullptr && !node.outputs[i].empty())
        refuse(node, fmt::format("its output {} is not supported", i));
  }
  if (row == nullptr || !is_ready) refuse_unknown_below(node, scope);
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const std::string& name = node.outputs[i];
    if (name.empty()) continue;
    DatumPtr datum = i < results.size() ? results[i] : nullptr;
    if (datum == nullptr) datum = make_refused_datum(name);
    check(scope.values.emplace(name, std::move(datum)).second, "two nodes give '{}'", name);
  }
}

std::vector<DatumPtr> ImportContext::build(const OpRow& row,
                                           const NodeProto& node,
                                           std::vector<DatumPtr> inputs,
                                           Scope& scope) {
  if (!row.is_control)
    if (auto folded = fold(row, node, inputs, scope)) return std::move(*folded);
  NodeContext context(*this, node, std::move(inputs), scope, graph_);
  const SiteScope site(graph_, site_of(node), SiteScope::Path::kAbsolute);
  row.build(context);
  return context.results();
}

std::optional<std::vector<DatumPtr>> ImportContext::fold(const OpRow& row,
                                                         const NodeProto& node,
                                                         const std::vector<DatumPtr>& inputs,
                                                         Scope& scope) {
  double bytes = 0;
  for (const DatumPtr& input : inputs) {
    if (input == nullptr) continue;
    if (!input->known) return std::nullopt;
    bytes += static_cast<double>(input->known->bytes().size());
  }
  const auto is_spent = [&](double work) {
    return (work > kSmallFoldedWork ? folded_work_ : small_folded_work_) > kAllFoldedWork;
  };
  if (bytes > kFoldedWork || is_spent(bytes)) return std::nullopt;
  Graph scratch(site_of(node));
  NodeContext context(*this, node, inputs, scope, scratch);
  row.build(context);
  std::vector<DatumPtr> results = context.results();
  if (are_byte_weights(results)) return std::nullopt;
  const auto is_computed = [&](const DatumPtr& result) {
    return result != nullptr && !result->known && result->value;
  };
  for (size_t i = 0; i < results.size(); ++i)
    if (is_computed(results[i])) scratch.add_output(fmt::format("{}", i), results[i]->value);
  if (scratch.outputs().empty()) return results;
  const Cost cost = cost_of(scratch);
  const double work = cost.flops + cost.bytes;
  if (cost.flops > kFoldedWork || cost.bytes > kFoldedWork || is_spent(work)) return std::nullopt;
  (work > kSmallFoldedWork ? folded_work_ : small_folded_work_) += work + kFoldedNode;
  NamedTensors values = evaluate(scratch, *folding_, context.folded_inputs());
  for (size_t i = 0; i < results.size(); ++i)
    if (is_computed(results[i])) {
      const auto dequantized = results[i]->dequantized;
      results[i] = make_datum(node.outputs[i], Known(std::move(values.at(fmt::format("{}", i)))));
      results[i]->dequantized = dequantized;
    }
  for (const DatumPtr& result : results)
    if (result != nullptr && result->known) count_made(*result->known);
  return results;
}

void ImportContext::count_made(const Known& known) {
  made_bytes_ += known.bytes().size();
  check(made_bytes_ <= kMadeBytes + 4 * read_bytes_,
        "the constants that are computed take {} bytes by now",
        made_bytes_);
}

const FunctionProto* ImportContext::find_function(const NodeProto& node) const {
  const auto found = functions_.find({node.domain, node.op});
  return found == functions_.end() ? nullptr : found->second;
}

void ImportContext::call_function(const FunctionProto& function,
                                  const NodeProto& node,
                                  Scope& scope) {
  check(scope.depth < kMaxScopes, "graphs or functions lie more than {} deep", kMaxScopes);
  const std::vector<DatumPtr> inputs = inputs_of(node, scope);
  constexpr size_t kMostInputs = 10000;
  check(inputs.size() <= function.inputs.size() && function.inputs.size() <= kMostInputs,
        "function '{}' has {} inputs, and gets {}",
        function.name,
        function.inputs.size(),
        inputs.size());
  Scope inner{.opsets = &function.opsets, .depth = scope.depth + 1};
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i] != nullptr) inner.values[function.inputs[i]] = inputs[i];
  for (const Attribute& attribute : function.defaults)
    inner.attributes[attribute.name] = &attribute;
  for (const Attribute& attribute : node.attributes) {
    const Attribute* given = &attribute;
    if (!attribute.reference.empty()) {
      const auto found = scope.attributes.find(attribute.reference);
      given = found == scope.attributes.end() ? nullptr : found->second;
    }
    if (given != nullptr) inner.attributes[attribute.name] = given;
  }
  for (const NodeProto& each : function.nodes) {
    // An optional input that is not given is an input that is not there.
    NodeProto called = each;
    for (std::string& name : called.inputs)
      if (inner.find(name) == nullptr &&
          std::find(function.inputs.begin(), function.inputs.end(), name) != function.inputs.end())
        name.clear();
    import_node(called, inner);
  }
  for (size_t i = 0; i < node.outputs.size() && i < function.outputs.size(); ++i) {
    if (node.outputs[i].empty()) continue;
    const DatumPtr datum = inner.find(function.outputs[i]);
    check(datum != nullptr, "function '{}' does not give '{}'", function.name, function.outputs[i]);
    check(scope.values.emplace(node.outputs[i], datum).second,
          "two nodes give '{}'",
          node.outputs[i]);
  }
}

void ImportContext::refuse(const NodeProto& node, const std::string& reason, bool is_final) {
  const std::string op = node.domain.empty() ? node.op : fmt::format("{}.{}", node.domain, node.op);
  const auto found = std::find_if(refusals_.begin(), refusals_.end(), [&](const Refusal& each) {
    return each.op == op && each.reason == reason;
  });
  if (found == refusals_.end())
    refusals_.push_back({op, reason, {site_of(node)}, is_final});
  else
    found->nodes.push_back(site_of(node));
}

// Nodes of graphs inside a node that is not imported: whoever reads the error wants all at once.
void ImportContext::refuse_unknown_below(const NodeProto& node, const Scope& scope) {
  for (const Attribute& attribute : node.attributes) {
    if (attribute.graph == nullptr) continue;
    for (const NodeProto& inner : attribute.graph->nodes) {
      const auto version = scope.opsets->find(inner.domain);
      if (find_function(inner) == nullptr &&
          find_op(inner.domain, inner.op, version == scope.opsets->end() ? 1 : version->second) ==
              nullptr)
        refuse(inner, kNoOperator);
      refuse_unknown_below(inner, scope);
    }
  }
}

void ImportContext::check_refusals(std::string_view model) const {
  if (refusals_.empty()) return;
  size_t count = 0;
  bool is_final = false;
  std::string lines;
  for (const Refusal& refusal : refusals_) {
    count += refusal.nodes.size();
    is_final = is_final || refusal.is_final;
    lines += fmt::format("\n  {} x {}: {} (", refusal.nodes.size(), refusal.op, refusal.reason);
    for (size_t i = 0; i < std::min(refusal.nodes.size(), kNodesNamed); ++i)
      lines += fmt::format("{}{}", i == 0 ? "" : ", ", refusal.nodes[i]);
    if (refusal.nodes.size() > kNodesNamed)
      lines += fmt::format(" and {} more", refusal.nodes.size() - kNodesNamed);
    lines += ")";
  }
  const std::string message =
      fmt::format("{}: {} of its nodes cannot be imported:{}", model, count, lines);
  const char* const fix = "export the model without them (docs/onnx.md says what is supported)";
  if (is_final) throw UnsupportedModel(message, fix);
  throw UserError(message, fix);
}

}  // namespace ridge::onnx
