#include "ridge/doctor/rules/cpu_operators.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <span>
#include <string>
#include <string_view>

#include "ridge/doctor/trace/name_words.h"

namespace ridge::doctor {
namespace {

// Those that compute, not those that call them: under autocast only their operands are cast.
constexpr std::string_view kProducts[] = {"aten::mm",
                                          "aten::addmm",
                                          "aten::bmm",
                                          "aten::baddbmm",
                                          "aten::convolution",
                                          "aten::convolution_backward",
                                          "aten::mkldnn_rnn_layer",
                                          "aten::_scaled_dot_product_flash_attention_for_cpu"};
constexpr std::string_view kConvolutions[] = {"aten::convolution", "aten::convolution_backward"};

bool is_one_of(std::string_view name, std::span<const std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

const Details* details_of(const Trace& trace, size_t row) {
  if (trace.kind[row] != EventKind::kOperator || trace.detail[row] == Trace::kNone) return nullptr;
  return &trace.details[trace.detail[row]];
}

// The numbers of the first list of "[[16, 3, 64, 64], [3]]".
std::vector<int64_t> first_list(std::string_view text) {
  std::vector<int64_t> numbers;
  if (!text.starts_with("[[")) return numbers;
  const size_t end = text.find(']');
  for (size_t at = 2; at < std::min(end, text.size());) {
    int64_t number = 0;
    const auto [stop, error] =
        std::from_chars(text.data() + at, text.data() + std::min(end, text.size()), number);
    if (error != std::errc()) return {};
    numbers.push_back(number);
    at = static_cast<size_t>(stop - text.data());
    at = std::min(text.find_first_not_of(", ", at), text.size());
  }
  return numbers;
}

bool is_planar(const Trace& trace, const Details& details) {
  const std::vector<int64_t> sizes = first_list(trace.names[details.shapes]);
  const std::vector<int64_t> strides = first_list(trace.names[details.strides]);
  if (sizes.size() != 4 || strides.size() != 4) return false;
  return sizes[1] > 1 && sizes[2] * sizes[3] > 1 && strides[1] != 1;
}

}  // namespace

std::vector<size_t> products_of_type(const Trace& trace, std::string_view type) {
  const std::string types = "[\"" + std::string(type) + "\"";
  std::vector<size_t> rows;
  ByName is_product(trace, [](std::string_view name) { return is_one_of(name, kProducts); });
  for (size_t row = 0; row < trace.size(); ++row) {
    const Details* details = details_of(trace, row);
    if (details != nullptr && details->types != 0 && is_product(row) &&
        trace.names[details->types].starts_with(types))
      rows.push_back(row);
  }
  return rows;
}

std::vector<size_t> fp32_products(const Trace& trace) { return products_of_type(trace, "float"); }

bool has_short_products(const Trace& trace) {
  return !products_of_type(trace, "c10::BFloat16").empty() ||
         !products_of_type(trace, "c10::Half").empty();
}

std::vector<size_t> planar_convolutions(const Trace& trace) {
  std::vector<size_t> rows;
  ByName convolves(trace, [](std::string_view name) { return is_one_of(name, kConvolutions); });
  for (size_t row = 0; row < trace.size(); ++row) {
    const Details* details = details_of(trace, row);
    if (details != nullptr && details->shapes != 0 && details->strides != 0 && convolves(row) &&
        is_planar(trace, *details))
      rows.push_back(row);
  }
  return rows;
}

bool has_strides(const Trace& trace) {
  return std::ranges::any_of(trace.details,
                             [](const Details& details) { return details.strides != 0; });
}

}  // namespace ridge::doctor
