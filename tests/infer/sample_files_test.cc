// Samples from files have the bits of those that an evaluation reads.
#include "ridge/infer/sample_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ridge/data/dataset.h"
#include "ridge/io/jpeg.h"
#include "ridge/io/npy.h"
#include "ridge/io/png.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/errors.h"
#include "tests/support/has.h"

namespace ridge::test {
namespace {

using data::DataKind;
using data::DataOptions;
using data::Split;

// The "x" of all samples to evaluate on.
Tensor evaluated(const DataOptions& options) {
  const auto dataset = data::open_dataset(options, Split::kEval);
  const auto scratch = dataset->make_scratch(nullptr);
  TensorType type{DType::kF32, dataset->fields()[0].shape};
  type.shape.insert(type.shape.begin(), dataset->size());
  Tensor x(type);
  double y = 0;  // of any dtype
  for (int64_t i = 0; i < dataset->size(); ++i) {
    void* const out[] = {x.span<float>().data() + i * dataset->fields()[0].elements(), &y};
    dataset->read(i, {}, out, *scratch);
  }
  return x;
}

class SampleFiles : public testing::Test {
 protected:
  std::unique_ptr<InputRows> open(const std::string& path, const DataOptions& options) {
    const auto training = data::open_dataset(options, Split::kTrain);
    TrainObserver nobody;
    return open_samples(path, &training->description(), options.crop, nobody);
  }
  Tensor read(const std::string& path, const DataOptions& options) {
    const auto rows = open(path, options);
    if (rows == nullptr) return {};
    Tensor x(rows->type());
    rows->read(0, x);
    return x;
  }

  TemporaryFolder folder_;
};

TEST_F(SampleFiles, RowsOfATable) {
  const std::string train = folder_.write("train.csv", "a,b,kind\n1,10,x\n2,30,y\n4,20,x\n");
  const std::string eval = folder_.write("eval.csv", "kind,b,a\nx,15,\ny,25,3\n");
  DataOptions options{.kind = DataKind::kTable, .path = train, .eval_path = eval, .target = "kind"};
  const Tensor wanted = evaluated(options);
  EXPECT_TRUE(read(eval, options).same_bits(wanted));
  EXPECT_TRUE(read(folder_.write("x.csv", "a,b\n,15\n3,25\n"), options).same_bits(wanted));
  EXPECT_EQ(open("any.npy", options), nullptr);  // an array
  EXPECT_TRUE(read(folder_.write("x.dat", "b,more,a\n15,0,\n25,0,3\n"), options).same_bits(wanted));
}

TEST_F(SampleFiles, ATableInNpy) {
  const auto array = [&](const std::string& name, const Shape& shape) {
    Tensor tensor({DType::kF64, shape});
    for (int64_t i = 0; i < tensor.elements(); ++i) tensor.set(i, static_cast<double>(i * i % 7));
    write_npy(folder_.path(name), tensor);
    return folder_.path(name);
  };
  DataOptions options{.kind = DataKind::kTable,
                      .path = array("train.npy", {6, 2}),
                      .labels = array("y.npy", {6}),
                      .eval_path = array("eval.npy", {4, 2}),
                      .eval_labels = array("eval_y.npy", {4}),
                      .task = data::TableTask::kRegress};
  EXPECT_TRUE(read(options.eval_path, options).same_bits(evaluated(options)));
  const auto training = data::open_dataset(options, Split::kTrain);
  EXPECT_EQ(array_note(options.eval_path, &training->description()), "");
  EXPECT_THAT(array_note("x.npz", &training->description()), has("(value - mean) / deviation"));
  EXPECT_THAT(user_error([&] { open(array("wide.npy", {4, 3}), options); }), has("3 features"));
}

TEST_F(SampleFiles, ImagesOfAnIdxFile) {
  std::string images("\0\0\10\3\0\0\0\3\0\0\0\2\0\0\0\4", 16);
  for (int i = 0; i < 24; ++i) images += static_cast<char>(i * 11);
  const std::string labels("\0\0\10\1\0\0\0\3\0\1\2", 11);
  DataOptions options{.kind = DataKind::kIdx,
                      .path = folder_.write("images", images),
                      .labels = folder_.write("labels", labels),
                      .eval_path = folder_.path("images"),
                      .eval_labels = folder_.path("labels"),
                      .mean = {0.25},
                      .deviation = {0.5}};
  EXPECT_TRUE(read(options.path, options).same_bits(evaluated(options)));
  EXPECT_THAT(user_error([&] { open(options.labels, options); }),
              has("images are u8 with 3 sizes"));
}

TEST_F(SampleFiles, PicturesOfAFolder) {
  for (int i = 0; i < 6; ++i) {
    std::vector<uint8_t> pixels(40 * 30 * 3);
    for (size_t p = 0; p < pixels.size(); ++p)
      pixels[p] = static_cast<uint8_t>(p * 7 + static_cast<size_t>(40 * i));
    const std::string name = fmt::format("{}/{}", i % 2 == 0 ? "cat" : "dog", i);
    if (i < 3)
      folder_.write("eval/" + name + ".jpg", encode_jpeg(pixels, {40, 30}));
    else
      folder_.write("eval/" + name + ".PNG", encode_png(pixels, {40, 30}));
  }
  folder_.write("eval/cat/notes.txt", "no picture");
  for (const data::Crop crop : {data::Crop::kRandom, data::Crop::kNone}) {
    DataOptions options{.kind = DataKind::kImages,
                        .path = folder_.path("eval"),
                        .eval_path = folder_.path("eval"),
                        .size = 16,
                        .crop = crop,
                        .mean = {0.1, 0.2, 0.3},
                        .deviation = {1, 2, 0.5}};
    const Tensor wanted = evaluated(options);
    EXPECT_TRUE(read(folder_.path("eval"), options).same_bits(wanted));
    const auto rows = open(folder_.path("eval"), options);
    EXPECT_EQ(rows->names().size(), 6);
    EXPECT_EQ(rows->names()[0], folder_.path("eval/cat/0.jpg"));
    Tensor last({DType::kF32, {1, 16, 16, 3}});
    rows->read(5, last);
    EXPECT_TRUE(last.same_bits(read(folder_.path("eval/dog/5.PNG"), options)));
  }
  const DataOptions options{.kind = DataKind::kImages, .path = folder_.path("eval"), .size = 16};
  EXPECT_THAT(user_error([&] { open(folder_.path("eval/cat/notes.txt"), options); }),
              has("notes.txt' is no picture by its name", "or a folder of them"));
  EXPECT_THAT(user_error([&] { open(folder_.path("none"), options); }),
              has("cannot open '", "none': No such file"));
  EXPECT_THAT(user_error([&] { open(folder_.path("none.png"), options); }), has("No such file"));
  // Behind links, too, but not from within what they lead to, nor behind one to nothing.
  const std::filesystem::path linked = folder_.path("linked");
  std::filesystem::create_directory(linked);
  std::filesystem::create_directory_symlink(folder_.path("eval/cat"), linked / "cat");
  std::filesystem::create_directory_symlink(".", linked / "here");
  std::filesystem::create_directory_symlink("nothing", linked / "gone.png");
  EXPECT_EQ(open(linked.string(), options)->names().size(), 3);
  folder_.write("bad/a.jpg", "\xff\xd8\xff");
  EXPECT_THAT(user_error([&] { read(folder_.path("bad"), options); }),
              has("cannot use picture '", "bad/a.jpg", "leave the file out"));
}

TEST_F(SampleFiles, OfAModelThatSaysNothingOfItsData) {
  TrainObserver nobody;
  EXPECT_EQ(open_samples("x.npy", nullptr, data::Crop::kNone, nobody), nullptr);
  EXPECT_EQ(array_note("x.npy", nullptr), "");
  EXPECT_THAT(user_error([&] { open_samples("x.csv", nullptr, data::Crop::kNone, nobody); }),
              has("'x.csv' is no array", "give a FILE.npy", "or --preprocess"));
}

TEST_F(SampleFiles, OtherDataHaveNone) {
  const DataOptions options{.kind = DataKind::kRandom};
  EXPECT_EQ(open("x.npy", options), nullptr);
  EXPECT_EQ(user_error([&] { open("x.txt", options); }),
            "'x.txt' is no array, and data of kind 'random' have no files of samples; give a "
            "FILE.npy or FILE.npz with what the model takes");
}

}  // namespace
}  // namespace ridge::test
