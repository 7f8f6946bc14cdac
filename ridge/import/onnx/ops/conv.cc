// Convolutions of lines and images, and their transposes.
#include "ridge/graph/ops/conv.h"

#include <algorithm>
#include <optional>

#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/import/onnx/late_convolution.h"
#include "ridge/import/onnx/op_table.h"
#include "ridge/import/onnx/ops/quantize.h"
#include "ridge/import/onnx/ops/window.h"

namespace ridge::onnx {
namespace {

// Weights (O, I, W) or (O, I, H, W) as (H, W, I, O).
Value kernel_of(const NodeContext& n) {
  if (n.rank(1) == 4) return n.transposed(1, {2, 3, 1, 0});
  check(n.rank(1) == 3, "its weights have {} dimensions; 3 and 4 are supported", n.rank(1));
  const Value w = n.transposed(1, {2, 1, 0});
  return reshape(w, {1, w.dim(0), w.dim(1), w.dim(2)});
}

std::vector<int64_t> kernel_sizes(const NodeContext& n) {
  check(n.rank(1) >= 3, "its weights have {} dimensions", n.rank(1));
  std::vector<int64_t> sizes(n.shape(1).begin() + 2, n.shape(1).end());
  check(n.list("kernel_shape", sizes) == sizes, "kernel_shape is not that of its weights");
  return sizes;
}

Value with_bias(const NodeContext& n, Value y) { return n.has(2) ? y + n.value(2) : y; }

// The bias as numbers; nothing where it is data of a run, or not of those channels.
std::optional<std::vector<double>> known_bias(const NodeContext& n) {
  std::vector<double> bias;
  if (!n.has(2)) return bias;
  const Known* known = n.known(2);
  if (known == nullptr || known->shape() != Shape{n.shape(1)[0]}) return std::nullopt;
  for (int64_t i = 0; i < known->elements(); ++i) bias.push_back(known->at(i));
  return bias;
}

void conv(NodeContext& n) {
  const WindowAttributes window = window_attributes(n, kernel_sizes(n));
  const int64_t groups = n.integer("group", 1);
  if (const Value y = convolution_of_bytes(n, window.fields(), groups)) return n.give_image(0, y);
  const auto bias = known_bias(n);
  const bool is_late = n.rank(0) == 4 && n.known(0) == nullptr && n.known(1) != nullptr && bias &&
                       is_float(n.dtype(0));
  if (is_late) {
    n.image(0);  // no convolution waits for another one
    return n.give(0,
                  make_datum(n.proto().outputs[0],
                             LateConvolution{.site = site_of(n.proto()),
                                             .x = n.datum(0),
                                             .weights = n.datum(1),
                                             .window = window.fields(),
                                             .groups = groups,
                                             .shift = *bias}));
  }
  const Value y = conv2d(image_of(n, 0), kernel_of(n), window.fields(), groups);
  give_image_of(n, with_bias(n, y), n.rank(0));
}

// The part that a transposed convolution leaves of the image that its windows cover.
struct Cut {
  int64_t low = 0, size = 0;
};

// The cut of each axis, by pads, output_padding and output_shape.
std::vector<Cut> cuts_of(const NodeContext& n, const WindowAttributes& window) {
  constexpr int64_t kMost = int64_t{1} << 40;
  const size_t axes = window.axes();
  const auto added = n.list("output_padding", std::vector<int64_t>(axes, 0));
  const auto asked = n.list("output_shape");
  const std::string automatic = n.text("auto_pad", "NOTSET");
  check(added.size() == axes && (asked.empty() || asked.size() == axes),
        "output_padding or output_shape is not of {} axes",
        axes);
  std::vector<Cut> cuts;
  for (size_t i = 0; i < axes; ++i) {
    const int64_t size = n.shape(0)[i + 2];
    check(added[i] >= 0 && added[i] < kMost && size <= kMost / window.stride[i],
          "output_padding is {} and a stride {}",
          added[i],
          window.stride[i]);
    const int64_t covered = (size - 1) * window.stride[i] + window.reach(i) + added[i];
    Cut cut{window.low[i], covered - window.low[i] - window.high[i]};
    const bool is_same = automatic == "SAME_UPPER" || automatic == "SAME_LOWER";
    if (!asked.empty() || is_same) {
      cut.size = asked.empty() ? size * window.stride[i] : asked[i];
      const int64_t total = covered - cut.size;
      const int64_t half = total >= 0 ? total / 2 : (total - 1) / 2;  // rounded down
      cut.low = automatic == "SAME_UPPER" ? half : total - half;
    }
    check(
        cut.size >= 1 && cut.size < kMost && cut.low > -kMost, "its result has size {}", cut.size);
    cuts.push_back(cut);
  }
  return cuts;
}

// The elements low to low + size of an axis, zeros where it has none.
Value cut_axis(Value x, int64_t axis, const Cut& cut) {
  const int64_t length = x.dim(axis);
  const int64_t first = std::clamp<int64_t>(cut.low, 0, length);
  const int64_t last = std::clamp<int64_t>(cut.low + cut.size, 0, length);
  check(first < last, "nothing is left of axis {}", axis);
  std::vector<int64_t> low(static_cast<size_t>(x.rank()), 0), high = low;
  low[static_cast<size_t>(axis)] = first - cut.low;
  high[static_cast<size_t>(axis)] = cut.low + cut.size - last;
  return pad(slice(x, axis, first, last), low, high);
}

// Weights (C, O / groups, ...): the gradient of a convolution from O to C channels.
void conv_transpose(NodeContext& n) {
  WindowAttributes window = window_attributes(n, kernel_sizes(n));
  const std::vector<Cut> cuts = cuts_of(n, window);
  std::fill(window.low.begin(), window.low.end(), 0);
  std::fill(window.high.begin(), window.high.end(), 0);
  Conv2dGradInput op;
  op.window = window.fields();
  op.groups = n.integer("group", 1);
  const size_t axes = window.axes();
  const auto covered = [&](size_t i) {
    return (n.shape(0)[i + 2] - 1) * window.stride[i] + window.reach(i);
  };
  op.size = {axes == 2 ? covered(0) : 1, covered(axes - 1)};
  Value y = add_node(std::move(op), {image_of(n, 0), kernel_of(n)});
  if (axes == 2) y = cut_axis(y, 1, cuts[0]);
  y = cut_axis(y, 2, cuts[axes - 1]);
  give_image_of(n, with_bias(n, y), n.rank(0));
}

constexpr OpRow kConvOps[] = {
    {"Conv", conv},
    {"ConvTranspose", conv_transpose},
};

}  // namespace

std::span<const OpRow> conv_ops() { return kConvOps; }

}  // namespace ridge::onnx
