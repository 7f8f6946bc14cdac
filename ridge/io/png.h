// PNG files through libspng: rows of a part of a picture, and writing whole ones.
#pragma once

#include <memory>
#include <vector>

#include "ridge/io/picture.h"

namespace ridge {

/// True when `file` begins as a PNG does.
bool is_png(std::span<const std::byte> file);

/// Every kind of PNG to RGB with 8 bits: grey is spread, palettes are looked up, 16 bits lose the
/// lower 8, alpha is dropped. Allocates for each picture; an interlaced one is decoded whole.
class PngDecoder : public PictureDecoder {
 public:
  PngDecoder();
  ~PngDecoder() override;
  PictureSize open(std::span<const std::byte> file, int64_t max_pixels) override;
  Rows start(const PictureBox& box, int reduction) override;
  const uint8_t* next_row() override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The bytes of a PNG of `pixels`: rows of `size.width * channels` bytes, with 1 (grey), 3 (RGB)
/// or 4 (RGB and alpha) channels.
std::vector<std::byte> encode_png(std::span<const uint8_t> pixels,
                                  const PictureSize& size,
                                  int channels = 3);

}  // namespace ridge
