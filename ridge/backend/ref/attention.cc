// Scaled-dot-product attention and its gradient, query by query.
#include "ridge/graph/ops/attention.h"

#include <cmath>

#include "ridge/backend/ref/kernel.h"
#include "ridge/backend/ref/ref_kernels.h"
#include "ridge/backend/ref/walk.h"

namespace ridge::ref {
namespace {

// Says which keys a query may attend to, and what is added to its scores.
class Mask {
 public:
  Mask(bool causal, const Call& call, size_t mask) : causal_(causal) {
    if (call.inputs.size() <= mask) return;
    const Shape& shape = call.inputs[mask].shape;
    if (call.inputs[mask].dtype == DType::kBool)
      mask_ = call.read<int64_t>(mask);
    else
      bias_ = call.read<double>(mask);
    strides_ = strides_of(shape);
    for (size_t axis = 0; axis < shape.size(); ++axis)
      if (shape[axis] == 1) strides_[axis] = 0;
  }

  bool allows(int64_t batch, int64_t head, int64_t query, int64_t key) const {
    if (causal_ && key > query) return false;
    return mask_.empty() || mask_[index(batch, head, query, key)] != 0;
  }
  double bias(int64_t batch, int64_t head, int64_t query, int64_t key) const {
    return bias_.empty() ? 0.0 : bias_[index(batch, head, query, key)];
  }

 private:
  size_t index(int64_t batch, int64_t head, int64_t query, int64_t key) const {
    return static_cast<size_t>(batch * strides_[0] + head * strides_[1] + query * strides_[2] +
                               key * strides_[3]);
  }

  bool causal_;
  std::vector<int64_t> mask_, strides_;
  std::vector<double> bias_;
};

// The rows of q, k, v or y, or of a gradient, by batch and head.
struct Operand {
  std::vector<double>* data;
  HeadLayout layout;

  double* row(int64_t batch, int64_t head, int64_t row) const {
    return data->data() + layout.begin + batch * layout.batch_stride + head * layout.head_stride +
           row * layout.row_stride;
  }
};

// Tensor i of three: the same one where they are packed.
Operand part(std::vector<std::vector<double>>& tensors, size_t i, const HeadLayout& layout) {
  return {&tensors[tensors.size() == 1 ? 0 : i], layout};
}

double dot(const double* a, const double* b, int64_t n) {
  double sum = 0.0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

void add_multiple(double factor, const double* x, int64_t n, double* y) {
  for (int64_t i = 0; i < n; ++i) y[i] += factor * x[i];
}

// The operands of one call, and for each query the keys that it sees with their scores.
class Scores {
 public:
  Scores(const AttentionForm& form, const Call& call, size_t mask)
      : layout(attention_layout(form, call.inputs)),
        scale_(form.scale),
        mask_(form.causal, call, mask) {
    for (size_t i = 0; i < form.operands(); ++i) tensors_.push_back(call.read<double>(i));
    q = part(tensors_, 0, layout.q), k = part(tensors_, 1, layout.k);
    v = part(tensors_, 2, layout.v);
  }

  struct Score {
    int64_t key;
    double value;
  };

  // body(batch, head, query, scores)
  template <class Body>
  void each_query(Body body) const {
    std::vector<Score> scores;
    for (int64_t b = 0; b < layout.batch; ++b)
      for (int64_t h = 0; h < layout.heads; ++h)
        for (int64_t t = 0; t < layout.queries; ++t) {
          scores.clear();
          for (int64_t s = 0; s < layout.keys; ++s)
            if (mask_.allows(b, h, t, s))
              scores.push_back({s,
                                scale_ * dot(q.row(b, h, t), k.row(b, h, s), layout.depth) +
                                    mask_.bias(b, h, t, s)});
          body(b, h, t, scores);
        }
  }

  // The index of a query's logsumexp.
  size_t index(int64_t batch, int64_t head, int64_t query) const {
    return static_cast<size_t>((batch * layout.heads + head) * layout.queries + query);
  }

  AttentionLayout layout;
  Operand q, k, v;

 private:
  double scale_;
  Mask mask_;
  std::vector<std::vector<double>> tensors_;
};

// Softmax over the keys, applied to the values; zeros without any key.
void attention(const Attention& op, const Call& call) {
  const Scores operands(op, call, op.operands());
  std::vector<double> out = call.zeros<double>(0), logsumexp = call.zeros<double>(1);
  const Operand y{&out, operands.layout.y};
  operands.each_query([&](int64_t b, int64_t h, int64_t t, const auto& scores) {
    double max = -INFINITY, sum = 0.0;
    for (const auto& each : scores)
      if (is_larger(each.value, max)) max = each.value;
    for (const auto& each : scores) sum += std::exp(each.value - max);
    for (const auto& [key, value] : scores)
      add_multiple(std::exp(value - max) / sum,
                   operands.v.row(b, h, key),
                   operands.layout.width,
                   y.row(b, h, t));
    if (!scores.empty()) logsumexp[operands.index(b, h, t)] = max + std::log(sum);
  });
  call.write(0, out);
  call.write(1, logsumexp);
}

void attention_grad(const AttentionGrad& op, const Call& call) {
  const size_t n = op.operands();
  const Scores operands(op, call, n + 3);
  const AttentionLayout& l = operands.layout;
  std::vector<double> y = call.read<double>(n), dy = call.read<double>(n + 2);
  const std::vector<double> logsumexp = call.read<double>(n + 1);
  const Operand y_rows{&y, l.y}, dy_rows{&dy, l.y};
  std::vector<std::vector<double>> gradients;
  for (size_t i = 0; i < n; ++i) gradients.push_back(call.zeros<double>(i));
  const Operand dq = part(gradients, 0, l.q), dk = part(gradients, 1, l.k),
                dv = part(gradients, 2, l.v);
  operands.each_query([&](int64_t b, int64_t h, int64_t t, const auto& scores) {
    const double* dy_row = dy_rows.row(b, h, t);
    const double delta = dot(y_rows.row(b, h, t), dy_row, l.width);
    for (const auto& [key, value] : scores) {
      const double weight = std::exp(value - logsumexp[operands.index(b, h, t)]);
      const double dweight = dot(dy_row, operands.v.row(b, h, key), l.width);
      const double dscore = weight * (dweight - delta) * op.scale;
      add_multiple(weight, dy_row, l.width, dv.row(b, h, key));
      add_multiple(dscore, operands.k.row(b, h, key), l.depth, dq.row(b, h, t));
      add_multiple(dscore, operands.q.row(b, h, t), l.depth, dk.row(b, h, key));
    }
  });
  for (size_t i = 0; i < n; ++i) call.write(i, gradients[i]);
}

}  // namespace

void add_attention_kernels(KernelTable& table) {
  add_kernel<Attention>(table, attention);
  add_kernel<AttentionGrad>(table, attention_grad);
}

}  // namespace ridge::ref
