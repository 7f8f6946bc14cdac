// Tensors that follow from their arguments alone.
#include "ridge/graph/ops/source.h"

#include "ridge/graph/ops/elementwise.h"
#include "ridge/import/aten/node_context.h"
#include "ridge/import/aten/op_table.h"

namespace ridge::aten {
namespace {

void filled(NodeContext& n, double value) {
  const TensorType& type = n.result_type();
  if (type.dtype == DType::kBool) value = value != 0 ? 1.0 : 0.0;
  n.give(constant(n.graph(), type, value));
}

template <size_t kArgument>
void full(NodeContext& n) {
  filled(n, n.number_at(kArgument));
}

// Nobody may rely on what an empty tensor holds.
template <int kValue>
void all(NodeContext& n) {
  filled(n, kValue);
}

// arange(start, end, step)
void arange(NodeContext& n) {
  const TensorType& type = n.result_type();
  const double start = n.number_at(0), step = n.has(2) ? n.number_at(2) : 1.0;
  // torch computes floats in f64 and integers in i64, and rounds once.
  const TensorType wide{is_float(type.dtype) ? DType::kF64 : DType::kI64, type.shape};
  const Value counted = iota(n.graph(), wide, 0);
  n.give(cast(counted * step + start, type.dtype));
}

constexpr OpRow kSourceOps[] = {
    {"arange.start_step", arange},
    {"empty.memory_format", all<0>},
    {"empty_like.default", all<0>},
    {"empty_permuted.default", all<0>},
    {"full.default", full<1>},
    {"full_like.default", full<1>},
    {"new_empty.default", all<0>},
    {"new_empty_strided.default", all<0>},
    {"new_full.default", full<2>},
    {"new_ones.default", all<1>},
    {"new_zeros.default", all<0>},
    {"ones.default", all<1>},
    {"ones_like.default", all<1>},
    {"scalar_tensor.default", full<0>},
    {"zeros.default", all<0>},
    {"zeros_like.default", all<0>},
};

}  // namespace

std::span<const OpRow> source_ops() { return kSourceOps; }

}  // namespace ridge::aten
