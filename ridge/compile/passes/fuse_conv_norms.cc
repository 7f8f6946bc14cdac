// Joins the gradient of a batch norm with those of the convolution before it, where nobody else
// reads what passes between them: a large image that is then never written.
//
//   dz, dg, db = batch_norm_grad(z, ..., dy)
//   dx = conv2d_grad_input(dz, w)               ->   dx, dw, dg, db =
//   dw = conv2d_grad_weight(x, dz)                       conv2d_norm_grad(x, w, z, ..., dy)
//
// A batch norm whose result only convolutions and such gradients read is left to them: they
// normalise what they read.
//
//   y, mean, var = batch_norm(x, g, b)          ->   mean, var, s, t = batch_norm_stats(x, g, b)
//   z = conv2d(y, w)                                 z = norm_conv2d(x, mean, s, t, w)
//
// Both are made only where the backend has a kernel for the joined node. The CPU has them in f32,
// for kernels of one pixel and for one channel a group, where the sizes make it worth while; their
// bits are those of the plain ops.
#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "ridge/compile/pass.h"
#include "ridge/compile/passes/has_kernel.h"
#include "ridge/graph/ops/batch_norm.h"
#include "ridge/graph/ops/conv_norm.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/rewrite.h"

namespace ridge {
namespace {

struct Group {
  const Node* norm;
  const Node* input_gradient;
  const Node* weight_gradient;

  std::vector<Value> inputs() const {
    std::vector<Value> inputs{weight_gradient->inputs[0], input_gradient->inputs[1]};
    inputs.insert(inputs.end(), norm->inputs.begin(), norm->inputs.end());
    return inputs;
  }
  std::shared_ptr<Conv2dNormGrad> op() const {
    auto op = std::make_shared<Conv2dNormGrad>();
    const auto& conv = input_gradient->op_as<Conv2dGradInput>();
    op->window = conv.window;
    op->groups = conv.groups;
    op->eps = norm->op_as<BatchNormGrad>().eps;
    op->activation = norm->op_as<BatchNormGrad>().activation;
    return op;
  }
};

bool are_of_one_convolution(const Node& input_gradient, const Node& weight_gradient) {
  const auto& a = input_gradient.op_as<Conv2dGradInput>();
  const auto& b = weight_gradient.op_as<Conv2dGradWeight>();
  return !a.tf32 && !b.tf32 && a.window.stride == b.window.stride &&
         a.window.padding == b.window.padding && a.window.dilation == b.window.dilation &&
         a.groups == b.groups && input_gradient.outputs[0] == weight_gradient.inputs[0].type() &&
         input_gradient.inputs[1].type() == weight_gradient.outputs[0];
}

using Readers = std::map<const Node*, std::vector<const Node*>>;

// The readers of the first result of each T; an output of the graph counts as null.
template <typename T>
Readers readers_of(const Graph& graph) {
  Readers readers;
  const auto note = [&](const Value& value, const Node* reader) {
    if (value.index == 0 && value.node->is<T>()) readers[value.node].push_back(reader);
  };
  for (const auto& node : graph.nodes())
    for (const Value& input : node->inputs) note(input, node.get());
  for (const Output& output : graph.outputs()) note(output.value, nullptr);
  return readers;
}

// The node of the value, where it stands behind `place` and could as well stand before it: a kernel
// that an importer transposes where it is read.
const Node* movable_before(const Value& value, int place) {
  const Node* const node = value.node;
  const bool moves = node->id > place && node->is<Transpose>() && node->inputs[0].node->id < place;
  return moves ? node : nullptr;
}

bool can_stand_before(const Value& value, int place) {
  return value.node->id < place || movable_before(value, place) != nullptr;
}

// The joined ops have one dtype.
bool has_one_dtype(const Node& norm) { return norm.inputs[0].dtype() == norm.inputs[1].dtype(); }

std::vector<Group> find_groups(const Graph& graph, Backend& backend) {
  std::vector<Group> groups;
  for (const auto& [norm, readers] : readers_of<BatchNormGrad>(graph)) {
    if (readers.size() != 2 || readers[0] == nullptr || readers[1] == nullptr) continue;
    if (!has_one_dtype(*norm)) continue;
    const bool input_first = readers[0]->is<Conv2dGradInput>();
    const Group group{norm, readers[input_first ? 0 : 1], readers[input_first ? 1 : 0]};
    if (!group.input_gradient->is<Conv2dGradInput>() ||
        !group.weight_gradient->is<Conv2dGradWeight>())
      continue;
    // The fused node takes the place of the norm.
    const int place = norm->id;
    if (can_stand_before(group.weight_gradient->inputs[0], place) &&
        can_stand_before(group.input_gradient->inputs[1], place) &&
        group.input_gradient->inputs[0] == Value{const_cast<Node*>(norm), 0} &&
        group.weight_gradient->inputs[1] == Value{const_cast<Node*>(norm), 0} &&
        are_of_one_convolution(*group.input_gradient, *group.weight_gradient) &&
        has_kernel(group.op(), group.inputs(), backend))
      groups.push_back(group);
  }
  return groups;
}

bool join_gradients(Graph& graph, Backend& backend) {
  const std::vector<Group> groups = find_groups(graph, backend);
  if (groups.empty()) return false;
  std::map<const Node*, const Group*> of_norm;
  std::vector<bool> gone(graph.nodes().size());
  for (const Group& group : groups) {
    of_norm[group.norm] = &group;
    gone[static_cast<size_t>(group.input_gradient->id)] = true;
    gone[static_cast<size_t>(group.weight_gradient->id)] = true;
  }
  Rewrite rewrite(graph);
  for (const auto& node : graph.nodes()) {
    if (gone[static_cast<size_t>(node->id)] || rewrite.has(*node)) continue;
    const auto found = of_norm.find(node.get());
    if (found == of_norm.end()) {
      rewrite.copy(*node);
      continue;
    }
    const Group& group = *found->second;
    std::vector<Value> inputs;
    for (const Value& input : group.inputs()) {
      const Node* const moved = movable_before(input, node->id);
      if (moved != nullptr && !rewrite.has(*moved)) rewrite.copy(*moved);
      inputs.push_back(rewrite.mapped(input));
    }
    Node& fused = rewrite.to().add(group.op(), std::move(inputs), node->site);
    rewrite.replace(*group.input_gradient, {{&fused, 0}});
    rewrite.replace(*group.weight_gradient, {{&fused, 1}});
    // Nobody reads the first result any more, but a rewrite names all of them.
    rewrite.replace(*group.norm, {fused.inputs.back(), {&fused, 2}, {&fused, 3}});
  }
  graph = rewrite.finish();
  return true;
}

// ---- norms that their readers apply ----

// A norm by the inputs that stand for it: mean, scale and shift.
using NormInputs = std::array<Value, 3>;

// The op that replaces a reader and takes the norm's input in place of its result.
struct Reader {
  std::shared_ptr<const Op> op;
  std::vector<Value> inputs;
};

std::optional<Reader> as_reader(const Node& reader,
                                std::vector<Value> inputs,
                                const std::string& activation,
                                const NormInputs& norm) {
  if (reader.is<Conv2d>()) {
    const auto& conv = reader.op_as<Conv2d>();
    if (conv.tf32) return std::nullopt;
    auto op = std::make_shared<NormConv2d>();
    op->window = conv.window;
    op->groups = conv.groups;
    op->activation = activation;
    return Reader{op, {inputs[0], norm[0], norm[1], norm[2], inputs[1]}};
  }
  if (!reader.is<Conv2dNormGrad>() || inputs.size() != 8) return std::nullopt;
  auto op = std::make_shared<Conv2dNormGrad>(reader.op_as<Conv2dNormGrad>());
  op->input_activation = activation;
  inputs.insert(inputs.end(), norm.begin(), norm.end());
  return Reader{op, inputs};
}

// True where the reader takes `value` as its first input alone, and has a kernel that normalises
// it.
bool can_apply(const Node& reader, Value value, Backend& backend) {
  if (reader.inputs[0] != value ||
      std::count(reader.inputs.begin(), reader.inputs.end(), value) > 1)
    return false;
  const Node& norm = *value.node;
  const Value channel = norm.inputs[2];  // stands for any of its type
  const auto changed = as_reader(
      reader, reader.inputs, norm.op_as<BatchNorm>().activation, {channel, channel, channel});
  return changed && has_kernel(changed->op, changed->inputs, backend);
}

bool leave_to_readers(const Node& norm, const std::vector<const Node*>& readers, Backend& backend) {
  const Value result{const_cast<Node*>(&norm), 0};
  auto stats = std::make_shared<BatchNormStats>();
  return has_one_dtype(norm) &&
         std::all_of(readers.begin(),
                     readers.end(),
                     [&](const Node* reader) {
                       return reader != nullptr && can_apply(*reader, result, backend);
                     }) &&
         has_kernel(stats, norm.inputs, backend);
}

bool delay_norms(Graph& graph, Backend& backend) {
  Rewrite rewrite(graph);
  std::map<const Node*, NormInputs> delayed;
  const Readers readers = readers_of<BatchNorm>(graph);
  for (const auto& node : graph.nodes()) {
    const auto found = readers.find(node.get());
    if (found != readers.end() && leave_to_readers(*node, found->second, backend)) {
      auto op = std::make_shared<BatchNormStats>();
      op->eps = node->op_as<BatchNorm>().eps;
      const std::vector<Value> inputs = rewrite.mapped_inputs(*node);
      Node& stats = rewrite.to().add(std::move(op), inputs, node->site);
      delayed[node.get()] = {Value{&stats, 0}, {&stats, 2}, {&stats, 3}};
      rewrite.replace(*node, {inputs[0], {&stats, 0}, {&stats, 1}});
      continue;
    }
    const auto norm = node->inputs.empty() ? delayed.end() : delayed.find(node->inputs[0].node);
    if (norm == delayed.end() || node->inputs[0].index != 0) {
      rewrite.copy(*node);
      continue;
    }
    const std::string& activation = norm->first->op_as<BatchNorm>().activation;
    const auto reader = as_reader(*node, rewrite.mapped_inputs(*node), activation, norm->second);
    Node& changed = rewrite.to().add(reader->op, reader->inputs, node->site);
    std::vector<Value> results;
    for (size_t i = 0; i < changed.outputs.size(); ++i)
      results.push_back({&changed, static_cast<int>(i)});
    rewrite.replace(*node, std::move(results));
  }
  if (delayed.empty()) return false;
  graph = rewrite.finish();
  return true;
}

}  // namespace

bool fuse_conv_norms(Graph& graph, PassContext& context) {
  const bool joined = join_gradients(graph, context.backend);
  return delay_norms(graph, context.backend) || joined;
}

}  // namespace ridge
