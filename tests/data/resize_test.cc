// Resizing against torchvision, and properties that hold for every picture.
#include "ridge/data/resize.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <random>
#include <sstream>

#include "ridge/base/cpu/cpu_info.h"
#include "ridge/data/picture_crop.h"
#include "tests/support/scale.h"

namespace ridge::data {
namespace {

constexpr Normalization kBytes{.scale = {1, 1, 1}, .offset = {0, 0, 0}};

std::string content(const std::string& name) {
  std::ifstream file("tests/io/golden/" + name, std::ios::binary);
  EXPECT_TRUE(file) << name;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<float> floats(const std::string& name) {
  const std::string bytes = content(name);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

std::vector<float> read_golden(const std::string& name, const CropBox* box) {
  PictureReader reader(24, kBytes);
  const std::string bytes = content(name);
  const PictureSize size = reader.open(std::as_bytes(std::span(bytes)));
  std::vector<float> out(24 * 24 * 3);
  reader.read(box != nullptr ? *box : center_crop(size, 24), out.data());
  return out;
}

void expect_near(const std::vector<float>& values, const std::vector<float>& expected) {
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], expected[i], 2e-3) << i;
}

TEST(Resize, CropsAreThoseOfTorchvision) {
  const CropBox shrunk{.x = 5, .y = 4, .width = 43, .height = 35, .exclusive = true};
  expect_near(read_golden("chroma420.jpg", &shrunk), floats("chroma420.crop.f32"));
  const CropBox grown{.x = 13, .y = 4, .width = 15, .height = 12, .exclusive = true};
  expect_near(read_golden("rgb.png", &grown), floats("rgb.crop.f32"));
}

TEST(Resize, TheCentreIsThatOfTorchvision) {
  expect_near(read_golden("chroma420.jpg", nullptr), floats("chroma420.center.f32"));
  expect_near(read_golden("rgb.png", nullptr), floats("rgb.center.f32"));
}

struct Case {
  AxisSpan columns, rows;
  std::vector<uint8_t> pixels;
};

std::vector<float> resized(const Case& input,
                           bool mirrored,
                           const Normalization& normalization = kBytes,
                           Resizer::Code code = Resizer::Code::kBest) {
  const int64_t target = input.columns.target;
  Resizer resizer(target, 300, normalization, code);
  std::vector<float> out(static_cast<size_t>(3 * target * target), -1);
  resizer.begin(input.columns, input.rows, mirrored, out.data());
  for (int64_t y = 0; y < input.rows.count; ++y)
    resizer.add_row(input.pixels.data() + 3 * y * input.columns.count);
  return out;
}

Case random_case(uint32_t seed, bool constant) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> unit(0, 1);
  const int64_t target = 1 + static_cast<int64_t>(random() % 40);
  const auto axis = [&] {
    AxisSpan span{.count = 1 + static_cast<int64_t>(random() % 300), .target = target};
    span.length = std::max(unit(random) * static_cast<double>(span.count), 0.3);
    span.begin = unit(random) * (static_cast<double>(span.count) - span.length);
    return span;
  };
  Case result{.columns = axis(), .rows = axis(), .pixels = {}};
  for (int64_t i = 0; i < 3 * result.columns.count * result.rows.count; ++i)
    result.pixels.push_back(static_cast<uint8_t>(constant ? 40 + 50 * (i % 3) : random()));
  return result;
}

TEST(Resize, AUniformPictureStaysWhatItIs) {
  for (int i = 0; i < test::cases(200); ++i) {
    const auto out = resized(random_case(static_cast<uint32_t>(i), true), i % 2 == 0);
    for (size_t k = 0; k < out.size(); ++k)
      ASSERT_NEAR(out[k], 40 + 50 * static_cast<int>(k % 3), 1e-3) << "case " << i;
  }
}

TEST(Resize, MirroringReversesTheColumnsBitForBit) {
  for (int i = 0; i < test::cases(100); ++i) {
    const Case input = random_case(static_cast<uint32_t>(i), false);
    const auto plain = resized(input, false), mirrored = resized(input, true);
    const int64_t n = input.columns.target;
    for (int64_t y = 0; y < n; ++y)
      for (int64_t x = 0; x < n; ++x)
        for (int64_t c = 0; c < 3; ++c)
          ASSERT_EQ(plain[3 * (y * n + x) + c], mirrored[3 * (y * n + n - 1 - x) + c]);
  }
}

TEST(Resize, TheInstructionSetDoesNotChangeBits) {
  if (!cpu_info().avx2) GTEST_SKIP() << "this processor has no AVX2";
  for (int i = 0; i < test::cases(100); ++i) {
    const Case input = random_case(static_cast<uint32_t>(500 + i), false);
    const Normalization normalization{.scale = {0.3f, 1, 0.7f}, .offset = {0, -2, 0.1f}};
    EXPECT_EQ(resized(input, i % 2 == 0, normalization),
              resized(input, i % 2 == 0, normalization, Resizer::Code::kPlain))
        << "case " << i;
  }
}

// The same sum written the slow way, in double: every weight from its definition.
TEST(Resize, EqualsTheDefinition) {
  for (int i = 0; i < test::cases(60); ++i) {
    const Case input = random_case(static_cast<uint32_t>(1000 + i), false);
    const Normalization normalization{.scale = {0.5f, 2, 1}, .offset = {-1, 0, 3}};
    const auto out = resized(input, false, normalization);
    const auto weights = [](const AxisSpan& span, int64_t at) {
      const double step = span.length / static_cast<double>(span.target);
      const double reach = std::max(step, 1.0);
      const double centre = span.begin + (static_cast<double>(at) + 0.5) * step;
      std::vector<double> result(static_cast<size_t>(span.count));
      double total = 0;
      for (int64_t k = 0; k < span.count; ++k)
        total += result[k] =
            std::max(0.0, 1 - std::abs(static_cast<double>(k) + 0.5 - centre) / reach);
      for (double& weight : result) weight /= total;
      return result;
    };
    const int64_t n = input.columns.target;
    for (int64_t y = 0; y < n; y += 1 + n / 5) {
      const auto down = weights(input.rows, y);
      for (int64_t x = 0; x < n; x += 1 + n / 5) {
        const auto across = weights(input.columns, x);
        for (int64_t c = 0; c < 3; ++c) {
          double sum = 0;
          for (int64_t v = 0; v < input.rows.count; ++v)
            for (int64_t u = 0; u < input.columns.count; ++u)
              sum += down[v] * across[u] * input.pixels[3 * (v * input.columns.count + u) + c];
          ASSERT_NEAR(out[3 * (y * n + x) + c],
                      sum * normalization.scale[c] + normalization.offset[c],
                      1e-3)
              << "case " << i << " at " << x << "," << y;
        }
      }
    }
  }
}

TEST(Crop, RandomCropsLieInsideAndFollowTheirDistribution) {
  const PictureSize size{500, 400};
  double area = 0, ratio = 0;
  constexpr int kDraws = 40000;
  for (int64_t i = 0; i < kDraws; ++i) {
    SampleRandom random({.seed = 3, .sample = i});
    const CropBox box = random_crop(size, random);
    ASSERT_GE(box.x, 0);
    ASSERT_GE(box.y, 0);
    ASSERT_LE(box.x + box.width, 500);
    ASSERT_LE(box.y + box.height, 400);
    ASSERT_GE(box.width * box.height / 200000, 0.075);
    ASSERT_NEAR(std::log(box.width / box.height), 0, 0.31);
    area += box.width * box.height / 200000 / kDraws;
    ratio += std::log(box.width / box.height) / kDraws;
  }
  // What torchvision's get_params gives for this size: large areas of a tall ratio do not fit.
  EXPECT_NEAR(area, 0.450, 0.015);
  EXPECT_NEAR(ratio, 0.028, 0.015);
}

TEST(Crop, APictureTooLongGetsItsCentre) {
  SampleRandom random({});
  const CropBox box = random_crop({1000, 10}, random);
  EXPECT_EQ(box.height, 10);
  EXPECT_EQ(box.width, 13);
  EXPECT_EQ(box.x, 493);
}

TEST(Crop, ReductionKeepsTheTargetsPixels) {
  EXPECT_EQ(reduction_for({.width = 447, .height = 900}, 224), 1);
  EXPECT_EQ(reduction_for({.width = 448, .height = 900}, 224), 2);
  EXPECT_EQ(reduction_for({.width = 5000, .height = 900}, 224), 4);
  EXPECT_EQ(reduction_for({.width = 5000, .height = 1792}, 224), 8);
  EXPECT_EQ(reduction_for({.width = 100, .height = 100}, 224), 1);
}

// A reduced decode is another filter than the resize alone, but of the same picture.
TEST(Crop, ReducedReadsAreClose) {
  const PictureSize size{400, 300};
  std::vector<uint8_t> pixels;
  for (int64_t i = 0; i < 400 * 300 * 3; ++i)
    pixels.push_back(
        static_cast<uint8_t>(128 + 90 * std::sin(static_cast<double>(i / 3 % 400) / 30) *
                                       std::cos(static_cast<double>(i / 1200) / 25)));
  const auto jpeg = encode_jpeg(pixels, size, {.quality = 98});
  const auto png = encode_png(pixels, size);
  PictureReader reader(32, kBytes);
  for (const CropBox& box :
       {CropBox{.x = 13, .y = 7, .width = 301, .height = 263, .exclusive = true},
        center_crop(size, 32)}) {
    ASSERT_GE(reduction_for(box, 32), 4);
    std::vector<float> from_jpeg(32 * 32 * 3), from_png(32 * 32 * 3);
    reader.open(jpeg);
    reader.read(box, from_jpeg.data());
    reader.open(png);
    reader.read(box, from_png.data());
    // At the rim the reduced pixels reach a little out of the box.
    for (size_t i = 0; i < from_png.size(); ++i) {
      const size_t x = i / 3 % 32, y = i / 96;
      const bool rim = x < 2 || x > 29 || y < 2 || y > 29;
      ASSERT_NEAR(from_jpeg[i], from_png[i], rim ? 6.0 : 2.5) << x << " " << y;
    }
  }
}

}  // namespace
}  // namespace ridge::data
