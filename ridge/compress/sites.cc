#include "ridge/compress/sites.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "ridge/import/onnx/import_context.h"

namespace ridge::compress {
namespace {

using onnx::NodeProto;
using onnx::TensorProto;

constexpr int64_t kFloat = 1;  // TensorProto.DataType

std::string input_of(const NodeProto& node, size_t i) {
  return i < node.inputs.size() ? node.inputs[i] : std::string();
}

// A constant of f32, all finite; else the reason why it is none.
std::string problem_of(const EditableModel& model, const std::string& name, const char* what) {
  const TensorProto* const tensor = model.constant(name);
  if (tensor == nullptr) return fmt::format("its {} no constant", what);
  if (tensor->data_type != kFloat)
    return fmt::format("its {} of {}", what, onnx::onnx_type_name(tensor->data_type));
  const onnx::Known elements = model.elements(*tensor);
  if (elements.is_empty()) return fmt::format("its {} empty", what);
  for (int64_t i = 0; i < elements.elements(); ++i)
    if (!std::isfinite(elements.element<float>(i))) return fmt::format("its {} not finite", what);
  return {};
}

// The reason why the bias of `channels` numbers does not suit; empty where it does, or is absent.
std::string problem_of_bias(const EditableModel& model, const Site& site, int64_t channels) {
  if (site.bias.empty()) return {};
  if (std::string problem = problem_of(model, site.bias, "bias is"); !problem.empty())
    return problem;
  if (model.constant(site.bias)->dims != std::vector<int64_t>{channels})
    return "its bias is not one number for each output channel";
  return {};
}

std::string problem_of_gemm(const NodeProto& node, const Site& site) {
  if (integer_of(node, "transA", 0) != 0) return "its first factor is transposed";
  if (number_of(node, "alpha", 1) != 1) return "its alpha is not 1";
  if (!site.bias.empty() && number_of(node, "beta", 1) != 1) return "its beta is not 1";
  return {};
}

// Fills the site; returns the reason why the node is none.
std::string read_site(const EditableModel& model, const NodeProto& node, Site& site) {
  site.input = input_of(node, 0);
  site.weights = input_of(node, 1);
  site.output = node.outputs.empty() ? std::string() : node.outputs[0];
  if (site.may_have_bias()) site.bias = input_of(node, 2);
  if (node.op == "ConvTranspose") return "transposed convolutions stay as they are";
  if (site.input.empty() || site.weights.empty() || site.output.empty())
    return "an input or its output has no name";
  if (model.constant(site.input) != nullptr) return "its first factor is the constant";
  if (std::string problem = problem_of(model, site.weights, "weights are"); !problem.empty())
    return problem;
  const std::vector<int64_t>& dims = model.constant(site.weights)->dims;
  const auto rank = dims.size();
  if (site.is_conv()) {
    if (rank < 3 || rank > 5) return fmt::format("its weights have {} dimensions", rank);
    site.groups = integer_of(node, "group", 1);
    if (site.groups < 1 || dims[0] % site.groups != 0) return "its groups do not suit its weights";
  } else {
    if (rank != 2) return fmt::format("its weights have {} dimensions", rank);
    site.axis = node.op == "Gemm" && integer_of(node, "transB", 0) != 0 ? 0 : 1;
    site.channels_axis = -1;
    if (node.op == "Gemm")
      if (std::string problem = problem_of_gemm(node, site); !problem.empty()) return problem;
  }
  return problem_of_bias(model, site, dims[static_cast<size_t>(site.axis)]);
}

}  // namespace

SiteList find_sites(const EditableModel& model) {
  constexpr std::array<std::string_view, 4> kOps = {"Conv", "Gemm", "MatMul", "ConvTranspose"};
  SiteList list;
  for (const EditableNode& node : model.nodes()) {
    const NodeProto& proto = node.proto;
    if (!proto.domain.empty() || std::ranges::find(kOps, proto.op) == kOps.end()) continue;
    Site site{.name = onnx::site_of(proto), .op = proto.op};
    const std::string problem = read_site(model, proto, site);
    if (problem.empty())
      list.sites.push_back(std::move(site));
    else
      list.kept.push_back({site.name, site.op, problem});
  }
  return list;
}

void check_is_float(const EditableModel& model) {
  constexpr std::array<std::string_view, 9> kQuantized = {"QuantizeLinear",
                                                          "DequantizeLinear",
                                                          "DynamicQuantizeLinear",
                                                          "MatMulInteger",
                                                          "ConvInteger",
                                                          "QLinearMatMul",
                                                          "QLinearConv",
                                                          "QLinearAdd",
                                                          "QGemm"};
  for (const EditableNode& node : model.nodes())
    if (std::ranges::find(kQuantized, node.proto.op) != kQuantized.end())
      throw UserError(fmt::format("{}: the model is quantized already: node '{}' is a {}",
                                  model.name(),
                                  onnx::site_of(node.proto),
                                  node.proto.op),
                      "give the model in f32 that it was made from");
}

const onnx::Attribute* find_attribute(const NodeProto& node, std::string_view name) {
  const auto found = std::ranges::find(node.attributes, name, &onnx::Attribute::name);
  return found == node.attributes.end() ? nullptr : &*found;
}

int64_t integer_of(const NodeProto& node, std::string_view name, int64_t fallback) {
  const onnx::Attribute* const attribute = find_attribute(node, name);
  return attribute == nullptr ? fallback : attribute->integer;
}

double number_of(const NodeProto& node, std::string_view name, double fallback) {
  const onnx::Attribute* const attribute = find_attribute(node, name);
  return attribute == nullptr ? fallback : static_cast<double>(attribute->number);
}

}  // namespace ridge::compress
