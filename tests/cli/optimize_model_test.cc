// `ridge optimize MODEL.onnx` as users run it, and its recipe in the hands of others. How fast
// anything is plays no part.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "ridge/infer/model_recipe.h"
#include "ridge/io/file.h"
#include "ridge/io/npy.h"
#include "tests/cli/ridge_process.h"
#include "tests/support/has.h"
#include "tests/support/scale.h"
#include "tests/support/temp_folder.h"
#include "tests/tune/faulty_models.h"

namespace ridge::test {
namespace {

using nlohmann::json;

class OptimizeModel : public testing::Test {
 protected:
  OptimizeModel() {
    write("m.onnx", conv_model());
    Tensor x({DType::kF32, {5, 8, 8, 8}});
    for (int64_t i = 0; i < x.elements(); ++i) x.set(i, static_cast<double>(i % 13) / 7 - 0.8);
    write_npz((folder_ / "x.npz").string(), {{"x", x}});
  }
  void write(const std::string& name, const std::string& text) const {
    write_file_atomically((folder_ / name).string(), text);
  }
  Ended command(std::vector<std::string> words, const std::string& shell = {}) const {
    return ridge(folder_.path(), std::move(words), shell);
  }
  std::string error(const std::vector<std::string>& more) const {
    std::vector<std::string> words{"optimize", "m.onnx", "--dry-run"};
    words.insert(words.end(), more.begin(), more.end());
    const Ended ended = command(words);
    EXPECT_EQ(ended.code, 2) << ended.out;
    EXPECT_EQ(ended.out, "");
    return ended.err;
  }

  TempFolder folder_;
};

TEST_F(OptimizeModel, ADryRunListsWhatWouldBeTried) {
  const Ended ended = command({"optimize",
                               "m.onnx",
                               "--dry-run",
                               "--data",
                               "x.npz",
                               "--budget",
                               "20",
                               "--goal",
                               "throughput",
                               "--json"},
                              "RIDGE_TUNE=true");
  ASSERT_EQ(ended.code, 0) << ended.err;
  const json report = json::parse(ended.out);
  EXPECT_EQ(report["schema"], "ridge.optimize/1");
  EXPECT_EQ(report["target"], "m.onnx on cpu");
  EXPECT_TRUE(report["dry_run"].get<bool>());
  EXPECT_GT(report["baseline"]["step_ms"], 0);
  EXPECT_GT(report["baseline"]["first_ms"], 0);
  EXPECT_THAT(report["parts"].dump(), has("outputs of your 5 samples: off f64 by"));
  EXPECT_THAT(report["notes"].dump(), has("ONNX Runtime was not measured"));
  std::vector<std::string> listed;
  for (const json& trial : report["trials"])
    if (trial["reason"].get<std::string>().starts_with("dry run"))
      listed.push_back(trial["change"].get<std::string>());
  EXPECT_THAT(listed, testing::Contains("batch 1 -> 4"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "runs"));
}

TEST_F(OptimizeModel, WhatIsWrongIsOneError) {
  EXPECT_THAT(error({"--goal", "speed"}), has("--goal must be latency or throughput; got 'speed'"));
  EXPECT_THAT(error({"--data", "no.npz"}), has("no.npz"));
  EXPECT_THAT(error({"--dim", "T=4"}), has("the model has no dimension 'T'"));
  EXPECT_THAT(error({"--set", "train.steps=3"}), has("not for an ONNX model"));
  EXPECT_THAT(error({"--against", "torch"}), has("one of onnxruntime|openvino"));
  EXPECT_THAT(error({"--against", "onnxruntime", "--python", "/no/such/python"}),
              has("cannot start '/no/such/python'"));
  const Ended program = command({"optimize", "--goal", "latency", "--rerun", "--", "true"});
  EXPECT_EQ(program.code, 2);
  EXPECT_THAT(program.err, has("--goal is for an ONNX model"));
}

// A recipe by hand, as the loop would write it.
TEST_F(OptimizeModel, PredictAndBenchTakeItsRecipe) {
  ModelRecipe recipe;
  recipe.batch = 2;
  recipe.instances = 2;
  recipe.threads = 1;
  recipe.choices.kernels_off = {"winograd"};
  recipe.proven.config = model_hash((folder_ / "m.onnx").string());
  write("r.toml", to_toml(recipe));
  const auto predict = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words{
        "predict", "m.onnx", "--input", "x.npz", "--output", "y.npy", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    return command(words);
  };
  ASSERT_EQ(predict({}).code, 0);
  const Tensor plain = read_npy(folder_ / "y.npy");
  const Ended tuned = predict({"--recipe", "r.toml"});
  ASSERT_EQ(tuned.code, 0) << tuned.err;
  EXPECT_EQ(json::parse(tuned.out)["batch"], 2);
  EXPECT_EQ(json::parse(tuned.out)["batches"], 3);
  const Tensor outputs = read_npy(folder_ / "y.npy");
  ASSERT_EQ(outputs.type(), plain.type());
  for (int64_t i = 0; i < plain.elements(); ++i) EXPECT_NEAR(outputs.at(i), plain.at(i), 1e-5) << i;
  const Ended bench =
      command({"bench", "m.onnx", "--recipe", "r.toml", "--seconds", "0.01", "--json"});
  ASSERT_EQ(bench.code, 0) << bench.err;
  const json result = json::parse(bench.out)["results"].at(0);
  EXPECT_EQ(result["batch"], 2);
  EXPECT_EQ(result["instances"], 2);
  EXPECT_EQ(result["threads"], 1);
  write("m.onnx", attention_model());
  EXPECT_THAT(predict({"--recipe", "r.toml"}).err, has("was made for another model than 'm.onnx'"));
}

TEST_F(OptimizeModel, ARecipeRunsAQuantizedModelInItsPlace) {
  const Ended made = command({"quantize",
                              "m.onnx",
                              "--data",
                              "x.npz",
                              "--gain",
                              "flops",
                              "--max-drop",
                              "50",
                              "-o",
                              "m.static.onnx"});
  ASSERT_EQ(made.code, 0) << made.err;
  ModelRecipe recipe;
  recipe.quantized = "m.static.onnx";
  recipe.files = {{"m.static.onnx", model_hash((folder_ / "m.static.onnx").string())}};
  recipe.proven.config = model_hash((folder_ / "m.onnx").string());
  write("r.toml", to_toml(recipe));
  const auto predicted = [&](const std::string& model, const std::vector<std::string>& more) {
    std::vector<std::string> words{"predict", model, "--input", "x.npz", "--output", "y.npy"};
    words.insert(words.end(), more.begin(), more.end());
    const Ended ended = command(words);
    EXPECT_EQ(ended.code, 0) << ended.err;
    return read_npy(folder_ / "y.npy");
  };
  const Tensor floats = predicted("m.onnx", {}), bytes = predicted("m.static.onnx", {});
  EXPECT_FALSE(bytes.same_bits(floats));
  EXPECT_TRUE(predicted("m.onnx", {"--recipe", "r.toml"}).same_bits(bytes));
  const Ended bench =
      command({"bench", "m.onnx", "--recipe", "r.toml", "--seconds", "0.01", "--json"});
  EXPECT_EQ(bench.code, 0) << bench.err;
  std::filesystem::remove(folder_ / "m.static.onnx");
  const Ended gone = command({"bench", "m.onnx", "--recipe", "r.toml"});
  EXPECT_EQ(gone.code, 2);
  EXPECT_THAT(gone.err, has("m.static.onnx' is missing"));
}

// Whether something gains is the machine's matter: what is told is the same everywhere.
TEST_F(OptimizeModel, TellsTheSameInJsonLedgerAndRecipe) {
  if (is_short_scale()) GTEST_SKIP() << "it takes seconds";
  const Ended ended =
      command({"optimize", "m.onnx", "--budget", "8", "--out", "found", "--json", "-o", "r.toml"},
              "RIDGE_TUNE=true");
  ASSERT_EQ(ended.code, 0) << ended.err;
  const json report = json::parse(ended.out);
  EXPECT_EQ(report["recipe"].get<std::string>().empty(),
            !std::filesystem::exists(folder_ / "r.toml"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "found/report.html"));
  EXPECT_GE(report["trials"].size(), 8u);
  const Ended shown = command({"ledger", "show", "found/ledger.jsonl", "--json"});
  EXPECT_EQ(shown.code, 0) << shown.err;
  for (const json& trial : report["trials"])
    EXPECT_EQ(
        command(
            {"ledger", "explain", "found/ledger.jsonl", std::to_string(trial["number"].get<int>())})
            .code,
        0);
  if (!std::filesystem::exists(folder_ / "r.toml")) return;
  EXPECT_EQ(text_of(folder_ / "r.toml"), report["recipe"].get<std::string>());
  const Ended again =
      command({"ledger", "replay", "found/ledger.jsonl", "--budget", "5", "--json"});
  EXPECT_LE(again.code, 1) << again.err;
  EXPECT_GT(json::parse(again.out)["pairs"], 0);
}

}  // namespace
}  // namespace ridge::test
