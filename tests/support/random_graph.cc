#include "tests/support/random_graph.h"

#include <algorithm>

#include "ridge/graph/autodiff.h"
#include "ridge/graph/ops/activation.h"
#include "ridge/graph/ops/attention.h"
#include "ridge/graph/ops/batch_norm.h"
#include "ridge/graph/ops/conv.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/gather.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/norm.h"
#include "ridge/graph/ops/pool.h"
#include "ridge/graph/ops/random.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/softmax.h"
#include "ridge/graph/ops/source.h"

namespace ridge::test {
namespace {

// Draws templates; each takes values from the pool and adds one of moderate size to it.
class Generator {
 public:
  Generator(CaseBuilder& builder, const RandomGraphOptions& options)
      : b_(builder), options_(options), random_(builder.random()) {}

  void run() {
    for (int i = 0; i < 3; ++i) fresh(random_shape());
    static constexpr Value (Generator::* kTemplates[])() = {&Generator::unary,
                                                            &Generator::kinked,
                                                            &Generator::binary,
                                                            &Generator::select,
                                                            &Generator::product,
                                                            &Generator::reduction,
                                                            &Generator::movement,
                                                            &Generator::rows,
                                                            &Generator::norm,
                                                            &Generator::image,
                                                            &Generator::lookup,
                                                            &Generator::attend,
                                                            &Generator::drop,
                                                            &Generator::entropy,
                                                            &Generator::join};
    for (int i = 0; i < options_.ops; ++i) {
      const SiteScope scope(b_.graph(), fmt::format("block{}", i));
      const auto count = static_cast<int64_t>(std::size(kTemplates));
      const Value value = (this->*kTemplates[random_.integer(0, count - 1)])();
      pool_.push_back(value);
    }
    finish();
  }

 private:
  int64_t size(int64_t high = 6) { return random_.integer(1, high); }

  Shape random_shape() {
    Shape shape(static_cast<size_t>(random_.integer(0, 4)));
    for (int64_t& s : shape) s = size();
    return shape;
  }

  Value fresh(Shape shape) {
    pool_.push_back(b_.input(std::move(shape), -1.5, 1.5));
    return pool_.back();
  }

  Value any() {
    return pool_[static_cast<size_t>(random_.integer(0, static_cast<int64_t>(pool_.size()) - 1))];
  }

  // Any value reshaped, sliced or broadcast to `shape`'s size is hard to find: a pool value of the
  // rank wanted, or a new input.
  Value of_rank(int64_t rank) {
    std::vector<Value> fits;
    for (Value v : pool_)
      if (v.rank() == rank) fits.push_back(v);
    if (!fits.empty() && random_.chance(0.8))
      return fits[static_cast<size_t>(random_.integer(0, static_cast<int64_t>(fits.size()) - 1))];
    Shape shape(static_cast<size_t>(rank));
    for (int64_t& s : shape) s = size();
    return fresh(shape);
  }

  // A value that broadcasts against x.
  Value partner(Value x) {
    for (Value v : pool_)
      if (v != x && v.shape() == x.shape() && random_.chance(0.7)) return v;
    Shape shape = x.shape();
    for (int64_t& s : shape)
      if (random_.chance(0.3)) s = 1;
    if (random_.chance(0.3) && !shape.empty()) shape.erase(shape.begin());
    return fresh(shape);
  }

  int64_t axis_of(Value x) { return random_.integer(0, x.rank() - 1); }

  Value unary() {
    const Value x = any();
    switch (random_.integer(0, 10)) {
      case 0:
        return neg(x);
      case 1:
        return exp(tanh(x));
      case 2:
        return log(x * x + 1.0);
      case 3:
        return tanh(x);
      case 4:
        return erf(x);
      case 5:
        return sqrt(x * x + 0.5);
      case 6:
        return rsqrt(x * x + 0.5);
      case 7:
        return sigmoid(x);
      case 8:
        return gelu(x, random_.chance(0.5) ? GeluForm::kErf : GeluForm::kTanh);
      case 9:
        return silu(x);
      default:
        return tanh(cast(cast(x, DType::kF64), x.dtype()));
    }
  }

  Value kinked() {
    const Shape shape = random_shape();
    const Value x = b_.separated(shape);
    pool_.push_back(x);
    switch (random_.integer(0, 5)) {
      case 0:
        return relu(x);
      case 1:
        return tanh(abs(x));
      case 2:
        return tanh(maximum(x, constant_like(x, 0.0)));
      case 3:
        return tanh(minimum(x, constant_like(x, 0.0)));
      case 4:
        return shape.empty() ? relu(x) : tanh(reduce_max(x, {axis_of(x)}, random_.chance(0.5)));
      default:
        return sign(x) * tanh(x);
    }
  }

  Value binary() {
    const Value x = any(), y = partner(x);
    switch (random_.integer(0, 4)) {
      case 0:
        return x + y;
      case 1:
        return x - y;
      case 2:
        return tanh(x) * y;
      case 3:
        return x / (y * y + 1.0);
      default:
        return x * 0.5 + y * 0.25;
    }
  }

  Value select() {
    const Value x = any(), y = partner(x);
    const Value choose = b_.input(DType::kBool, x.shape(), 0, 1);
    const Value both = logical_or(choose, logical_not(choose));
    return where(random_.chance(0.5) ? choose : logical_and(both, choose), x, y);
  }

  Value product() {
    Value a = of_rank(random_.chance(0.6) ? 2 : 3);
    const bool ta = random_.chance(0.3), tb = random_.chance(0.5);
    const int64_t inner = a.dim(ta ? -2 : -1), columns = size(9);
    Shape shape = a.shape();
    if (a.rank() == 3 && !ta && random_.chance(0.5)) shape.erase(shape.begin());
    shape[shape.size() - 2] = tb ? columns : inner;
    shape[shape.size() - 1] = tb ? inner : columns;
    return tanh(matmul(a, fresh(shape), ta, tb) * 0.5);
  }

  Value reduction() {
    const Value x = of_rank(random_.integer(1, 4));
    std::vector<int64_t> axes;
    for (int64_t axis = 0; axis < x.rank(); ++axis)
      if (random_.chance(0.5)) axes.push_back(axis);
    const bool keep = random_.chance(0.5);
    return random_.chance(0.5) ? reduce_mean(x, axes, keep) : tanh(reduce_sum(x, axes, keep) * 0.2);
  }

  Value movement() {
    const Value x = of_rank(random_.integer(1, 4));
    const int64_t axis = axis_of(x), length = x.dim(axis);
    switch (random_.integer(0, 4)) {
      case 0:
        return reshape(x, {-1});
      case 1: {
        std::vector<int64_t> perm;
        for (int64_t i = 0; i < x.rank(); ++i) perm.push_back((i + 1) % x.rank());
        return transpose(x, perm);
      }
      case 2: {
        const int64_t start = random_.integer(0, length - 1);
        return slice(x, axis, start, random_.integer(start + 1, length), random_.integer(1, 2));
      }
      case 3: {
        std::vector<int64_t> low(x.shape().size()), high(low), interior(low);
        for (size_t i = 0; i < low.size(); ++i) {
          low[i] = random_.integer(0, 2);
          high[i] = random_.integer(0, 1);
          interior[i] = random_.integer(0, 1);
        }
        return pad(x, low, high, interior, random_.chance(0.5) ? 0.0 : 0.5);
      }
      default: {
        Shape shape = x.shape();
        if (random_.chance(0.5) && x.rank() < 4) shape.insert(shape.begin(), size());
        return broadcast(x, shape);
      }
    }
  }

  Value rows() {
    const Value x = of_rank(random_.integer(1, 3));
    return random_.chance(0.5) ? softmax(x, axis_of(x)) : tanh(log_softmax(x, axis_of(x)));
  }

  Value norm() {
    const Value x = of_rank(random_.integer(2, 4));
    const Value gamma = fresh({x.dim(-1)}), beta = fresh({x.dim(-1)});
    // The gradient of a batch norm of a few samples is what rounding leaves of equal numbers.
    const bool few = numel(x.shape()) < 8 * x.dim(-1);
    switch (random_.integer(0, few ? 1 : 2)) {
      case 0:
        return tanh(layer_norm(x, gamma, beta, 1e-2));
      case 1:
        return tanh(rms_norm(x, gamma, 1e-2));
      default: {
        const auto r = batch_norm(x, gamma, beta, 1e-2);
        return tanh(r.y + r.mean * r.variance);
      }
    }
  }

  Value image() {
    const Value x = of_rank(4);
    const int64_t groups = random_.chance(0.3) ? x.dim(3) : 1;
    WindowFields window;
    for (int64_t& s : window.stride) s = random_.integer(1, 2);
    for (int64_t& p : window.padding) p = random_.integer(0, 1);
    const int64_t kh = random_.integer(1, std::min<int64_t>(3, x.dim(1))),
                  kw = random_.integer(1, std::min<int64_t>(3, x.dim(2)));
    const int64_t kind = random_.integer(0, 2);
    if (kind == 0) {
      const Value w = fresh({kh, kw, x.dim(3) / groups, groups * size(3)});
      return tanh(conv2d(x, w, window, groups) * 0.5);
    }
    for (size_t i = 0; i < 4; ++i)
      window.padding[i] = std::min(window.padding[i], (i % 2 == 0 ? kh : kw) - 1);
    if (kind == 1) return avg_pool2d(x, {{kh, kw}, window}, random_.chance(0.5));
    const Value y = b_.separated(x.shape());
    pool_.push_back(y);
    return tanh(max_pool2d(y, {{kh, kw}, window}));
  }

  Value lookup() {
    const Value x = of_rank(random_.integer(1, 3));
    const int64_t axis = axis_of(x);
    const DType index = random_.chance(0.5) ? DType::kI64 : DType::kI32;
    if (random_.chance(0.5))
      return gather(x, b_.indices(index, {size(), size(3)}, 0, x.dim(axis) - 1), axis);
    const int64_t places = size(8);
    return tanh(scatter_add(x, b_.indices(index, {x.dim(axis)}, 0, places - 1), axis, places));
  }

  Value attend() {
    const int64_t b = size(2), h = size(3), t = size(), d = size(4);
    const int64_t s = random_.chance(0.5) ? t : size();
    AttentionOptions options{.causal = random_.chance(0.5)};
    if (random_.chance(0.3)) return packed_attention(fresh({b, t, 3 * h * d}), h, options);
    if (random_.chance(0.4)) options.mask = b_.input(DType::kBool, {b, 1, t, s}, 0, 1);
    return attention(fresh({b, h, t, d}), fresh({b, h, s, d}), fresh({b, h, s, size(4)}), options);
  }

  Value drop() {
    const Value x = of_rank(random_.integer(1, 3));
    const Value rng = b_.given({DType::kI64, {3}}, {42, 7, 5});
    return dropout(x, rng, random_.uniform(0.0, 0.6), x.dim(0));
  }

  Value entropy() {
    const Value x = of_rank(2);
    const Value targets = b_.indices(DType::kI64, {x.dim(0)}, 0, x.dim(1) - 1);
    return cross_entropy(x, targets, {.ignore_index = 1, .label_smoothing = 0.1}) +
           count_targets(targets, x.dtype(), 1) * 0.01;
  }

  Value join() {
    const Value x = of_rank(random_.integer(1, 3));
    const int64_t axis = axis_of(x);
    Shape shape = x.shape();
    shape[static_cast<size_t>(axis)] = size(4);
    return concat({x, fresh(shape), x}, axis);
  }

  // Outputs: the last values, the argmax of one, and a loss over all of the pool.
  void finish() {
    std::vector<Value> outputs(pool_.end() - 3, pool_.end());
    const Value last = reshape(pool_.back(), {-1});
    outputs.push_back(reduce_sum(one_hot(argmax(b_.separated({5}), 0), 7)));
    Value loss = reduce_mean(last * last);
    for (Value v : pool_) loss = loss + reduce_mean(v) * 0.1;
    outputs.push_back(loss);
    if (options_.gradients) {
      std::vector<Value> wrt;
      for (Node* node : b_.graph().inputs())
        if (node->outputs[0].dtype == b_.dtype()) wrt.push_back({node, 0});
      for (Value g : gradients(loss, wrt)) outputs.push_back(g);
    }
    b_.finish(outputs);
  }

  CaseBuilder& b_;
  const RandomGraphOptions& options_;
  Random& random_;
  std::vector<Value> pool_;
};

}  // namespace

CaseBuilder random_graph(uint64_t seed, const RandomGraphOptions& options) {
  CaseBuilder builder(options.dtype, seed);
  Generator(builder, options).run();
  return builder;
}

}  // namespace ridge::test
