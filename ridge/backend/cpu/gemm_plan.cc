#include "ridge/backend/cpu/gemm_plan.h"

#include "ridge/base/error.h"

namespace ridge::cpu {
namespace {

// Measured on Zen 4; not critical. The rows that a strip meets stay in the second-level cache
// together with two strips and the tiles of C.
constexpr int64_t kBlockBytes = 192 * kGemmDepth * 4;
constexpr int64_t kMostRows = 2048;
constexpr int64_t kMostScratchColumns = 2048;
constexpr int64_t kTasks = 16;
constexpr int64_t kFewestRowsOfTask = 64;  // fewer would not repay packing a strip for them
// Multiply-adds below which barriers and a shared workspace cost more than packing twice.
constexpr double kLocalWork = 0x1p20;
constexpr double kLocalWorkInBatch = 0x1p24;
constexpr double kLocalWorkOfTask = 0x1p18;
constexpr int64_t kManyItems = 4;

void check_shape(const GemmShape& s) {
  const int64_t row_of_a = s.transpose_a ? s.m : s.k;
  const int64_t row_of_b = s.transpose_b ? s.k : s.n;
  check_internal(
      s.m >= 1 && s.n >= 1 && s.k >= 1 && s.lda >= row_of_a && s.ldb >= row_of_b && s.ldc >= s.n,
      "[gemm] bad shape: m {} n {} k {}{}{} lda {} ldb {} ldc {}",
      s.m,
      s.n,
      s.k,
      s.transpose_a ? " transpose_a" : "",
      s.transpose_b ? " transpose_b" : "",
      s.lda,
      s.ldb,
      s.ldc);
}

void cut_locally(GemmPlan& plan, double work, int64_t batch_count, int64_t element) {
  plan.block_rows = kGemmLocalBytes / (kGemmDepth * element);
  const double tasks = batch_count > kManyItems ? 1 : work / kLocalWorkOfTask;
  plan.column_groups =
      std::clamp<int64_t>(static_cast<int64_t>(tasks), 1, ceil_div(plan.n, kGemmColumns));
}

void cut_shared(GemmPlan& plan, bool needs_scratch, int64_t element) {
  plan.block_rows = kBlockBytes / (kGemmDepth * element);
  plan.super_m = ceil_div(plan.m, ceil_div(plan.m, kMostRows));
  plan.super_n = needs_scratch ? std::min(plan.n, kMostScratchColumns) : plan.n;
  const int64_t strips = ceil_div(plan.super_n, plan.strip_columns);
  plan.column_groups = std::min(strips, kTasks);
  plan.row_groups = std::clamp<int64_t>(
      kTasks / 2 / plan.column_groups, 1, ceil_div(plan.super_m, kFewestRowsOfTask));
  plan.packed_elements = round_up(plan.super_m * plan.depth, 16);
  plan.scratch_elements = needs_scratch ? plan.super_m * plan.super_n : 0;
}

}  // namespace

GemmPlan make_gemm_plan(const GemmShape& shape, DType dtype, int64_t batch_count) {
  check_shape(shape);
  const int64_t element = dtype == DType::kF64 ? 8 : 4;  // of the accumulator
  GemmPlan plan{};
  plan.swapped = shape.n < 16 && shape.m > shape.n;
  plan.m = plan.swapped ? shape.n : shape.m;
  plan.n = plan.swapped ? shape.m : shape.n;
  plan.k = shape.k;
  // Chains of equal length: 385 steps are 200 and 185, not 384 and 1.
  const int64_t chains = ceil_div(plan.k, kGemmDepth);
  plan.depth = std::min(plan.k, round_up(ceil_div(plan.k, chains), 8));
  plan.strip_columns = kGemmStripBytes / (kGemmDepth * element);

  const double work =
      static_cast<double>(plan.m) * static_cast<double>(plan.n) * static_cast<double>(plan.k);
  const bool is_16_bit = size_of(dtype) == 2;
  const bool several_chains_of_16_bit = is_16_bit && plan.k > plan.depth;
  plan.local = !several_chains_of_16_bit &&
               work <= (batch_count > kManyItems ? kLocalWorkInBatch : kLocalWork);
  if (plan.local)
    cut_locally(plan, work, batch_count, element);
  else
    cut_shared(plan, is_16_bit, element);
  return plan;
}

}  // namespace ridge::cpu
