// Matrix products of a trace, and how fast a device could do them.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "ridge/doctor/findings/finding.h"

namespace ridge::doctor {

/// `batch` products of (m, k) by (k, n), of numbers of `size` bytes.
struct Product {
  size_t kernel = 0;  ///< Row.
  int64_t batch = 1, m = 0, n = 0, k = 0;
  int64_t size = 4;
  bool is_plain = false;  ///< FP32 on plain arithmetic units.
  double flops() const {
    return 2 * static_cast<double>(batch) * static_cast<double>(m) * static_cast<double>(n) *
           static_cast<double>(k);
  }
  double bytes() const;  ///< Bytes that must move at least: operands and result once.
};

/// "[[64, 3], [3]]"; empty of what is no list of shapes.
std::vector<std::vector<int64_t>> shapes_in(std::string_view text);

/// The product that an operator computes, by its name and the shapes and types of its inputs.
std::optional<Product> product_of(std::string_view name,
                                  std::string_view shapes,
                                  std::string_view types);

/// Kernels of the steady steps that are the only product of an operator whose shapes are known.
std::vector<Product> products_of(const Trace& trace, const Analysis& analysis);

/// Rates that a device reaches in practice, in operations and bytes a second; 0: not known.
struct Roof {
  double half = 0, tensor_single = 0, single = 0, bytes = 0;
  double flops_of(const Product& product) const;
  /// Seconds at least, by arithmetic and by memory.
  double seconds_of(const Product& product) const;
};

/// By the name and the memory of the device, four fifths of what its maker states for dense
/// numbers. Of a device that is not known, the best that the trace itself shows.
Roof roof_of(const Trace& trace, const Analysis& analysis, const std::vector<Product>& products);

/// The part of the time of plain FP32 products that matrix units save in 16 bits, by what the
/// device's maker states; of an unknown device seven eighths.
double saved_by_matrix_units(const Trace& trace, const Analysis& analysis);

}  // namespace ridge::doctor
