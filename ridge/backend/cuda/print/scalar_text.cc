#include "ridge/backend/cuda/print/scalar_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <iterator>

#include "ridge/backend/cuda/print/kernel.h"
#include "ridge/graph/ops/activation.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"

namespace ridge::cuda {
namespace {

// The text of an op of few operations, for floats and for integers and bools; {0} and {1} are its
// operands. A text is empty where the op does not take the dtype.
struct Row {
  std::string_view op;
  std::string_view floats;
  std::string_view integers = {};
  bool rounds = true;  ///< Its result on 16-bit floats may be no 16-bit float, so it is rounded.
};

constexpr Row kRows[] = {
    {"neg", "-{0}", "wrapped_neg({0})", false},
    {"abs", "absolute({0})", "wrapped_abs({0})", false},
    {"sign", "sign({0})", "sign({0})", false},
    {"sqrt", "square_root({0})"},
    {"rsqrt", "1.0f / square_root({0})"},
    {"relu", "relu({0})", {}, false},
    {"is_finite", "finite({0})"},
    {"not", {}, "!{0}"},
    {"add", "{0} + {1}", "wrapped_add({0}, {1})"},
    {"sub", "{0} - {1}", "wrapped_sub({0}, {1})"},
    {"mul", "{0} * {1}", "wrapped_mul({0}, {1})"},
    {"div", "{0} / {1}"},
    {"fmod", "remainder_of({0}, {1})", {}, false},
    {"pow", "pow_of({0}, {1})"},
    {"maximum", "larger({0}, {1})", "larger({0}, {1})", false},
    {"minimum", "smaller({0}, {1})", "smaller({0}, {1})", false},
    {"eq", "{0} == {1}", "{0} == {1}"},
    {"ne", "{0} != {1}", "{0} != {1}"},
    {"lt", "{0} < {1}", "{0} < {1}"},
    {"le", "{0} <= {1}", "{0} <= {1}"},
    {"gt", "{0} > {1}", "{0} > {1}"},
    {"ge", "{0} >= {1}", "{0} >= {1}"},
    {"and", {}, "{0} && {1}"},
    {"or", {}, "{0} || {1}"},
    {"copy", "{0}", "{0}", false},
};

const Row* find_row(std::string_view op) {
  const auto* found = std::find_if(
      std::begin(kRows), std::end(kRows), [&](const Row& row) { return row.op == op; });
  return found == std::end(kRows) ? nullptr : found;
}

// The name of the function that an op without a row calls, `NAME_of` of isa/functions.h; empty for
// other ops. In f64 it is the C library's on the CPU and CUDA's own on a device: they agree but for
// the last bits.
std::string function_of(const Node& node) {
  const OpTraits& traits = node.op->traits();
  const bool is_function = traits.elementwise && traits.max_inputs == 1 &&
                           traits.op_class == OpClass::kTranscendental &&
                           find_row(traits.name) == nullptr;
  if (!is_function) return {};
  const bool by_tanh = node.is<Gelu>() && node.op_as<Gelu>().tanh;
  return fmt::format("{}{}_of", traits.name, by_tanh ? "_tanh" : "");
}

// True where device/approx.h defines the function.
bool is_approximated(std::string_view function) {
  static constexpr std::string_view kHeader = "ridge/backend/cuda/device/approx.h";
  static const std::string_view text =
      std::ranges::find(device_headers(), kHeader, [](const auto& header) {
        return header.first;
      })->second;
  return text.find(fmt::format("inline float {}(float x) {{", function)) != text.npos;
}

std::string cast_text(DType from, DType to, const std::string& x) {
  if (from == to) return x;
  switch (to) {
    case DType::kF64:
    case DType::kF32:
      return value_type(from) == value_type(to)
                 ? x
                 : fmt::format("static_cast<{}>({})", value_type(to), x);
    case DType::kF16:
      return fmt::format("to_f16({})", x);
    case DType::kBF16:
      return fmt::format("to_bf16({})", x);
    case DType::kBool:
      return fmt::format("{} != {}", x, is_float(from) ? "0.0f" : "0");
    default:
      return fmt::format(
          "{}<{}>({})", is_float(from) ? "to_integer" : "static_cast", value_type(to), x);
  }
}

std::string rounded(DType dtype, std::string text) {
  if (dtype == DType::kF16) return fmt::format("round_f16({})", text);
  if (dtype == DType::kBF16) return fmt::format("round_bf16({})", text);
  return text;
}

}  // namespace

std::string_view stored_type(DType dtype) {
  static constexpr std::array<std::string_view, 11> kNames = {"double",
                                                              "float",
                                                              "F16",
                                                              "BF16",
                                                              "int64_t",
                                                              "int32_t",
                                                              "int16_t",
                                                              "uint16_t",
                                                              "uint8_t",
                                                              "int8_t",
                                                              "bool"};
  return kNames[static_cast<size_t>(dtype)];
}

std::string_view value_type(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 ? "float" : stored_type(dtype);
}

// Infinities and NaN have no literal, and front ends differ on subnormal ones.
std::string number_text(DType dtype, double value) {
  const auto narrow = static_cast<float>(value);
  const bool is_wide = dtype == DType::kF64;
  if (is_wide ? value != 0.0 && !std::isnormal(value) : narrow != 0.0f && !std::isnormal(narrow))
    return is_wide ? fmt::format("double_of_bits({:#x}ull)", std::bit_cast<uint64_t>(value))
                   : fmt::format("float_of_bits({:#x}u)", std::bit_cast<uint32_t>(narrow));
  std::string text = is_wide ? fmt::format("{}", value) : fmt::format("{}", narrow);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  if (!is_wide) text += 'f';
  return std::signbit(value) ? "(" + text + ")" : text;
}

std::string number_text(DType dtype, int64_t value) {
  if (dtype == DType::kBool) return value != 0 ? "true" : "false";
  if (value == INT64_MIN) return "static_cast<int64_t>(0x8000000000000000ull)";
  return fmt::format("static_cast<{}>({}ll)", value_type(dtype), value);
}

std::string constant_text(const Node& node) {
  const auto& constant = node.op_as<Constant>();
  if (!constant.values.empty()) return number_text(constant.dtype, constant.values[0]);
  return number_text(constant.dtype, constant.ints[0]);
}

std::optional<std::string> expression(const Node& node,
                                      std::span<const std::string> operands,
                                      std::string& why,
                                      Functions functions) {
  const DType from = node.inputs[0].dtype(), to = node.outputs[0].dtype;
  if (node.is<Cast>()) return cast_text(from, to, operands[0]);
  if (node.is<Where>()) return fmt::format("{} ? {} : {}", operands[0], operands[1], operands[2]);
  if (const std::string function = function_of(node); !function.empty()) {
    const bool is_approx = functions == Functions::kApprox && has_approx_form(node);
    return rounded(to, fmt::format("{}{}({})", is_approx ? "approx::" : "", function, operands[0]));
  }
  const Row* row = find_row(node.op->name());
  if (row == nullptr) {
    why = "has no form in CUDA";
    return std::nullopt;
  }
  std::string_view form = is_float(from) || row->integers.empty() ? row->floats : row->integers;
  if (form.empty()) form = row->integers;
  if (node.is<Rsqrt>() && from == DType::kF64) form = "1.0 / square_root({0})";
  const std::string text = operands.size() == 1
                               ? fmt::format(fmt::runtime(form), operands[0])
                               : fmt::format(fmt::runtime(form), operands[0], operands[1]);
  return to == from && row->rounds ? rounded(to, text) : text;
}

bool needs_functions(const Node& node) { return node.is<Pow>() || !function_of(node).empty(); }

bool has_approx_form(const Node& node) {
  if (node.inputs.empty() || value_type(node.inputs[0].dtype()) != "float") return false;
  const std::string function = function_of(node);
  return !function.empty() && is_approximated(function);
}

}  // namespace ridge::cuda
