#include "ridge/import/onnx/ops/window.h"

#include <algorithm>

#include "ridge/graph/ops/shape.h"

namespace ridge::onnx {
namespace {

constexpr int64_t kMostElements = int64_t{1} << 30;  // of a kernel's axis, a stride, a padding

void check_list(const std::vector<int64_t>& list,
                size_t count,
                int64_t least,
                std::string_view what) {
  check(list.size() == count, "{} has {} entries; expected {}", what, list.size(), count);
  for (const int64_t entry : list)
    check(entry >= least && entry <= kMostElements, "{} has an entry {}", what, entry);
}

}  // namespace

int64_t WindowAttributes::positions(size_t axis, int64_t size, bool rounds_up) const {
  const int64_t room = size + low[axis] + high[axis] - reach(axis);
  check(room >= 0, "a window of {} does not fit into {}", reach(axis), size);
  int64_t count = room / stride[axis] + 1;
  // One more that begins before the padding behind the axis does.
  if (rounds_up && room % stride[axis] != 0 && count * stride[axis] < size + low[axis]) ++count;
  return count;
}

WindowFields WindowAttributes::fields() const {
  const size_t last = axes() - 1;
  WindowFields fields;
  fields.stride = {axes() == 2 ? stride[0] : 1, stride[last]};
  fields.dilation = {axes() == 2 ? dilation[0] : 1, dilation[last]};
  fields.padding = {axes() == 2 ? low[0] : 0, low[last], axes() == 2 ? high[0] : 0, high[last]};
  return fields;
}

WindowAttributes window_attributes(const NodeContext& n, std::vector<int64_t> kernel) {
  const size_t axes = kernel.size();
  check(n.rank(0) == static_cast<int64_t>(axes) + 2 && axes >= 1,
        "its input has {} dimensions and its kernel {}",
        n.rank(0),
        axes);
  check_list(kernel, axes, 1, "kernel_shape");
  const std::vector<int64_t> ones(axes, 1);
  WindowAttributes window{
      std::move(kernel), n.list("strides", ones), n.list("dilations", ones), {}, {}};
  check_list(window.stride, axes, 1, "strides");
  check_list(window.dilation, axes, 1, "dilations");
  const std::string automatic = n.text("auto_pad", "NOTSET");
  if (automatic == "SAME_UPPER" || automatic == "SAME_LOWER") {
    for (size_t i = 0; i < axes; ++i) {
      const int64_t size = n.shape(0)[i + 2];
      const int64_t count = (size + window.stride[i] - 1) / window.stride[i];
      const int64_t total =
          std::max<int64_t>(0, (count - 1) * window.stride[i] + window.reach(i) - size);
      window.low.push_back(automatic == "SAME_UPPER" ? total / 2 : total - total / 2);
      window.high.push_back(total - window.low[i]);
    }
    return window;
  }
  check(automatic == "NOTSET" || automatic == "VALID" || automatic.empty(),
        "auto_pad '{}' is not known",
        automatic);
  std::vector<int64_t> pads(2 * axes, 0);
  if (automatic != "VALID") pads = n.list("pads", pads);
  check_list(pads, 2 * axes, 0, "pads");
  window.low.assign(pads.begin(), pads.begin() + static_cast<int64_t>(axes));
  window.high.assign(pads.begin() + static_cast<int64_t>(axes), pads.end());
  return window;
}

Value image_of(const NodeContext& n, size_t input) {
  if (n.rank(input) == 4) return n.image(input);
  check(n.rank(input) == 3, "its input has {} dimensions; 3 and 4 are supported", n.rank(input));
  const Value x = n.transposed(input, {0, 2, 1});
  return reshape(x, {x.dim(0), 1, x.dim(1), x.dim(2)});
}

void give_image_of(NodeContext& n, Value image, int64_t rank) {
  if (rank == 4) return n.give_image(0, image);
  n.give(transpose(reshape(image, {image.dim(0), image.dim(2), image.dim(3)}), {0, 2, 1}));
}

}  // namespace ridge::onnx
