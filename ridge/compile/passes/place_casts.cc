// Lets contractions compute in 16 bits or in TF32, with the sum in f32.
//
// Where the device has the 16 bits in registers alone (the CPU), a matrix product rounds its
// operands itself, while it packs them; other contractions get casts, as from torch.autocast.
// Attention and depthwise convolutions stay as they are: their kernels compute in f32 whatever they
// read.
//
//   y = matmul(a, b) : f32   ->   y = matmul[round_to=bf16](a, b) : f32
//   y = conv2d(a, b) : f32   ->   y = cast(conv2d(cast(a), cast(b)) : bf16) : f32
//
// Where it keeps them in memory (a GPU), all of them get casts, which the loops around them take in
// later, so that what products read and make has half the bytes. Only what is added to a state, as
// the gradient of a weight, leaves its product in f32.
//
//   y = matmul(a, b) : f32   ->   y = cast(matmul(cast(a), cast(b)) : bf16) : f32
//   g = matmul(x, dy) : f32  ->   g = matmul[f32_result](cast(x), cast(dy)) : f32
//
// A convolution that looks at one pixel at a time is the product that it is, on either device:
//
//   y = conv2d(x, w) : f32   ->   y = cast(matmul(rows of cast(x), cast(w)) : bf16) : f32
//   y = conv2d(x, w) : f32   ->   y = matmul[round_to=bf16](rows of x, w) : f32
//
// With batch norms the CPU keeps images in bf16, too (the range of f16 is short for their
// gradients): all convolutions get casts, and a norm reads what a convolution made. Its parameters
// and statistics stay f32.
//
//   z = batch_norm(cast(y : bf16), g, b)   ->   z = cast(batch_norm(y, g, b) : bf16)
//
// In TF32 all stay f32, and the device rounds what it multiplies:
//
//   y = matmul(a, b) : f32   ->   y = matmul[tf32](a, b) : f32
//
// Merging common nodes afterwards leaves one cast a value.
#include <algorithm>
#include <optional>
#include <type_traits>

#include "ridge/compile/pass.h"
#include "ridge/graph/ops/attention.h"
#include "ridge/graph/ops/batch_norm.h"
#include "ridge/graph/ops/conv.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/tf32.h"
#include "ridge/graph/rewrite.h"

namespace ridge {
namespace {

bool is_contraction(const Node& node) {
  return node.op->traits().op_class == OpClass::kContraction;
}

bool is_attention(const Node& node) { return node.is<Attention>() || node.is<AttentionGrad>(); }

// For each node, whether its first result becomes a state, element by element. Statistics of a
// batch norm, which do, are others of its results.
std::vector<bool> become_state(const Graph& graph) {
  std::vector<bool> found(graph.nodes().size());
  for (const Output& output : graph.outputs())
    if (!output.updates.empty() && output.value.index == 0)
      found[static_cast<size_t>(output.value.node->id)] = true;
  for (size_t i = found.size(); i-- > 0;) {
    const Node& node = *graph.nodes()[i];
    if (!found[i] || is_contraction(node)) continue;
    for (const Value& input : node.inputs)
      if (input.index == 0 && input.type().elements() == node.outputs[0].elements())
        found[static_cast<size_t>(input.node->id)] = true;
  }
  return found;
}

class CastPlacer {
 public:
  CastPlacer(const Graph& graph, const PassContext& context)
      : graph_(graph),
        context_(context),
        stores_(context.backend.stores_16_bits()),
        keeps_images_(!stores_ && context.options.precision == DType::kBF16 &&
                      !context.options.tf32 && has_batch_norm(graph)),
        becomes_state_(become_state(graph)),
        rewrite_(graph) {}

  bool run() {
    bool changed = false;
    for (const auto& node : graph_.nodes()) {
      if (is_lowered(*node)) {
        lower(*node);
        changed = true;
      } else if (keeps_images_ && is_norm_of_16_bits(*node)) {
        lower_norm(*node);
      } else {
        rewrite_.copy(*node);
      }
    }
    return changed;
  }
  Graph finish() { return rewrite_.finish(); }

 private:
  bool is_lowered(const Node& node) const {
    if (!is_contraction(node) || node.outputs[0].dtype != DType::kF32 ||
        node.inputs[0].dtype() != DType::kF32)
      return false;
    if (is_attention(node) && (context_.options.tf32 || !stores_)) return false;
    if (!context_.options.tf32 && !stores_ && !keeps_images_ && is_depthwise(node)) return false;
    return !is_pinned(node);
  }
  static bool has_batch_norm(const Graph& graph) {
    return std::ranges::any_of(graph.nodes(), [](const auto& node) {
      return node->template is<BatchNorm>() || node->template is<BatchNormGrad>();
    });
  }

  // A value of 16 bits behind its cast to f32; nothing where it is no such cast.
  static std::optional<Value> behind_cast(Value value) {
    if (!value.node->is<Cast>() || value.dtype() != DType::kF32) return std::nullopt;
    const Value from = value.node->inputs[0];
    return size_of(from.dtype()) == 2 ? std::optional(from) : std::nullopt;
  }

  bool is_norm_of_16_bits(const Node& node) const {
    return (node.is<BatchNorm>() || node.is<BatchNormGrad>()) &&
           behind_cast(rewrite_.mapped(node.inputs[0])).has_value();
  }

  void lower_norm(const Node& node) {
    const SiteScope scope(rewrite_.to(), node.site.name + "/cast", SiteScope::Path::kAbsolute);
    std::vector<Value> inputs = rewrite_.mapped_inputs(node);
    inputs[0] = *behind_cast(inputs[0]);
    if (node.is<BatchNormGrad>()) inputs.back() = cast(inputs.back(), inputs[0].dtype());
    Node& low = rewrite_.to().add(node.op, std::move(inputs), node.site);
    rewrite_.replace(node, {cast({&low, 0}, DType::kF32), {&low, 1}, {&low, 2}});
  }

  bool is_pinned(const Node& node) const {
    return std::any_of(context_.options.pins.begin(),
                       context_.options.pins.end(),
                       [&](const std::string& pin) { return node.site.name.starts_with(pin); });
  }

  void lower(const Node& node) {
    if (context_.options.tf32)
      replace_op(node, in_tf32(*node.op));
    else if (looks_at_pixels(node) && !keeps_images_)
      make_product(node);
    else if (!node.is<MatMul>())
      add_casts(node, node.op);
    else if (stores_)
      add_casts(node, product(node, &MatMul::f32_result, becomes_state_[id(node)]));
    else
      replace_op(node, product(node, &MatMul::round_to, context_.options.precision));
  }

  static size_t id(const Node& node) { return static_cast<size_t>(node.id); }

  template <typename T>
  static std::shared_ptr<const Op> product(const Node& node,
                                           T MatMul::* field,
                                           std::type_identity_t<T> value) {
    MatMul op = node.op_as<MatMul>();
    op.*field = value;
    return std::make_shared<const MatMul>(std::move(op));
  }

  void replace_op(const Node& node, std::shared_ptr<const Op> op) {
    Node& low = rewrite_.to().add(std::move(op), rewrite_.mapped_inputs(node), node.site);
    rewrite_.replace(node, {{&low, 0}});
  }

  void add_casts(const Node& node, std::shared_ptr<const Op> op) {
    const SiteScope scope(rewrite_.to(), node.site.name + "/cast", SiteScope::Path::kAbsolute);
    std::vector<Value> inputs = rewrite_.mapped_inputs(node);
    for (size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i].dtype() == DType::kF32 && !is_logsumexp(node, i))
        inputs[i] = cast(inputs[i], context_.options.precision);
    Node& low = rewrite_.to().add(std::move(op), std::move(inputs), node.site);
    std::vector<Value> results;
    for (size_t i = 0; i < low.outputs.size(); ++i)
      results.push_back(cast({&low, static_cast<int>(i)}, DType::kF32));
    rewrite_.replace(node, std::move(results));
  }

  static bool is_depthwise(const Node& node) {
    const auto has_one = [](int64_t groups, const Shape& w) { return groups > 1 && w[2] == 1; };
    if (node.is<Conv2d>()) return has_one(node.op_as<Conv2d>().groups, node.inputs[1].shape());
    if (node.is<Conv2dGradInput>())
      return has_one(node.op_as<Conv2dGradInput>().groups, node.inputs[1].shape());
    return node.is<Conv2dGradWeight>() &&
           has_one(node.op_as<Conv2dGradWeight>().groups, node.outputs[0].shape);
  }

  // True where windows are single pixels, and all of them are taken.
  static bool looks_at_pixels(const Node& node) {
    const auto is = [](const auto& op, const Shape& w) {
      const auto is_all = [](const std::vector<int64_t>& list, int64_t number) {
        return std::all_of(list.begin(), list.end(), [&](int64_t i) { return i == number; });
      };
      return op.groups == 1 && w[0] == 1 && w[1] == 1 && is_all(op.window.stride, 1) &&
             is_all(op.window.padding, 0);
    };
    if (node.is<Conv2d>()) return is(node.op_as<Conv2d>(), node.inputs[1].shape());
    if (node.is<Conv2dGradInput>())
      return is(node.op_as<Conv2dGradInput>(), node.inputs[1].shape());
    return node.is<Conv2dGradWeight>() && is(node.op_as<Conv2dGradWeight>(), node.outputs[0].shape);
  }

  void make_product(const Node& node) {
    const SiteScope scope(rewrite_.to(), node.site.name + "/cast", SiteScope::Path::kAbsolute);
    std::vector<Value> factors = rewrite_.mapped_inputs(node);
    for (Value& factor : factors) {
      const int64_t columns = factor.dim(-1);
      if (stores_) factor = cast(factor, context_.options.precision);
      factor = reshape(factor, {factor.type().elements() / columns, columns});
    }
    MatMul op;
    op.transpose_a = node.is<Conv2dGradWeight>();
    op.transpose_b = node.is<Conv2dGradInput>();
    op.f32_result = stores_ && becomes_state_[id(node)];
    if (!stores_) op.round_to = context_.options.precision;
    Node& low = rewrite_.to().add(
        std::make_shared<const MatMul>(std::move(op)), std::move(factors), node.site);
    const Value result = reshape({&low, 0}, node.outputs[0].shape);
    rewrite_.replace(node, {stores_ ? cast(result, DType::kF32) : result});
  }

  // The logsumexp is f32 even where the operands are of 16 bits.
  static bool is_logsumexp(const Node& node, size_t input) {
    return node.is<AttentionGrad>() && input == node.op_as<AttentionGrad>().operands() + 1;
  }

  const Graph& graph_;
  const PassContext& context_;
  bool stores_;
  bool keeps_images_;  ///< Images are stored in bf16, although the device stores f32 otherwise.
  std::vector<bool> becomes_state_;
  Rewrite rewrite_;
};

}  // namespace

bool place_casts(Graph& graph, PassContext& context) {
  if (context.options.precision == DType::kF32 && !context.options.tf32) return false;
  CastPlacer placer(graph, context);
  const bool changed = placer.run();
  if (changed) graph = placer.finish();
  return changed;
}

}  // namespace ridge
