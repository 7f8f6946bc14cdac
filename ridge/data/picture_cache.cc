// Reads all files, opens each for its size, and decodes them in parallel when the sum is known.
#include "ridge/data/picture_cache.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ridge/base/cpu/parallel.h"
#include "ridge/base/error.h"
#include "ridge/io/jpeg.h"
#include "ridge/io/png.h"

namespace ridge::data {
namespace {

// Readers of a row may read at most this many bytes beyond it.
constexpr int64_t kBytesAfter = 64;

/// Decodes whole pictures, one after the other.
class WholePicture {
 public:
  explicit WholePicture(std::span<const std::byte> file) : file_(file) {}

  PictureSize size() { return decoder().open(file_, kMaxPicturePixels); }
  bool reduces() const { return !is_png(file_); }
  void read(int reduction, const StoredPicture::Level& level, uint8_t* out) {
    const PictureSize size = decoder().open(file_, kMaxPicturePixels);
    const auto rows = decoder().start({0, 0, size.width, size.height}, reduction);
    check_internal(rows.box.width == level.width && rows.box.height == level.height,
                   "[PictureCache] a reduced picture is {} x {}, expected {} x {}",
                   rows.box.width,
                   rows.box.height,
                   level.width,
                   level.height);
    const size_t row_bytes = static_cast<size_t>(3 * level.width);
    for (int64_t y = 0; y < level.height; ++y, out += row_bytes)
      std::memcpy(out, decoder().next_row(), row_bytes);
  }

 private:
  PictureDecoder& decoder() { return is_png(file_) ? static_cast<PictureDecoder&>(png_) : jpeg_; }

  std::span<const std::byte> file_;
  JpegDecoder jpeg_;
  PngDecoder png_;
};

/// Sizes of the levels that crops need; no pixels yet.
StoredPicture levels_of(WholePicture& file, const PictureCache::Options& options) {
  StoredPicture picture{.size = file.size(), .reduces = file.reduces()};
  check(picture.size.width <= kMaxPictureSide && picture.size.height <= kMaxPictureSide,
        "a side is longer than {} pixels",
        kMaxPictureSide);
  const ReductionRange range = reductions_for(picture.size, options.crop, options.target);
  for (int reduction = range.least; reduction <= range.most; reduction *= 2) {
    const int number = picture.level_of(reduction);
    const int64_t factor = int64_t{1} << number;
    picture.levels[number] = {.width = (picture.size.width + factor - 1) / factor,
                              .height = (picture.size.height + factor - 1) / factor};
  }
  return picture;
}

int64_t bytes_of(const StoredPicture& picture) {
  int64_t bytes = 0;
  for (const auto& level : picture.levels) bytes += 3 * level.width * level.height;
  return bytes;
}

}  // namespace

ReductionRange reductions_for(const PictureSize& size, Crop crop, int64_t target) {
  const auto width = static_cast<double>(size.width), height = static_cast<double>(size.height);
  if (crop == Crop::kCenter) {
    const int only = reduction_for(center_crop(size, target), target);
    return {only, only};
  }
  const int most = reduction_for({.width = width, .height = height}, target);
  if (crop == Crop::kNone) return {most, most};
  const double least = smallest_random_side(size);
  return {reduction_for({.width = least, .height = least}, target), most};
}

PictureCache::PictureCache(const std::vector<ImageFile>& files, const Options& options) {
  read_files(files);
  const int64_t needed = lay_out(options);
  if (needed > options.max_bytes) {
    pictures_.clear();
    pictures_.shrink_to_fit();
    return;
  }
  pixels_.resize(static_cast<size_t>(needed + kBytesAfter));
  uint8_t* next = pixels_.data();
  for (StoredPicture& picture : pictures_)
    for (auto& level : picture.levels)
      if (level.width > 0) {
        level.pixels = next;
        next += 3 * level.width * level.height;
      }
  parallel_for(static_cast<int64_t>(files.size()), 8, [this](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) decode(i);
  });
  drop_decoded_files();
}

void PictureCache::read_files(const std::vector<ImageFile>& files) {
  size_t total = 1;
  for (const ImageFile& file : files) total += static_cast<size_t>(file.bytes);
  bytes_.resize(total);
  size_t filled = 0;
  for (const ImageFile& file : files) {
    const size_t room = static_cast<size_t>(file.bytes) + 1;
    size_t count = 0;
    try {
      count = read_whole(file.path, std::span(bytes_).subspan(filled, room)).size();
    } catch (const UserError&) {
      // Cached as empty, so that reading the sample meets the error, where the policy is.
    }
    places_.push_back({filled, count});
    filled += count;
  }
}

/// Finds what each picture needs; returns the sum in bytes.
int64_t PictureCache::lay_out(const Options& options) {
  int64_t needed = 0;
  pictures_.resize(places_.size());
  for (size_t i = 0; i < places_.size() && needed <= options.max_bytes; ++i) {
    try {
      WholePicture whole(file(static_cast<int64_t>(i)));
      pictures_[i] = levels_of(whole, options);
      needed += bytes_of(pictures_[i]);
    } catch (const UserError&) {
      pictures_[i] = {};  // stays as bytes
    }
  }
  return needed;
}

void PictureCache::decode(int64_t index) {
  StoredPicture& picture = pictures_[index];
  if (picture.size.width == 0) return;
  try {
    WholePicture whole(file(index));
    for (int number = 0; number < StoredPicture::kLevels; ++number) {
      const auto& level = picture.levels[number];
      if (level.pixels != nullptr)
        whole.read(1 << number, level, pixels_.data() + (level.pixels - pixels_.data()));
    }
  } catch (const UserError&) {
    picture = {};  // a crop may leave out what is damaged: stays as bytes
  }
}

void PictureCache::drop_decoded_files() {
  std::vector<std::byte> kept;
  for (size_t i = 0; i < places_.size(); ++i) {
    const auto old = file(static_cast<int64_t>(i));
    const bool decoded = picture(static_cast<int64_t>(i)) != nullptr;
    places_[i] = {kept.size(), decoded ? 0 : old.size()};
    if (!decoded) kept.insert(kept.end(), old.begin(), old.end());
  }
  kept.shrink_to_fit();
  bytes_ = std::move(kept);
}

int64_t PictureCache::bytes() const {
  return static_cast<int64_t>(bytes_.size() + places_.size() * sizeof(Place) + pixels_.size() +
                              pictures_.size() * sizeof(StoredPicture));
}

const StoredPicture* PictureCache::picture(int64_t index) const {
  if (pictures_.empty() || pictures_[index].size.width == 0) return nullptr;
  return &pictures_[index];
}

std::span<const std::byte> PictureCache::file(int64_t index) const {
  return std::span(bytes_).subspan(places_[index].begin, places_[index].count);
}

}  // namespace ridge::data
