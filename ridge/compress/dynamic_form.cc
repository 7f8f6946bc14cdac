#include "ridge/compress/dynamic_form.h"

#include <optional>

#include "ridge/base/function_ref.h"
#include "ridge/compress/weights.h"

namespace ridge::compress {
namespace {

/// The bytes, scale and zero point of an activation.
struct DynamicBytes {
  std::string bytes, scale, zero;
};

class DynamicWriter {
 public:
  DynamicWriter(const EditableModel& model, const QuantizedForm& form)
      : model_(model), form_(form) {}

  EditableModel write(const std::set<std::string>& chosen) {
    take_sites([&](const Site& site) { return chosen.contains(site.output); });
    add_nodes();
    model_.remove_unused(unused_);
    return std::move(model_);
  }

  SwitchedModel write_switched() {
    switches_.emplace(model_, form_.sites.size());
    take_sites([](const Site&) { return true; });
    add_nodes();
    return {std::move(model_), switches_->input()};
  }

 private:
  void take_sites(FunctionRef<bool(const Site&)> is_chosen) {
    for (const Site& site : form_.sites)
      if (!site.is_conv() && is_chosen(site)) sites_[site.output] = &site;
  }

  void add_nodes() {
    // Constants are looked up among the nodes until all are written.
    const std::vector<EditableNode> nodes = model_.nodes();
    for (const EditableNode& node : nodes) {
      const auto site =
          node.proto.outputs.empty() ? sites_.end() : sites_.find(node.proto.outputs[0]);
      if (site == sites_.end())
        nodes_.push_back(node);
      else if (switches_)
        add_switched(node, *site->second);
      else
        add(*site->second, site->second->output);
    }
    model_.nodes() = std::move(nodes_);
  }

  void add_switched(const EditableNode& node, const Site& site) {
    const auto write = [&](const std::string& in_bytes) { add(site, in_bytes); };
    switches_->add(static_cast<size_t>(&site - form_.sites.data()), node, write, nodes_);
  }

  void add_node(std::string op,
                std::vector<std::string> inputs,
                std::vector<std::string> outputs,
                std::string attributes = {}) {
    const std::string name = model_.new_name(fmt::format("{}_{}", outputs[0], op));
    nodes_.push_back(made_node({.op = std::move(op),
                                .name = name,
                                .inputs = std::move(inputs),
                                .outputs = std::move(outputs),
                                .attributes = std::move(attributes)}));
  }

  const DynamicBytes& activation(const std::string& value) {
    const auto [at, is_new] = activations_.emplace(value, DynamicBytes());
    if (!is_new) return at->second;
    at->second = {model_.new_name(value + "_quantized"),
                  model_.new_name(value + "_scale"),
                  model_.new_name(value + "_zero_point")};
    add_node(
        "DynamicQuantizeLinear", {value}, {at->second.bytes, at->second.scale, at->second.zero});
    return at->second;
  }

  void add(const Site& site, const std::string& result) {
    onnx::Known weights = model_.elements(*model_.constant(site.weights));
    // MatMulInteger has (in, out).
    if (site.axis == 0) weights = weights.transposed({1, 0});
    const ByteWeights bytes = quantize_weights(weights.tensor(), 1, form_.ranges);
    const std::string values = model_.new_name(site.weights + "_quantized");
    const std::string scale = model_.new_name(site.weights + "_scale");
    const std::string zero = model_.new_name(site.weights + "_zero_point");
    model_.add_initializer(values, bytes.integers);
    model_.add_initializer(scale, bytes.scales);
    model_.add_initializer(zero, Tensor({DType::kI8, bytes.scales.type().shape}));
    unused_.insert(site.weights);
    const DynamicBytes& x = activation(site.input);
    const std::string sums = model_.new_name(site.output + "_sums");
    const std::string floats = model_.new_name(site.output + "_sums_f32");
    const std::string scales = model_.new_name(site.output + "_scales");
    const std::string product =
        site.bias.empty() ? result : model_.new_name(site.output + "_product");
    constexpr int64_t kFloat = 1;
    add_node("MatMulInteger", {x.bytes, values, x.zero, zero}, {sums});
    add_node("Cast", {sums}, {floats}, onnx::AttributeList().integer("to", kFloat).bytes());
    add_node("Mul", {x.scale, scale}, {scales});
    add_node("Mul", {floats, scales}, {product});
    if (!site.bias.empty()) add_node("Add", {product, site.bias}, {result});
  }

  EditableModel model_;
  const QuantizedForm& form_;
  std::optional<SiteSwitches> switches_;
  std::map<std::string, const Site*> sites_;  // by output
  std::vector<EditableNode> nodes_;
  std::map<std::string, DynamicBytes> activations_;
  std::set<std::string> unused_;
};

}  // namespace

EditableModel in_dynamic_form(const EditableModel& model,
                              const QuantizedForm& form,
                              const std::set<std::string>& chosen) {
  return DynamicWriter(model, form).write(chosen);
}

SwitchedModel with_dynamic_switches(const EditableModel& model, const QuantizedForm& form) {
  return DynamicWriter(model, form).write_switched();
}

}  // namespace ridge::compress
