// Reductions over any axes, and argmax.
#include "ridge/graph/ops/reduce.h"

#include "ridge/backend/ref/kernel.h"
#include "ridge/backend/ref/ref_kernels.h"
#include "ridge/backend/ref/walk.h"

namespace ridge::ref {
namespace {

// For each element of the input, the element of the output that it goes into.
std::vector<size_t> targets(const Shape& from, const std::vector<int64_t>& axes) {
  Shape kept = from;
  for (int64_t axis : axes) kept[static_cast<size_t>(axis)] = 1;
  std::vector<int64_t> strides = strides_of(kept);
  for (int64_t axis : axes) strides[static_cast<size_t>(axis)] = 0;
  return offsets(from, strides);
}

template <typename T, typename V>
std::vector<V> sums(const T& op, const Call& call) {
  const std::vector<V> x = call.read<V>(0);
  const std::vector<size_t> to = targets(call.inputs[0].shape, op.axes);
  std::vector<V> y = call.zeros<V>(0);
  for (size_t i = 0; i < x.size(); ++i) y[to[i]] = plus(y[to[i]], x[i]);
  return y;
}

void reduce_sum(const ReduceSum& op, const Call& call) {
  dispatch_number<ReduceSum>(call.inputs[0].dtype, [&]<typename V>(TypeTag<V>) {
    call.write(0, sums<ReduceSum, V>(op, call));
  });
}

void reduce_sum_i8(const ReduceSumI8& op, const Call& call) {
  call.write(0, sums<ReduceSumI8, int64_t>(op, call));
}

void reduce_mean(const ReduceMean& op, const Call& call) {
  std::vector<double> y = sums<ReduceMean, double>(op, call);
  const int64_t count = call.inputs[0].elements() / call.outputs[0].elements();
  for (double& each : y) each /= static_cast<double>(count);
  call.write(0, y);
}

void reduce_max(const ReduceMax& op, const Call& call) {
  dispatch_number<ReduceMax>(call.inputs[0].dtype, [&]<typename V>(TypeTag<V>) {
    const std::vector<V> x = call.read<V>(0);
    const std::vector<size_t> to = targets(call.inputs[0].shape, op.axes);
    std::vector<V> y = call.zeros<V>(0);
    std::vector<bool> is_begun(y.size());
    for (size_t i = 0; i < x.size(); ++i) {
      if (!is_begun[to[i]] || is_larger(x[i], y[to[i]])) y[to[i]] = x[i];
      is_begun[to[i]] = true;
    }
    call.write(0, y);
  });
}

void argmax(const ArgMax& op, const Call& call) {
  dispatch_number<ArgMax>(call.inputs[0].dtype, [&]<typename V>(TypeTag<V>) {
    const std::vector<V> x = call.read<V>(0);
    const AxisView view(call.inputs[0].shape, op.axis);
    const auto size = static_cast<size_t>(op.looked_at(static_cast<int64_t>(view.size)));
    std::vector<int64_t> y;
    for (size_t o = 0; o < view.outer; ++o)
      for (size_t i = 0; i < view.inner; ++i) {
        size_t best = 0;
        for (size_t a = 1; a < size; ++a)
          if (is_larger(x[view.offset(o, a, i)], x[view.offset(o, best, i)])) best = a;
        y.push_back(static_cast<int64_t>(best));
      }
    call.write(0, y);
  });
}

}  // namespace

void add_reduce_kernels(KernelTable& table) {
  add_kernel<ReduceSum>(table, reduce_sum);
  add_kernel<ReduceSumI8>(table, reduce_sum_i8);
  add_kernel<ReduceMean>(table, reduce_mean);
  add_kernel<ReduceMax>(table, reduce_max);
  add_kernel<ArgMax>(table, argmax);
}

}  // namespace ridge::ref
