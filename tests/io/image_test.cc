// JPEG and PNG decoding against Pillow's pixels, parts against wholes, and damaged files.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>

#include "ridge/base/error.h"
#include "ridge/io/jpeg.h"
#include "ridge/io/png.h"
#include "tests/support/scale.h"

namespace ridge {
namespace {

std::vector<std::byte> golden(const std::string& name) {
  std::ifstream file("tests/io/golden/" + name, std::ios::binary);
  EXPECT_TRUE(file) << name;
  std::stringstream text;
  text << file.rdbuf();
  const std::string content = text.str();
  std::vector<std::byte> bytes(content.size());
  std::memcpy(bytes.data(), content.data(), content.size());
  return bytes;
}

struct Picture {
  PictureSize size;
  std::vector<uint8_t> pixels;  // RGB
};

Picture decode(PictureDecoder& decoder, std::span<const std::byte> file, PictureBox box = {}) {
  Picture picture;
  picture.size = decoder.open(file, kMaxPicturePixels);
  if (box.width == 0) box = {0, 0, picture.size.width, picture.size.height};
  const auto rows = decoder.start(box);
  EXPECT_EQ(rows.box, box);
  picture.size = {box.width, box.height};
  for (int64_t y = 0; y < box.height; ++y) {
    const uint8_t* row = decoder.next_row();
    picture.pixels.insert(picture.pixels.end(), row, row + 3 * box.width);
  }
  return picture;
}

Picture decode(std::span<const std::byte> file) {
  if (is_jpeg(file)) {
    JpegDecoder decoder;
    return decode(decoder, file);
  }
  PngDecoder decoder;
  return decode(decoder, file);
}

std::vector<uint8_t> noise(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint8_t> values(static_cast<size_t>(count));
  for (uint8_t& value : values) value = static_cast<uint8_t>(random());
  return values;
}

/// Smooth enough that JPEG keeps it nearly.
std::vector<uint8_t> waves(const PictureSize& size, int channels) {
  std::vector<uint8_t> values;
  for (int64_t y = 0; y < size.height; ++y)
    for (int64_t x = 0; x < size.width; ++x)
      for (int c = 0; c < channels; ++c)
        values.push_back(
            static_cast<uint8_t>(128 + 100 * std::sin(static_cast<double>(x + 3 * c) / 9) *
                                           std::cos(static_cast<double>(y) / (7 + c))));
  return values;
}

std::string refusal(PictureDecoder& decoder, std::span<const std::byte> file) {
  try {
    decode(decoder, file);
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

class Golden : public testing::TestWithParam<const char*> {};

TEST_P(Golden, PixelsAreThoseOfPillow) {
  const std::string name = GetParam();
  const Picture picture = decode(golden(name));
  const auto expected = golden(name.substr(0, name.find('.')) + ".rgb");
  ASSERT_EQ(picture.pixels.size(), expected.size());
  int64_t near = 0;
  int worst = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const int difference = std::abs(picture.pixels[i] - std::to_integer<int>(expected[i]));
    near += difference <= 1;
    worst = std::max(worst, difference);
  }
  EXPECT_GE(static_cast<double>(near), 0.99 * static_cast<double>(expected.size()));
  EXPECT_LE(worst, name.ends_with(".png") ? 0 : 3);
}

INSTANTIATE_TEST_SUITE_P(Image,
                         Golden,
                         testing::Values("chroma420.jpg",
                                         "chroma422.jpg",
                                         "chroma444.jpg",
                                         "progressive.jpg",
                                         "grey.jpg",
                                         "cmyk.jpg",
                                         "rgb.png",
                                         "alpha.png",
                                         "palette.png",
                                         "grey8.png",
                                         "interlaced.png"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });

// Cutting out rows and columns while decoding must not show.
TEST(Jpeg, APartHasThePixelsOfTheWhole) {
  std::mt19937 random(5);
  JpegDecoder decoder;
  for (int i = 0; i < test::cases(200); ++i) {
    const PictureSize size{1 + static_cast<int64_t>(random() % 150),
                           1 + static_cast<int64_t>(random() % 150)};
    const int channels = std::array{1, 3, 3, 4}[random() % 4];
    const auto file =
        encode_jpeg(noise(size.width * size.height * channels, static_cast<uint32_t>(i)),
                    size,
                    {.quality = 80,
                     .channels = channels,
                     .subsample = random() % 2 == 0,
                     .progressive = random() % 3 == 0});
    PictureBox box{static_cast<int64_t>(random() % size.width),
                   static_cast<int64_t>(random() % size.height),
                   0,
                   0};
    box.width = 1 + random() % (size.width - box.x);
    box.height = 1 + random() % (size.height - box.y);
    const Picture whole = decode(decoder, file);
    const Picture part = decode(decoder, file, box);
    for (int64_t y = 0; y < box.height; ++y)
      ASSERT_EQ(std::memcmp(part.pixels.data() + 3 * y * box.width,
                            whole.pixels.data() + 3 * ((y + box.y) * size.width + box.x),
                            static_cast<size_t>(3 * box.width)),
                0)
          << "case " << i << ", row " << y << " of " << size.width << " x " << size.height
          << ", box " << box.x << "," << box.y << "," << box.width << "," << box.height;
  }
}

TEST(Jpeg, AReducedPictureIsTheMeanOfItsBlocks) {
  const PictureSize size{160, 96};
  JpegDecoder decoder;
  const auto file = encode_jpeg(waves(size, 3), size, {.quality = 100, .subsample = false});
  const Picture whole = decode(decoder, file);
  for (int reduction : {2, 4, 8}) {
    decoder.open(file, kMaxPicturePixels);
    const auto rows = decoder.start({17, 9, 100, 50}, reduction);
    EXPECT_EQ(rows.reduction, reduction);
    EXPECT_EQ(rows.box.x, 17 / reduction);
    EXPECT_EQ(rows.box.y, 9 / reduction);
    EXPECT_EQ(rows.box.x + rows.box.width, (117 + reduction - 1) / reduction);
    EXPECT_EQ(rows.box.y + rows.box.height, (59 + reduction - 1) / reduction);
    for (int64_t y = 0; y < rows.box.height; ++y) {
      const uint8_t* row = decoder.next_row();
      for (int64_t i = 0; i < 3 * rows.box.width; ++i) {
        double mean = 0;
        for (int64_t dy = 0; dy < reduction; ++dy)
          for (int64_t dx = 0; dx < reduction; ++dx)
            mean += whole.pixels[3 * (((rows.box.y + y) * reduction + dy) * size.width +
                                      (rows.box.x + i / 3) * reduction + dx) +
                                 i % 3];
        ASSERT_NEAR(row[i], mean / (reduction * reduction), 3.0) << reduction << " " << y;
      }
    }
  }
}

TEST(Jpeg, DamageIsSaid) {
  const PictureSize size{90, 70};
  JpegDecoder decoder;
  auto file = encode_jpeg(noise(90 * 70 * 3, 1), size);
  for (size_t keep : {file.size() - 1, file.size() / 2, file.size() / 3})
    EXPECT_EQ(refusal(decoder, std::span(file).first(keep)),
              "not a readable JPEG: the file is truncated");
  // With the end put back, the missing rows are what is found.
  auto cut = std::vector(file.begin(), file.begin() + static_cast<int64_t>(file.size() / 2));
  cut.push_back(std::byte{0xff});
  cut.push_back(std::byte{0xd9});
  EXPECT_NE(refusal(decoder, cut).find("premature end"), std::string::npos);
  EXPECT_NE(refusal(decoder, std::span(file).first(30)).find("not a readable JPEG"),
            std::string::npos);
  EXPECT_NE(refusal(decoder, {}).find("does not begin"), std::string::npos);
  EXPECT_THROW(decoder.open(file, 90 * 70 - 1), UserError);
  EXPECT_EQ(refusal(decoder, file), "accepted");  // and goes on with the next file
}

// The header's size is not believed: 65500 x 65500 from a few hundred bytes.
TEST(Jpeg, SizesThatDoNotFitTheFileAreRefused) {
  JpegDecoder decoder;
  auto file = encode_jpeg(noise(3 * 16 * 16, 1), {16, 16});
  const std::byte frame[] = {std::byte{0xff}, std::byte{0xc0}};
  auto at = std::search(file.begin(), file.end(), std::begin(frame), std::end(frame));
  ASSERT_NE(at, file.end());
  for (int i = 5; i < 9; ++i) at[i] = std::byte{0x3f};  // 16191 x 16191: below the pixel limit
  EXPECT_NE(refusal(decoder, file).find("do not fit into"), std::string::npos);
}

// Else what a picture looks like would depend on what its thread read before.
TEST(Jpeg, TablesOfOneFileDoNotServeAnother) {
  auto file = encode_jpeg(noise(3 * 32 * 32, 1), {32, 32});
  JpegDecoder decoder;
  EXPECT_EQ(refusal(decoder, file), "accepted");
  const std::byte tables[] = {std::byte{0xff}, std::byte{0xdb}};
  const auto at = std::search(file.begin(), file.end(), std::begin(tables), std::end(tables));
  ASSERT_NE(at, file.end());
  at[1] = std::byte{0xe5};  // the first quantization table becomes a segment that nobody reads
  EXPECT_NE(refusal(decoder, file).find("uantization table"), std::string::npos)
      << refusal(decoder, file);
}

TEST(Png, RoundTripOfEveryKind) {
  PngDecoder decoder;
  for (int channels : {1, 3, 4}) {
    const PictureSize size{37, 23};
    const auto pixels = noise(37 * 23 * channels, 3);
    const Picture picture = decode(decoder, encode_png(pixels, size, channels));
    ASSERT_EQ(picture.size, size);
    for (size_t i = 0; i < 37 * 23; ++i)
      for (size_t c = 0; c < 3; ++c)
        ASSERT_EQ(picture.pixels[3 * i + c], pixels[i * channels + (channels == 1 ? 0 : c)]);
  }
}

TEST(Png, APartOfPlainAndInterlaced) {
  PngDecoder decoder;
  for (const char* name : {"rgb.png", "interlaced.png"}) {
    const auto file = golden(name);
    const Picture whole = decode(decoder, file);
    const Picture part = decode(decoder, file, {5, 4, 20, 11});
    for (int64_t y = 0; y < 11; ++y)
      EXPECT_EQ(std::memcmp(part.pixels.data() + 60 * y,
                            whole.pixels.data() + 3 * ((y + 4) * whole.size.width + 5),
                            60),
                0);
  }
}

TEST(Png, DamageIsSaid) {
  PngDecoder decoder;
  const auto file = encode_png(noise(50 * 40 * 3, 1), {50, 40});
  EXPECT_EQ(refusal(decoder, std::span(file).first(file.size() - 5)),
            "not a readable PNG: the file is truncated");
  auto flipped = file;
  flipped[file.size() / 2] ^= std::byte{1};
  EXPECT_NE(refusal(decoder, flipped).find("not a readable PNG"), std::string::npos);
  EXPECT_THROW(decoder.open(file, 1999), UserError);
  EXPECT_EQ(refusal(decoder, file), "accepted");
}

}  // namespace
}  // namespace ridge
