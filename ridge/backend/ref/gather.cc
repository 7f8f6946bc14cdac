// Looking up by index and its transpose, and one-hot vectors.
#include "ridge/graph/ops/gather.h"

#include <cstring>
#include <string_view>

#include "ridge/backend/ref/kernel.h"
#include "ridge/backend/ref/ref_kernels.h"
#include "ridge/backend/ref/walk.h"

namespace ridge::ref {
namespace {

// The second input; UserError unless all are in [0, size).
std::vector<size_t> read_indices(const Call& call, std::string_view op, int64_t size) {
  std::vector<size_t> indices;
  for (int64_t index : call.read<int64_t>(1)) {
    check(index >= 0 && index < size,
          "[{}] index {} at {} is out of range; expected 0 to {}",
          op,
          index,
          to_string(index_of(static_cast<int64_t>(indices.size()), call.inputs[1].shape)),
          size - 1);
    indices.push_back(static_cast<size_t>(index));
  }
  return indices;
}

void gather(const Gather& op, const Call& call) {
  const AxisView x(call.inputs[0].shape, op.axis);
  const std::vector<size_t> indices = read_indices(call, "gather", static_cast<int64_t>(x.size));
  const size_t row = x.inner * size_of(call.inputs[0].dtype);  // bytes
  for (size_t o = 0; o < x.outer; ++o)
    for (size_t k = 0; k < indices.size(); ++k)
      std::memcpy(call.output_bytes(0) + (o * indices.size() + k) * row,
                  call.input_bytes(0) + (o * x.size + indices[k]) * row,
                  row);
}

void scatter_add(const ScatterAdd& op, const Call& call) {
  const AxisView y(call.outputs[0].shape, op.axis);
  const std::vector<size_t> indices = read_indices(call, "scatter_add", op.size);
  dispatch_number<ScatterAdd>(call.inputs[0].dtype, [&]<typename V>(TypeTag<V>) {
    const std::vector<V> updates = call.read<V>(0);
    std::vector<V> sums = call.inputs.size() == 3 ? call.read<V>(2) : call.zeros<V>(0);
    for (size_t o = 0; o < y.outer; ++o)
      for (size_t k = 0; k < indices.size(); ++k)
        for (size_t i = 0; i < y.inner; ++i) {
          V& sum = sums[y.offset(o, indices[k], i)];
          sum = plus(sum, updates[(o * indices.size() + k) * y.inner + i]);
        }
    call.write(0, sums);
  });
}

void one_hot(const OneHot& op, const Call& call) {
  const std::vector<int64_t> indices = call.read<int64_t>(0);
  std::vector<int64_t> y = call.zeros<int64_t>(0);
  for (size_t i = 0; i < indices.size(); ++i)
    if (indices[i] >= 0 && indices[i] < op.depth)
      y[i * static_cast<size_t>(op.depth) + static_cast<size_t>(indices[i])] = 1;
  call.write(0, y);
}

void pick(const Pick& op, const Call& call) {
  const auto n = static_cast<size_t>(call.inputs[0].shape.back());
  const size_t size = size_of(call.inputs[0].dtype);
  const std::vector<size_t> indices =
      read_indices(call, "pick", op.columns_of(static_cast<int64_t>(n)));
  for (size_t r = 0; r < indices.size(); ++r)
    std::memcpy(
        call.output_bytes(0) + r * size, call.input_bytes(0) + (r * n + indices[r]) * size, size);
}

}  // namespace

void add_gather_kernels(KernelTable& table) {
  add_kernel<Gather>(table, gather);
  add_kernel<ScatterAdd>(table, scatter_add);
  add_kernel<OneHot>(table, one_hot);
  add_kernel<Pick>(table, pick);
}

}  // namespace ridge::ref
