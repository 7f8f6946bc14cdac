#include "ridge/data/stored_picture.h"

#include <algorithm>
#include <bit>

#include "ridge/base/error.h"

namespace ridge::data {

int StoredPicture::level_of(int reduction) const {
  return reduces ? std::countr_zero(static_cast<unsigned>(reduction)) : 0;
}

PictureBox reduced_box(const PictureBox& box, int reduction, int64_t width, int64_t height) {
  // A reduced pixel that the box cuts belongs to the box.
  const int64_t right = std::min((box.x + box.width + reduction - 1) / reduction, width);
  const int64_t below = std::min((box.y + box.height + reduction - 1) / reduction, height);
  PictureBox reduced{.x = box.x / reduction, .y = box.y / reduction};
  reduced.width = right - reduced.x;
  reduced.height = below - reduced.y;
  return reduced;
}

PictureSize StoredPictureDecoder::open(const StoredPicture& picture) {
  picture_ = &picture;
  return picture.size;
}

PictureSize StoredPictureDecoder::open(std::span<const std::byte>, int64_t) {
  throw InternalError("[StoredPictureDecoder] a stored picture is no file");
}

PictureDecoder::Rows StoredPictureDecoder::start(const PictureBox& box, int reduction) {
  check_internal(picture_ != nullptr, "[StoredPictureDecoder] no picture is open");
  const int number = picture_->level_of(reduction);
  const StoredPicture::Level& level = picture_->levels[number];
  check_internal(
      level.pixels != nullptr, "[StoredPictureDecoder] reduction {} is not kept", reduction);
  Rows rows{.box = {}, .reduction = 1 << number};
  rows.box = reduced_box(box, rows.reduction, level.width, level.height);
  row_bytes_ = 3 * level.width;
  row_ = level.pixels + rows.box.y * row_bytes_ + 3 * rows.box.x;
  return rows;
}

const uint8_t* StoredPictureDecoder::next_row() {
  const uint8_t* row = row_;
  row_ += row_bytes_;
  return row;
}

}  // namespace ridge::data
