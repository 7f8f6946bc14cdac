// IDX and table data sets: contents, normalisation, splits, and what is refused.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <set>

#include "ridge/data/loader.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/errors.h"

namespace ridge::data {
namespace {

using test::TemporaryFolder;
using test::user_error;

/// The header of an IDX file of u8 and the given sizes.
std::string idx_header(const std::vector<int64_t>& sizes) {
  std::string header{0, 0, 8, static_cast<char>(sizes.size())};
  for (int64_t size : sizes)
    for (int shift : {24, 16, 8, 0}) header.push_back(static_cast<char>(size >> shift));
  return header;
}

/// n images of 4 x 3; pixel (y, x) of image i is 20 i + 3 y + x + 1, its label i mod 3.
struct IdxFolder {
  explicit IdxFolder(int64_t n) {
    std::string images = idx_header({n, 4, 3}), labels = idx_header({n});
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t p = 0; p < 12; ++p) images.push_back(static_cast<char>(20 * i + p + 1));
      labels.push_back(static_cast<char>(i % 3));
    }
    options.kind = DataKind::kIdx;
    options.path = folder.write("images", images);
    options.labels = folder.write("labels", labels);
  }
  TemporaryFolder folder;
  DataOptions options;
};

struct Sample {
  std::vector<float> x;
  int64_t y = -1;
};

Sample read(const Dataset& dataset, int64_t index, const SampleKey& key = {}) {
  Sample sample{std::vector<float>(static_cast<size_t>(dataset.fields()[0].elements()))};
  const std::array<void*, 2> out{sample.x.data(), &sample.y};
  const auto scratch = dataset.make_scratch(nullptr);
  dataset.read(index, key, out, *scratch);
  return sample;
}

TEST(Idx, ValuesLabelsAndSplits) {
  IdxFolder idx(10);
  idx.options.eval_fraction = 0.3;
  const auto train = open_dataset(idx.options, Split::kTrain);
  const auto eval = open_dataset(idx.options, Split::kEval);
  EXPECT_EQ(train->size(), 7);
  EXPECT_EQ(eval->size(), 3);
  EXPECT_EQ(train->classes(), 3);
  EXPECT_EQ(train->fields()[0], (FieldType{"x", DType::kF32, {4, 3, 1}}));
  std::set<int64_t> images;
  for (const auto* dataset : {train.get(), eval.get()})
    for (int64_t i = 0; i < dataset->size(); ++i) {
      const Sample sample = read(*dataset, i);
      const int64_t image = std::lround(sample.x[0] * 255 - 1) / 20;
      images.insert(image);
      EXPECT_EQ(sample.y, image % 3);
      for (int64_t p = 0; p < 12; ++p)
        EXPECT_FLOAT_EQ(sample.x[p], static_cast<float>(20 * image + p + 1) / 255);
    }
  EXPECT_EQ(images.size(), 10u);
  idx.options.mean = {0.5};
  idx.options.deviation = {0.25};
  const auto normal = open_dataset(idx.options, Split::kTrain);
  EXPECT_NEAR(read(*normal, 0).x[0], (read(*train, 0).x[0] - 0.5) / 0.25, 1e-6);
}

TEST(Idx, ShiftsAndMirrorsInTraining) {
  IdxFolder idx(10);
  idx.options.eval_path = idx.options.path;
  idx.options.eval_labels = idx.options.labels;
  const Sample plain = read(*open_dataset(idx.options, Split::kEval), 2);
  idx.options.shift = 1;
  idx.options.flip = true;
  const auto train = open_dataset(idx.options, Split::kTrain);
  std::set<std::vector<float>> seen;
  for (int64_t epoch = 0; epoch < 300; ++epoch) {
    const Sample sample = read(*train, 2, {1, epoch, 2});
    EXPECT_EQ(sample.x, read(*train, 2, {1, epoch, 2}).x);
    seen.insert(sample.x);
  }
  // Every one of 3 x 3 places, each mirrored or not: built here by moving a padded copy.
  std::set<std::vector<float>> expected;
  for (int64_t down = -1; down <= 1; ++down)
    for (int64_t right = -1; right <= 1; ++right)
      for (bool mirrored : {false, true}) {
        std::array<std::array<float, 5>, 6> padded{};
        for (int64_t y = 0; y < 4; ++y)
          for (int64_t x = 0; x < 3; ++x) {
            const int64_t to_x = x + right, to_y = y + down;
            if (to_x >= 0 && to_x < 3) padded[to_y + 1][to_x + 1] = plain.x[3 * y + x];
          }
        std::vector<float> image;
        for (int64_t y = 0; y < 4; ++y)
          for (int64_t x = 0; x < 3; ++x)
            image.push_back(padded[y + 1][1 + (mirrored ? 2 - x : x)]);
        expected.insert(image);
      }
  EXPECT_EQ(seen, expected);
  EXPECT_EQ(read(*open_dataset(idx.options, Split::kEval), 2, {5, 6, 7}).x, plain.x);
}

TEST(Idx, Refusals) {
  IdxFolder idx(10);
  const auto refusal = [&](Split split) {
    return user_error([&] { open_dataset(idx.options, split); });
  };
  const std::string images = idx.options.path, labels = idx.options.labels;
  idx.options.labels = idx.folder.write("nine", idx_header({9}) + std::string(9, 0));
  EXPECT_NE(refusal(Split::kTrain).find("10 images, but"), std::string::npos);
  EXPECT_NE(refusal(Split::kTrain).find("9 labels"), std::string::npos);
  idx.options.labels = images;
  EXPECT_NE(refusal(Split::kTrain).find("labels are u8 with 1 size"), std::string::npos);
  idx.options.labels.clear();
  EXPECT_NE(refusal(Split::kTrain).find("no file of labels"), std::string::npos);
  idx.options.labels = labels;
  idx.options.path = idx.folder.write("cut", idx_header({10, 4, 3}) + std::string(119, 1));
  EXPECT_NE(refusal(Split::kTrain).find("cut"), std::string::npos);
  idx.options.path = idx.folder.path("none");
  EXPECT_NE(refusal(Split::kTrain).find("none"), std::string::npos);
  idx.options.path = images;
  idx.options.shift = 3;
  EXPECT_NE(refusal(Split::kTrain).find("shift is 3"), std::string::npos);
  idx.options.shift = 0;
  idx.options.eval_path = idx.folder.write("wide", idx_header({1, 2, 6}) + std::string(12, 1));
  idx.options.eval_labels = idx.folder.write("one", idx_header({1}) + std::string(1, 0));
  EXPECT_NE(refusal(Split::kEval).find("images of 2 x 6"), std::string::npos);
  idx.options.eval_path = idx.folder.write("new", idx_header({1, 4, 3}) + std::string(12, 1));
  idx.options.eval_labels = idx.folder.write("seven", idx_header({1}) + std::string(1, 7));
  EXPECT_NE(refusal(Split::kEval).find("label 7, which the training data has not"),
            std::string::npos);
}

TEST(Idx, FashionMnist) {
  const std::string folder = "/usr/share/datasets/fashion-mnist/";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "dataset-fashion-mnist is not installed";
  const DataOptions options{.kind = DataKind::kIdx,
                            .path = folder + "train-images-idx3-ubyte.gz",
                            .labels = folder + "train-labels-idx1-ubyte.gz",
                            .eval_path = folder + "t10k-images-idx3-ubyte.gz",
                            .eval_labels = folder + "t10k-labels-idx1-ubyte.gz"};
  const auto train = open_dataset(options, Split::kTrain);
  const auto eval = open_dataset(options, Split::kEval);
  EXPECT_EQ(train->size(), 60000);
  EXPECT_EQ(eval->size(), 10000);
  EXPECT_EQ(train->classes(), 10);
  // The mean of all training pixels, as everybody who normalises this data knows it: 0.2860.
  double total = 0;
  Loader loader(*train, {.batch = 1000, .repeat = false}, {.workers = 1});
  for (int i = 0; i < 60; ++i) {
    const auto* x = static_cast<const float*>(loader.next().fields[0]);
    for (int64_t p = 0; p < 784000; ++p) total += x[p];
  }
  EXPECT_NEAR(total / (60000.0 * 784), 0.2860, 5e-5);
}

DataOptions table_options(const std::string& path) {
  DataOptions options;
  options.kind = DataKind::kTable;
  options.path = path;
  options.eval_path = path;
  return options;
}

TEST(Table, StandardisesAndNumbersClasses) {
  const TemporaryFolder folder;
  const auto path = folder.write("t.csv", "a,label,b\n1,cat,10\n3,dog,\n5,cat,10\n");
  const auto dataset = open_dataset(table_options(path), Split::kTrain);
  ASSERT_EQ(dataset->size(), 3);
  EXPECT_EQ(dataset->fields()[0], (FieldType{"x", DType::kF32, {2}}));
  EXPECT_EQ(dataset->fields()[1], (FieldType{"y", DType::kI64, {}}));
  EXPECT_EQ(dataset->description().class_names, (std::vector<std::string>{"cat", "dog"}));
  // Mean 3 and deviation sqrt(8/3); b is the same everywhere, and missing once.
  EXPECT_NEAR(read(*dataset, 0).x[0], -2 / std::sqrt(8.0 / 3), 1e-6);
  EXPECT_EQ(read(*dataset, 1).x, (std::vector<float>{0, 0}));
  EXPECT_EQ(read(*dataset, 1).y, 1);
  EXPECT_EQ(read(*dataset, 2).y, 0);

  // Another file is standardised by the training rows, and its classes are theirs.
  DataOptions options = table_options(path);
  options.eval_path = folder.write("e.csv", "a,label,b\n7,dog,11\n");
  const auto eval = open_dataset(options, Split::kEval);
  EXPECT_NEAR(read(*eval, 0).x[0], 4 / std::sqrt(8.0 / 3), 1e-6);
  EXPECT_NEAR(read(*eval, 0).x[1], 1, 1e-6);
  EXPECT_EQ(read(*eval, 0).y, 1);
}

TEST(Table, RegressionAndWholeNumbersAsClasses) {
  const TemporaryFolder folder;
  std::string text = "x,label\n";
  for (int i = 0; i < 20; ++i) text += fmt::format("{},{}\n", i, i % 2 == 0 ? 10 : 9);
  DataOptions options = table_options(folder.write("t.csv", text));
  options.eval_path.clear();
  const auto train = open_dataset(options, Split::kTrain),
             eval = open_dataset(options, Split::kEval);
  EXPECT_EQ(train->size() + eval->size(), 20);
  EXPECT_EQ(eval->description().class_names, (std::vector<std::string>{"9", "10"}));
  // Training rows have mean 0 and deviation 1 by themselves.
  double total = 0, squares = 0;
  for (int64_t i = 0; i < 18; ++i) {
    total += read(*train, i).x[0];
    squares += std::pow(read(*train, i).x[0], 2);
  }
  EXPECT_NEAR(total, 0, 1e-5);
  EXPECT_NEAR(squares, 18, 1e-4);
  options.task = TableTask::kRegress;
  const auto numbers = open_dataset(options, Split::kTrain);
  EXPECT_EQ(numbers->classes(), 0);
  EXPECT_EQ(numbers->fields()[1], (FieldType{"y", DType::kF32, {}}));
  std::array<float, 1> x{};
  float y = 0;
  const std::array<void*, 2> out{x.data(), &y};
  numbers->read(0, {}, out, *numbers->make_scratch(nullptr));
  EXPECT_TRUE(y == 9 || y == 10);
}

/// An NPY file of f64.
std::string npy(const std::string& shape, const std::vector<double>& values) {
  std::string header = "{'descr': '<f8', 'fortran_order': False, 'shape': (" + shape + "), }";
  header.resize(117, ' ');
  header += '\n';
  std::string file("\x93NUMPY\x01\x00", 8);
  file += static_cast<char>(header.size());
  file += '\0';
  file += header;
  file.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double));
  return file;
}

TEST(Table, NpyWithTheTargetLastOrApart) {
  const TemporaryFolder folder;
  const auto path = folder.write("t.npy", npy("2, 3", {1, 5, 0, 3, 9, 1}));
  const auto last = open_dataset(table_options(path), Split::kTrain);
  EXPECT_EQ(last->fields()[0].shape, (std::vector<int64_t>{2}));
  EXPECT_EQ(read(*last, 1).y, 1);
  EXPECT_EQ(read(*last, 1).x, (std::vector<float>{1, 1}));
  DataOptions options = table_options(path);
  options.labels = options.eval_labels = folder.write("y.npy", npy("2,", {4, 2}));
  const auto apart = open_dataset(options, Split::kTrain);
  EXPECT_EQ(apart->fields()[0].shape, (std::vector<int64_t>{3}));
  EXPECT_EQ(read(*apart, 0).y, 1);
  options.labels = folder.write("y3.npy", npy("3,", {4, 2, 1}));
  EXPECT_NE(user_error([&] { open_dataset(options, Split::kTrain); }).find("has 2 rows, but"),
            std::string::npos);
}

TEST(Table, Refusals) {
  const TemporaryFolder folder;
  const auto refusal = [&](const std::string& text, TableTask task = TableTask::kClassify) {
    DataOptions options = table_options(folder.write("t.csv", text));
    options.task = task;
    return user_error([&] { open_dataset(options, Split::kTrain); });
  };
  EXPECT_NE(refusal("a,labl\n1,2\n").find("label"), std::string::npos);
  EXPECT_NE(refusal("a,label\nx,2\n").find("'x' is not a number"), std::string::npos);
  EXPECT_NE(refusal("a,label\n1,2.5\n").find("the target 2.5 is no class"), std::string::npos);
  EXPECT_NE(refusal("a,label\n1,\n2,3\n").find("row 1 has no target"), std::string::npos);
  EXPECT_NE(refusal("label\n1\n").find("no column beside the target"), std::string::npos);
  EXPECT_NE(refusal("a,label\n1,cat\n", TableTask::kRegress).find("is text"), std::string::npos);
  DataOptions options = table_options(folder.write("t.csv", "a,label\n1,cat\n"));
  options.eval_path = folder.write("e.csv", "a,label\n1,cow\n");
  EXPECT_NE(user_error([&] { open_dataset(options, Split::kEval); }).find("class 'cow'"),
            std::string::npos);
  options.eval_path = folder.write("e.csv", "b,label\n1,cat\n");
  EXPECT_NE(user_error([&] {
              open_dataset(options, Split::kEval);
            }).find("has no column 'a', which the model was trained on"),
            std::string::npos);
}

}  // namespace
}  // namespace ridge::data
