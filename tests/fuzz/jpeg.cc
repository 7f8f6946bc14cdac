// JPEG bytes: whatever opens is decoded whole, in part and reduced, or refused clearly; a part has
// the pixels of the whole.
#include "ridge/io/jpeg.h"

#include <cstdlib>
#include <cstring>

#include "ridge/base/error.h"

namespace {

constexpr int64_t kMaxPixels = int64_t{1} << 20;

std::vector<uint8_t> decode(ridge::JpegDecoder& decoder,
                            std::span<const std::byte> file,
                            const ridge::PictureBox& box,
                            int reduction) {
  decoder.open(file, kMaxPixels);
  const auto rows = decoder.start(box, reduction);
  std::vector<uint8_t> pixels;
  for (int64_t y = 0; y < rows.box.height; ++y) {
    const uint8_t* row = decoder.next_row();
    pixels.insert(pixels.end(), row, row + 3 * rows.box.width);
  }
  return pixels;
}

void compare(const std::vector<uint8_t>& whole,
             const std::vector<uint8_t>& part,
             const ridge::PictureSize& size,
             const ridge::PictureBox& box) {
  for (int64_t y = 0; y < box.height; ++y)
    if (std::memcmp(part.data() + 3 * y * box.width,
                    whole.data() + 3 * ((box.y + y) * size.width + box.x),
                    static_cast<size_t>(3 * box.width)) != 0)
      std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // One for all inputs: an error must leave it usable.
  static ridge::JpegDecoder decoder;
  const auto file = std::as_bytes(std::span(data, size));
  try {
    const ridge::PictureSize picture = decoder.open(file, kMaxPixels);
    ridge::PictureBox box{.x = picture.width / 3, .y = picture.height / 3};
    box.width = (picture.width - box.x + 1) / 2;
    box.height = (picture.height - box.y + 1) / 2;
    const auto whole = decode(decoder, file, {0, 0, picture.width, picture.height}, 1);
    compare(whole, decode(decoder, file, box, 1), picture, box);
    decode(decoder, file, box, 1 << (size % 4));
  } catch (const ridge::UserError&) {
    // A clear refusal is the other right answer.
  }
  return 0;
}
