// A decoded picture in memory, and the decoder that reads rows from it.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "ridge/io/picture.h"

namespace ridge::data {

/// Pixels of one picture at some of the reductions 1, 2, 4 and 8, as a decoder of the file gives
/// them.
struct StoredPicture {
  struct Level {
    const uint8_t* pixels = nullptr;  ///< Rows of R, G, B bytes; null: not kept.
    int64_t width = 0, height = 0;
  };
  static constexpr int kLevels = 4;

  PictureSize size;
  bool reduces = true;  ///< Else the format has no reduced pictures, and level 0 is all there is.
  std::array<Level, kLevels> levels{};  ///< Level i has the reduction 1 << i.

  /// The level that stands for `reduction` (1, 2, 4 or 8).
  int level_of(int reduction) const;
};

/// Gives the rows that a decoder of the picture's file would give.
class StoredPictureDecoder : public PictureDecoder {
 public:
  /// `picture` must stay until the last row.
  PictureSize open(const StoredPicture& picture);
  /// InternalError: files are for the other decoders.
  PictureSize open(std::span<const std::byte> file, int64_t max_pixels) override;
  /// InternalError for a reduction that is not kept.
  Rows start(const PictureBox& box, int reduction) override;
  const uint8_t* next_row() override;

 private:
  const StoredPicture* picture_ = nullptr;
  const uint8_t* row_ = nullptr;
  int64_t row_bytes_ = 0;
};

/// The rows that cover `box` of a picture of `width` x `height` pixels once it is reduced.
PictureBox reduced_box(const PictureBox& box, int reduction, int64_t width, int64_t height);

}  // namespace ridge::data
