// The nodes of a model that products of bytes could compute, and why others cannot be.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/compress/editable_model.h"

namespace ridge::compress {

/// A Conv, Gemm or MatMul of f32 with constant weights.
struct Site {
  std::string name;  ///< The node's, as onnx::site_of() has it.
  std::string op;
  /// Names of tensors; `bias` is empty where there is none. A node is known by its output.
  std::string input = {}, weights = {}, bias = {}, output = {};
  int64_t axis = 0;           ///< The axis of output channels of the weights.
  int64_t channels_axis = 1;  ///< The axis of input channels of the input; -1: the last.
  int64_t groups = 1;

  bool is_conv() const { return op == "Conv"; }
  /// Whether the node can have a bias, as Conv and Gemm can.
  bool may_have_bias() const { return op != "MatMul"; }
};

/// A node of such an operator that stays as it is.
struct KeptSite {
  std::string name, op, reason;
};

struct SiteList {
  std::vector<Site> sites;     ///< In the order of the nodes.
  std::vector<KeptSite> kept;  ///< Those that cannot be quantized.
};

/// Looks at the nodes of the model's graph alone, not at those of graphs inside of nodes.
SiteList find_sites(const EditableModel& model);

/// UserError where the model has operators of quantized numbers already.
void check_is_float(const EditableModel& model);

/// The attribute of a node, or null; and its number, `fallback` where it is absent.
const onnx::Attribute* find_attribute(const onnx::NodeProto& node, std::string_view name);
int64_t integer_of(const onnx::NodeProto& node, std::string_view name, int64_t fallback);
double number_of(const onnx::NodeProto& node, std::string_view name, double fallback);

}  // namespace ridge::compress
