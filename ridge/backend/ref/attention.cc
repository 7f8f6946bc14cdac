// Scaled-dot-product attention, query by query.
#include "ridge/graph/ops/attention.h"

#include <cmath>

#include "ridge/backend/ref/kernel.h"
#include "ridge/backend/ref/ref_kernels.h"
#include "ridge/backend/ref/walk.h"

namespace ridge::ref {
namespace {

// Says which keys a query may attend to.
class AllowedKeys {
 public:
  AllowedKeys(const Attention& op, const Call& call) : causal_(op.causal) {
    if (call.inputs.size() < 4) return;
    const Shape& shape = call.inputs[3].shape;
    mask_ = call.read<int64_t>(3);
    strides_ = strides_of(shape);
    for (size_t axis = 0; axis < shape.size(); ++axis)
      if (shape[axis] == 1) strides_[axis] = 0;
  }

  bool has(int64_t batch, int64_t head, int64_t query, int64_t key) const {
    if (causal_ && key > query) return false;
    if (mask_.empty()) return true;
    return mask_[static_cast<size_t>(batch * strides_[0] + head * strides_[1] +
                                     query * strides_[2] + key * strides_[3])] != 0;
  }

 private:
  bool causal_;
  std::vector<int64_t> mask_, strides_;
};

struct Rows {
  const double *query, *keys, *values;  // (D), (S, D), (S, E) of one batch and head
  size_t depth, width;                  // D, E
};

double score(const Rows& rows, size_t key, double scale) {
  double sum = 0.0;
  for (size_t i = 0; i < rows.depth; ++i) sum += rows.query[i] * rows.keys[key * rows.depth + i];
  return scale * sum;
}

// Softmax over the keys, applied to the values; zeros without any key.
void attend(const Rows& rows, const std::vector<size_t>& keys, double scale, double* y) {
  std::vector<double> weights;
  for (size_t key : keys) weights.push_back(score(rows, key, scale));
  double max = -INFINITY, sum = 0.0;
  for (double each : weights)
    if (is_larger(each, max)) max = each;
  for (double& each : weights) sum += each = std::exp(each - max);
  for (size_t k = 0; k < keys.size(); ++k)
    for (size_t e = 0; e < rows.width; ++e)
      y[e] += weights[k] / sum * rows.values[keys[k] * rows.width + e];
}

void attention(const Attention& op, const Call& call) {
  const std::vector<double> q = call.read<double>(0), k = call.read<double>(1),
                            v = call.read<double>(2);
  const Shape& shape_q = call.inputs[0].shape;  // (B, H, T, D)
  const int64_t queries = shape_q[2], keys = call.inputs[1].shape[2];
  const auto depth = static_cast<size_t>(shape_q[3]);
  const auto width = static_cast<size_t>(call.inputs[2].shape[3]);
  const AllowedKeys allowed(op, call);
  std::vector<double> y = call.zeros<double>(0);
  for (int64_t batch = 0; batch < shape_q[0]; ++batch)
    for (int64_t head = 0; head < shape_q[1]; ++head)
      for (int64_t query = 0; query < queries; ++query) {
        const auto plane = static_cast<size_t>(batch * shape_q[1] + head);
        const size_t row = plane * static_cast<size_t>(queries) + static_cast<size_t>(query);
        const size_t first_key = plane * static_cast<size_t>(keys);
        std::vector<size_t> attended;
        for (int64_t key = 0; key < keys; ++key)
          if (allowed.has(batch, head, query, key)) attended.push_back(static_cast<size_t>(key));
        attend({&q[row * depth], &k[first_key * depth], &v[first_key * width], depth, width},
               attended,
               op.scale,
               &y[row * width]);
      }
  call.write(0, y);
}

}  // namespace

void add_attention_kernels(KernelTable& table) { add_kernel<Attention>(table, attention); }

}  // namespace ridge::ref
