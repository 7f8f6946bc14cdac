// Matrix products.
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/import/aten/node_context.h"
#include "ridge/import/aten/op_table.h"

namespace ridge::aten {
namespace {

void product(NodeContext& n) {
  check(is_float(n.result_type().dtype), "it is of {}", name_of(n.result_type().dtype));
  n.give(matmul(n.value(0), n.value(1)));
}

// beta self + alpha (a b)
void added_product(NodeContext& n) {
  check(is_float(n.result_type().dtype), "it is of {}", name_of(n.result_type().dtype));
  const double beta = n.has(3) ? n.number_at(3) : 1.0, alpha = n.has(4) ? n.number_at(4) : 1.0;
  Value y = matmul(n.value(1), n.value(2));
  if (alpha != 1.0) y = y * alpha;
  // Without it, what self holds does not count: it may be NaN.
  if (beta != 0.0) y = y + (beta == 1.0 ? n.value(0) : n.value(0) * beta);
  n.give(y);
}

constexpr OpRow kProductOps[] = {
    {"addmm.default", added_product},
    {"baddbmm.default", added_product},
    {"bmm.default", product},
    {"mm.default", product},
};

}  // namespace

std::span<const OpRow> product_ops() { return kProductOps; }

}  // namespace ridge::aten
