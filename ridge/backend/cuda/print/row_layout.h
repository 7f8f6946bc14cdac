// How a kernel over rows is cut: rows and threads of a block, and what lies in its shared memory.
#pragma once

#include <map>
#include <string_view>
#include <vector>

#include "ridge/backend/cuda/print/kernel_text.h"
#include "ridge/backend/cuda/print/row_column_sums.h"
#include "ridge/backend/cuda/print/scalar_text.h"

namespace ridge::cuda {

/// Inputs, by number, of whose rows so many elements are kept in shared memory.
using KeptRows = std::map<size_t, int64_t>;

/// Whether a node is found by going over the elements of a row.
bool ends_row_pass(const FusedBody& body, const Node& node);

class RowLayout {
 public:
  /// Decides whether `sums` are kept in registers. Refused: a block has no room for them at all.
  RowLayout(const FusedBody& body,
            Functions functions,
            const DeviceLimits& limits,
            RowColumnSums& sums,
            const KeptRows& kept);

  struct Kept {
    int64_t elements, at;  ///< `at` is in bytes of shared memory.
  };

  const int64_t rows, columns;
  const bool is_long;           ///< A row is more than a piece.
  const bool is_aligned;        ///< Packs of four begin where rows do.
  int64_t passes_ended = 0;     ///< Passes that a reduction of the row or a pick ends.
  bool is_spread = false;       ///< All threads go over a long row side by side.
  bool is_held = false;         ///< A warp holds its row in registers.
  int64_t block_rows = 1;       ///< Rows that a block takes at a time.
  std::map<size_t, Kept> kept;  ///< Inputs, by number.
  int64_t shared_bytes = 0;     ///< Dynamic, of a block.

  /// Groups of sixteen threads that share a long row.
  int64_t pieces() const { return is_spread ? threads() / kGroup : ceil_div(columns, kPiece); }
  int64_t threads() const;
  /// The type that counts elements of all rows.
  std::string_view index_type() const { return index_type_of(rows * columns); }
  bool fits_twice(int64_t bytes) const { return bytes <= limits_.shared_of_blocks(2); }
  /// The inputs that are worth keeping as far as they have room, by how many passes read each.
  KeptRows worth_keeping(const std::map<size_t, int>& passes_reading) const;

 private:
  int64_t most_shared() const;
  int64_t kept_bytes(size_t input, int64_t elements) const;
  int64_t spread_threads() const;

  const DeviceLimits& limits_;
  std::vector<int64_t> element_bytes_;  ///< Inputs, by number.
  int64_t sums_bytes_ = 0;
};

}  // namespace ridge::cuda
