// The cache of pictures: the same bits as reading the files, whatever a crop needs of them.
#include "ridge/data/picture_cache.h"

#include <gtest/gtest.h>

#include <array>

#include "ridge/base/philox.h"
#include "ridge/data/dataset.h"
#include "ridge/io/jpeg.h"
#include "ridge/io/png.h"
#include "tests/data/temporary_folder.h"

namespace ridge::data {
namespace {

using test::TemporaryFolder;

constexpr int64_t kSize = 16;
constexpr int64_t kPlenty = int64_t{1} << 30;

/// Waves with noise, so that every pixel and its neighbours count.
std::vector<uint8_t> waves(const PictureSize& size, int64_t channels, uint64_t seed) {
  std::vector<uint8_t> pixels;
  for (int64_t y = 0; y < size.height; ++y)
    for (int64_t x = 0; x < size.width; ++x)
      for (int64_t c = 0; c < channels; ++c) {
        const auto noise =
            rng_block(seed, static_cast<uint64_t>(y), static_cast<uint64_t>(3 * x + c));
        pixels.push_back(
            static_cast<uint8_t>((3 * x + 5 * y * (c + 1) + noise.word[0] % 60) % 256));
      }
  return pixels;
}

/// Sizes from below the target to a reduction of 8 and more, odd ones too; formats by turns; one
/// file is cut short of its last rows and one is no picture.
void make_folder(const TemporaryFolder& folder) {
  const std::array<PictureSize, 6> sizes{
      {{11, 14}, {33, 47}, {75, 61}, {203, 157}, {401, 130}, {50, 900}}};
  for (int64_t i = 0; i < 24; ++i) {
    const PictureSize size = sizes[i % 6];
    const int64_t form = i / 6;
    const int64_t channels = form == 1 ? 1 : 3;
    const auto pixels = waves(size, channels, static_cast<uint64_t>(i));
    const JpegEncoding encoding{
        .channels = static_cast<int>(channels), .subsample = form != 2, .progressive = form == 2};
    const std::string name = "a/" + std::to_string(100 + i) + ".jpg";
    folder.write(name, form == 3 ? encode_png(pixels, size) : encode_jpeg(pixels, size, encoding));
  }
  std::vector<std::byte> damaged = encode_jpeg(waves({160, 160}, 3, 77), {160, 160});
  // An end marker stands where the last rows should.
  damaged.resize(damaged.size() * 7 / 8);
  damaged.insert(damaged.end(), {std::byte{0xff}, std::byte{0xd9}});
  folder.write("a/200.jpg", damaged);
  folder.write("a/201.jpg", "no picture");
}

struct Sample {
  std::vector<float> x = std::vector<float>(kSize * kSize * 3);
  int64_t y = -1, skipped = 0;
  bool operator==(const Sample&) const = default;
};

Sample read(const Dataset& dataset, const SampleKey& key, Scratch& scratch) {
  Sample sample;
  const std::array<void*, 2> out{sample.x.data(), &sample.y};
  const int64_t before = scratch.skipped;
  dataset.read(key.sample, key, out, scratch);
  sample.skipped = scratch.skipped - before;
  return sample;
}

TEST(PictureCache, SamplesHaveTheBitsOfTheFiles) {
  const TemporaryFolder folder;
  make_folder(folder);
  for (const Crop crop : {Crop::kRandom, Crop::kCenter, Crop::kNone}) {
    const DataOptions options{.kind = DataKind::kImages,
                              .path = folder.path(),
                              .eval_path = folder.path(),
                              .size = kSize,
                              .crop = crop,
                              .flip = true};
    const auto dataset = open_dataset(options, Split::kTrain);
    const auto cache = dataset->load_cache();
    const auto plain = dataset->make_scratch(nullptr), cached = dataset->make_scratch(cache.get());
    int64_t skipped = 0;
    for (int64_t sample = 0; sample < dataset->size(); ++sample)
      for (int64_t epoch = 0; epoch < 6; ++epoch) {
        const SampleKey key{.seed = 5, .epoch = epoch, .sample = sample};
        const Sample expected = read(*dataset, key, *plain);
        ASSERT_EQ(read(*dataset, key, *cached), expected)
            << name_of(crop) << ", sample " << sample << ", epoch " << epoch;
        skipped += expected.skipped;
      }
    EXPECT_GE(skipped, 6) << name_of(crop);
  }
}

TEST(PictureCache, WhatIsDecodedNeedsNoBytesOfItsFile) {
  const TemporaryFolder folder;
  make_folder(folder);
  const auto files = list_images(folder.path(), class_folders(folder.path()));
  const PictureCache cache(files, {.target = kSize, .max_bytes = kPlenty});
  for (int64_t i = 0; i < 24; ++i) {
    ASSERT_NE(cache.picture(i), nullptr) << i;
    EXPECT_TRUE(cache.file(i).empty()) << i;
  }
  for (const int64_t bad : {24, 25}) {
    EXPECT_EQ(cache.picture(bad), nullptr);
    EXPECT_EQ(static_cast<int64_t>(cache.file(bad).size()), files[bad].bytes);
  }
  // 203 x 157: crops are 42 pixels high at least, more than twice the target.
  const StoredPicture& picture = *cache.picture(3);
  const std::array<int64_t, 4> widths{0, 102, 51, 26};
  for (int level = 0; level < 4; ++level) EXPECT_EQ(picture.levels[level].width, widths[level]);
}

TEST(PictureCache, FilesStayWhereDecodedPicturesDoNotFit) {
  const TemporaryFolder folder;
  make_folder(folder);
  const auto files = list_images(folder.path(), class_folders(folder.path()));
  const PictureCache all(files, {.target = kSize, .max_bytes = kPlenty});
  int64_t pixels = 0;
  for (int64_t i = 0; i < 24; ++i)
    for (const auto& level : all.picture(i)->levels) pixels += 3 * level.width * level.height;
  // The damaged file is laid out before it turns out to be damaged.
  EXPECT_GE(all.bytes(), pixels);
  const PictureCache few(files, {.target = kSize, .max_bytes = pixels - 1});
  for (size_t i = 0; i < files.size(); ++i) {
    EXPECT_EQ(few.picture(static_cast<int64_t>(i)), nullptr);
    EXPECT_EQ(static_cast<int64_t>(few.file(static_cast<int64_t>(i)).size()), files[i].bytes);
  }
  EXPECT_LT(few.bytes(), all.bytes());
}

TEST(PictureCache, ReductionsCoverWhatCropsAskFor) {
  for (const PictureSize size : {PictureSize{500, 400}, {4000, 3000}, {90, 2000}, {17, 16}})
    for (const int64_t target : {16, 96, 224}) {
      const ReductionRange range = reductions_for(size, Crop::kRandom, target);
      for (int64_t sample = 0; sample < 500; ++sample) {
        SampleRandom random({.seed = 1, .epoch = 0, .sample = sample});
        const int reduction = reduction_for(random_crop(size, random), target);
        EXPECT_GE(reduction, range.least) << size.width << " to " << target;
        EXPECT_LE(reduction, range.most) << size.width << " to " << target;
      }
    }
  // Photographs are never needed in full.
  EXPECT_EQ(reductions_for({4000, 3000}, Crop::kRandom, 224).least, 2);
}

}  // namespace
}  // namespace ridge::data
