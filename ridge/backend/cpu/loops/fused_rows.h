// Fused bodies over rows: passes over the elements of each row, which stays in the cache, with
// loops over the values of the rows in between.
//
// A body is cut into passes at its reductions. Sums take the order of the plain ops, so the bits
// are theirs. Short rows go through one piece of machine code for all passes (fused_rows_code.h);
// long rows, and bodies that pick an element of each row, take one call for each pass.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "ridge/backend/backend.h"
#include "ridge/backend/cpu/fill_broadcast.h"
#include "ridge/backend/cpu/loop.h"
#include "ridge/backend/cpu/staged_reduction.h"
#include "ridge/graph/ops/fused.h"

namespace ridge::cpu {

using MakeLoop = std::unique_ptr<LoopKernel> (*)(const Loop&);

/// Where a loop over a row, or over the values of some rows, reads or writes.
struct RowPlace {
  enum Kind : uint8_t {
    kInput,     ///< The row of an input of the node.
    kOutput,    ///< The row of an output.
    kMapped,    ///< A broadcast input.
    kKept,      ///< A row in a buffer.
    kValue,     ///< The value of the row.
    kRowInput,  ///< The row's element of an input.
    kRowOutput,
    kRowTotal,  ///< The row's element in the workspace, to be reduced at the end.
    kScalar,    ///< An input of one element.
    kMark,      ///< 0, and 1 at the marked column.
  };
  Kind kind = kInput;
  size_t index = 0;
  size_t size = 0;  ///< Of an element.
  std::optional<BroadcastMap> map = {};
  bool operator==(const RowPlace& other) const {
    return kind == other.kind && index == other.index && kind != kMapped;
  }
};

/// Inputs, or results, of one loop.
inline constexpr size_t kMostRowPlaces = 128;

/// A loop, and where it reads and writes.
struct RowLoop {
  Loop loop;
  std::vector<RowPlace> inputs, results;
  std::unique_ptr<LoopKernel> kernel;
};

/// A row's element at an index, as a value of the row.
struct RowPick {
  size_t input = 0;
  size_t size = 0;
  RowPlace index;
  bool is_i64 = false;
  size_t value = 0;
  int64_t limit = 0;  ///< An index is below it.
  Shape shape;        ///< The indices have it.
};

struct RowPass {
  RowLoop elements;
  std::vector<RowPick> picks;
};

/// A sum over all rows.
struct ColumnSum {
  RowPlace rows;  ///< kInput, kOutput or kKept.
  int dtype = 0;
  size_t output = 0;
  StagedReduction reduction;
  size_t workspace = 0;
};

/// A reduction of the values of all rows.
struct RowTotal {
  size_t output = 0;
  size_t values = 0;  ///< Where they lie in the workspace.
  StagedReduction reduction;
  size_t workspace = 0;
};

/// What a body is compiled to.
struct RowPlan {
  int64_t rows = 0, columns = 0;
  std::vector<RowLoop> values;  ///< Before each pass, and after the last.
  std::vector<RowPass> passes;
  std::vector<size_t> kept;  ///< Size of an element of each buffer.
  size_t value_count = 0;
  std::optional<RowPlace> mark;  ///< Which column is marked.
  bool mark_is_i64 = false;
  std::vector<std::array<std::byte, sizeof(double)>> ones;  ///< What a mark is, by RowPlace::index.
  std::vector<ColumnSum> sums;
  std::vector<RowTotal> totals;
  size_t workspace_bytes = 0;
};

/// The plan of a body with rows; nothing where a loop has no kernel.
std::optional<RowPlan> plan_rows(const FusedBody& body, MakeLoop make_loop);

class RowCode;

class RowProgram {
 public:
  /// `code`: for all that is done to a row; null where there is none, and loops run one by one.
  explicit RowProgram(RowPlan plan, std::unique_ptr<const RowCode> code = nullptr);
  ~RowProgram();
  /// False where a batch of rows takes too much room.
  bool is_complete() const { return scratch_bytes() <= kMostScratch; }
  size_t workspace_bytes() const { return plan_.workspace_bytes; }
  void run(const KernelArgs& args) const;

  /// Of one thread, on its stack.
  static constexpr size_t kMostScratch = 2 << 20;

 private:
  // Rows on their way through the passes.
  struct Batch {
    const KernelArgs& args;
    std::byte* scratch;
    int64_t first, count;
  };

  size_t scratch_bytes() const { return values_bytes_ + kept_bytes_ + partial_bytes_; }
  void run_rows(const KernelArgs& args, std::byte* scratch, int64_t begin, int64_t end) const;
  void run_code(const KernelArgs& args, std::byte* scratch, int64_t begin, int64_t end) const;
  void run_values(const RowLoop& loop, const Batch& batch) const;
  void run_pass(const RowPass& pass, const Batch& batch) const;
  void run_marked(const RowLoop& loop, const Batch& batch, int64_t row) const;
  void run_row(const RowLoop& loop, const void** inputs, void** results, std::byte* partial) const;
  void pick(const RowPick& pick, const Batch& batch, int64_t row) const;
  void add_to_sums(const Batch& batch, RowPlace::Kind kind) const;
  void* partial(const ColumnSum& sum, const KernelArgs& args, int64_t row) const;
  std::byte* address(const RowPlace& place, const Batch& batch, int64_t row) const;
  int64_t column_of(const RowPlace& place, bool is_i64, const Batch& batch, int64_t row) const;

  RowPlan plan_;
  std::unique_ptr<const RowCode> code_;
  int64_t batch_ = 1;      // rows that go through the passes together
  int64_t task_rows_ = 1;  // rows that a thread takes at a time
  size_t values_bytes_ = 0, kept_bytes_ = 0, partial_bytes_ = 0;
  std::vector<size_t> kept_offsets_;
  std::unique_ptr<LoopKernel> combine_[2][2];  // of partial results: f64, f32; sum, max
};

}  // namespace ridge::cpu
