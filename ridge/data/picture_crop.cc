// Crops, and the way from a file's bytes to a sample: decoder rows into the resizer.
#include "ridge/data/picture_crop.h"

#include <algorithm>
#include <cmath>

#include "ridge/base/error.h"

namespace ridge::data {
namespace {

constexpr double kMinArea = 0.08;
constexpr double kMinRatio = 3.0 / 4, kMaxRatio = 4.0 / 3;
constexpr int kAttempts = 10;

/// The pixels of one axis that a box needs: [first, end) of `count`.
struct Needed {
  int64_t first, end;
};

Needed needed_pixels(double begin, double length, int64_t target, int64_t count, bool exclusive) {
  // A resized pixel reaches as far as the triangle of its weights.
  const double reach = exclusive ? 0.0 : std::max(length / static_cast<double>(target), 1.0) + 1;
  const auto first = static_cast<int64_t>(std::floor(begin - reach));
  const auto end = static_cast<int64_t>(std::ceil(begin + length + reach));
  return {std::clamp<int64_t>(first, 0, count - 1), std::clamp<int64_t>(end, 1, count)};
}

}  // namespace

CropBox random_crop(const PictureSize& size, SampleRandom& random) {
  const auto width = static_cast<double>(size.width), height = static_cast<double>(size.height);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const double area = width * height * (kMinArea + random.uniform() * (1 - kMinArea));
    const double ratio = std::exp(std::log(kMinRatio) +
                                  random.uniform() * (std::log(kMaxRatio) - std::log(kMinRatio)));
    const int64_t w = std::llround(std::sqrt(area * ratio));
    const int64_t h = std::llround(std::sqrt(area / ratio));
    if (w < 1 || h < 1 || w > size.width || h > size.height) continue;
    return {.x = static_cast<double>(random.below(size.width - w + 1)),
            .y = static_cast<double>(random.below(size.height - h + 1)),
            .width = static_cast<double>(w),
            .height = static_cast<double>(h),
            .exclusive = true};
  }
  const double ratio = std::clamp(width / height, kMinRatio, kMaxRatio);
  const double w = std::max(std::round(std::min(width, height * ratio)), 1.0);
  const double h = std::max(std::round(std::min(height, width / ratio)), 1.0);
  return {.x = std::floor((width - w) / 2),
          .y = std::floor((height - h) / 2),
          .width = w,
          .height = h,
          .exclusive = true};
}

double smallest_random_side(const PictureSize& size) {
  const auto width = static_cast<double>(size.width), height = static_cast<double>(size.height);
  // One more for the rounding. The box after ten attempts has the shorter side of the picture.
  return std::min(std::sqrt(width * height * kMinArea * kMinRatio) - 1, std::min(width, height));
}

CropBox center_crop(const PictureSize& size, int64_t target) {
  return center_crop(size, target, target * 256 / 224);
}

CropBox center_crop(const PictureSize& size, int64_t target, int64_t short_side) {
  const int64_t shorter = std::min(size.width, size.height);
  const int64_t resized_width = short_side * size.width / shorter;
  const int64_t resized_height = short_side * size.height / shorter;
  const auto axis = [target](int64_t source, int64_t resized, double& begin, double& length) {
    const double step = static_cast<double>(source) / static_cast<double>(resized);
    begin = std::nearbyint(static_cast<double>(resized - target) / 2) * step;
    length = static_cast<double>(target) * step;
  };
  CropBox box;
  axis(size.width, resized_width, box.x, box.width);
  axis(size.height, resized_height, box.y, box.height);
  return box;
}

int reduction_for(const CropBox& box, int64_t target) {
  for (int reduction = 8; reduction > 1; reduction /= 2)
    if (std::min(box.width, box.height) >= static_cast<double>(target * reduction))
      return reduction;
  return 1;
}

PictureReader::PictureReader(int64_t target, const Normalization& normalization)
    : target_(target), resizer_(target, kMaxPictureSide, normalization) {}

int64_t PictureReader::bytes() const { return JpegDecoder::buffer_bytes() + resizer_.bytes(); }

PictureSize PictureReader::open(std::span<const std::byte> file) {
  decoder_ = nullptr;
  PictureDecoder& decoder = is_png(file) ? static_cast<PictureDecoder&>(png_) : jpeg_;
  check(is_png(file) || is_jpeg(file), "neither a JPEG nor a PNG");
  size_ = decoder.open(file, kMaxPicturePixels);
  check(size_.width <= kMaxPictureSide && size_.height <= kMaxPictureSide,
        "{} x {} pixels: a side is longer than {}",
        size_.width,
        size_.height,
        kMaxPictureSide);
  decoder_ = &decoder;
  return size_;
}

PictureSize PictureReader::open(const StoredPicture& picture) {
  size_ = stored_.open(picture);
  decoder_ = &stored_;
  return size_;
}

void PictureReader::read(const CropBox& box, float* out) {
  check_internal(decoder_ != nullptr, "[PictureReader] no picture is open");
  const Needed x = needed_pixels(box.x, box.width, target_, size_.width, box.exclusive);
  const Needed y = needed_pixels(box.y, box.height, target_, size_.height, box.exclusive);
  const PictureDecoder::Rows rows =
      decoder_->start({x.first, y.first, x.end - x.first, y.end - y.first},
                      box.reduces ? reduction_for(box, target_) : 1);
  const double reduction = rows.reduction;
  resizer_.begin({.begin = box.x / reduction - static_cast<double>(rows.box.x),
                  .length = box.width / reduction,
                  .count = rows.box.width,
                  .target = target_},
                 {.begin = box.y / reduction - static_cast<double>(rows.box.y),
                  .length = box.height / reduction,
                  .count = rows.box.height,
                  .target = target_},
                 box.mirrored,
                 out);
  for (int64_t i = 0; i < rows.box.height; ++i) resizer_.add_row(decoder_->next_row());
}

}  // namespace ridge::data
