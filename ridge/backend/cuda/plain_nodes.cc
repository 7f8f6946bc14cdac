#include "ridge/backend/cuda/plain_nodes.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "ridge/backend/cuda/driver/arena.h"
#include "ridge/backend/cuda/driver/staging.h"
#include "ridge/base/alignment.h"
#include "ridge/graph/ops/fused.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"

namespace ridge::cuda {
namespace {

class CopyNode final : public NodeKernel {
 public:
  explicit CopyNode(size_t bytes) : bytes_(bytes) {}
  void launch(ridge::Stream& stream, const KernelArgs& args) const override {
    // A plan may lay the result where the input is.
    if (args.inputs[0] == args.outputs[0]) return;
    cuda_stream(stream).copy(
        device_pointer(args.outputs[0]), device_pointer(args.inputs[0]), bytes_);
  }

 private:
  size_t bytes_;
};

class FillNode final : public NodeKernel {
 public:
  FillNode(unsigned char byte, size_t bytes) : byte_(byte), bytes_(bytes) {}
  void launch(ridge::Stream& stream, const KernelArgs& args) const override {
    cuda_stream(stream).fill(device_pointer(args.outputs[0]), byte_, bytes_);
  }

 private:
  unsigned char byte_;
  size_t bytes_;
};

// Elements of a constant, which may be one for all.
std::vector<std::byte> constant_bytes(const Constant& op, size_t elements) {
  const size_t size = size_of(op.dtype);
  std::vector<std::byte> bytes(elements * size);
  dispatch(op.dtype, [&]<typename T>(TypeTag<T>) {
    for (size_t i = 0; i < elements; ++i) {
      const size_t from = op.is_splat() ? 0 : i;
      const T element = [&] {
        if constexpr (is_float_type<T>)
          return convert<T>(op.values[from]);
        else
          return convert<T>(op.ints[from]);
      }();
      std::memcpy(bytes.data() + i * size, &element, size);
    }
  });
  return bytes;
}

class StoredConstant final : public NodeKernel {
 public:
  StoredConstant(std::vector<std::byte> bytes, DeviceRef device)
      : bytes_(std::move(bytes)), device_(std::move(device)) {}

  void prepare() const override {
    if (stored_ != nullptr) return;
    device_->ensure_current();
    const PinnedMemory staged(device_, bytes_.size());
    std::memcpy(staged.bytes().data(), bytes_.data(), bytes_.size());
    auto made = std::make_unique<const Arena>(device_, bytes_.size());
    Stream stream(device_);
    stream.copy_to_device(made->at(0, bytes_.size()), staged.bytes().data(), bytes_.size());
    stream.synchronize();
    stored_ = std::move(made);
  }
  void launch(ridge::Stream& stream, const KernelArgs& args) const override {
    prepare();
    cuda_stream(stream).copy(
        device_pointer(args.outputs[0]), stored_->at(0, bytes_.size()), bytes_.size());
  }

 private:
  std::vector<std::byte> bytes_;
  DeviceRef device_;
  mutable std::unique_ptr<const Arena> stored_;  ///< Null until prepare().
};

class WarmedNode final : public NodeKernel {
 public:
  WarmedNode(std::unique_ptr<NodeKernel> kernel,
             std::vector<TensorType> inputs,
             std::vector<TensorType> outputs,
             DeviceRef device,
             std::function<std::unique_ptr<ridge::Stream>()> make_stream,
             std::shared_ptr<bool> is_warm)
      : kernel_(std::move(kernel)),
        inputs_(std::move(inputs)),
        outputs_(std::move(outputs)),
        device_(std::move(device)),
        make_stream_(std::move(make_stream)),
        is_warm_(std::move(is_warm)) {}

  size_t workspace_bytes() const override { return kernel_->workspace_bytes(); }
  void launch(ridge::Stream& stream, const KernelArgs& args) const override {
    kernel_->launch(stream, args);
  }
  void prepare() const override {
    kernel_->prepare();
    if (std::exchange(*is_warm_, true)) return;
    size_t bytes = aligned_bytes(workspace_bytes());
    for (const auto* types : {&inputs_, &outputs_})
      for (const TensorType& type : *types)
        bytes += aligned_bytes(static_cast<size_t>(type.bytes()));
    device_->ensure_current();
    std::optional<Arena> scratch;
    try {
      scratch.emplace(device_, bytes);
    } catch (const CudaError& error) {
      // Then the plan, which takes more, does not fit either: the caller, who knows the plan,
      // reports what helps.
      if (error.trouble() != Trouble::kOutOfMemory) throw;
      return;
    }
    launch_on(*scratch);
  }

 private:
  void launch_on(const Arena& scratch) const {
    size_t at = aligned_bytes(workspace_bytes());
    const auto take = [&](const TensorType& type) {
      const size_t begin = at;
      at += aligned_bytes(static_cast<size_t>(type.bytes()));
      return reinterpret_cast<void*>(scratch.at(begin, 0));
    };
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    for (const TensorType& type : inputs_) inputs.push_back(take(type));
    for (const TensorType& type : outputs_) outputs.push_back(take(type));
    const auto stream = make_stream_();
    cuda_stream(*stream).fill(scratch.at(0, scratch.bytes()), 0, scratch.bytes());
    kernel_->launch(*stream, {inputs, outputs, reinterpret_cast<void*>(scratch.at(0, 0))});
    stream->synchronize();
  }

  std::unique_ptr<NodeKernel> kernel_;
  std::vector<TensorType> inputs_, outputs_;
  DeviceRef device_;
  std::function<std::unique_ptr<ridge::Stream>()> make_stream_;
  std::shared_ptr<bool> is_warm_;  // shared by all nodes that have the kernel
};

size_t result_bytes(const Node& node) { return static_cast<size_t>(node.outputs[0].bytes()); }

// The place of a value: an operand or a result of the node, or bytes of the workspace.
struct Location {
  enum Kind : uint8_t { kOperand, kResult, kWorkspace };
  Kind kind = kWorkspace;
  size_t at = 0;  // the operand's or the result's number, or the offset
};

class ExpandedNode final : public NodeKernel {
 public:
  ExpandedNode(const Graph& form, const MakeKernel& make, ResultsLie lie) {
    InPlace in_place;
    if (lie == ResultsLie::kApart)
      for (size_t i = 0; i < form.outputs().size(); ++i) {
        const Value value = form.outputs()[i].value;
        in_place.try_emplace({value.node->id, value.index}, i);
      }
    std::vector<std::vector<Location>> locations;  // by node and result
    for (const auto& node : form.nodes()) add(*node, make, in_place, locations);
    for (size_t i = 0; i < form.outputs().size(); ++i) {
      const Value value = form.outputs()[i].value;
      const Location& from =
          locations[static_cast<size_t>(value.node->id)][static_cast<size_t>(value.index)];
      if (from.kind != Location::kResult || from.at != i)
        copies_.push_back({i, from, static_cast<size_t>(value.type().bytes())});
    }
  }

  size_t workspace_bytes() const override { return bytes_; }
  void prepare() const override {
    for (const Step& step : steps_) step.kernel->prepare();
  }

  void launch(ridge::Stream& stream, const KernelArgs& args) const override {
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    for (const Step& step : steps_) {
      inputs.clear();
      outputs.clear();
      for (const Location& from : step.inputs) inputs.push_back(address(from, args));
      for (const Location& to : step.outputs)
        outputs.push_back(to.kind == Location::kResult
                              ? args.outputs[to.at]
                              : static_cast<std::byte*>(args.workspace) + to.at);
      void* const workspace = static_cast<std::byte*>(args.workspace) + step.workspace;
      // The addresses are read in the call.
      step.kernel->launch(stream, {inputs, outputs, workspace});
    }
    for (const Copy& each : copies_)
      cuda_stream(stream).copy(device_pointer(args.outputs[each.result]),
                               device_pointer(address(each.from, args)),
                               each.bytes);
  }

 private:
  struct Step {
    std::unique_ptr<NodeKernel> kernel;
    std::vector<Location> inputs, outputs;
    size_t workspace = 0;
  };
  // Results that nodes write where they are to lie: their numbers, by the node's id and result.
  using InPlace = std::map<std::pair<int, int>, size_t>;
  struct Copy {
    size_t result;
    Location from;
    size_t bytes;
  };

  static const void* address(const Location& from, const KernelArgs& args) {
    if (from.kind == Location::kOperand) return args.inputs[from.at];
    if (from.kind == Location::kResult) return args.outputs[from.at];
    return static_cast<const std::byte*>(args.workspace) + from.at;
  }
  size_t take(size_t bytes) {
    const size_t at = bytes_;
    bytes_ += aligned_bytes(bytes);
    return at;
  }

  void add(const Node& node,
           const MakeKernel& make,
           const InPlace& in_place,
           std::vector<std::vector<Location>>& locations) {
    std::vector<Location>& own = locations.emplace_back();
    if (node.is<Input>()) {
      own.push_back({Location::kOperand, input_number(node)});
      return;
    }
    Step step;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const auto result = in_place.find({node.id, static_cast<int>(i)});
      if (result != in_place.end())
        own.push_back({Location::kResult, result->second});
      else
        own.push_back({Location::kWorkspace, take(static_cast<size_t>(node.outputs[i].bytes()))});
    }
    step.outputs = own;
    for (const Value& value : node.inputs)
      step.inputs.push_back(
          locations[static_cast<size_t>(value.node->id)][static_cast<size_t>(value.index)]);
    step.kernel = make(node);
    step.workspace = take(step.kernel->workspace_bytes());
    steps_.push_back(std::move(step));
  }

  std::vector<Step> steps_;
  std::vector<Copy> copies_;
  size_t bytes_ = 0;
};

}  // namespace

bool is_copy(const Node& node) {
  return node.is<Copy>() || node.is<Barrier>() || node.is<Reshape>();
}

std::unique_ptr<NodeKernel> make_copy_node(const Node& node) {
  return std::make_unique<CopyNode>(result_bytes(node));
}

std::optional<unsigned char> byte_of_constant(const Node& node) {
  const auto& op = node.op_as<Constant>();
  if (!op.is_splat()) return std::nullopt;
  const std::vector<std::byte> one = constant_bytes(op, 1);
  if (std::any_of(one.begin(), one.end(), [&](std::byte each) { return each != one[0]; }))
    return std::nullopt;
  return std::to_integer<unsigned char>(one[0]);
}

std::unique_ptr<NodeKernel> make_fill_node(const Node& node, unsigned char byte) {
  return std::make_unique<FillNode>(byte, result_bytes(node));
}

std::unique_ptr<NodeKernel> make_stored_constant(const Node& node, DeviceRef device) {
  const auto elements = static_cast<size_t>(node.outputs[0].elements());
  return std::make_unique<StoredConstant>(constant_bytes(node.op_as<Constant>(), elements),
                                          std::move(device));
}

std::optional<Graph> plain_form(const Node& node) {
  Graph form(node.site.name);
  std::vector<Value> operands;
  for (const Value& value : node.inputs)
    operands.push_back(input(form, fmt::format("{}", operands.size()), value.type()));
  const std::vector<Value> results = node.op->expand(operands);
  if (results.empty()) return std::nullopt;
  for (size_t i = 0; i < results.size(); ++i) form.add_output(fmt::format("{}", i), results[i]);
  return form;
}

std::unique_ptr<NodeKernel> make_expanded_node(const Graph& form,
                                               const MakeKernel& make,
                                               ResultsLie lie) {
  return std::make_unique<ExpandedNode>(form, make, lie);
}

std::unique_ptr<NodeKernel> make_warmed_node(
    std::unique_ptr<NodeKernel> kernel,
    std::vector<TensorType> inputs,
    std::vector<TensorType> outputs,
    DeviceRef device,
    std::function<std::unique_ptr<ridge::Stream>()> make_stream,
    std::shared_ptr<bool> is_warm) {
  return std::make_unique<WarmedNode>(std::move(kernel),
                                      std::move(inputs),
                                      std::move(outputs),
                                      std::move(device),
                                      std::move(make_stream),
                                      std::move(is_warm));
}

}  // namespace ridge::cuda
