// JPEG through libjpeg-turbo. The library reports errors by a call that must not return; it gets a
// longjmp to the guard that every call into it runs under, and the guard throws.
#include "ridge/io/jpeg.h"

#include <jpeglib.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
// jerror.h needs what jpeglib.h declares.
#include <jerror.h>

#include "ridge/base/error.h"

namespace ridge {
namespace {

// A hostile progressive file repeats scans over a large picture; real ones have about ten.
constexpr int kMaxScans = 500;

/// The state of libjpeg's callbacks. `base` comes first: they get its address.
struct ErrorState {
  jpeg_error_mgr base;
  jmp_buf jump;
  char message[JMSG_LENGTH_MAX];
  bool damaged;
};

ErrorState& error_state(j_common_ptr info) { return *reinterpret_cast<ErrorState*>(info->err); }

[[noreturn]] void on_error(j_common_ptr info) {
  ErrorState& state = error_state(info);
  info->err->format_message(info, state.message);
  longjmp(state.jump, 1);
}

/// Warnings of data that is lost make a picture unreadable: what libjpeg fills in is not in the
/// file.
void on_message(j_common_ptr info, int level) {
  if (level >= 0) return;
  const int code = info->err->msg_code;
  if (code != JWRN_JPEG_EOF && code != JWRN_HIT_MARKER && code != JWRN_HUFF_BAD_CODE &&
      code != JWRN_MUST_RESYNC && code != JWRN_ARITH_BAD_CODE)
    return;
  ErrorState& state = error_state(info);
  if (!state.damaged) info->err->format_message(info, state.message);
  state.damaged = true;
}

void on_progress(j_common_ptr info) {
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kMaxScans) return;
  ErrorState& state = error_state(info);
  std::snprintf(state.message, sizeof state.message, "more than %d scans", kMaxScans);
  longjmp(state.jump, 1);
}

void install_errors(ErrorState& state) {
  jpeg_std_error(&state.base);
  state.base.error_exit = on_error;
  state.base.emit_message = on_message;
  state.message[0] = 0;
  state.damaged = false;
}

/// Runs `body`, in which no object with a destructor may live across a call into libjpeg.
template <typename F>
void guarded(ErrorState& state, F&& body) {
  if (setjmp(state.jump) != 0)
    throw UserError(fmt::format("not a readable JPEG: {}", state.message));
  body();
}

/// Whether an end-of-image marker stands in the `bytes` after the first scan's header.
bool has_end_marker(const uint8_t* bytes, size_t count) {
  for (size_t i = count; i-- > 1;)
    if (bytes[i] == 0xd9 && bytes[i - 1] == 0xff) return true;
  return false;
}

/// CMYK as Adobe stores it (255 - ink) to RGB, in place: 3 bytes for 4.
void cmyk_to_rgb(uint8_t* row, size_t pixels) {
  for (size_t i = 0; i < pixels; ++i) {
    const unsigned black = row[4 * i + 3];
    for (size_t c = 0; c < 3; ++c)
      row[3 * i + c] = static_cast<uint8_t>((row[4 * i + c] * black + 127) / 255);
  }
}

}  // namespace

struct JpegDecoder::State {
  ErrorState errors;
  jpeg_decompress_struct info;
  jpeg_progress_mgr progress;
  int64_t skip = 0;  // pixels to the left of the box in a row that libjpeg gives
  bool cmyk = false;
  uint8_t row[4 * (kMaxPictureSide + 1)];
};

JpegDecoder::JpegDecoder() : state_(std::make_unique<State>()) {
  install_errors(state_->errors);
  state_->info.err = &state_->errors.base;
  guarded(state_->errors, [this] { jpeg_create_decompress(&state_->info); });
  state_->progress.progress_monitor = on_progress;
  std::memset(state_->row, 0, sizeof state_->row);
}

JpegDecoder::~JpegDecoder() { jpeg_destroy_decompress(&state_->info); }

int64_t JpegDecoder::buffer_bytes() { return sizeof(State); }

bool is_jpeg(std::span<const std::byte> file) {
  static constexpr uint8_t kStart[] = {0xff, 0xd8, 0xff};
  return file.size() >= sizeof kStart && std::memcmp(file.data(), kStart, sizeof kStart) == 0;
}

PictureSize JpegDecoder::open(std::span<const std::byte> file, int64_t max_pixels) {
  State& s = *state_;
  s.errors.damaged = false;
  check(is_jpeg(file), "not a readable JPEG: it does not begin as one");
  guarded(s.errors, [&s, file] {
    // Made anew: a kept one would lend the last file's tables to a file that lacks its own.
    jpeg_destroy_decompress(&s.info);
    jpeg_create_decompress(&s.info);
    s.info.progress = &s.progress;
    jpeg_mem_src(&s.info, reinterpret_cast<const unsigned char*>(file.data()), file.size());
    jpeg_read_header(&s.info, TRUE);
  });
  const int64_t pixels = int64_t{s.info.image_width} * s.info.image_height;
  check(pixels <= max_pixels,
        "not a readable JPEG: {} x {} pixels are more than {}",
        s.info.image_width,
        s.info.image_height,
        max_pixels);
  // Huffman codes spend a bit a block at least; a block is 64 samples, subsampled 4 x 4 at most.
  const int64_t bytes = static_cast<int64_t>(file.size());
  check(s.info.arith_code || pixels / (64 * 16 * 8) <= bytes,
        "not a readable JPEG: {} x {} pixels do not fit into {} bytes",
        s.info.image_width,
        s.info.image_height,
        bytes);
  check(
      !s.errors.damaged && has_end_marker(s.info.src->next_input_byte, s.info.src->bytes_in_buffer),
      "not a readable JPEG: the file is truncated");
  return {s.info.image_width, s.info.image_height};
}

JpegDecoder::Rows JpegDecoder::start(const PictureBox& box, int reduction) {
  State& s = *state_;
  s.cmyk = s.info.jpeg_color_space == JCS_CMYK || s.info.jpeg_color_space == JCS_YCCK;
  s.info.out_color_space = s.cmyk ? JCS_CMYK : JCS_RGB;
  s.info.do_block_smoothing = FALSE;  // it guesses what a progressive file lacks
  s.info.scale_num = 1;
  s.info.scale_denom = static_cast<unsigned>(reduction);
  Rows rows{.box = box, .reduction = reduction};
  guarded(s.errors, [&s, &rows, &box, reduction] {
    jpeg_start_decompress(&s.info);
    // A reduced pixel that the box cuts belongs to the box.
    const int64_t right =
        std::min<int64_t>((box.x + box.width + reduction - 1) / reduction, s.info.output_width);
    const int64_t below =
        std::min<int64_t>((box.y + box.height + reduction - 1) / reduction, s.info.output_height);
    rows.box.x = box.x / reduction;
    rows.box.y = box.y / reduction;
    rows.box.width = right - rows.box.x;
    rows.box.height = below - rows.box.y;
    // The outermost columns of what libjpeg cuts out miss their neighbours' chroma.
    const int64_t left = std::max<int64_t>(rows.box.x - 2, 0);
    JDIMENSION first = static_cast<JDIMENSION>(left);
    JDIMENSION width =
        static_cast<JDIMENSION>(std::min<int64_t>(right + 2, s.info.output_width) - left);
    jpeg_crop_scanline(&s.info, &first, &width);
    s.skip = rows.box.x - static_cast<int64_t>(first);
    jpeg_skip_scanlines(&s.info, static_cast<JDIMENSION>(rows.box.y));
  });
  check(!s.errors.damaged, "not a readable JPEG: {}", s.errors.message);
  return rows;
}

const uint8_t* JpegDecoder::next_row() {
  State& s = *state_;
  guarded(s.errors, [&s] {
    JSAMPROW row = s.row;
    jpeg_read_scanlines(&s.info, &row, 1);
  });
  check(!s.errors.damaged, "not a readable JPEG: {}", s.errors.message);
  if (s.cmyk) cmyk_to_rgb(s.row, s.info.output_width);
  return s.row + 3 * s.skip;
}

std::vector<std::byte> encode_jpeg(std::span<const uint8_t> pixels,
                                   const PictureSize& size,
                                   const JpegEncoding& encoding) {
  check_internal(
      size.width >= 1 && size.height >= 1 && size.width <= JPEG_MAX_DIMENSION &&
          size.height <= JPEG_MAX_DIMENSION &&
          static_cast<int64_t>(pixels.size()) == size.width * size.height * encoding.channels,
      "[encode_jpeg] {} bytes are no picture of {} x {}",
      pixels.size(),
      size.width,
      size.height);
  struct Writer {
    ErrorState errors;
    jpeg_compress_struct info;
    unsigned char* bytes = nullptr;
    unsigned long count = 0;
    ~Writer() {
      jpeg_destroy_compress(&info);
      std::free(bytes);
    }
  };
  const auto writer = std::make_unique<Writer>();
  Writer& w = *writer;
  install_errors(w.errors);
  w.info.err = &w.errors.base;
  guarded(w.errors, [&w, &size, &encoding, pixels] {
    jpeg_create_compress(&w.info);
    jpeg_mem_dest(&w.info, &w.bytes, &w.count);
    w.info.image_width = static_cast<JDIMENSION>(size.width);
    w.info.image_height = static_cast<JDIMENSION>(size.height);
    w.info.input_components = encoding.channels;
    w.info.in_color_space = encoding.channels == 1   ? JCS_GRAYSCALE
                            : encoding.channels == 3 ? JCS_RGB
                                                     : JCS_CMYK;
    jpeg_set_defaults(&w.info);
    jpeg_set_quality(&w.info, encoding.quality, TRUE);
    if (!encoding.subsample)
      w.info.comp_info[0].h_samp_factor = w.info.comp_info[0].v_samp_factor = 1;
    if (encoding.progressive) jpeg_simple_progression(&w.info);
    jpeg_start_compress(&w.info, TRUE);
    while (w.info.next_scanline < w.info.image_height) {
      JSAMPROW row = const_cast<uint8_t*>(pixels.data()) +
                     size_t{w.info.next_scanline} * w.info.image_width * encoding.channels;
      jpeg_write_scanlines(&w.info, &row, 1);
    }
    jpeg_finish_compress(&w.info);
  });
  const std::byte* bytes = reinterpret_cast<const std::byte*>(w.bytes);
  return {bytes, bytes + w.count};
}

}  // namespace ridge
