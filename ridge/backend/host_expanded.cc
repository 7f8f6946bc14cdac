// A fused node by the kernels of its plain form.
#include <vector>

#include "ridge/backend/host.h"
#include "ridge/base/alignment.h"
#include "ridge/graph/ops/source.h"

namespace ridge {
namespace {

// The place of a value: an operand of the node, or bytes of the workspace.
struct Location {
  bool is_operand = false;
  size_t at = 0;  // the operand's number, or the offset
};

class Expanded {
 public:
  Expanded(const Node& node, const KernelTable& table) : graph_(node.site.name) {
    std::vector<Value> operands;
    for (const Value& value : node.inputs)
      operands.push_back(input(graph_, fmt::format("{}", operands.size()), value.type()));
    results_ = node.op->expand(operands);
    if (results_.empty()) return;
    for (const auto& plain : graph_.nodes()) place(*plain, table);
  }

  bool is_complete() const { return !results_.empty() && complete_; }
  size_t workspace_bytes() const { return bytes_; }

  void run(const KernelArgs& args) const {
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    for (const Step& step : steps_) {
      inputs.clear();
      outputs.clear();
      for (const Location& from : step.inputs) inputs.push_back(address(from, args));
      for (const Location& to : step.outputs)
        outputs.push_back(static_cast<std::byte*>(args.workspace) + to.at);
      void* workspace = static_cast<std::byte*>(args.workspace) + step.workspace;
      step.kernel->run({inputs, outputs, workspace});
    }
    for (size_t i = 0; i < results_.size(); ++i)
      std::memcpy(args.outputs[i],
                  address(location(results_[i]), args),
                  static_cast<size_t>(results_[i].type().bytes()));
  }

 private:
  struct Step {
    std::unique_ptr<HostKernel> kernel;
    std::vector<Location> inputs, outputs;
    size_t workspace = 0;
  };

  size_t take(size_t bytes) {
    const size_t at = bytes_;
    bytes_ += aligned_bytes(bytes);
    return at;
  }

  const Location& location(Value value) const {
    return locations_[static_cast<size_t>(value.node->id)][static_cast<size_t>(value.index)];
  }

  static const void* address(const Location& from, const KernelArgs& args) {
    return from.is_operand ? args.inputs[from.at]
                           : static_cast<const std::byte*>(args.workspace) + from.at;
  }

  void place(const Node& node, const KernelTable& table) {
    std::vector<Location>& own = locations_.emplace_back();
    if (node.is<Input>()) {
      own.push_back({true, locations_.size() - 1});
      return;
    }
    if (table.candidates(node).empty()) {
      complete_ = false;
      return;
    }
    for (const TensorType& type : node.outputs)
      own.push_back({false, take(static_cast<size_t>(type.bytes()))});
    Step step;
    step.kernel = table.instantiate(node, 0);
    for (const Value& value : node.inputs) step.inputs.push_back(location(value));
    step.outputs = own;
    step.workspace = take(step.kernel->workspace_bytes());
    steps_.push_back(std::move(step));
  }

  Graph graph_;
  std::vector<Value> results_;
  std::vector<std::vector<Location>> locations_;  // by node and result
  std::vector<Step> steps_;
  size_t bytes_ = 0;
  bool complete_ = true;
};

}  // namespace

std::unique_ptr<HostKernel> make_expanded(const Node& node, const KernelTable& table) {
  const auto expanded = std::make_shared<const Expanded>(node, table);
  if (!expanded->is_complete()) return nullptr;
  return std::make_unique<HostKernel>([expanded](const KernelArgs& args) { expanded->run(args); },
                                      expanded->workspace_bytes());
}

}  // namespace ridge
