#include "ridge/backend/cpu/gemm_plan.h"

#include "ridge/base/error.h"

namespace ridge::cpu {
namespace {

// Measured on Zen 4; not critical. The rows that a strip meets stay in the second-level cache
// together with two strips and the tiles of C.
constexpr int64_t kBlockBytes = 192 * kGemmDepth * 4;
constexpr int64_t kMostRows = 2048;
constexpr int64_t kMostScratchColumns = 2048;
constexpr int64_t kTasks = 8;
// A task with fewer would not repay packing a strip for them.
constexpr int64_t kFewestRowsOfTask = 128;
constexpr int64_t kFewestColumnsOfTask = 64;

// Packing repays when many tiles use a panel; sooner when the rows of an operand lie so that they
// evict one another from the caches: a multiple of kWorstStride bytes apart.
constexpr int64_t kFewColumns = 256;
constexpr int64_t kVeryFewColumns = 64;
constexpr int64_t kFewRows = 64;
constexpr int64_t kVeryFewRows = 32;
constexpr int64_t kWorstStride = 4096;
constexpr int64_t kDirectRows = 256;  // of one task

// Multiply-adds below which barriers and a shared workspace cost more than packing twice.
constexpr double kLocalWork = 0x1p20;
constexpr double kLocalWorkInBatch = 0x1p24;
constexpr double kLocalWorkOfTask = 0x1p19;
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
  const int64_t most_rows = plan.direct_a ? kDirectRows : kGemmLocalBytes / (kGemmDepth * element);
  const double worth = std::min(work / kLocalWorkOfTask, static_cast<double>(kTasks));
  const int64_t tasks = std::min(static_cast<int64_t>(worth), ceil_div(kTasks, batch_count));
  plan.column_groups = std::clamp<int64_t>(tasks, 1, ceil_div(plan.n, kFewestColumnsOfTask));
  const int64_t wanted = std::min(tasks / plan.column_groups, plan.m / kFewestRowsOfTask);
  const int64_t blocks = std::max(ceil_div(plan.m, most_rows), wanted);
  plan.block_rows = ceil_div(plan.m, blocks);
}

void cut_shared(GemmPlan& plan, bool needs_scratch, int64_t element) {
  plan.block_rows = kBlockBytes / (kGemmDepth * element);
  plan.super_m = ceil_div(plan.m, ceil_div(plan.m, kMostRows));
  plan.super_n = needs_scratch ? std::min(plan.n, kMostScratchColumns) : plan.n;
  const int64_t strips = ceil_div(plan.super_n, plan.strip_columns);
  plan.column_groups = std::min(strips, 2 * kTasks);
  plan.row_groups = std::clamp<int64_t>(
      kTasks / plan.column_groups, 1, ceil_div(plan.super_m, kFewestRowsOfTask));
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
  const int64_t ld_a = plan.swapped ? shape.ldb : shape.lda;
  const int64_t ld_b = plan.swapped ? shape.lda : shape.ldb;
  const bool worst_a = ld_a * element % kWorstStride == 0;
  const bool worst_b = ld_b * element % kWorstStride == 0;
  plan.direct_a = !is_16_bit && plan.n <= (worst_a ? kVeryFewColumns : kFewColumns);
  plan.direct_b = !is_16_bit && plan.m <= (worst_b ? kVeryFewRows : kFewRows);
  const double little = batch_count > kManyItems ? kLocalWorkInBatch : kLocalWork;
  plan.local = !several_chains_of_16_bit && (plan.direct_a || work <= little);
  if (plan.local)
    cut_locally(plan, work, batch_count, element);
  else
    cut_shared(plan, is_16_bit, element);
  return plan;
}

}  // namespace ridge::cpu
