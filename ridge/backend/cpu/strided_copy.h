// Copies between strided layouts: what transpose, broadcast, slice, pad and concat come down to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ridge/base/type.h"

namespace ridge::cpu {

/// One axis of a copy: its length and the distance of neighbours, in bytes, on either side.
struct CopyAxis {
  int64_t size = 1;
  int64_t from = 0;  ///< 0 repeats the source.
  int64_t to = 0;
};

/// A copy of elements of 1, 2, 4 or 8 bytes, planned once from its axes (outermost first; the
/// destination's strides should fall). Axes that are contiguous on both sides are merged; what is
/// left runs as tiles of runs, fills, transposes or single elements, in parallel over tiles.
class StridedCopy {
 public:
  StridedCopy(std::vector<CopyAxis> axes, size_t element_bytes);

  /// Source and destination must not overlap. Allocates nothing.
  void run(const void* from, void* to) const;

 private:
  enum class Kind : uint8_t { kRuns, kFill, kTranspose, kElements };
  void choose_kind();
  void join_lines();
  void choose_tiles();
  void run_tile(const char* from, char* to, int64_t row, int64_t col) const;

  std::vector<CopyAxis> outer_;
  CopyAxis row_, col_;  ///< The two axes of a tile.
  /// A transposition may have the rows, or the columns, of two axes: this is how far each lies from
  /// the first, in the destination and in the source.
  std::vector<int64_t> to_rows_, from_cols_;
  int64_t element_ = 1;
  Kind kind_ = Kind::kRuns;
  int64_t tile_rows_ = 1, tile_cols_ = 1;
  int64_t tiles_ = 1, grain_ = 1;
};

/// Distance in bytes of neighbours along each axis of a row-major tensor.
std::vector<int64_t> byte_strides(const TensorType& type);

/// A copy of `elements` contiguous elements.
StridedCopy plain_copy(int64_t elements, size_t element_bytes);

/// Writes one element `elements` times.
StridedCopy plain_fill(int64_t elements, size_t element_bytes);

}  // namespace ridge::cpu
