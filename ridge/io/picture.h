// The interface of decoders of compressed pictures: RGB rows from a file in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ridge {

/// Largest width or height, in pixels; and the most pixels that a decoder accepts by itself.
inline constexpr int64_t kMaxPictureSide = 65535;
inline constexpr int64_t kMaxPicturePixels = int64_t{1} << 28;

struct PictureSize {
  int64_t width = 0, height = 0;
  bool operator==(const PictureSize&) const = default;
};

/// A rectangle of pixels; x goes right, y down.
struct PictureBox {
  int64_t x = 0, y = 0, width = 0, height = 0;
  bool operator==(const PictureBox&) const = default;
};

/// Decodes a file in memory row by row, one file after the other. Every error is a UserError that
/// says what is wrong with the bytes; the caller knows the file's name. After an error open()
/// may be called again. For one thread at a time.
class PictureDecoder {
 public:
  virtual ~PictureDecoder() = default;

  /// Reads the header of `file`, whose bytes must stay until the last row, and refuses more than
  /// `max_pixels`, and a file that ends before its picture does.
  virtual PictureSize open(std::span<const std::byte> file,
                           int64_t max_pixels = kMaxPicturePixels) = 0;

  /// Starts rows that cover `box` of the opened picture (not empty, inside of it). `reduction` (1,
  /// 2, 4 or 8) asks for a picture smaller by that factor; a format that cannot ignores it.
  struct Rows {
    PictureBox box;     ///< The pixels that the rows hold, in units of the reduced picture.
    int reduction = 1;  ///< The factor in force.
  };
  virtual Rows start(const PictureBox& box, int reduction = 1) = 0;

  /// The next row: Rows::box.width pixels, interleaved R, G, B bytes; valid until the next call.
  /// At most Rows::box.height times.
  virtual const uint8_t* next_row() = 0;
};

}  // namespace ridge
