#include "ridge/doctor/rules/matrix_roof.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <map>

#include "ridge/doctor/rules/kernel_kinds.h"
#include "ridge/doctor/trace/name_words.h"

namespace ridge::doctor {
namespace {

constexpr int64_t kMostExtent = int64_t{1} << 40;
// Matrix units of most devices do products in 16 bits about 8 times as fast (dense).
constexpr double kUsualSpeedup = 8;
constexpr double kReached = 0.8;  // Share of the stated rates that a device reaches.

// Rates for dense products: 1e12 operations a second in BF16 or FP16, TF32 and FP32, and 1e12 bytes
// a second. The first row counts whose words all are words of a device's name, in any order; "80gb"
// also fits a device that has about so much memory. An MI250 shows its two halves as two devices.
struct Stated {
  std::string_view words;
  double half, tensor_single, single, bytes;
};
constexpr Stated kStated[] = {
    {"gh200 hbm3e", 989, 495, 67, 4.9},
    {"gh200", 989, 495, 67, 4},
    {"h200 nvl", 835, 418, 60, 4.8},
    {"h200", 989, 495, 67, 4.8},
    {"h100 pcie", 756, 378, 51, 2},
    {"h100 nvl", 835, 418, 60, 3.9},
    {"h100", 989, 495, 67, 3.35},
    {"h800 pcie", 756, 378, 51, 2},
    {"h800", 989, 495, 67, 3.35},
    {"a100 80gb pcie", 312, 156, 19.5, 1.94},
    {"a100 80gb", 312, 156, 19.5, 2.04},
    {"a100", 312, 156, 19.5, 1.56},
    {"a800 80gb pcie", 312, 156, 19.5, 1.94},
    {"a800 80gb", 312, 156, 19.5, 2.04},
    {"a800", 312, 156, 19.5, 1.56},
    {"v100s", 130, 16.4, 16.4, 1.13},
    {"v100", 125, 15.7, 15.7, 0.9},
    {"l40s", 362, 183, 91.6, 0.864},
    {"l4", 121, 60, 30.3, 0.3},
    {"a10g", 70, 35, 31.5, 0.6},
    {"a10", 125, 62.5, 31.2, 0.6},
    {"t4", 65, 8.1, 8.1, 0.32},
    {"rtx a6000", 155, 77, 38.7, 0.768},
    {"rtx 4090", 165, 82, 82, 1.008},
    {"rtx 3090", 71, 35.6, 35.6, 0.936},
    {"mi300x", 1307, 653, 163, 5.3},
    {"mi250x", 191, 47, 23.9, 1.6},
    {"mi250", 191, 47, 23.9, 1.6},
};
// A part of a device, and a device of a laptop, are slower than the name says.
constexpr std::string_view kLess[] = {"mig", "laptop"};

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    const char lower = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    if ((lower >= 'a' && lower <= 'z') || (lower >= '0' && lower <= '9'))
      words.back() += lower;
    else if (!words.back().empty())
      words.emplace_back();
  }
  return words;
}

bool has_about(const Device& device, const std::string& gigabytes) {
  if (!gigabytes.ends_with("gb")) return false;
  const double expected = std::ldexp(std::atof(gigabytes.c_str()), 30);
  return std::fabs(static_cast<double>(device.memory_bytes) - expected) < 0.1 * expected;
}

const Stated* stated_for(const Device& device) {
  const std::vector<std::string> name = words_of(device.name);
  const auto is_word = [&](std::string_view word) { return std::ranges::count(name, word) > 0; };
  if (std::ranges::any_of(kLess, is_word)) return nullptr;
  const auto* const found = std::ranges::find_if(kStated, [&](const Stated& stated) {
    return std::ranges::all_of(words_of(stated.words), [&](const std::string& word) {
      return is_word(word) || has_about(device, word);
    });
  });
  return found == std::end(kStated) ? nullptr : found;
}

bool is_extent(int64_t value) { return value > 0 && value < kMostExtent; }

// The innermost product that a call was made in: products do not hold each other, but for those
// that hand on to another of the same shapes.
std::map<uint32_t, std::vector<size_t>> operators_with_shapes(const Trace& trace) {
  std::map<uint32_t, std::vector<size_t>> operators;
  for (size_t row = 0; row < trace.size(); ++row)
    if (trace.kind[row] == EventKind::kOperator && trace.detail[row] != Trace::kNone &&
        trace.details[trace.detail[row]].shapes != 0)
      operators[trace.lane[row]].push_back(row);
  return operators;
}

std::optional<Product> product_at(const Trace& trace,
                                  const std::vector<size_t>& operators,
                                  size_t call,
                                  size_t& found) {
  auto after = std::partition_point(operators.begin(), operators.end(), [&](size_t row) {
    return trace.start_ns[row] <= trace.start_ns[call];
  });
  for (int depth = 0; after != operators.begin() && depth < 8; ++depth) {
    found = *--after;
    if (trace.end_ns(found) < trace.end_ns(call)) continue;
    const Details& details = trace.details[trace.detail[found]];
    return product_of(
        trace.name_text(found), trace.names[details.shapes], trace.names[details.types]);
  }
  return std::nullopt;
}

}  // namespace

double Product::bytes() const {
  const auto of = [](int64_t a, int64_t b) {
    return static_cast<double>(a) * static_cast<double>(b);
  };
  return static_cast<double>(batch * size) * (of(m, k) + of(k, n) + of(m, n));
}

std::vector<std::vector<int64_t>> shapes_in(std::string_view text) {
  std::vector<std::vector<int64_t>> shapes;
  int depth = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '[' && ++depth == 2) shapes.emplace_back();
    if (text[at] == ']') --depth;
    if (text[at] < '0' || text[at] > '9') continue;
    int64_t value = 0;
    const auto read = std::from_chars(text.data() + at, text.data() + text.size(), value);
    at = static_cast<size_t>(read.ptr - text.data()) - 1;
    if (depth == 2 && read.ec == std::errc{}) shapes.back().push_back(value);
  }
  return shapes;
}

std::optional<Product> product_of(std::string_view name,
                                  std::string_view shapes,
                                  std::string_view types) {
  const bool adds = name == "aten::addmm" || name == "aten::baddbmm";
  if (!adds && name != "aten::mm" && name != "aten::bmm") return std::nullopt;
  const auto all = shapes_in(shapes);
  const size_t first = adds ? 1 : 0;
  if (all.size() < first + 2) return std::nullopt;
  const auto &a = all[first], &b = all[first + 1];
  if (a.size() != b.size() || a.size() < 2 || a.size() > 3) return std::nullopt;
  const size_t rank = a.size();
  Product product{
      .batch = rank == 3 ? a[0] : 1, .m = a[rank - 2], .n = b[rank - 1], .k = a[rank - 1]};
  if (b[rank - 2] != product.k || !is_extent(product.batch) || !is_extent(product.m) ||
      !is_extent(product.n) || !is_extent(product.k))
    return std::nullopt;
  if (holds(types, "double") || holds(types, "complex")) return std::nullopt;
  product.size = holds(types, "half") || holds(types, "bfloat16") ? 2 : 4;
  return product;
}

std::vector<Product> products_of(const Trace& trace, const Analysis& analysis) {
  const auto operators = operators_with_shapes(trace);
  std::map<size_t, std::vector<Product>> by_operator;
  ByName kind_of(trace, kind_of_kernel);
  ByName is_plain(trace, is_plain_fp32_matrix);
  for (const size_t kernel : analysis.kernels) {
    if (kind_of(kernel) != KernelKind::kMatrix) continue;
    const size_t call = call_of(trace, analysis, kernel);
    if (call >= trace.size()) continue;
    const auto lane = operators.find(trace.lane[call]);
    if (lane == operators.end()) continue;
    size_t found = 0;
    auto product = product_at(trace, lane->second, call, found);
    if (!product) continue;
    product->kernel = kernel;
    product->is_plain = is_plain(kernel);
    by_operator[found].push_back(*product);
  }
  std::vector<Product> products;
  for (const auto& [row, of] : by_operator)
    if (of.size() == 1 && trace.duration_ns[of[0].kernel] > 0) products.push_back(of[0]);
  return products;
}

double Roof::flops_of(const Product& product) const {
  if (product.size == 2) return half;
  return product.is_plain ? single : tensor_single;
}

double Roof::seconds_of(const Product& product) const {
  const double rate = flops_of(product);
  const double arithmetic = rate > 0 ? product.flops() / rate : 0;
  return bytes > 0 ? std::max(arithmetic, product.bytes() / bytes) : arithmetic;
}

Roof roof_of(const Trace& trace, const Analysis& analysis, const std::vector<Product>& products) {
  for (const Device& device : trace.devices) {
    if (device.number != analysis.device) continue;
    if (const Stated* const stated = stated_for(device))
      return {kReached * 1e12 * stated->half,
              kReached * 1e12 * stated->tensor_single,
              kReached * 1e12 * stated->single,
              kReached * 1e12 * stated->bytes};
  }
  Roof best;
  for (const Product& product : products) {
    const double seconds = static_cast<double>(trace.duration_ns[product.kernel]) / 1e9;
    double& rate = product.size == 2  ? best.half
                   : product.is_plain ? best.single
                                      : best.tensor_single;
    rate = std::max(rate, product.flops() / seconds);
    best.bytes = std::max(best.bytes, product.bytes() / seconds);
  }
  return best;
}

double saved_by_matrix_units(const Trace& trace, const Analysis& analysis) {
  const Roof roof = roof_of(trace, analysis, {});
  return 1 - (roof.half > 0 ? roof.single / roof.half : 1 / kUsualSpeedup);
}

}  // namespace ridge::doctor
