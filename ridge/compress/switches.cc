#include "ridge/compress/switches.h"

#include <fmt/format.h>

namespace ridge::compress {

SiteSwitches::SiteSwitches(EditableModel& model, size_t sites)
    : model_(model), input_(model.new_name("sites_in_bytes")) {
  model.add_input({input_, DType::kBool, {static_cast<int64_t>(sites)}});
}

void SiteSwitches::add(size_t site,
                       const EditableNode& node,
                       FunctionRef<void(const std::string& in_bytes)> write,
                       std::vector<EditableNode>& nodes) {
  const std::string& result = node.proto.outputs.at(0);
  const std::string as_it_is = model_.new_name(result + "_as_it_is");
  const std::string in_bytes = model_.new_name(result + "_in_bytes");
  nodes.push_back(renamed(node, node.proto.inputs, {as_it_is}));
  write(in_bytes);
  const std::string number = model_.new_name(result + "_number");
  const std::string is_on = model_.new_name(result + "_is_in_bytes");
  Tensor index(TensorType{DType::kI64, {}});
  index.set(0, static_cast<double>(site));
  model_.add_initializer(number, index);
  const auto name = [this](const std::string& of) { return model_.new_name(of + "_switch"); };
  nodes.push_back(made_node(
      {.op = "Gather", .name = name(is_on), .inputs = {input_, number}, .outputs = {is_on}}));
  nodes.push_back(made_node({.op = "Where",
                             .name = name(result),
                             .inputs = {is_on, in_bytes, as_it_is},
                             .outputs = {result}}));
}

}  // namespace ridge::compress
