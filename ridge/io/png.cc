// PNG through libspng, which returns its errors as numbers.
#include "ridge/io/png.h"

#include <spng.h>

#include <cstdlib>
#include <cstring>

#include "ridge/base/error.h"

namespace ridge {
namespace {

// Text and colour profiles may be this large each, and all together.
constexpr size_t kMaxChunk = size_t{1} << 24;

void check_png(int error) { check(error == 0, "not a readable PNG: {}", spng_strerror(error)); }

struct FreeContext {
  void operator()(spng_ctx* context) const { spng_ctx_free(context); }
};
using Context = std::unique_ptr<spng_ctx, FreeContext>;

Context new_context(int flags) {
  Context context(spng_ctx_new(flags));
  check(context != nullptr, "out of memory for a PNG");
  return context;
}

/// Whether the chunk that ends a PNG stands in `file`.
bool has_end_chunk(std::span<const std::byte> file) {
  static constexpr uint8_t kEnd[] = {0, 0, 0, 0, 'I', 'E', 'N', 'D', 0xae, 0x42, 0x60, 0x82};
  for (size_t end = file.size(); end >= sizeof kEnd; --end)
    if (std::memcmp(file.data() + end - sizeof kEnd, kEnd, sizeof kEnd) == 0) return true;
  return false;
}

/// Deflate makes 1032 bytes of one at most.
bool fits(const spng_ihdr& header, size_t file_bytes) {
  static constexpr uint64_t kChannels[] = {1, 0, 3, 1, 2, 0, 4};
  const uint64_t bits = kChannels[header.color_type] * header.bit_depth * header.width;
  return header.height * ((bits + 7) / 8) / 1032 <= file_bytes;
}

}  // namespace

struct PngDecoder::State {
  Context context;
  spng_ihdr header{};
  std::vector<uint8_t> row;     // or all rows of an interlaced picture
  const uint8_t* at = nullptr;  // interlaced: the next row
  PictureBox box;
};

PngDecoder::PngDecoder() : state_(std::make_unique<State>()) {}
PngDecoder::~PngDecoder() = default;

bool is_png(std::span<const std::byte> file) {
  static constexpr uint8_t kStart[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
  return file.size() >= sizeof kStart && std::memcmp(file.data(), kStart, sizeof kStart) == 0;
}

PictureSize PngDecoder::open(std::span<const std::byte> file, int64_t max_pixels) {
  State& s = *state_;
  check(is_png(file), "not a readable PNG: it does not begin as one");
  check(has_end_chunk(file), "not a readable PNG: the file is truncated");
  s.context = new_context(0);
  spng_set_image_limits(s.context.get(), kMaxPictureSide, kMaxPictureSide);
  spng_set_chunk_limits(s.context.get(), kMaxChunk, kMaxChunk);
  check_png(spng_set_png_buffer(s.context.get(), file.data(), file.size()));
  check_png(spng_get_ihdr(s.context.get(), &s.header));
  const int64_t pixels = int64_t{s.header.width} * s.header.height;
  check(pixels <= max_pixels,
        "not a readable PNG: {} x {} pixels are more than {}",
        s.header.width,
        s.header.height,
        max_pixels);
  check(fits(s.header, file.size()),
        "not a readable PNG: {} x {} pixels do not fit into {} bytes",
        s.header.width,
        s.header.height,
        file.size());
  return {s.header.width, s.header.height};
}

PngDecoder::Rows PngDecoder::start(const PictureBox& box, int) {
  State& s = *state_;
  s.box = box;
  s.at = nullptr;
  const size_t row_bytes = size_t{3} * s.header.width;
  if (s.header.interlace_method != 0) {
    s.row.resize(row_bytes * s.header.height);
    check_png(spng_decode_image(s.context.get(), s.row.data(), s.row.size(), SPNG_FMT_RGB8, 0));
    s.at = s.row.data() + row_bytes * static_cast<size_t>(box.y);
    return {.box = box};
  }
  if (s.row.size() < row_bytes) s.row.resize(row_bytes);
  check_png(spng_decode_image(s.context.get(), nullptr, 0, SPNG_FMT_RGB8, SPNG_DECODE_PROGRESSIVE));
  for (int64_t y = 0; y < box.y; ++y) next_row();
  return {.box = box};
}

const uint8_t* PngDecoder::next_row() {
  State& s = *state_;
  const size_t row_bytes = size_t{3} * s.header.width;
  const uint8_t* row = s.row.data();
  if (s.at != nullptr) {
    row = s.at;
    s.at += row_bytes;
  } else {
    const int error = spng_decode_row(s.context.get(), s.row.data(), row_bytes);
    check_png(error == SPNG_EOI ? 0 : error);
  }
  return row + 3 * s.box.x;
}

std::vector<std::byte> encode_png(std::span<const uint8_t> pixels,
                                  const PictureSize& size,
                                  int channels) {
  check_internal(static_cast<int64_t>(pixels.size()) == size.width * size.height * channels,
                 "[encode_png] {} bytes are no picture of {} x {}",
                 pixels.size(),
                 size.width,
                 size.height);
  const Context context = new_context(SPNG_CTX_ENCODER);
  spng_ihdr header{};
  header.width = static_cast<uint32_t>(size.width);
  header.height = static_cast<uint32_t>(size.height);
  header.bit_depth = 8;
  header.color_type = channels == 1   ? SPNG_COLOR_TYPE_GRAYSCALE
                      : channels == 3 ? SPNG_COLOR_TYPE_TRUECOLOR
                                      : SPNG_COLOR_TYPE_TRUECOLOR_ALPHA;
  check_png(spng_set_option(context.get(), SPNG_ENCODE_TO_BUFFER, 1));
  check_png(spng_set_ihdr(context.get(), &header));
  check_png(spng_encode_image(
      context.get(), pixels.data(), pixels.size(), SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE));
  size_t count = 0;
  int error = 0;
  const std::unique_ptr<void, decltype(&std::free)> bytes(
      spng_get_png_buffer(context.get(), &count, &error), &std::free);
  check_png(error);
  const std::byte* first = static_cast<const std::byte*>(bytes.get());
  return {first, first + count};
}

}  // namespace ridge
