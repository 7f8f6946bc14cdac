// The pictures of a data set in memory, so that no epoch but the first reads or decodes them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ridge/data/dataset.h"
#include "ridge/data/image_files.h"
#include "ridge/data/picture_crop.h"
#include "ridge/data/stored_picture.h"

namespace ridge::data {

/// Keeps what crops to target x target pixels need of every picture, decoded, where all of it is at
/// most `max_bytes`; else the files' bytes. A file that cannot be decoded whole stays as bytes, so
/// that reading it does what it does without a cache. Samples have the same bits either way.
class PictureCache : public SampleCache {
 public:
  struct Options {
    int64_t target = 224;
    Crop crop = Crop::kRandom;
    int64_t max_bytes = 0;
  };
  PictureCache(const std::vector<ImageFile>& files, const Options& options);

  int64_t bytes() const override;
  /// Null where the file's bytes are kept.
  const StoredPicture* picture(int64_t index) const;
  /// The bytes of a file that picture() has not; empty where it could not be read.
  std::span<const std::byte> file(int64_t index) const;

 private:
  struct Place {
    size_t begin = 0, count = 0;
  };
  void read_files(const std::vector<ImageFile>& files);
  int64_t lay_out(const Options& options);
  void decode(int64_t index);
  void drop_decoded_files();

  std::vector<std::byte> bytes_;
  std::vector<Place> places_;
  std::vector<uint8_t> pixels_;
  std::vector<StoredPicture> pictures_;  // a width of 0: as bytes; empty: all are
};

/// Smallest and largest reduction (1, 2, 4, 8) that a crop of such a picture asks a decoder for.
struct ReductionRange {
  int least = 1, most = 1;
};
ReductionRange reductions_for(const PictureSize& size, Crop crop, int64_t target);

}  // namespace ridge::data
