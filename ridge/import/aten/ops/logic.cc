// Comparisons and logic.
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/import/aten/node_context.h"
#include "ridge/import/aten/op_table.h"
#include "ridge/import/builders/functions.h"

namespace ridge::aten {
namespace {

using Values = std::vector<Value>;

// Bools are compared as the numbers 0 and 1.
template <Value (*kApply)(Value, Value)>
void compared(NodeContext& n) {
  DType dtype = promoted(n, {0, 1});
  if (dtype == DType::kBool) dtype = DType::kU8;
  each_element(n, {0, 1}, dtype, [](const Values& v) { return kApply(v[0], v[1]); });
}

template <Value (*kApply)(Value, Value)>
void logical(NodeContext& n) {
  each_element(n, {0, 1}, DType::kBool, [](const Values& v) {
    const Shape shape = broadcast_shape(v[0].shape(), v[1].shape(), "logic");
    return kApply(broadcast(v[0], shape), broadcast(v[1], shape));
  });
}

template <Value (*kApply)(Value, Value)>
void bitwise(NodeContext& n) {
  check(n.result_type().dtype == DType::kBool, "bits of integers are not supported");
  logical<kApply>(n);
}

void logical_not_of(NodeContext& n) {
  each_element(n, {0}, DType::kBool, [](const Values& v) { return logical_not(v[0]); });
}

void bitwise_not(NodeContext& n) {
  const DType dtype = n.result_type().dtype;
  if (dtype == DType::kBool) return logical_not_of(n);
  each_element(n, {0}, dtype, [](const Values& v) { return neg(v[0]) - 1.0; });
}

constexpr OpRow kLogicOps[] = {
    {"eq.Tensor", compared<eq>},
    {"eq.Scalar", compared<eq>},
    {"ne.Tensor", compared<ne>},
    {"ne.Scalar", compared<ne>},
    {"lt.Tensor", compared<lt>},
    {"lt.Scalar", compared<lt>},
    {"le.Tensor", compared<le>},
    {"le.Scalar", compared<le>},
    {"gt.Tensor", compared<gt>},
    {"gt.Scalar", compared<gt>},
    {"ge.Tensor", compared<ge>},
    {"ge.Scalar", compared<ge>},
    {"logical_and.default", logical<logical_and>},
    {"logical_or.default", logical<logical_or>},
    {"logical_xor.default", logical<exclusive_or>},
    {"logical_not.default", logical_not_of},
    {"bitwise_and.Tensor", bitwise<logical_and>},
    {"bitwise_or.Tensor", bitwise<logical_or>},
    {"bitwise_xor.Tensor", bitwise<exclusive_or>},
    {"bitwise_not.default", bitwise_not},
};

}  // namespace

std::span<const OpRow> logic_ops() { return kLogicOps; }

}  // namespace ridge::aten
