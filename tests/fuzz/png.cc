// PNG bytes: whatever opens is decoded whole and in part, or refused clearly; a part has the pixels
// of the whole.
#include "ridge/io/png.h"

#include <cstdlib>
#include <cstring>

#include "ridge/base/error.h"

namespace {

constexpr int64_t kMaxPixels = int64_t{1} << 20;

std::vector<uint8_t> decode(ridge::PngDecoder& decoder,
                            std::span<const std::byte> file,
                            const ridge::PictureBox& box) {
  decoder.open(file, kMaxPixels);
  decoder.start(box, 1);
  std::vector<uint8_t> pixels;
  for (int64_t y = 0; y < box.height; ++y) {
    const uint8_t* row = decoder.next_row();
    pixels.insert(pixels.end(), row, row + 3 * box.width);
  }
  return pixels;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static ridge::PngDecoder decoder;
  const auto file = std::as_bytes(std::span(data, size));
  try {
    const ridge::PictureSize picture = decoder.open(file, kMaxPixels);
    const auto whole = decode(decoder, file, {0, 0, picture.width, picture.height});
    ridge::PictureBox box{.x = picture.width / 3, .y = picture.height / 3};
    box.width = (picture.width - box.x + 1) / 2;
    box.height = (picture.height - box.y + 1) / 2;
    const auto part = decode(decoder, file, box);
    for (int64_t y = 0; y < box.height; ++y)
      if (std::memcmp(part.data() + 3 * y * box.width,
                      whole.data() + 3 * ((box.y + y) * picture.width + box.x),
                      static_cast<size_t>(3 * box.width)) != 0)
        std::abort();
  } catch (const ridge::UserError&) {
    // A clear refusal is the other right answer.
  }
  return 0;
}
