// Pooling of images.
#include "ridge/graph/ops/pool.h"

#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/import/aten/node_context.h"
#include "ridge/import/aten/op_table.h"

namespace ridge::aten {
namespace {

std::vector<int64_t> pair(const NodeContext& n, size_t i, std::vector<int64_t> fallback) {
  std::vector<int64_t> list = n.list(i);
  if (list.empty()) return fallback;
  if (list.size() == 1) list.push_back(list[0]);
  check(list.size() == 2, "a list has {} elements", list.size());
  return list;
}

// kernel_size, stride and padding, the arguments from `first` on. With ceil_mode windows may begin
// before the end of the image and go beyond it: that is more padding behind.
PoolFields fields(const NodeContext& n, size_t first, const Shape& image, const Shape& pooled) {
  constexpr int64_t kMost = int64_t{1} << 24;
  check(image.size() == 4 && pooled.size() == 4, "it has {} dimensions", image.size());
  PoolFields pool;
  pool.kernel = pair(n, first, {});
  check(pool.kernel.size() == 2, "it has no kernel_size");
  pool.window.stride = pair(n, first + 1, pool.kernel);
  const std::vector<int64_t> padding = pair(n, first + 2, {0, 0});
  pool.window.padding = {padding[0], padding[1], padding[0], padding[1]};
  for (size_t i = 0; i < 2; ++i) {
    check(pool.window.stride[i] >= 1 && pool.window.stride[i] < kMost && padding[i] >= 0 &&
              padding[i] < kMost && pool.kernel[i] >= 1 && pool.kernel[i] < kMost &&
              pooled[i + 2] < kMost,
          "its windows are out of range");
    const int64_t reached = (pooled[i + 2] - 1) * pool.window.stride[i] + pool.kernel[i];
    const int64_t covered = image[i + 2] + 2 * padding[i];
    if (reached > covered) pool.window.padding[i + 2] += reached - covered;
  }
  return pool;
}

bool has_dilation(const NodeContext& n, size_t i) {
  return pair(n, i, {1, 1}) != std::vector<int64_t>{1, 1};
}

// max_pool2d(self, kernel_size, stride, padding, dilation, ceil_mode)
void max_pool(NodeContext& n) {
  check(!has_dilation(n, 4), "its windows are dilated");
  n.give_image(0, max_pool2d(n.image(0), fields(n, 1, n.shape(0), n.result_type().shape)));
}

// max_pool2d_backward(grad_output, self, kernel_size, stride, padding, dilation, ceil_mode)
void max_pool_backward(NodeContext& n) {
  check(!has_dilation(n, 5), "its windows are dilated");
  MaxPool2dGrad op;
  op.pool = fields(n, 2, n.shape(1), n.shape(0));
  n.give_image(0, add_node(std::move(op), {n.image(1), n.image(0)}));
}

// ceil_mode counts padding up to what was asked for, and nothing beyond.
void check_average(const NodeContext& n, const PoolFields& pool, size_t padding, size_t divisor) {
  check(!n.has(divisor), "it has a divisor of its own");
  const std::vector<int64_t> asked = pair(n, padding, {0, 0});
  check(pool.window.padding[2] == asked[0] && pool.window.padding[3] == asked[1],
        "its windows go beyond the padding");
}

// avg_pool2d(self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
void average_pool(NodeContext& n) {
  const PoolFields pool = fields(n, 1, n.shape(0), n.result_type().shape);
  check_average(n, pool, 3, 6);
  n.give_image(0, avg_pool2d(n.image(0), pool, n.flag(5)));
}

// avg_pool2d_backward(grad_output, self, kernel_size, ...)
void average_pool_backward(NodeContext& n) {
  AvgPool2dGrad op;
  op.pool = fields(n, 2, n.shape(1), n.shape(0));
  check_average(n, op.pool, 4, 7);
  op.count_padding = n.flag(6);
  op.size = {n.shape(1).at(2), n.shape(1).at(3)};
  n.give_image(0, add_node(std::move(op), {n.image(0)}));
}

// Windows from an image to sizes that divide its own.
PoolFields even_windows(const Shape& image, const Shape& pooled) {
  check(image.size() == 4 && pooled.size() == 4, "it has {} dimensions", image.size());
  PoolFields pool;
  for (size_t i = 0; i < 2; ++i) {
    check(pooled[i + 2] >= 1 && image[i + 2] % pooled[i + 2] == 0,
          "its windows have unequal sizes");
    pool.kernel[i] = pool.window.stride[i] = image[i + 2] / pooled[i + 2];
  }
  return pool;
}

void adaptive_average_pool(NodeContext& n) {
  n.give_image(0, avg_pool2d(n.image(0), even_windows(n.shape(0), n.result_type().shape)));
}

void adaptive_average_pool_backward(NodeContext& n) {
  AvgPool2dGrad op;
  op.pool = even_windows(n.shape(1), n.shape(0));
  op.size = {n.shape(1)[2], n.shape(1)[3]};
  n.give_image(0, add_node(std::move(op), {n.image(0)}));
}

constexpr OpRow kPoolOps[] = {
    {"_adaptive_avg_pool2d.default", adaptive_average_pool},
    {"_adaptive_avg_pool2d_backward.default", adaptive_average_pool_backward},
    {"avg_pool2d.default", average_pool},
    {"avg_pool2d_backward.default", average_pool_backward},
    {"max_pool2d_with_indices.default", max_pool},
    {"ridge.max_pool2d_backward", max_pool_backward},
};

}  // namespace

std::span<const OpRow> pool_ops() { return kPoolOps; }

}  // namespace ridge::aten
