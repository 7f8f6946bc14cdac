// `ridge export` as users run it: what is written, and what users get wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "ridge/io/file.h"
#include "ridge/io/npy.h"
#include "ridge/io/safetensors.h"
#include "ridge/run/compare.h"
#include "tests/cli/run_words.h"
#include "tests/support/has.h"
#include "tests/support/temp_folder.h"

namespace ridge::test {
namespace {

class ExportVerb : public testing::Test {
 protected:
  // A table with classes, on which a model is trained for a few steps.
  ExportVerb() {
    std::string table = "a,b,kind\n";
    for (int i = 0; i < 20; ++i)
      table += fmt::format("{},{},{}\n", i, i % 3, i < 9 ? "cat" : "dog");
    std::ofstream(path("t.csv")) << table;
    std::ofstream(path("m.toml")) << fmt::format(
        "[model]\nkind = 'mlp'\nhidden = [8]\n[data]\nkind = 'table'\npath = '{}'\n"
        "target = 'kind'\n[train]\nbatch = 5\nsteps = 3\nout = '{}'\n",
        path("t.csv"),
        path("run"));
    EXPECT_EQ(run({"train", path("m.toml")}).code, 0);
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  Outcome write(std::vector<std::string> words) const {
    words.insert(words.begin(), {"export", path("run")});
    return run(std::move(words));
  }
  static std::string error(const Outcome& outcome) {
    EXPECT_EQ(outcome.code, 2) << outcome.out;
    EXPECT_EQ(outcome.out, "");
    return outcome.err;
  }

  TempFolder folder_;
};

TEST_F(ExportVerb, WritesAModelThatPredictsTheSame) {
  const Outcome outcome = write({"--onnx", path("m.onnx"), "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto report = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(report["schema"], "ridge.export/1");
  EXPECT_EQ(report["model"], "mlp");
  EXPECT_EQ(report["onnx"]["file"], path("m.onnx"));
  EXPECT_EQ(report["onnx"]["opset"], 17);
  EXPECT_EQ(report["onnx"]["inputs"],
            nlohmann::json::parse(R"([{"name": "x", "type": "f32[B,2]"}])"));
  EXPECT_THAT(read_file(path("m.onnx")), has("ridge.data/1", "[\"cat\",\"dog\"]"));
  Tensor x({DType::kF32, {7, 2}});
  for (int64_t i = 0; i < x.elements(); ++i) x.set(i, 0.3 * static_cast<double>(i) - 1);
  write_npy(path("x.npy"), x);
  std::vector<Tensor> results;
  for (const char* model : {"run", "m.onnx"}) {
    const std::string to = path("out.npy");
    const Outcome predicted =
        run({"predict", path(model), "--input", path("x.npy"), "--output", to});
    ASSERT_EQ(predicted.code, 0) << predicted.err;
    results.push_back(read_npy(to));
  }
  EXPECT_EQ(difference(results[1], results[0], 1e-5), "");
}

TEST_F(ExportVerb, WritesWeightsAlone) {
  const Outcome outcome =
      write({"--safetensors", path("w.safetensors"), "--onnx", path("m.onnx"), "--dim", "B=4"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out,
              has("4 tensors with names of ridge", "opset 17, ", "x f32[4,2]", "logits f32[4,2]"));
  const SafetensorsFile file(path("w.safetensors"));
  EXPECT_TRUE(file->contains("layers.0.weight"));
  EXPECT_TRUE(file->metadata().contains("ridge.data"));
  EXPECT_EQ(run({"eval", path("m.toml"), "--weights", path("w.safetensors")}).code, 0);
}

// A model of bytes: what it was trained on is known of its folder, too.
TEST_F(ExportVerb, WritesAFolderForTransformersThatIsAModelHere) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += static_cast<char>('a' + i * i % 7);
  std::ofstream(path("t.txt")) << text;
  std::ofstream(path("gpt.toml")) << fmt::format(
      "[model]\nkind = 'gpt'\ncontext = 8\nlayers = 1\nheads = 2\nwidth = 8\n"
      "[data]\nkind = 'text'\npath = '{}'\ncontext = 8\n"
      "[train]\nbatch = 2\nsteps = 2\nout = '{}'\n",
      path("t.txt"),
      path("words"));
  ASSERT_EQ(run({"train", path("gpt.toml")}).code, 0);
  std::filesystem::create_directory(path("saved"));
  const auto exported = [&](const std::string& file) {
    return run({"export",
                path("words"),
                "--safetensors",
                path("saved/" + file),
                "--names",
                "huggingface",
                "--json"});
  };
  EXPECT_FALSE(
      nlohmann::json::parse(exported("w.safetensors").out)["safetensors"].contains("config"));
  EXPECT_FALSE(std::filesystem::exists(path("saved/config.json")));
  write_file_atomically(path("saved/config.json"), "{\"port\": 80}");
  EXPECT_EQ(
      error(exported("model.safetensors")),
      "error: '" + path("saved/config.json") +
          "' would be replaced, and is not transformers'; give --safetensors another folder\n");
  std::filesystem::remove(path("saved/config.json"));
  for (int i = 0; i < 2; ++i) {  // the second time it is replaced
    const Outcome outcome = exported("model.safetensors");
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(nlohmann::json::parse(outcome.out)["safetensors"]["config"],
              path("saved/config.json"));
  }
  Tensor x({DType::kI64, {2, 5}});
  for (int64_t i = 0; i < x.elements(); ++i) x.set(i, static_cast<double>('a' + i % 7));
  write_npy(path("x.npy"), x);
  std::vector<Tensor> results;
  for (const char* model : {"words", "saved"}) {
    const Outcome predicted =
        run({"predict", path(model), "--input", path("x.npy"), "--output", path("out.npy")});
    ASSERT_EQ(predicted.code, 0) << predicted.err;
    results.push_back(read_npy(path("out.npy")));
  }
  EXPECT_TRUE(results[0].same_bits(results[1]));
}

TEST_F(ExportVerb, SaysWhatIsWrong) {
  EXPECT_THAT(error(write({})),
              has("no file is asked for; give --onnx FILE or --safetensors FILE"));
  const std::string onnx = path("m.onnx");
  EXPECT_THAT(error(write({"--onnx", onnx, "--opset", "7"})), has("version 7 are not written"));
  EXPECT_THAT(error(write({"--onnx", onnx, "--dim", "N=3"})), has("no dimension 'N'"));
  for (const char* size : {"B", "B=", "=3", "B=x", "B=3x"})
    EXPECT_THAT(error(write({"--onnx", onnx, "--dim", size})), has("write --dim NAME=SIZE"));
  EXPECT_THAT(error(write({"--onnx", onnx, "--dim", "B=0"})), has("at least 1"));
  EXPECT_THAT(error(write({"--onnx", onnx, "--dim", "B=3", "--dim", "B=4"})), has("two sizes"));
  EXPECT_THAT(error(write({"--onnx", path("none/m.onnx")})), has("none"));
  for (const std::string& same : {onnx, path("./m.onnx")})
    EXPECT_EQ(error(write({"--onnx", onnx, "--safetensors", same})),
              "error: '" + same +
                  "' would be both the ONNX model and a file of --safetensors; give --onnx another "
                  "file\n");
  EXPECT_FALSE(std::filesystem::exists(onnx));
  EXPECT_THAT(error(write({"--safetensors", path("w"), "--names", "keras"})),
              has("one of ridge|huggingface|torchvision; got 'keras'"));
  EXPECT_THAT(error(write({"--safetensors", path("w"), "--names", "huggingface"})),
              has("no names for a model of kind 'mlp'"));
  EXPECT_THAT(error(run({"export", onnx, "--onnx", onnx})), has("is an ONNX model already"));
  EXPECT_FALSE(std::filesystem::exists(onnx));
  EXPECT_FALSE(std::filesystem::exists(path("w")));
}

// `ridge quantize` of a run is that of the ONNX model that is exported of it.
TEST_F(ExportVerb, ARunIsQuantizedAsItsExport) {
  ASSERT_EQ(write({"--onnx", path("m.onnx")}).code, 0);
  for (const auto& [from, to] : {std::pair("run", "a.onnx"), std::pair("m.onnx", "b.onnx")}) {
    const Outcome outcome =
        run({"quantize", path(from), "--gain", "flops", "--max-drop", "100", "-o", path(to)});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
  }
  EXPECT_EQ(read_file(path("a.onnx")), read_file(path("b.onnx")));
}

}  // namespace
}  // namespace ridge::test
