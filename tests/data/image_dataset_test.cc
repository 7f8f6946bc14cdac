// Folders of pictures: labels, splits, policies for bad files, the cache.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "ridge/base/error.h"
#include "ridge/base/hash.h"
#include "ridge/data/loader.h"
#include "ridge/io/jpeg.h"
#include "ridge/io/png.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/errors.h"

namespace ridge::data {
namespace {

using test::TemporaryFolder;
using test::user_error;

constexpr int64_t kSize = 16;

/// A picture of one colour that encodes its class and number.
std::vector<uint8_t> colour(int64_t label, int64_t number) {
  std::vector<uint8_t> pixels;
  for (int64_t i = 0; i < 40 * 30; ++i)
    for (int64_t value : {60 * label, 10 * number, i % 40})
      pixels.push_back(static_cast<uint8_t>(value));
  return pixels;
}

/// Classes blue, green and red with 6 pictures each, JPEG and PNG by turns.
void make_folder(const TemporaryFolder& folder, const std::string& below = "") {
  const std::array names{"blue", "green", "red"};
  for (int64_t label = 0; label < 3; ++label)
    for (int64_t number = 0; number < 6; ++number) {
      const std::string name = below + names[label] + "/" + std::to_string(number);
      // Content decides, so that a PNG may be called .jpg.
      if (number % 2 == 0)
        folder.write(name + ".jpg", encode_jpeg(colour(label, number), {40, 30}));
      else
        folder.write(name + ".jpg", encode_png(colour(label, number), {40, 30}));
    }
  folder.write(below + "blue/notes.txt", "not a picture");
}

DataOptions options_for(const TemporaryFolder& folder) {
  return {.kind = DataKind::kImages, .path = folder.path(), .eval_fraction = 0.25, .size = kSize};
}

struct Sample {
  std::vector<float> x = std::vector<float>(kSize * kSize * 3);
  int64_t y = -1;
  int64_t skipped = 0;
};

Sample read(const Dataset& dataset, int64_t index, const SampleKey& key = {}) {
  Sample sample;
  const std::array<void*, 2> out{sample.x.data(), &sample.y};
  const auto scratch = dataset.make_scratch(nullptr);
  dataset.read(index, key, out, *scratch);
  sample.skipped = scratch->skipped;
  return sample;
}

TEST(Images, ClassesAreFoldersAndSplitsCoverThem) {
  const TemporaryFolder folder;
  make_folder(folder);
  const DataOptions options = options_for(folder);
  const auto train = open_dataset(options, Split::kTrain);
  const auto eval = open_dataset(options, Split::kEval);
  EXPECT_EQ(train->size(), 13);
  EXPECT_EQ(eval->size(), 5);
  EXPECT_EQ(train->classes(), 3);
  EXPECT_EQ(train->description().class_names, (std::vector<std::string>{"blue", "green", "red"}));
  EXPECT_EQ(train->fields()[0], (FieldType{"x", DType::kF32, {kSize, kSize, 3}}));
  std::array<int, 18> seen{};
  for (const auto* dataset : {train.get(), eval.get()})
    for (int64_t i = 0; i < dataset->size(); ++i) {
      const Sample sample = read(*dataset, i);
      EXPECT_NEAR(sample.x[0] * 255, 60 * static_cast<double>(sample.y), 4);
      const auto number = std::lround(sample.x[1] * 25.5f);
      ++seen[6 * sample.y + number];
    }
  for (int count : seen) EXPECT_EQ(count, 1);
}

TEST(Images, AugmentationIsKeyedAndOnlyInTraining) {
  const TemporaryFolder folder;
  make_folder(folder);
  DataOptions options = options_for(folder);
  options.flip = true;
  const auto train = open_dataset(options, Split::kTrain);
  EXPECT_EQ(read(*train, 3, {1, 2, 3}).x, read(*train, 3, {1, 2, 3}).x);
  EXPECT_NE(read(*train, 3, {1, 2, 3}).x, read(*train, 3, {1, 3, 3}).x);
  // Blue grows to the right, unless mirrored: about half of the reads are.
  int mirrored = 0;
  for (int64_t epoch = 0; epoch < 200; ++epoch) {
    const Sample sample = read(*train, 3, {1, epoch, 3});
    mirrored += sample.x[2] > sample.x[3 * (kSize - 1) + 2];
  }
  EXPECT_NEAR(mirrored, 100, 35);
  const auto eval = open_dataset(options, Split::kEval);
  for (int64_t epoch = 0; epoch < 20; ++epoch)
    EXPECT_EQ(read(*eval, 1, {1, epoch, 1}).x, read(*eval, 1).x);
}

TEST(Images, NormalizationIsAChannelsOwn) {
  const TemporaryFolder folder;
  make_folder(folder);
  DataOptions options = options_for(folder);
  options.crop = Crop::kNone;
  const Sample plain = read(*open_dataset(options, Split::kTrain), 4);
  options.mean = {0.5, 0.25, 0.1};
  options.deviation = {0.5, 2, 4};
  const Sample normal = read(*open_dataset(options, Split::kTrain), 4);
  for (size_t i = 0; i < plain.x.size(); ++i)
    ASSERT_NEAR(normal.x[i], (plain.x[i] - options.mean[i % 3]) / options.deviation[i % 3], 1e-6);
  options.mean = {0.5};
  EXPECT_NE(user_error([&] {
              open_dataset(options, Split::kTrain);
            }).find("mean or deviation has 1 numbers"),
            std::string::npos);
}

TEST(Images, ABadFileIsReplacedByTheNext) {
  const TemporaryFolder folder;
  make_folder(folder);
  const auto jpeg = encode_jpeg(colour(0, 0), {40, 30});
  folder.write("blue/0.jpg", std::span(jpeg).first(jpeg.size() - 9));
  folder.write("blue/1.jpg", "neither");
  DataOptions options = options_for(folder);
  options.eval_path = options.path;
  const auto dataset = open_dataset(options, Split::kTrain);
  ASSERT_EQ(dataset->size(), 18);
  const SampleKey key{.seed = 4, .epoch = 1, .sample = 0};
  const Sample replaced = read(*dataset, 0, key);
  EXPECT_EQ(replaced.skipped, 1);
  EXPECT_EQ(replaced.x, read(*dataset, 2, key).x);
  EXPECT_EQ(read(*dataset, 2, key).skipped, 0);
  Loader loader(*dataset, {.batch = 18}, {.workers = 2});
  loader.next();
  EXPECT_EQ(loader.stats().skipped, 2);

  options.on_error = OnError::kFail;
  const auto strict = open_dataset(options, Split::kTrain);
  const std::string message = user_error([&] { read(*strict, 0); });
  EXPECT_NE(message.find("blue/0.jpg': not a readable JPEG: the file is truncated"),
            std::string::npos)
      << message;
  EXPECT_NE(user_error([&] { read(*strict, 1); }).find("neither a JPEG nor a PNG"),
            std::string::npos);
  std::filesystem::remove(folder.path("blue/2.jpg"));
  EXPECT_NE(user_error([&] { read(*strict, 2); }).find("No such file"), std::string::npos);
}

TEST(Images, NoReadableFileIsAnError) {
  const TemporaryFolder folder;
  folder.write("a/1.jpg", "bad");
  folder.write("a/2.png", "bad");
  DataOptions options = options_for(folder);
  options.eval_path = options.path;
  const auto dataset = open_dataset(options, Split::kTrain);
  EXPECT_NE(user_error([&] { read(*dataset, 1); }).find("none of the 2 pictures"),
            std::string::npos);
}

TEST(Images, LoaderBitsWithWorkersAndCache) {
  const TemporaryFolder folder;
  make_folder(folder);
  DataOptions options = options_for(folder);
  options.flip = true;
  const auto dataset = open_dataset(options, Split::kTrain);
  const auto run = [&](const LoaderOptions& loading) {
    Loader loader(*dataset, {.batch = 4, .seed = 8}, loading);
    uint64_t hash = kHashStart;
    for (int i = 0; i < 12; ++i) {
      const Batch& batch = loader.next();
      hash = hash64({static_cast<const char*>(batch.fields[0]),
                     static_cast<size_t>(batch.count * dataset->fields()[0].bytes())},
                    hash);
    }
    return hash;
  };
  const uint64_t expected = run({.workers = 0});
  EXPECT_EQ(run({.workers = 3, .prefetch = 2}), expected);
  EXPECT_EQ(run({.workers = 2, .cache = true}), expected);
  Loader plain(*dataset, {.batch = 4}, {.workers = 1}),
      cached(*dataset, {.batch = 4}, {.workers = 1, .cache = true});
  for (int64_t i = 0; i < 18; ++i)
    std::filesystem::remove(
        folder.path(std::array{"blue/", "green/", "red/"}[i / 6] + std::to_string(i % 6) + ".jpg"));
  EXPECT_EQ(cached.next().count, 4);
}

TEST(Images, Refusals) {
  const TemporaryFolder folder;
  DataOptions options = options_for(folder);
  const auto refusal = [&](Split split) {
    return user_error([&] { open_dataset(options, split); });
  };
  EXPECT_NE(refusal(Split::kTrain).find("has no subfolders"), std::string::npos);
  options.path = folder.path("none");
  EXPECT_NE(refusal(Split::kTrain).find("cannot read the folder"), std::string::npos);
  options.path = folder.path();
  folder.write("blue/1.jpg", "x");
  std::filesystem::create_directories(folder.path("green"));
  EXPECT_NE(refusal(Split::kTrain).find("green' is empty: no .jpg, .jpeg or .png"),
            std::string::npos);
  folder.write("green/1.PNG", "x");
  const TemporaryFolder other;
  other.write("pink/1.jpg", "x");
  options.eval_path = other.path();
  EXPECT_NE(refusal(Split::kEval).find("holds class 'pink', which the training data has not"),
            std::string::npos);
  options.size = 0;
  EXPECT_NE(refusal(Split::kTrain).find("size is 0"), std::string::npos);
}

}  // namespace
}  // namespace ridge::data
