// `ridge predict MODEL.onnx`: arrays in files through a model of ONNX's, and what users get wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "ridge/base/cpu/parallel.h"
#include "ridge/base/settings.h"
#include "ridge/cli/common/threads.h"
#include "ridge/io/file.h"
#include "ridge/io/npy.h"
#include "ridge/io/png.h"
#include "tests/cli/ridge_process.h"
#include "tests/cli/run_words.h"
#include "tests/import/model_bytes.h"
#include "tests/support/temp_folder.h"

namespace ridge::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class PredictOnnx : public testing::Test {
 protected:
  // "sum" (N, 3) of x and y, and "/all", its greatest number.
  PredictOnnx() {
    model_ = write(
        "model.onnx",
        model_bytes(
            {.nodes = {node_bytes("Add", {"x", "y"}, {"sum"}),
                       node_bytes("ReduceMax", {"sum"}, {"/all"}, {int_attribute("keepdims", 0)})},
             .initializers = {},
             .inputs = {value_bytes("x", kFloat, {"N", 3}), value_bytes("y", kFloat, {3})},
             .outputs = {value_bytes("sum", kFloat, {"N", 3}), value_bytes("/all", kFloat, {})}}));
    array("x.npy", {DType::kF32, {2, 3}}, 1);
    array("y.npy", {DType::kF32, {3}}, 10);
  }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string write(const std::string& name, const std::string& bytes) const {
    write_file_atomically(path(name), bytes);
    return path(name);
  }
  // first, first + 1, ...
  void array(const std::string& name, const TensorType& type, double first) const {
    Tensor tensor(type);
    for (int64_t i = 0; i < tensor.elements(); ++i) tensor.set(i, first + static_cast<double>(i));
    write_npy(path(name), tensor);
  }
  Outcome predict(const std::vector<std::string>& more = {},
                  const std::string& y = "y.npy",
                  const std::string& output = "out.npz") const {
    std::vector<std::string> words{
        "predict", model_, "--input", "x=" + path("x.npy"), "--output", path(output)};
    if (!y.empty()) words.insert(words.end(), {"--input", "y=" + path(y)});
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }
  // One error on stderr, and nothing else.
  static std::string error(const Outcome& outcome) {
    EXPECT_EQ(outcome.code, 2) << outcome.out;
    EXPECT_EQ(outcome.out, "");
    return outcome.err;
  }

  TempFolder folder_;
  std::string model_;
};

TEST_F(PredictOnnx, WritesItsOutputs) {
  const Outcome outcome = predict({"--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["schema"], "ridge.predict/1");
  EXPECT_EQ(json["model"], "onnx");
  EXPECT_EQ(json["weights"], model_);
  EXPECT_EQ(json["rows"], 0);  // the greatest number is none of a row
  const MappedFile file(path("out.npz"));
  const NpzView arrays(file.bytes(), "out.npz");
  EXPECT_EQ(arrays.read("sum").type(), (TensorType{DType::kF32, {2, 3}}));
  EXPECT_EQ(arrays.read("sum").at(5), 18);
  EXPECT_EQ(arrays.read("/all").type(), (TensorType{DType::kF32, {}}));
  EXPECT_EQ(arrays.read("/all").at(0), 18);
}

TEST_F(PredictOnnx, SaysWhatIsWrongWithItsData) {
  EXPECT_THAT(error(predict({}, "")),
              HasSubstr("input 'y' is missing; give x f32[N,3] and y f32[3]"));
  EXPECT_THAT(error(predict({"--input", "z=" + path("y.npy")})), HasSubstr("no input 'z'"));
  array("wide.npy", {DType::kF32, {4}}, 0);
  EXPECT_THAT(error(predict({}, "wide.npy")),
              AllOf(HasSubstr("wide.npy"), HasSubstr("got f32[4], expected f32[3]")));
  array("whole.npy", {DType::kI64, {3}}, 0);
  EXPECT_THAT(error(predict({}, "whole.npy")),
              AllOf(HasSubstr("has another dtype"), HasSubstr("got i64[3], expected f32[3]")));
  EXPECT_THAT(error(predict({}, "y.npy", "out.npy")), HasSubstr("an .npy holds one array"));
  EXPECT_THAT(error(predict({}, "y.npy", "folder")), HasSubstr("cannot be the name of a file"));
  write("pictures.zip", "no array");
  EXPECT_THAT(error(predict({}, "pictures.zip")), HasSubstr("pictures.zip"));
}

TEST_F(PredictOnnx, RunsNothingWhereStdoutIsFull) {
  array("x.npy", {DType::kF32, {2, 3}}, 0);
  for (const char* shell : {"exec >/dev/full;", "exec >&-;"}) {
    const Ended ended =
        ridge(folder_.path(),
              {"predict", model_, "--input", "x=" + path("x.npy"), "--output", path("never.npy")},
              shell);
    EXPECT_EQ(ended.code, 2);
    EXPECT_THAT(ended.err, testing::StartsWith("error: cannot write to stdout: "));
    EXPECT_FALSE(std::filesystem::exists(path("never.npy")));
  }
}

// Square roots of negative numbers.
TEST_F(PredictOnnx, NamesNoClassWhereAScoreIsNan) {
  write("model.onnx",
        model_bytes({.nodes = {node_bytes("Sqrt", {"x"}, {"y"})},
                     .initializers = {},
                     .inputs = {value_bytes("x", kFloat, {"N", 3})},
                     .outputs = {value_bytes("y", kFloat, {"N", 3})}}));
  Tensor x({DType::kF32, {4, 3}});
  const double numbers[] = {1, 4, 2, -1, 2, 3, 3, -1, 2, 9, 1, 1};
  for (int64_t i = 0; i < x.elements(); ++i) x.set(i, numbers[i]);
  write_npy(path("x.npy"), x);
  write("names.txt", "red\ngreen\nblue\n");
  const Outcome outcome = run({"predict",
                               model_,
                               "--input",
                               path("x.npy"),
                               "--output",
                               path("y.npy"),
                               "--classes",
                               path("names.txt"),
                               "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err,
            "note: 2 of 4 rows have scores that are NaN, at first row 1: their argmax is null\n");
  EXPECT_EQ(nlohmann::json::parse(outcome.out)["argmax"],
            nlohmann::json::parse("[1, null, null, 0]"));
}

// The mean of each channel is the score of a class.
TEST_F(PredictOnnx, PreparesPicturesAndNamesClasses) {
  const auto color = [&](const char* name, std::initializer_list<uint8_t> rgb) {
    std::vector<uint8_t> pixels;
    for (int i = 0; i < 32 * 24; ++i) pixels.insert(pixels.end(), rgb);
    write(name, std::string(as_text(encode_png(pixels, {32, 24}))));
  };
  std::filesystem::create_directory(path("pictures"));
  color("pictures/a.png", {0, 255, 0});
  color("pictures/b.png", {0, 0, 255});
  color("pictures/c.png", {255, 0, 0});
  const auto means = [](const std::vector<NamedSize>& x) {
    return model_bytes(
        {.nodes = {node_bytes("ReduceMean",
                              {"x"},
                              {"y"},
                              {ints_attribute("axes", {2, 3}), int_attribute("keepdims", 0)})},
         .initializers = {},
         .inputs = {value_bytes("x", kFloat, x)},
         .outputs = {value_bytes("y", kFloat, {1, 3})}});
  };
  write("model.onnx", means({"N", 3, 16, 16}));
  write("p.toml", "resize = 18\ncrop = 16\nmean = [0, 0.5, 0]\ndeviation = [1, 0.5, 1]\n");
  write("names.txt", "red\ngreen\r\nblue\n");
  const auto predict_pictures = [&](const std::vector<std::string>& more,
                                    const std::string& input = "pictures") {
    std::vector<std::string> words{
        "predict", model_, "--input", path(input), "--output", path("y.npy"), "--json"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  };
  const Outcome outcome = predict_pictures(
      {"--preprocess", path("p.toml"), "--classes", path("names.txt"), "--batch", "2"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["rows"], 3);
  EXPECT_EQ(json["batches"], 2);
  EXPECT_EQ(json["inputs"][0]["type"], "f32[3,3,16,16]");
  EXPECT_EQ(json["inputs"][0]["files"][1], path("pictures/b.png"));
  EXPECT_EQ(json["classes"], (std::vector<std::string>{"red", "green", "blue"}));
  EXPECT_EQ(json["argmax"], (std::vector<int>{1, 2, 0}));
  const Tensor y = read_npy(path("y.npy"));
  const double wanted[] = {0, 1, 0, 0, -1, 1, 1, -1, 0};
  for (int64_t i = 0; i < 9; ++i) EXPECT_NEAR(y.at(i), wanted[i], 1e-3) << i;

  EXPECT_THAT(error(predict_pictures({})),
              AllOf(HasSubstr("does not say how samples are read"), HasSubstr("--preprocess")));
  EXPECT_THAT(error(predict_pictures({"--preprocess", "imagenet"})),
              AllOf(HasSubstr("prepared as f32[3,3,224,224]"), HasSubstr("f32[N,3,16,16]")));
  array("planes.npy", {DType::kF32, {1, 3, 16, 16}}, 0);
  EXPECT_THAT(error(predict_pictures({"--preprocess", "imagenet"}, "planes.npy")),
              HasSubstr("arrays are taken as they are"));
  EXPECT_THAT(error(predict_pictures({"--preprocess", path("p.toml")}, "names.txt")),
              HasSubstr("is no picture by its name"));
  write("pictures/d.png", "no picture");
  EXPECT_THAT(error(predict_pictures({"--preprocess", path("p.toml")})),
              HasSubstr("pictures/d.png': neither a JPEG nor a PNG"));
  EXPECT_THAT(error(predict_pictures({"--classes", path("p.toml")}, "pictures/a.png")),
              HasSubstr("has 4 lines, and the model gives y f32[N,3]"));
  const Outcome trained = run({"predict",
                               path("p.toml"),
                               "--input",
                               path("pictures"),
                               "--output",
                               path("y.npy"),
                               "--preprocess",
                               "imagenet"});
  EXPECT_THAT(error(trained), HasSubstr("is for ONNX models"));
}

TEST_F(PredictOnnx, TakesSettings) {
  EXPECT_EQ(predict({"--set", "threads=3", "--set", "tune=false"}).code, 0);
  EXPECT_EQ(num_threads(), 3);
  EXPECT_EQ(predict({"--set", "threads=2"}).code, 0);
  EXPECT_EQ(num_threads(), 2);
  EXPECT_THAT(error(predict({"--set", "threads=x"})),
              HasSubstr("setting 'threads' from flag --set: got 'x'"));
  settings().set("tune", "true", Source::kFlag);
  set_threads("0", "a test");
}

TEST_F(PredictOnnx, HasNoConfigurationAndNoOtherWeights) {
  EXPECT_THAT(error(predict({"--set", "train.steps=3"})),
              HasSubstr("has no configuration; leave out 'train.steps'"));
  EXPECT_THAT(error(predict({"--weights", "runs/digits"})), HasSubstr("has weights of its own"));
}

TEST_F(PredictOnnx, TellsAllOperatorsThatItHasNot) {
  const std::vector<ProtoBytes> x{value_bytes("x", kFloat, {"N", 3})};
  model_ = write("model.onnx",
                 model_bytes({.nodes = {node_bytes("Det", {"x"}, {"a"}, {}, "first"),
                                        node_bytes("TfIdfVectorizer", {"x"}, {"b"}),
                                        node_bytes("Det", {"x"}, {"y"}, {}, "second")},
                              .initializers = {},
                              .inputs = x,
                              .outputs = {value_bytes("y", kFloat, {1})}}));
  EXPECT_THAT(error(predict()),
              AllOf(HasSubstr("3 of its nodes cannot be imported:"),
                    HasSubstr("2 x Det: the operator is not supported (first, second)"),
                    HasSubstr("1 x TfIdfVectorizer: the operator is not supported (b)")));
}

TEST_F(PredictOnnx, RefusesFilesThatAreNoModel) {
  const std::string whole = read_file(model_);
  write("model.onnx", whole.substr(0, whole.size() / 2));
  EXPECT_THAT(error(predict()), HasSubstr("no ONNX model, or a damaged one"));
  write("model.onnx", "[data]\nkind = \"idx\"\n");
  EXPECT_THAT(error(predict()), HasSubstr("no ONNX model"));
  model_ = path("none.onnx");
  EXPECT_THAT(error(predict()), HasSubstr("none.onnx"));
}

}  // namespace
}  // namespace ridge::test
