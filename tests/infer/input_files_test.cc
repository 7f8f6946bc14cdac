// Inputs from files: names, dtypes, shapes, and what is said of those that do not fit.
#include "ridge/infer/input_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ridge/io/file.h"
#include "ridge/io/npy.h"
#include "tests/support/errors.h"
#include "tests/support/has.h"
#include "tests/support/temp_folder.h"

namespace ridge::test {
namespace {

const std::vector<DataSpec> kOne = {{"x", DType::kF32, {"B", 2}}};
const std::vector<DataSpec> kTwo = {{"image", DType::kF32, {"B", 2}},
                                    {"words", DType::kI64, {"B", Dim("T", 4)}}};

class Notes final : public TrainObserver {
 public:
  void on_message(std::string_view text) override { notes.emplace_back(text); }
  std::vector<std::string> notes;
};

Tensor tensor_of(TensorType type, const std::vector<double>& values) {
  Tensor tensor(std::move(type));
  for (size_t i = 0; i < values.size(); ++i) tensor.set(static_cast<int64_t>(i), values[i]);
  return tensor;
}

class InputFiles : public testing::Test {
 protected:
  std::string npy(TensorType type, const std::vector<double>& values) {
    const std::string path = folder_ / "a.npy";
    write_npy(path, tensor_of(std::move(type), values));
    return path;
  }
  NamedRows read(const std::vector<std::string>& texts, const std::vector<DataSpec>& specs) {
    const auto samples = [](const DataSpec& spec,
                            const std::string& path) -> std::unique_ptr<InputRows> {
      if (path.ends_with(".npy")) return nullptr;
      throw UserError(fmt::format("samples of {} for {}", path, spec.name));
    };
    return read_inputs(parse_input_files(texts, specs), specs, samples, notes_);
  }
  Tensor read_one(const std::string& text, const std::vector<DataSpec>& specs = kOne) {
    const NamedRows rows = read({text}, specs);
    Tensor tensor(rows.begin()->second->type());
    rows.begin()->second->read(0, tensor);
    return tensor;
  }
  std::string error_of(const std::string& text, const std::vector<DataSpec>& specs = kOne) {
    return user_error([&] { read({text}, specs); });
  }

  TempFolder folder_;
  Notes notes_;
};

TEST_F(InputFiles, NamesAreThoseOfTheModel) {
  const auto parsed = [](const std::string& text, const std::vector<DataSpec>& specs) {
    const InputFile file = parse_input_files({text}, specs)[0];
    return file.input + "|" + file.path;
  };
  EXPECT_EQ(parsed("x=a.npy", kOne), "x|a.npy");
  EXPECT_EQ(parsed("a.npy", kOne), "x|a.npy");
  EXPECT_EQ(parsed("words=a=b.npy", kTwo), "words|a=b.npy");
  EXPECT_EQ(parsed("a.npz", kTwo), "|a.npz");
  EXPECT_EQ(parsed("a.npz", kOne), "x|a.npz");
  write_file_atomically(folder_ / "a=b.npy", "");
  EXPECT_EQ(parsed(folder_ / "a=b.npy", kOne), "x|" + (folder_ / "a=b.npy").string());
  EXPECT_EQ(
      user_error([&] { parsed("word=a.npy", kTwo); }),
      "the model has no input 'word', only image f32[B,2] and words i64[B,T<=4]; did you mean "
      "'words'?");
  EXPECT_EQ(user_error([&] { parsed("a.npy", kTwo); }),
            "'a.npy' is for no input by name: the model takes image f32[B,2] and words "
            "i64[B,T<=4]; write image=FILE");
  EXPECT_THAT(user_error([&] { parse_input_files({"x=a.npy", "b.npy"}, kOne); }),
              has("input 'x' is given twice"));
}

TEST_F(InputFiles, LikeDtypesAreConverted) {
  const std::vector<double> values = {1.5, -2, 0.1, 65504};
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16}) {
    const Tensor read = read_one(npy({dtype, {2, 2}}, values));
    ASSERT_EQ(to_string(read.type()), "f32[2,2]");
    for (int64_t i = 0; i < 4; ++i)
      EXPECT_EQ(read.at(i), static_cast<float>(tensor_of({dtype, {2, 2}}, values).at(i)));
  }
  const std::vector<DataSpec> words = {kTwo[1]};
  for (const DType dtype : kAllDTypes) {
    if (!is_integer(dtype)) continue;
    const Tensor read = read_one(npy({dtype, {1, 3}}, {0, 5, 100}), words);
    ASSERT_EQ(to_string(read.type()), "i64[1,3]");
    EXPECT_EQ(read.at(2), 100);
  }
  const std::vector<DataSpec> bytes = {{"x", DType::kU8, {"B"}}};
  EXPECT_EQ(read_one(npy({DType::kI64, {2}}, {0, 255}), bytes).at(1), 255);
}

TEST_F(InputFiles, WhatWouldBeLostIsRefused) {
  const std::string path = npy({DType::kF64, {2, 2}}, {0, 0, 1e300, 0});
  EXPECT_EQ(error_of(path),
            fmt::format("'{}': input 'x' is 1e+300 at [1,0], beyond f32; got f64[2,2], expected "
                        "f32[B,2]; scale it, or leave its row out",
                        path));
  const std::vector<DataSpec> bytes = {{"x", DType::kU8, {"B"}}};
  EXPECT_THAT(error_of(npy({DType::kI64, {2}}, {0, 256}), bytes),
              has("is 256", "at [1], beyond u8"));
  EXPECT_THAT(error_of(npy({DType::kI8, {2}}, {0, -1}), bytes), has("at [1], beyond u8"));
  const std::vector<DataSpec> ints = {{"x", DType::kI32, {"B"}}};
  EXPECT_THAT(error_of(npy({DType::kI64, {1}}, {9.1e18}), ints), has("at [0], beyond i32"));
  for (const DType dtype : {DType::kI64, DType::kU8, DType::kBool})
    EXPECT_EQ(error_of(npy({dtype, {2, 2}}, {})),
              fmt::format("'{}': input 'x' has another dtype; got {}[2,2], expected f32[B,2]",
                          path,
                          name_of(dtype)));
  EXPECT_THAT(error_of(npy({DType::kF32, {1}}, {}), ints), has("has another dtype"));
}

TEST_F(InputFiles, WhatIsNotFiniteIsRefused) {
  for (const double value : {std::nan(""), HUGE_VAL, -HUGE_VAL})
    for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16})
      EXPECT_THAT(
          error_of(npy({dtype, {2, 2}}, {0, 0, 0, value})),
          has(fmt::format("input 'x' is {} at [1,1]", value), "finite numbers", "fill it in"));
}

TEST_F(InputFiles, ShapesThatDoNotFitAreRefusedWithTheFile) {
  const std::string path = npy({DType::kF32, {2, 3}}, {});
  EXPECT_EQ(error_of("x=" + path),
            fmt::format("'{}': input 'x' has another size in dimension 1; got f32[2,3], expected "
                        "f32[B,2]",
                        path));
  EXPECT_THAT(error_of(npy({DType::kF32, {2}}, {})), has("another number of dimensions"));
  const std::string words = folder_ / "words.npy";
  write_npy(words, Tensor({DType::kI64, {3, 4}}));
  EXPECT_EQ(user_error(
                [&] { read({"image=" + npy({DType::kF32, {2, 2}}, {}), "words=" + words}, kTwo); }),
            fmt::format("'{}': input 'words' has another 'B' than 2, which came before; got "
                        "i64[3,4], expected i64[B,T<=4]",
                        words));
}

TEST_F(InputFiles, ArraysOfAnNpzGoByTheirNames) {
  NamedTensors arrays;
  arrays.emplace("image", tensor_of({DType::kF64, {1, 2}}, {3, 4}));
  arrays.emplace("words", tensor_of({DType::kI32, {1, 2}}, {5, 6}));
  arrays.emplace("y", Tensor({DType::kF16, {7}}));
  const std::string path = folder_ / "all.npz", alone = folder_ / "alone.npz";
  write_npz(path, arrays);
  const NamedRows rows = read({path}, kTwo);
  EXPECT_EQ(rows.size(), 2);
  EXPECT_EQ(to_string(rows.at("words")->type()), "i64[1,2]");
  EXPECT_EQ(notes_.notes,
            std::vector<std::string>{
                fmt::format("'{}': array 'y' is for no input of the model and is left out", path)});
  EXPECT_EQ(read_one("image=" + path, {kTwo[0]}).at(1), 4);
  EXPECT_EQ(error_of(path), path + ": there is no array 'x'; did you mean 'y'?");
  arrays.erase("words");
  arrays.erase("y");
  write_npz(alone, arrays);
  EXPECT_EQ(read_one(alone).at(0), 3);  // it needs no name
}

TEST_F(InputFiles, FilesThatCannotBeReadAreNamed) {
  EXPECT_THAT(error_of("none.npy"), has("cannot open 'none.npy'", "No such file"));
  EXPECT_THAT(error_of("none.npz"), has("cannot open 'none.npz'", "No such file"));
  const std::string npy = folder_ / "short.npy", npz = folder_ / "short.npz";
  write_file_atomically(npy, "\x93NUMPY");
  write_file_atomically(npz, "PK");
  EXPECT_EQ(error_of(npy), npy + ": not an NPY file");
  EXPECT_EQ(error_of(npz), npz + ": not a ZIP archive");
  EXPECT_EQ(error_of("a.txt"), "samples of a.txt for x");
  EXPECT_EQ(error_of(folder_.path()), fmt::format("samples of {} for x", folder_.path().string()));
}

}  // namespace
}  // namespace ridge::test
