#include "ridge/backend/cuda/dnn/nodes.h"

#include <array>
#include <limits>
#include <mutex>

#include "ridge/backend/cuda/driver/library_workspace.h"
#include "ridge/backend/cuda/driver/node_kernel.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"

namespace ridge::cuda {

using enum DnnAttribute;

namespace {

// Between ours, (KH, KW, C / groups, O), and the library's, (O, KH, KW, C / groups).
const std::vector<int64_t> kToLibrary{3, 0, 1, 2};
const std::vector<int64_t> kFromLibrary{1, 2, 3, 0};

// A kernel that puts weights into another order.
std::unique_ptr<NodeKernel> make_move(
    const TensorType& from,
    const std::vector<int64_t>& order,
    const std::function<std::unique_ptr<NodeKernel>(const Node&)>& make) {
  Graph graph("weights");
  std::unique_ptr<NodeKernel> kernel = make(*transpose(input(graph, "w", from), order).node);
  check_internal(kernel != nullptr && kernel->workspace_bytes() == 0,
                 "no kernel without workspace moves {}",
                 to_string(from));
  return kernel;
}

// The place of the data of a tensor of the graph.
struct Place {
  enum Where : uint8_t { kInput, kOutput, kWorkspace, kHost };
  DnnTensorId id;
  Where where;
  size_t index = 0;  // number of the input or output
  size_t bytes = 0;  // from its begin
  float value = 0;   // the value for kHost
};

class DnnKernel final : public NodeKernel {
 public:
  DnnKernel(std::shared_ptr<const Dnn> dnn, const DnnChoice& choice, std::string text)
      : dnn_(std::move(dnn)),
        planned_by_(choice.planned_by),
        plan_(choice.plan),
        text_(std::move(text)) {}

  void add(Place place) { places_.push_back(place); }
  /// The weights lie behind the plan's workspace, moved there from an input, or from there to the
  /// output.
  void set_weights(std::unique_ptr<NodeKernel> move, std::optional<size_t> input, size_t bytes) {
    move_ = std::move(move);
    moved_input_ = input;
    weights_bytes_ = bytes;
  }
  size_t weights_begin() const { return reserved_workspace_bytes(plan_->workspace_bytes); }

  size_t workspace_bytes() const override {
    return weights_begin() + (move_ == nullptr ? 0 : weights_bytes_);
  }
  void prepare() const override {
    if (move_ != nullptr) move_->prepare();
  }
  void launch(ridge::Stream& stream, const KernelArgs& args) const override {
    Stream& queue = cuda_stream(stream);
    auto* const weights =
        move_ == nullptr ? nullptr : static_cast<std::byte*>(args.workspace) + weights_begin();
    if (move_ != nullptr && moved_input_) run_move(stream, args.inputs[*moved_input_], weights);
    {
      const std::lock_guard lock(mutex_);
      dnn_->execute(plan_->descriptor(), packed(args), queue.handle(), text_);
    }
    if (move_ != nullptr && !moved_input_) run_move(stream, weights, args.outputs[0]);
  }

 private:
  void run_move(ridge::Stream& stream, const void* from, void* to) const {
    const std::array<const void*, 1> inputs{from};
    const std::array<void*, 1> outputs{to};
    // The addresses are read in the call.
    move_->launch(stream, {inputs, outputs, nullptr});
  }

  void* address(const Place& place, const KernelArgs& args) const {
    switch (place.where) {
      case Place::kInput:
        // The library takes one kind of pointer for what it reads and writes.
        return static_cast<std::byte*>(const_cast<void*>(args.inputs[place.index])) + place.bytes;
      case Place::kOutput:
        return static_cast<std::byte*>(args.outputs[place.index]) + place.bytes;
      case Place::kWorkspace:
        return static_cast<std::byte*>(args.workspace) + place.bytes;
      case Place::kHost:
        break;
    }
    return const_cast<float*>(&place.value);
  }

  // The addresses of a launch, as the library's descriptor. It is made anew only where addresses
  // differ from those of the last launch.
  const DnnDescriptor& packed(const KernelArgs& args) const {
    std::vector<void*>& now = scratch_;
    now.clear();
    for (const Place& place : places_) now.push_back(address(place, args));
    now.push_back(library_workspace(args.workspace, plan_->workspace_bytes));
    if (pack_ != nullptr && now == addresses_) return *pack_;
    pack_ = nullptr;
    auto made = std::make_unique<DnnDescriptor>(dnn_->make(DnnKind::kVariantPack));
    std::vector<int64_t> ids;
    for (const Place& place : places_) ids.push_back(static_cast<int64_t>(place.id));
    made->set(kPackUniqueIds, ids);
    made->set_all(kPackPointers, std::span<void* const>(now.data(), places_.size()));
    made->set(kPackWorkspace, now.back());
    made->finalize();
    addresses_ = now;
    pack_ = std::move(made);
    return *pack_;
  }

  std::shared_ptr<const Dnn> dnn_, planned_by_;
  DnnPlanRef plan_;
  std::string text_;
  std::vector<Place> places_;
  std::unique_ptr<NodeKernel> move_;
  std::optional<size_t> moved_input_;  // none: weights are the result
  size_t weights_bytes_ = 0;
  mutable std::mutex mutex_;
  mutable std::vector<void*> addresses_, scratch_;  // addresses in pack_, and of this launch
  mutable std::unique_ptr<DnnDescriptor> pack_;
};

// ---- convolution ----

std::vector<DnnChoice> named(const std::vector<DnnPlanRef>& plans, const char* prefix) {
  std::vector<DnnChoice> choices;
  for (const DnnPlanRef& plan : plans)
    choices.push_back({.choice = {prefix + plan->name, kDnnBits + static_cast<int>(choices.size())},
                       .plan = plan});
  return choices;
}

std::vector<DnnChoice> convolution_choices(const Dnn& dnn, const DnnConvolution& c) {
  const DnnGraphRef graph = convolution_graph(dnn, c);
  DnnPlanRules rules;
  rules.tensor_cores = c.dtype != DType::kF32 || c.tf32;
  const char* const prefix = c.tf32 ? "cudnn_tf32_" : "cudnn_";
  std::vector<DnnChoice> choices = named(make_dnn_plans(dnn, graph, rules), prefix);
  if (!choices.empty()) return choices;
  // The fallback mode promises no speed, but the plain form would first write what all windows see,
  // nine times the image for a 3x3 kernel.
  rules.mode = DnnHeuristicMode::kFallback;
  return named(make_dnn_plans(dnn, graph, rules), prefix);
}

void place_convolution(DnnKernel& kernel,
                       const DnnConvolution& c,
                       const std::function<std::unique_ptr<NodeKernel>(const Node&)>& make) {
  const bool makes_weights = c.kind == DnnKind::kConvolutionGradWeight;
  const DType dtype = c.dtype;
  // Outputs go from the last place to the first; that moves nothing where there is but one, or
  // nothing else.
  const int64_t outputs = c.w[3];
  const bool is_moved = outputs > 1 && numel(c.w) > outputs;
  const Shape order{outputs, c.w[0], c.w[1], c.w[2]};
  std::unique_ptr<NodeKernel> move;
  if (is_moved)
    move = makes_weights ? make_move({dtype, order}, kFromLibrary, make)
                         : make_move({dtype, c.w}, kToLibrary, make);
  if (is_moved)
    kernel.set_weights(std::move(move),
                       makes_weights ? std::nullopt : std::optional<size_t>(1),
                       static_cast<size_t>(numel(c.w)) * size_of(dtype));
  const Place weights = is_moved
                            ? Place{DnnTensorId::kW, Place::kWorkspace, 0, kernel.weights_begin()}
                        : makes_weights ? Place{DnnTensorId::kW, Place::kOutput, 0}
                                        : Place{DnnTensorId::kW, Place::kInput, 1};
  kernel.add(weights);
  switch (c.kind) {
    case DnnKind::kConvolutionForward:
      kernel.add({DnnTensorId::kX, Place::kInput, 0});
      kernel.add({DnnTensorId::kY, Place::kOutput, 0});
      break;
    case DnnKind::kConvolutionGradInput:
      kernel.add({DnnTensorId::kY, Place::kInput, 0});
      kernel.add({DnnTensorId::kX, Place::kOutput, 0});
      break;
    default:
      kernel.add({DnnTensorId::kX, Place::kInput, 0});
      kernel.add({DnnTensorId::kY, Place::kInput, 1});
      break;
  }
}

// ---- attention ----

// The gradient puts that of the scores, in 16 bits, into the workspace. Beyond this, kernels of
// ours, which do without it, leave more memory to the model.
constexpr int64_t kMostScoreBytes = int64_t{4} << 30;

std::vector<DnnChoice> attention_choices(const Dnn& dnn, const DnnAttention& a) {
  DnnPlanRules rules;
  rules.most = 1;  // each is compiled
  rules.most_workspace_bytes = kMostScoreBytes;
  return named(make_dnn_plans(dnn, attention_graph(dnn, a), rules), "cudnn_");
}

void place_attention(DnnKernel& kernel,
                     const DnnAttention& a,
                     const AttentionForm& form,
                     DType dtype) {
  const AttentionLayout& l = a.layout;
  const size_t operands = form.operands();
  const auto bytes = [&](const HeadLayout& at) {
    return static_cast<size_t>(at.begin) * size_of(dtype);
  };
  const auto number = [&](size_t separate) { return form.is_packed() ? 0 : separate; };
  kernel.add({DnnTensorId::kQ, Place::kInput, number(0), bytes(l.q)});
  kernel.add({DnnTensorId::kK, Place::kInput, number(1), bytes(l.k)});
  kernel.add({DnnTensorId::kV, Place::kInput, number(2), bytes(l.v)});
  kernel.add({DnnTensorId::kScale, Place::kHost, 0, 0, static_cast<float>(a.scale)});
  if (a.causal)
    kernel.add({DnnTensorId::kFill, Place::kHost, 0, 0, std::numeric_limits<float>::lowest()});
  if (!a.is_gradient) {
    kernel.add({DnnTensorId::kY, Place::kOutput, 0, bytes(l.y)});
    kernel.add({DnnTensorId::kStats, Place::kOutput, 1});
    return;
  }
  kernel.add({DnnTensorId::kDropoutScale, Place::kHost, 0, 0, 1.0F});
  kernel.add({DnnTensorId::kY, Place::kInput, operands, bytes(l.y)});
  kernel.add({DnnTensorId::kStats, Place::kInput, operands + 1});
  kernel.add({DnnTensorId::kDy, Place::kInput, operands + 2, bytes(l.y)});
  kernel.add({DnnTensorId::kDq, Place::kOutput, number(0), bytes(l.q)});
  kernel.add({DnnTensorId::kDk, Place::kOutput, number(1), bytes(l.k)});
  kernel.add({DnnTensorId::kDv, Place::kOutput, number(2), bytes(l.v)});
}

}  // namespace

bool is_planned_by_dnn(const Node& node) {
  return dnn_convolution(node).has_value() || dnn_attention(node).has_value();
}

std::vector<DnnChoice> dnn_choices(const Dnn& dnn, const Node& node) {
  dnn.ensure_current();
  try {
    if (const auto convolution = dnn_convolution(node))
      return convolution_choices(dnn, *convolution);
    if (const auto attention = dnn_attention(node)) return attention_choices(dnn, *attention);
  } catch (const DnnError& error) {
    // Kernels of ours take what the library does not.
    if (!error.is_refusal()) throw;
  }
  return {};
}

std::unique_ptr<NodeKernel> make_dnn_kernel(
    std::shared_ptr<const Dnn> dnn,
    const Node& node,
    const DnnChoice& choice,
    const std::function<std::unique_ptr<NodeKernel>(const Node&)>& make) {
  const auto make_kernel = [&](const std::string& text) {
    return std::make_unique<DnnKernel>(
        std::move(dnn), choice, fmt::format("{}, by {}", text, choice.choice.name));
  };
  if (const auto convolution = dnn_convolution(node)) {
    auto kernel = make_kernel(convolution->text());
    place_convolution(*kernel, *convolution, make);
    return kernel;
  }
  const auto attention = dnn_attention(node);
  check_internal(attention.has_value(), "no plan for node '{}'", node.site.name);
  auto kernel = make_kernel(attention->text());
  const AttentionForm& form = attention->is_gradient
                                  ? static_cast<const AttentionForm&>(node.op_as<AttentionGrad>())
                                  : node.op_as<Attention>();
  place_attention(*kernel, *attention, form, node.inputs[0].type().dtype);
  return kernel;
}

}  // namespace ridge::cuda
