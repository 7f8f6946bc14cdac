// How pictures are prepared for models that do not say it: the file of keys, and numbers beside
// torchvision's on a picture of PIL.
#include "ridge/infer/preprocess.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ridge/infer/sample_files.h"
#include "ridge/io/file.h"
#include "ridge/io/png.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/errors.h"
#include "tests/support/has.h"

namespace ridge::test {
namespace {

class PreprocessFile : public testing::Test {
 protected:
  std::string write(const std::string& text) { return folder_.write("p.toml", text); }
  std::string error(const std::string& text) {
    return user_error([&] { load_preprocess(write(text)); });
  }

  TemporaryFolder folder_;
};

TEST_F(PreprocessFile, HasTheFields) {
  const Preprocess read =
      load_preprocess(write("resize = 300\ncrop = 280\nscale = 255\nmean = [103, 116.5, 123]\n"
                            "deviation = [1, 2, 3]\nlayout = 'nhwc'\nchannels = 'bgr'\n"));
  EXPECT_EQ(read.resize, 300);
  EXPECT_EQ(read.crop, 280);
  EXPECT_EQ(read.scale, 255);
  EXPECT_EQ(read.mean, (std::vector<double>{103, 116.5, 123}));
  EXPECT_EQ(read.deviation, (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(read.layout, PictureLayout::kNhwc);
  EXPECT_EQ(read.channels, PictureChannels::kBgr);
  const Preprocess least = load_preprocess(write("crop = 32\nresize = 32"));
  EXPECT_EQ(least.scale, 1);
  EXPECT_EQ(least.mean, (std::vector<double>{0, 0, 0}));
  EXPECT_EQ(least.deviation, (std::vector<double>{1, 1, 1}));
  EXPECT_EQ(least.layout, PictureLayout::kNchw);
  EXPECT_EQ(least.channels, PictureChannels::kRgb);
}

TEST_F(PreprocessFile, SaysOnceWhatIsWrong) {
  const std::string sizes = "resize = 256\ncrop = 224\n";
  EXPECT_THAT(error("crop = 224"), has("p.toml: 'resize' is missing; write resize = 256"));
  EXPECT_THAT(error("resize = 256"), has("p.toml: 'crop' is missing; write crop = 224"));
  EXPECT_THAT(error("resize = 256\ncrop = 300"), has("a crop of 300", "write resize = 300"));
  EXPECT_THAT(error("crop = 0"),
              has("p.toml:1:8: crop: got 0, expected an integer from 1 to 4096"));
  EXPECT_THAT(error("crop = 224.5"), has("crop: got 224.5"));
  EXPECT_THAT(error(sizes + "std = [1, 1, 1]"), has("p.toml:3:1: unknown key 'std'"));
  EXPECT_THAT(error(sizes + "deviatoin = [1, 1, 1]"), has("did you mean 'deviation'?"));
  EXPECT_THAT(error(sizes + "mean = 0.5"), has("mean: got 0.5", "give three, a channel each"));
  EXPECT_THAT(error(sizes + "mean = [1, 2]"), has("mean: got [1, 2]", "give three"));
  EXPECT_THAT(error(sizes + "deviation = [1, 0, 1]"), has("deviation: got [1, 0, 1]"));
  EXPECT_THAT(error(sizes + "deviation = [1, nan, 1]"), has("deviation: got [1, nan, 1]"));
  EXPECT_THAT(error(sizes + "layout = 'chw'"), has("layout: got", "expected one of nchw, nhwc"));
  EXPECT_THAT(error(sizes + "[layout]"), has("unknown key 'layout'"));
  EXPECT_THAT(error("crop == 3"), has("p.toml:1:", "this is not TOML"));
  EXPECT_THAT(user_error([] { load_preprocess("imagnet"); }),
              has("'imagnet' is no name and no file", "write imagenet"));
  EXPECT_THAT(user_error([] { load_preprocess("none.toml"); }), has("cannot open 'none.toml'"));
}

// ---- pictures ----

Tensor read_pictures(const std::string& path, const Preprocess& how, const DataSpec& input) {
  const auto rows = open_pictures(path, input, how);
  Tensor x(rows->type());
  rows->read(0, x);
  return x;
}

DataSpec input_of(DType dtype, const std::vector<Dim>& dims) { return {"x", dtype, dims}; }

// torchvision on a picture of PIL rounds to bytes after the columns and after the rows; Ridge does
// not, so that its numbers lie within a level of them.
TEST(Preprocess, GivesTheNumbersOfTorchvision) {
  for (const char* name : {"rgb.png", "chroma420.jpg"})
    for (const int64_t crop : {int64_t{12}, int64_t{24}}) {
      Preprocess how = load_preprocess("imagenet");
      how.crop = crop;
      how.resize = crop * 5 / 4;
      const Tensor got = read_pictures(fmt::format("tests/io/golden/{}", name),
                                       how,
                                       input_of(DType::kF32, {"N", 3, crop, crop}));
      const std::string golden = read_file(fmt::format("tests/infer/golden/{}.{}.f32", name, crop));
      ASSERT_EQ(golden.size(), got.bytes());
      const auto* const expected = reinterpret_cast<const float*>(golden.data());
      double total = 0;
      for (int64_t i = 0; i < got.elements(); ++i) {
        const double level = 1 / (255 * how.deviation[static_cast<size_t>(i / (crop * crop))]);
        const double distance = std::abs(got.at(i) - expected[i]) / level;
        ASSERT_LE(distance, 1.01) << name << " " << crop << " " << i;
        total += distance;
      }
      EXPECT_LE(total / static_cast<double>(got.elements()), 0.35) << name << " " << crop;
    }
}

// A picture of one color, and what each order makes of it.
TEST(Preprocess, OrdersAxesAndChannels) {
  const TemporaryFolder folder;
  std::vector<uint8_t> pixels;
  for (int i = 0; i < 20 * 10; ++i) pixels.insert(pixels.end(), {255, 51, 0});
  const std::string path = folder.write("a.png", encode_png(pixels, {20, 10}));
  Preprocess how{.resize = 10, .crop = 8, .mean = {0.5, 0.25, 0}, .deviation = {0.5, 1, 2}};
  const auto first_and_last = [&](const DataSpec& input) {
    const Tensor x = read_pictures(path, how, input);
    const int64_t n = x.elements();
    const bool is_chw = how.layout == PictureLayout::kNchw;
    return is_chw ? std::vector<double>{x.at(0), x.at(n / 3), x.at(n - 1)}
                  : std::vector<double>{x.at(n - 3), x.at(n - 2), x.at(n - 1)};
  };
  const auto near = [](double a, double b, double c) {
    return testing::ElementsAre(
        testing::DoubleNear(a, 1e-3), testing::DoubleNear(b, 1e-3), testing::DoubleNear(c, 1e-3));
  };
  const DataSpec planes = input_of(DType::kF32, {"N", 3, 8, 8});
  EXPECT_THAT(first_and_last(planes), near(1, -0.05, 0));
  EXPECT_THAT(first_and_last(input_of(DType::kF16, {"N", 3, "H", "W"})), near(1, -0.05, 0));
  how.channels = PictureChannels::kBgr;
  EXPECT_THAT(first_and_last(planes), near(-1, -0.05, 0.5));
  how.layout = PictureLayout::kNhwc;
  EXPECT_THAT(first_and_last(input_of(DType::kF64, {"N", 8, 8, 3})), near(-1, -0.05, 0.5));
  how = {.resize = 8, .crop = 8, .scale = 255, .layout = PictureLayout::kNhwc};
  EXPECT_THAT(first_and_last(input_of(DType::kU8, {1, 8, 8, 3})), near(255, 51, 0));
}

TEST(Preprocess, SaysWhichPicturesAModelTakes) {
  const TemporaryFolder folder;
  const auto png = encode_png(std::vector<uint8_t>(4 * 4 * 3), {4, 4});
  for (const char* name : {"a.png", "b.png"}) folder.write(name, png);
  const Preprocess how{.resize = 4, .crop = 4};
  const auto error = [&](const DataSpec& input) {
    return user_error([&] { open_pictures(folder.path(), input, how); });
  };
  EXPECT_EQ(error(input_of(DType::kF32, {"N", 3, 4, 4})), "no error");
  EXPECT_THAT(error(input_of(DType::kF32, {"N", 3, 8, 8})),
              has("pictures are prepared as f32[2,3,4,4], and input 'x' is f32[N,3,8,8]",
                  "name a FILE.toml with crop and layout"));
  EXPECT_THAT(error(input_of(DType::kF32, {"N", 4, 4, 3})), has("input 'x' is f32[N,4,4,3]"));
  EXPECT_THAT(error(input_of(DType::kF32, {"N", 3})), has("input 'x' is f32[N,3]"));
  EXPECT_THAT(error(input_of(DType::kI64, {"N", 3, 4, 4})), has("input 'x' is i64[N,3,4,4]"));
  EXPECT_THAT(error(input_of(DType::kF32, {1, 3, 4, 4})),
              has("another number of pictures than input 'x', f32[1,3,4,4]; got 2",
                  "export the model with a batch of any size"));
  const DataSpec input = input_of(DType::kF32, {"N", 3, 4, 4});
  EXPECT_EQ(open_pictures("x.npy", input, how), nullptr);
  EXPECT_EQ(open_pictures("x.npz", input, how), nullptr);
  EXPECT_EQ(open_pictures(folder.path(), input, how)->names().size(), 2u);
}

}  // namespace
}  // namespace ridge::test
