// `ridge inspect MODEL.onnx`: the program that a session runs, in numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ridge/io/file.h"
#include "tests/cli/run_words.h"
#include "tests/import/model_bytes.h"
#include "tests/support/has.h"
#include "tests/support/temp_folder.h"

namespace ridge::test {
namespace {

using nlohmann::json;

class InspectOnnx : public testing::Test {
 protected:
  // y (N, T, 5) = x (N, T, 40) times a matrix.
  InspectOnnx() {
    write({.nodes = {node_bytes("MatMul", {"x", "w"}, {"y"}, {}, "/head/MatMul")},
           .initializers = {floats_bytes("w", {40, 5}, ramp(200))},
           .inputs = {value_bytes("x", kFloat, {"N", "T", 40})},
           .outputs = {value_bytes("y", kFloat, {"N", "T", 5})}});
  }
  static std::vector<float> ramp(size_t count) {
    std::vector<float> numbers(count);
    for (size_t i = 0; i < count; ++i) numbers[i] = static_cast<float>(i);
    return numbers;
  }
  void write(const GraphParts& parts) const { write_file_atomically(model_, model_bytes(parts)); }
  Outcome inspect(const std::vector<std::string>& more) const {
    std::vector<std::string> words{"inspect", model_};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }
  // One error on stderr, and nothing else.
  std::string error(const std::vector<std::string>& more) const {
    const Outcome outcome = inspect(more);
    EXPECT_EQ(outcome.code, 2) << outcome.out;
    EXPECT_EQ(outcome.out, "");
    return outcome.err;
  }

  TempFolder folder_;
  std::string model_ = (folder_ / "model.onnx").string();
};

TEST_F(InspectOnnx, NumbersOfASmallModel) {
  const Outcome outcome = inspect({"--dim", "T=7", "--dim", "N=2", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  const json report = json::parse(outcome.out);
  EXPECT_EQ(report["schema"], "ridge.inspect/1");
  EXPECT_EQ(report["kind"], "model");
  EXPECT_EQ(report["model"], model_);
  EXPECT_EQ(report["dims"], json({{"N", 2}, {"T", 7}}));
  EXPECT_EQ(report["inputs"],
            json::parse(R"([{"name":"x","dims":"f32[N,T,40]","type":"f32[2,7,40]"}])"));
  EXPECT_EQ(report["outputs"],
            json::parse(R"([{"name":"y","dims":"f32[N,T,5]","type":"f32[2,7,5]"}])"));
  EXPECT_EQ(report["weights"], json::parse(R"({"count":200,"tensors":1,"bytes":800})"));
  const json& entry = report["entries"].at(0);
  EXPECT_GE(entry["flops"], 2.0 * 2 * 7 * 40 * 5);
  const json& first = report["nodes_by_cost"].at(0);
  EXPECT_EQ(first["flops"], 2.0 * 2 * 7 * 40 * 5);
  EXPECT_THAT(first["site"].get<std::string>(), testing::StartsWith("/head/MatMul:"));
  const json& memory = report["memory"];
  EXPECT_GE(memory["state_by_role"]["parameter"], 800);
  const auto bytes = [&](const char* of) { return memory[of].get<int64_t>(); };
  EXPECT_GE(bytes("lent_bytes") + bytes("passing_bytes"), 800);
  EXPECT_GE(
      bytes("planned_bytes"),
      bytes("state_bytes") - bytes("lent_bytes") - bytes("passing_bytes") + bytes("arena_bytes"));
}

TEST_F(InspectOnnx, TextHasAllParts) {
  const Outcome outcome = inspect({"--dim", "T=7", "--nodes", "--plan"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  EXPECT_THAT(outcome.out,
              has(model_ + " on cpu: 200 weights in 1 tensors, 800 B\n",
                  "dimensions\n  N = 1\n  T = 7\n",
                  "f32[N,T,40], here f32[1,7,40]\n",
                  "\nop of 'main'",
                  "launches by cost",
                  "/head/MatMul:",
                  "\nmemory\n",
                  "arena of 'main'",
                  "nodes after pass",
                  "ridge.graph/1",
                  "kernels of 'main'"));
}

TEST_F(InspectOnnx, ASizeThatNobodyGaveIsOneWhereThatCanBe) {
  const Outcome outcome = inspect({"--json"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.err, "note: dimension 'T' has no size, and is taken as 1; give --dim T=SIZE\n");
  EXPECT_EQ(json::parse(outcome.out)["dims"], json({{"N", 1}, {"T", 1}}));
  // An axis of 1 has no four parts.
  write({.nodes = {node_bytes("Reshape", {"x", "shape"}, {"y"})},
         .initializers = {integers_bytes("shape", {0, 4, -1})},
         .inputs = {value_bytes("x", kFloat, {"N", "T"})},
         .outputs = {value_bytes("y", kFloat, {"N", 4, "K"})}});
  EXPECT_EQ(error({}), "error: 'T' has no size; give --dim T=SIZE\n");
  EXPECT_EQ(inspect({"--dim", "T=8", "--set", "cpu.jit=true"}).code, 0);
}

TEST_F(InspectOnnx, SaysOnceWhatIsWrong) {
  EXPECT_THAT(error({"--dim", "K=3"}), has("the model has no dimension 'K', only 'N' and 'T'"));
  EXPECT_THAT(error({"--dim", "T=0"}), has("must be at least 1; got 0"));
  EXPECT_THAT(error({"--set", "train.steps=3"}), has("has no configuration"));
  EXPECT_THAT(error({"--recipe", "r.toml"}), has("leave out --recipe"));
  for (const char* end : {".onnx", ".toml", ""}) {
    const Outcome outcome = run({"inspect", (folder_ / (std::string(300, 'n') + end)).string()});
    EXPECT_EQ(outcome.code, 2);
    EXPECT_THAT(outcome.err, has("cannot open", "File name too long\n"));
  }
  EXPECT_THAT(run({"inspect", "examples/mlp.graph", "--dim", "B=3"}).err,
              has("is no ONNX model: --dim is for those alone"));
  write({.nodes = {node_bytes("Det", {"x"}, {"y"})},
         .initializers = {},
         .inputs = {value_bytes("x", kFloat, {"N", 3})},
         .outputs = {value_bytes("y", kFloat, {1})}});
  EXPECT_THAT(error({}), has("1 x Det: the operator is not supported"));
}

}  // namespace
}  // namespace ridge::test
