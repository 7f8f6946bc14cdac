// Softmax and its logarithm, and the gradients.
#include "ridge/graph/ops/softmax.h"

#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/import/aten/node_context.h"
#include "ridge/import/aten/op_table.h"

namespace ridge::aten {
namespace {

int64_t checked_axis(const NodeContext& n, size_t i) {
  check(n.rank(0) > 0, "it has no dimensions");
  return n.axis(i, n.rank(0));
}

// _softmax(self, dim, half_to_float)
template <Value (*kApply)(Value, int64_t)>
void of_rows(NodeContext& n) {
  const Value x = cast(n.value(0), n.result_type().dtype);
  n.give(kApply(x, checked_axis(n, 1)));
}

// _softmax_backward_data(grad_output, output, dim, input_dtype)
void softmax_backward(NodeContext& n) {
  const int64_t axis = checked_axis(n, 2);
  const Value y = n.value(1), dy = cast(n.value(0), y.dtype()) * y;
  n.give(cast(dy - y * reduce_sum(dy, {axis}, true), n.result_type().dtype));
}

void log_softmax_backward(NodeContext& n) {
  const int64_t axis = checked_axis(n, 2);
  const Value y = n.value(1), dy = cast(n.value(0), y.dtype());
  n.give(cast(dy - exp(y) * reduce_sum(dy, {axis}, true), n.result_type().dtype));
}

constexpr OpRow kSoftmaxOps[] = {
    {"_log_softmax.default", of_rows<log_softmax>},
    {"_log_softmax_backward_data.default", log_softmax_backward},
    {"_softmax.default", of_rows<softmax>},
    {"_softmax_backward_data.default", softmax_backward},
};

}  // namespace

std::span<const OpRow> softmax_ops() { return kSoftmaxOps; }

}  // namespace ridge::aten
