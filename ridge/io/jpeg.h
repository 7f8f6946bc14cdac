// JPEG files through libjpeg-turbo: rows of a part of a picture, and writing whole ones.
#pragma once

#include <memory>
#include <vector>

#include "ridge/io/picture.h"

namespace ridge {

/// True when `file` begins as a JPEG does.
bool is_jpeg(std::span<const std::byte> file);

/// Baseline and progressive, grey, YCbCr, RGB, CMYK and YCCK (taken as Adobe writes them) to RGB;
/// the orientation tag is ignored. Rows above and columns beside the box are not transformed,
/// rows below it not even read; yet pixels are those of a whole decode. libjpeg allocates for
/// each picture, the decoder itself for the first only.
class JpegDecoder : public PictureDecoder {
 public:
  JpegDecoder();
  ~JpegDecoder() override;
  PictureSize open(std::span<const std::byte> file, int64_t max_pixels) override;
  Rows start(const PictureBox& box, int reduction) override;
  const uint8_t* next_row() override;

  /// Bytes that it holds between pictures beside libjpeg's own.
  static int64_t buffer_bytes();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

struct JpegEncoding {
  int quality = 90;       ///< 1 to 100
  int channels = 3;       ///< 1 grey, 3 RGB, 4 CMYK (inverted, as Adobe writes it)
  bool subsample = true;  ///< Chroma at half width and height, where there is chroma.
  bool progressive = false;
};

/// The bytes of a JPEG of `pixels`: rows of `size.width * channels` bytes.
std::vector<std::byte> encode_jpeg(std::span<const uint8_t> pixels,
                                   const PictureSize& size,
                                   const JpegEncoding& encoding = {});

}  // namespace ridge
