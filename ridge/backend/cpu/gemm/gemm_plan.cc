#include "ridge/backend/cpu/gemm/gemm_plan.h"

#include "ridge/base/error.h"

namespace ridge::cpu {
namespace {

// Measured on Zen 4; not critical.

// Packing repays when many tiles use a panel; sooner when rows lie so that they evict one another
// from the caches (a multiple of kWorstStride bytes apart), or when a panel uses but a part of each
// cache line (op(A) transposed), unless there are few lines.
constexpr int64_t kFewColumns = 512;
constexpr int64_t kFewColumnsTransposed = 256;
constexpr int64_t kFewColumnsWorst = 256;
constexpr int64_t kFewColumnsWorstTransposed = 64;
constexpr int64_t kFewLines = 128;
constexpr int64_t kFewRows = 64;
constexpr int64_t kFewRowsWorst = 32;
constexpr int64_t kWorstStride = 4096;
// Rows so far apart that are read side by side: the ways of a first-level cache, less one.
constexpr int64_t kFewStreams = 7;

// Time to pack an element of op(A) or op(B), or to fetch one that is not packed, in terms of
// multiplying it with 16 others.
constexpr double kPackRow = 0.8;
constexpr double kPackColumn = 0.5;
constexpr double kFetch = 0.2;
// How much the idle time of threads counts against time spent packing twice.
constexpr double kIdle = 0.5;
// A task has at least this many rows and columns, if its rows or its columns are cut at all.
constexpr int64_t kFewestRows = 64;
constexpr int64_t kFewestColumns = 512;
constexpr int64_t kMostTasks = 16;  // more only where there are many rows
// Bytes of a block of C over an op(B) that lies packed, bytes of such an op(B) that the
// second-level cache holds, and the fewest rows that are multiplied by one: two tiles.
constexpr int64_t kBlockBytes = 96 * 1024;
constexpr int64_t kNearBytes = 1024 * 1024;
constexpr int64_t kFewestPackedRows = 28;
constexpr int64_t kBlocksOfThread = 4;
// Most rows that are multiplied by an op(B) that is larger, and the share of a product for which
// its last task is waited for, in terms of that task.
constexpr int64_t kMostFarRows = 256;
constexpr double kWait = 0.1;
// Multiply-adds that a task should have, and of products worth a search for the best cut.
constexpr double kWorkOfTask = 0x1p19;
constexpr double kWorkOfSearch = 0x1p20;

// A thin product has at least so much of op(B), and so many columns.
constexpr int64_t kFewestThinBytes = 512 * 1024;
constexpr int64_t kFewestThinColumns = 128;

constexpr int64_t kCachedBytes = 256 * 1024;  // bytes of op(B); less need not be fetched
// Operands of one item of a batch may take at most this many bytes; more would drive the operands
// of the item before out of the cache.
constexpr int64_t kItemBytes = 256 * 1024;

double count(int64_t x) { return static_cast<double>(x); }

// Time of a cut beyond what the multiply-adds take, in terms of that: packing, and idle threads.
double overhead(const GemmPlan& plan, int64_t threads) {
  const double rows = count(plan.m) / count(plan.row_blocks);
  const double columns = count(plan.n) / count(plan.column_groups);
  double sum = 16 * (plan.direct_a ? kFetch : kPackRow) / columns +
               16 * (plan.direct_b ? kFetch : kPackColumn) / rows;
  const int64_t strips = ceil_div(plan.n, plan.strip_columns);
  const double largest_task =
      count(ceil_div(strips, plan.column_groups)) / count(strips * plan.row_blocks);
  const double last_end = count(ceil_div(plan.tasks(), threads)) * largest_task;
  sum += kIdle * (last_end * count(threads) - 1);
  return sum;
}

void cut_into_tasks(GemmPlan& plan, int64_t batch_count, int64_t element, int64_t threads) {
  const int64_t most_rows = kGemmBlockBytes / (kGemmDepth * element);
  const int64_t strips = ceil_div(plan.n, plan.strip_columns);
  const double work = count(plan.m) * count(plan.n) * count(plan.k);
  plan.row_blocks = ceil_div(plan.m, most_rows);
  plan.column_groups = 1;
  if (threads == 1 || batch_count >= kMostTasks) return;
  if (work < kWorkOfSearch) {
    const int64_t most = plan.direct_a ? strips : std::max<int64_t>(1, plan.n / kFewestColumns);
    plan.column_groups = std::clamp<int64_t>(static_cast<int64_t>(work / kWorkOfTask), 1, most);
    return;
  }
  GemmPlan cut = plan;
  double least = overhead(plan, threads);
  const int64_t most_blocks = std::max(plan.row_blocks, std::min(kMostTasks, plan.m / kFewestRows));
  for (cut.row_blocks = plan.row_blocks; cut.row_blocks <= most_blocks; ++cut.row_blocks)
    for (cut.column_groups = 1; cut.column_groups <= std::min(strips, kMostTasks);
         ++cut.column_groups) {
      if (cut.column_groups > 1 && cut.tasks() > 2 * kMostTasks) break;
      const double here = overhead(cut, threads);
      if (here >= least) continue;
      least = here;
      plan.row_blocks = cut.row_blocks;
      plan.column_groups = cut.column_groups;
    }
}

bool is_thin(int64_t m, int64_t n, int64_t k, int64_t element) {
  return m <= kThinRows && n >= kFewestThinColumns && n * k * element >= kFewestThinBytes;
}

// A strip for each thread, but memory is read best in long runs.
void cut_thin(GemmPlan& plan, int64_t element, int64_t threads) {
  constexpr int64_t kUnit = 2 * kGemmColumns;
  const int64_t most = kThinBytes / (plan.m * element) / kUnit * kUnit;
  const int64_t share = round_up(ceil_div(plan.n, threads), kUnit);
  plan.strip_columns = std::clamp(share, kFewestThinColumns, most);
  plan.row_blocks = 1;
  plan.column_groups = ceil_div(plan.n, plan.strip_columns);
}

// Cuts a product by a packed op(B) that no cache near a core holds: each task reads its columns of
// that once, for as many rows as it has. Threads have several tasks, as another program may take a
// processor from one of them.
void cut_far(GemmPlan& plan, int64_t threads) {
  const int64_t strips = ceil_div(plan.n, plan.strip_columns);
  double least = 0;
  for (int64_t blocks = ceil_div(plan.m, kMostFarRows); blocks <= plan.m / kFewestPackedRows;
       ++blocks)
    for (int64_t groups = 1; groups <= std::min(strips, kBlocksOfThread * threads); ++groups) {
      if (blocks * groups % threads != 0) continue;
      const double columns = count(plan.n) / count(groups), rows = count(plan.m) / count(blocks);
      const double sum = 16 * ((plan.direct_a ? kFetch : kPackRow) / columns + kFetch / rows) +
                         kWait * count(threads) / count(blocks * groups);
      if (least != 0 && sum >= least) continue;
      least = sum;
      plan.row_blocks = blocks;
      plan.column_groups = groups;
    }
}

}  // namespace

void check_gemm_shape(const GemmShape& s) {
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

GemmPlan make_gemm_plan(const GemmShape& shape, DType dtype, int64_t batch_count, int64_t threads) {
  const int64_t element = dtype == DType::kF64 ? 8 : 4;  // bytes of an element of the accumulator
  GemmPlan plan{};
  const bool is_16_bit = size_of(dtype) == 2;
  plan.products = shape.products;
  plan.pair = shape.products == GemmProducts::kPairs ? 2 : 1;
  plan.converts = is_16_bit || shape.products != GemmProducts::kOwn;
  plan.swapped = shape.m > shape.n &&
                 (shape.n < 16 || (!plan.converts && is_thin(shape.n, shape.m, shape.k, element)));
  plan.m = plan.swapped ? shape.n : shape.m;
  plan.n = plan.swapped ? shape.m : shape.n;
  plan.k = shape.k;
  // Chains of equal length: 385 steps are 200 and 185, not 384 and 1.
  const int64_t chains = ceil_div(plan.k, kGemmDepth * plan.pair);
  plan.depth = std::min(plan.k, round_up(ceil_div(plan.k, chains), 8));
  plan.strip_columns = kGemmStripBytes / (kGemmDepth * element);

  const int64_t ld_a = plan.swapped ? shape.ldb : shape.lda;
  const int64_t ld_b = plan.swapped ? shape.lda : shape.ldb;
  const bool worst_a = ld_a * element % kWorstStride == 0;
  const bool worst_b = ld_b * element % kWorstStride == 0;
  const bool a_transposed = plan.swapped ? !shape.transpose_b : shape.transpose_a;
  int64_t few_columns = kFewColumns;
  if (worst_a)
    few_columns = a_transposed ? kFewColumnsWorstTransposed : kFewColumnsWorst;
  else if (a_transposed && plan.depth > kFewLines)
    few_columns = kFewColumnsTransposed;
  plan.direct_a = !plan.converts && plan.n <= few_columns;
  plan.tallest = plan.direct_a && worst_a && !a_transposed ? kFewStreams : kGemmRows;
  plan.direct_b = !plan.converts && plan.m <= (worst_b ? kFewRowsWorst : kFewRows);
  plan.fetch = plan.n * plan.k * element > kCachedBytes;
  plan.thin = !plan.converts && is_thin(plan.m, plan.n, plan.k, element);
  if (plan.thin)
    cut_thin(plan, element, threads);
  else
    cut_into_tasks(plan, batch_count, element, threads);
  plan.fetch_items =
      batch_count > 1 && plan.tasks() == 1 && (plan.m + plan.n) * plan.k * element <= kItemBytes;
  plan.scratch_elements = is_16_bit && plan.k > plan.depth ? plan.m * plan.n : 0;
  return plan;
}

GemmPlan make_packed_gemm_plan(const GemmShape& shape,
                               DType dtype,
                               bool gathers_rows,
                               int64_t threads) {
  GemmPlan plan = make_gemm_plan(shape, dtype, 1, threads);
  const auto element = static_cast<int64_t>(size_of(dtype));
  plan.strip_columns = kGemmColumns;
  // Rows are cut before columns: the next op mostly reads them on the threads that made them.
  const bool is_near = plan.n * plan.k * element <= kNearBytes;
  plan.row_blocks = std::clamp(plan.m / kFewestPackedRows, int64_t{1}, threads);
  const int64_t strips = ceil_div(plan.n, plan.strip_columns);
  plan.column_groups = std::min(strips, ceil_div(threads, plan.row_blocks));
  if (plan.column_groups > 1) return plan;
  if (!is_near) {
    cut_far(plan, threads);
    return plan;
  }
  const int64_t row = gathers_rows ? std::max(plan.n, plan.depth) : plan.n;
  const int64_t rows = std::max(kBlockBytes / (row * element), kFewestPackedRows);
  // Several a thread, as another program may take a processor from one of them.
  const int64_t blocks = std::max(ceil_div(plan.m, rows),
                                  std::min(kBlocksOfThread * threads, plan.m / kFewestPackedRows));
  if (blocks > plan.row_blocks) plan.row_blocks = round_up(blocks, threads);
  return plan;
}

GemmPlan make_gathered_gemm_plan(const GemmShape& shape, DType dtype, int64_t threads) {
  GemmPlan plan = make_gemm_plan(shape, dtype, 1, threads);
  plan.direct_a = false;
  plan.tallest = kGemmRows;
  const int64_t most_rows = kGemmBlockBytes / (kGemmDepth * static_cast<int64_t>(size_of(dtype)));
  plan.row_blocks = round_up(ceil_div(plan.m, most_rows), threads);
  plan.row_blocks = std::min(plan.row_blocks, std::max<int64_t>(1, plan.m / kFewestPackedRows));
  plan.column_groups = plan.row_blocks >= threads ? 1
                                                  : std::min(ceil_div(plan.n, plan.strip_columns),
                                                             ceil_div(threads, plan.row_blocks));
  return plan;
}

}  // namespace ridge::cpu
