#include "ridge/export/onnx/graph_export.h"

#include <algorithm>

#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "ridge/graph/rewrite.h"
#include "ridge/import/onnx/elements.h"

namespace ridge::onnx {
namespace {

constexpr int64_t kImageRank = 4;

bool is_splat(Value value) { return splat_of(value).has_value(); }

}  // namespace

GraphExport::GraphExport(const SizedGraph& sized,
                         const std::vector<DataSpec>& inputs,
                         const SafetensorsView& weights,
                         int64_t opset)
    : sized_(sized), inputs_(inputs), weights_(weights) {
  model_.opset = opset;
  for (const DataSpec& input : inputs) taken_.insert(input.name);
}

// ---- names of values ----

std::string GraphExport::unique(std::string name) {
  std::string tried = name;
  for (int i = 1; !taken_.insert(tried).second; ++i) tried = fmt::format("{}.{}", name, i);
  return tried;
}

void GraphExport::give(Value value, std::string name) {
  names_[{value.node, value.index}].own = std::move(name);
}

void GraphExport::give_image(Value value, std::string name) {
  names_[{value.node, value.index}].image = std::move(name);
}

bool GraphExport::is_image(Value value) const {
  const auto found = names_.find({value.node, value.index});
  return found != names_.end() && found->second.own.empty();
}

std::string GraphExport::name(Value value) {
  const auto key = std::pair(static_cast<const Node*>(value.node), value.index);
  if (const Names& names = names_[key]; !names.own.empty()) return names.own;
  const std::string image = names_[key].image;
  const std::string own =
      image.empty() ? made(value) : transpose(value.node->site.name, image, kFromImage);
  return names_[key].own = own;
}

std::string GraphExport::image(Value value) {
  check_internal(value.rank() == kImageRank, "'{}' is no image", value.node->site.name);
  const auto key = std::pair(static_cast<const Node*>(value.node), value.index);
  if (const Names& names = names_[key]; !names.image.empty()) return names.image;
  const std::string own = name(value);
  return names_[key].image = transpose(value.node->site.name, own, kToImage);
}

bool GraphExport::is_weight(Value value) const {
  if (!value.node->is<Input>()) return false;
  const std::string& input = value.node->op_as<Input>().input_name;
  return std::none_of(
      inputs_.begin(), inputs_.end(), [&](const DataSpec& spec) { return spec.name == input; });
}

// A value of an op that has no row, for it is no node there: its name is made when it is read.
std::string GraphExport::made(Value value) {
  const Node& node = *value.node;
  if (node.is<Broadcast>() || is_splat(value)) return expanded(value);
  if (node.is<Input>()) return is_weight(value) ? weight(node) : node.op_as<Input>().input_name;
  if (node.is<Constant>()) {
    const auto& constant = node.op_as<Constant>();
    Tensor tensor(node.outputs[0]);
    for (int64_t i = 0; i < tensor.elements(); ++i) {
      const auto at = static_cast<size_t>(i);
      tensor.set(
          i, constant.ints.empty() ? constant.values[at] : static_cast<double>(constant.ints[at]));
    }
    const std::string name = unique(node.site.name);
    model_.tensors.emplace(name, Known(std::move(tensor)));
    return name;
  }
  throw InternalError(
      fmt::format("output {} of node '{}' was not exported", value.index, node.site.name));
}

bool GraphExport::is_broadcast(Value value) {
  return value.node->is<Broadcast>() || is_splat(value);
}

std::string GraphExport::operand(Value value, bool as_image) {
  if (const auto splat = splat_of(value)) return scalar(value.dtype(), *splat);
  if (!value.node->is<Broadcast>()) return as_image ? image(value) : name(value);
  const Value source = value.node->inputs[0];
  if (!as_image || source.rank() == 0) return name(source);
  if (source.rank() == kImageRank) return image(source);
  // A number a channel, most of the time: (C) -> (C, 1, 1).
  const std::string& site = value.node->site.name;
  const std::vector<Size> from = sized_.sizes(source);
  if (source.rank() == 1) return reshape(site, name(source), from, {from[0], Size{1}, Size{1}});
  std::vector<Size> to(static_cast<size_t>(kImageRank) - from.size(), Size{1});
  to.insert(to.end(), from.begin(), from.end());
  return transpose(site, reshape(site, name(source), from, to), kToImage);
}

std::string GraphExport::expanded(Value value) {
  const std::string& site = value.node->site.name;
  const auto splat = splat_of(value);
  const std::string from = splat ? scalar(value.dtype(), *splat) : name(value.node->inputs[0]);
  if (value.rank() == 0) return from;
  return add(site, "Expand", {from, shape(site, sized_.sizes(value))});
}

// ---- nodes ----

std::vector<std::string> GraphExport::add_many(std::string_view site,
                                               std::string_view op,
                                               std::vector<std::string> inputs,
                                               const AttributeList& attributes,
                                               size_t outputs) {
  WrittenNode node{.op = std::string(op),
                   .name = unique(fmt::format("{}/{}", site, op)),
                   .inputs = std::move(inputs),
                   .attributes = attributes.bytes()};
  node.outputs.push_back(node.name);
  while (node.outputs.size() < outputs) node.outputs.push_back(unique(node.name));
  model_.nodes.push_back(node);
  return node.outputs;
}

std::string GraphExport::add(std::string_view site,
                             std::string_view op,
                             std::vector<std::string> inputs,
                             const AttributeList& attributes) {
  return add_many(site, op, std::move(inputs), attributes, 1)[0];
}

std::string GraphExport::transpose(std::string_view site,
                                   const std::string& x,
                                   const std::vector<int64_t>& perm) {
  return add(site, "Transpose", {x}, AttributeList().integers("perm", perm));
}

// ---- tensors ----

std::string GraphExport::scalar(DType dtype, double value) {
  const std::string name = fmt::format("{}:{}", name_of(dtype), value);
  if (!model_.tensors.contains(name)) {
    Tensor tensor({dtype, {}});
    tensor.set(0, value);
    model_.tensors.emplace(name, Known(std::move(tensor)));
    taken_.insert(name);
  }
  return name;
}

std::string GraphExport::integers(std::vector<int64_t> values) {
  const std::string name = "i64:" + to_string(values);
  taken_.insert(name);
  model_.tensors.emplace(name, Known::of(values));
  return name;
}

std::string GraphExport::weight(const Node& input, const std::vector<int64_t>& perm) {
  const auto key = std::pair(&input, perm);
  if (const auto known = weight_names_.find(key); known != weight_names_.end())
    return known->second;
  const std::string& own = input.op_as<Input>().input_name;
  const TensorView& view = weights_.checked(own, input.outputs[0]);
  const Known elements(view.type.dtype, view.type.shape, view.bytes(), nullptr);
  const std::string name = unique(own);
  model_.tensors.emplace(name, perm.empty() ? elements : elements.transposed(perm));
  return weight_names_[key] = name;
}

// ---- sizes ----

std::string GraphExport::once(const std::string& key, FunctionRef<std::string()> make) {
  if (const auto known = shared_.find(key); known != shared_.end()) return known->second;
  return shared_[key] = make();
}

std::string GraphExport::named_size(std::string_view site, const std::string& dim) {
  return once("size " + dim, [&]() -> std::string {
    for (const DataSpec& input : inputs_)
      for (size_t axis = 0; axis < input.dims.size(); ++axis)
        if (input.dims[axis].name == dim) {
          const std::string shape = add(site, "Shape", {input.name});
          return add(site, "Gather", {shape, integers({static_cast<int64_t>(axis)})});
        }
    throw InternalError(fmt::format("no input has the dimension '{}'", dim));
  });
}

std::string GraphExport::shape(std::string_view site, const std::vector<Size>& sizes) {
  std::vector<std::string> parts;
  std::vector<int64_t> row;  // sizes that are numbers, one behind another
  const auto end_row = [&] {
    if (!row.empty()) parts.push_back(integers(row));
    row.clear();
  };
  for (const Size& size : sizes) {
    if (size.is_number()) {
      row.push_back(size.factor);
      continue;
    }
    end_row();
    std::string product = named_size(site, size.names[0]);
    for (size_t i = 1; i < size.names.size(); ++i)
      product = add(site, "Mul", {product, named_size(site, size.names[i])});
    if (size.factor != 1) product = add(site, "Mul", {product, integers({size.factor})});
    parts.push_back(product);
  }
  end_row();
  check_internal(!parts.empty(), "a shape without sizes");
  if (parts.size() == 1) return parts[0];
  return add(site, "Concat", parts, AttributeList().integer("axis", 0));
}

std::string GraphExport::count(std::string_view site, const Size& size) {
  if (size.is_number()) return scalar(DType::kI64, static_cast<double>(size.factor));
  return add(site, "Squeeze", {shape(site, {size}), integers({0})});
}

std::string GraphExport::reshape(std::string_view site,
                                 const std::string& x,
                                 const std::vector<Size>& from,
                                 const std::vector<Size>& to) {
  if (to.empty()) return add(site, "Squeeze", {x});
  std::vector<int64_t> target;
  int64_t open = 0;
  for (size_t i = 0; i < to.size(); ++i) {
    const bool is_kept = i < from.size() && from[i] == to[i];
    if (!to[i].is_number() && !is_kept) ++open;
    target.push_back(to[i].is_number() ? to[i].factor : is_kept ? 0 : -1);
  }
  const std::string shape_name = open <= 1 ? integers(target) : shape(site, to);
  return add(site, "Reshape", {x, shape_name});
}

// ---- the model ----

void GraphExport::rename(const std::string& from, const std::string& to) {
  for (WrittenNode& node : model_.nodes)
    for (auto* list : {&node.inputs, &node.outputs}) std::ranges::replace(*list, from, to);
}

void GraphExport::drop_unused() {
  std::set<std::string> needed;
  for (const DataSpec& output : model_.outputs) needed.insert(output.name);
  std::vector<WrittenNode> kept;
  for (auto node = model_.nodes.rbegin(); node != model_.nodes.rend(); ++node) {
    const bool is_needed =
        std::any_of(node->outputs.begin(), node->outputs.end(), [&](const std::string& output) {
          return needed.contains(output);
        });
    if (!is_needed) continue;
    needed.insert(node->inputs.begin(), node->inputs.end());
    kept.push_back(std::move(*node));
  }
  model_.nodes.assign(std::make_move_iterator(kept.rbegin()), std::make_move_iterator(kept.rend()));
  std::erase_if(model_.tensors, [&](const auto& tensor) { return !needed.contains(tensor.first); });
}

WrittenModel GraphExport::finish(const std::vector<DataSpec>& inputs,
                                 const std::vector<DataSpec>& outputs) {
  model_.inputs = inputs;
  model_.outputs = outputs;
  for (const Output& output : sized_.graph().outputs()) {
    const std::string value = name(output.value);
    const bool is_result =
        std::any_of(model_.nodes.begin(), model_.nodes.end(), [&](const WrittenNode& node) {
          return node.outputs[0] == value;
        });
    const bool is_output = std::any_of(
        outputs.begin(), outputs.end(), [&](const DataSpec& spec) { return spec.name == value; });
    const std::string written = unique(output.name);
    check(written == output.name, "the output '{}' has the name of another value", output.name);
    if (is_result && !is_output) {
      rename(value, written);
      for (auto& [key, names] : names_) {
        if (names.own == value) names.own = written;
        if (names.image == value) names.image = written;
      }
    } else {
      model_.nodes.push_back(
          {.op = "Identity", .name = written, .inputs = {value}, .outputs = {written}});
    }
  }
  drop_unused();
  return std::move(model_);
}

}  // namespace ridge::onnx
