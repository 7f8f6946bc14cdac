// Pools.
#include "ridge/graph/ops/pool.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "ridge/import/builders/functions.h"
#include "ridge/import/onnx/op_table.h"
#include "ridge/import/onnx/ops/expansion.h"
#include "ridge/import/onnx/ops/quantize.h"
#include "ridge/import/onnx/ops/window.h"

namespace ridge::onnx {
namespace {

constexpr int64_t kMostElements = 1024;  // of a window that is added up element by element

struct Pool {
  WindowAttributes window;
  std::vector<int64_t> declared_high;  // the padding that the model says
};

// The padding behind each axis grows or shrinks until the last window ends with it.
Pool pool_of(const NodeContext& n) {
  Pool pool{window_attributes(n, n.list("kernel_shape")), {}};
  pool.declared_high = pool.window.high;
  const bool rounds_up = n.integer("ceil_mode", 0) != 0;
  for (size_t i = 0; i < pool.window.axes(); ++i) {
    const int64_t size = n.shape(0)[i + 2];
    const int64_t count = pool.window.positions(i, size, rounds_up);
    const int64_t end = (count - 1) * pool.window.stride[i] + pool.window.reach(i);
    pool.window.high[i] = std::max(pool.window.high[i], end - size - pool.window.low[i]);
  }
  return pool;
}

// Whether the pooling ops take the window.
bool is_plain(const WindowAttributes& window) {
  if (window.axes() > 2) return false;
  for (size_t i = 0; i < window.axes(); ++i)
    if (window.dilation[i] != 1 || window.low[i] >= window.kernel[i] ||
        window.high[i] >= window.kernel[i])
      return false;
  return true;
}

PoolFields fields_of(const WindowAttributes& window) {
  PoolFields fields;
  fields.kernel = {window.axes() == 2 ? window.kernel[0] : 1, window.kernel.back()};
  fields.window = window.fields();
  return fields;
}

// x (N, C, ...) padded with `value`, then combined over all elements of the windows.
Value over_windows(Value x,
                   const WindowAttributes& window,
                   double value,
                   Value (*combine)(Value, Value)) {
  const size_t axes = window.axes();
  std::vector<int64_t> low{0, 0}, high{0, 0};
  low.insert(low.end(), window.low.begin(), window.low.end());
  high.insert(high.end(), window.high.begin(), window.high.end());
  int64_t elements = 1;
  for (const int64_t size : window.kernel) {
    elements *= size;
    check(elements <= kMostElements, "its window has more than {} elements", kMostElements);
  }
  const Value padded = pad(x, low, high, value);
  std::vector<int64_t> counts;
  for (size_t i = 0; i < axes; ++i)
    counts.push_back(window.positions(i, x.dim(static_cast<int64_t>(i) + 2), false));
  Value result;
  for (int64_t element = 0; element < elements; ++element) {
    Value part = padded;
    int64_t rest = element;
    for (size_t i = axes; i-- > 0;) {
      const int64_t first = rest % window.kernel[i] * window.dilation[i];
      rest /= window.kernel[i];
      const int64_t last = first + (counts[i] - 1) * window.stride[i];
      part = slice(part, static_cast<int64_t>(i) + 2, first, last + 1, window.stride[i]);
    }
    result = result ? combine(result, part) : part;
  }
  return result;
}

double lowest(DType dtype) {
  return dispatch(dtype, []<typename T>(TypeTag<T>) {
    if constexpr (is_float_type<T>)
      return -std::numeric_limits<double>::infinity();
    else
      return static_cast<double>(std::numeric_limits<T>::lowest());
  });
}

bool is_byte(DType dtype) { return dtype == DType::kI8 || dtype == DType::kU8; }

// The bytes that the input was made of by one scale, of which the largest makes the largest number;
// else null.
const Dequantized* bytes_in_order(const NodeContext& n) {
  const Dequantized* const from = n.datum(0)->dequantized.get();
  if (from == nullptr || !is_byte(from->integers->dtype)) return nullptr;
  const auto& scale = from->scale->known;
  return scale && numel(from->scale->shape) == 1 && scale->at(0) > 0 ? from : nullptr;
}

void max_pool(NodeContext& n) {
  if (const Dequantized* const from = bytes_in_order(n)) {
    Expansion e(n);
    const std::string largest =
        e.add("MaxPool", {e.named("integers", from->integers)}, n.proto().attributes);
    return e.give(
        e.add("DequantizeLinear",
              {largest, e.named("scale", from->scale), e.named("zero point", from->zero)}));
  }
  const Pool pool = pool_of(n);
  if (is_plain(pool.window) && (is_float(n.dtype(0)) || is_byte(n.dtype(0)))) {
    const Value y = ridge::max_pool2d(image_of(n, 0), fields_of(pool.window));
    return give_image_of(n, y, n.rank(0));
  }
  n.give(over_windows(n.value(0), pool.window, lowest(n.dtype(0)), ridge::maximum));
}

// The number of elements that count, as a tensor like the result.
Value counted(Value x, const Pool& pool, bool with_padding) {
  Value ones = constant_like(x, 1.0);
  WindowAttributes window = pool.window;
  if (with_padding) {
    std::vector<int64_t> low{0, 0}, high{0, 0};
    low.insert(low.end(), window.low.begin(), window.low.end());
    high.insert(high.end(), pool.declared_high.begin(), pool.declared_high.end());
    ones = pad(ones, low, high, 1.0);
    for (size_t i = 0; i < window.axes(); ++i) {
      window.high[i] -= pool.declared_high[i];
      window.low[i] = 0;
    }
  }
  return over_windows(ones, window, 0.0, ridge::add);
}

void average_pool(NodeContext& n) {
  const Pool pool = pool_of(n);
  const bool with_padding = n.integer("count_include_pad", 0) != 0;
  // The padding that ceil_mode adds never counts; the op counts all padding or none.
  const bool is_exact = !with_padding || pool.window.high == pool.declared_high;
  if (is_exact && is_float(n.dtype(0)) && is_plain(pool.window)) {
    const Value y = ridge::avg_pool2d(image_of(n, 0), fields_of(pool.window), with_padding);
    return give_image_of(n, y, n.rank(0));
  }
  const Value x = n.value(0);
  n.give(over_windows(x, pool.window, 0.0, ridge::add) / counted(x, pool, with_padding));
}

void lp_pool(NodeContext& n) {
  const Pool pool = pool_of(n);
  const auto p = static_cast<double>(n.integer("p", 2));
  check(p >= 1.0, "its p is {}", p);
  const Value powers = power(abs(n.value(0)), p);
  n.give(power(over_windows(powers, pool.window, 0.0, ridge::add), 1.0 / p));
}

// Over all spatial axes, which stay with size 1.
template <typename F>
void global(NodeContext& n, F&& reduce) {
  check(n.rank(0) >= 3, "its input has {} dimensions", n.rank(0));
  if (n.is_image(0)) return n.give_image(0, reduce(n.image(0), std::vector<int64_t>{1, 2}));
  std::vector<int64_t> axes(static_cast<size_t>(n.rank(0) - 2));
  std::iota(axes.begin(), axes.end(), 2);
  n.give(reduce(n.value(0), axes));
}

void global_average_pool(NodeContext& n) {
  const bool is_image = n.is_image(0);
  global(n, [&](Value x, const std::vector<int64_t>& axes) {
    const Value mean = mean_of_bytes(n, axes, is_image);
    return mean ? mean : reduce_mean(x, axes, true);
  });
}

void global_max_pool(NodeContext& n) {
  global(n, [](Value x, const auto& axes) { return reduce_max(x, axes, true); });
}

void global_lp_pool(NodeContext& n) {
  const auto p = static_cast<double>(n.integer("p", 2));
  check(p >= 1.0, "its p is {}", p);
  global(n, [&](Value x, const auto& axes) {
    return power(reduce_sum(power(abs(x), p), axes, true), 1.0 / p);
  });
}

constexpr OpRow kPoolOps[] = {
    {"AveragePool", average_pool},
    {"GlobalAveragePool", global_average_pool},
    {"GlobalLpPool", global_lp_pool},
    {"GlobalMaxPool", global_max_pool},
    {"LpPool", lp_pool},
    {"MaxPool", max_pool},
};

}  // namespace

std::span<const OpRow> pool_ops() { return kPoolOps; }

}  // namespace ridge::onnx
