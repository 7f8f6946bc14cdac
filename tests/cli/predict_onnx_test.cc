// `ridge predict MODEL.onnx`: arrays in files through a model of ONNX's, and what users get wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "ridge/io/file.h"
#include "ridge/io/npy.h"
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

TEST_F(PredictOnnx, HasNoConfigurationAndNoOtherWeights) {
  EXPECT_THAT(error(predict({"--set", "train.steps=3"})),
              HasSubstr("has no configuration; leave out 'train.steps'"));
  EXPECT_THAT(error(predict({"--weights", "runs/digits"})), HasSubstr("has weights of its own"));
}

TEST_F(PredictOnnx, TellsAllOperatorsThatItHasNot) {
  const std::vector<ProtoBytes> x{value_bytes("x", kFloat, {"N", 3})};
  model_ = write("model.onnx",
                 model_bytes({.nodes = {node_bytes("Det", {"x"}, {"a"}, {}, "first"),
                                        node_bytes("QuantizeLinear", {"x", "x"}, {"b"}),
                                        node_bytes("Det", {"x"}, {"y"}, {}, "second")},
                              .initializers = {},
                              .inputs = x,
                              .outputs = {value_bytes("y", kFloat, {1})}}));
  EXPECT_THAT(error(predict()),
              AllOf(HasSubstr("3 of its nodes cannot be imported:"),
                    HasSubstr("2 x Det: the operator is not supported (first, second)"),
                    HasSubstr("1 x QuantizeLinear: the operator is not supported (b)")));
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
