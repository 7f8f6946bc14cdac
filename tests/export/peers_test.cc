// Exported models by the programs that they are for (./dev peers): onnx.checker and ONNX Runtime,
// transformers and torchvision.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "ridge/export/onnx/onnx_export.h"
#include "ridge/import/huggingface/write_config.h"
#include "ridge/infer/weights.h"
#include "ridge/io/file.h"
#include "ridge/io/npy.h"
#include "ridge/run/compare.h"
#include "tests/export/small_models.h"
#include "tests/support/peers_python.h"
#include "tests/support/scale.h"
#include "tests/support/temp_folder.h"

namespace ridge::test {
namespace {

class ExportPeers : public testing::Test {
 protected:
  void SetUp() override {
    if (python_.empty()) GTEST_SKIP() << kNoPeers;
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  // Runs a script of this folder; what it says where it fails.
  std::string run(const std::string& script, const std::string& words = {}) const {
    const std::string log = path("log");
    const std::string command = fmt::format("'{}' -B tests/export/{} '{}' {} > '{}' 2>&1",
                                            python_,
                                            script,
                                            folder_.path().string(),
                                            words,
                                            log);
    const int status = std::system(command.c_str());
    return status == 0 ? std::string() : read_file(log);
  }

  void write_config(const nn::ModelOptions& options, const SmallModel& model) const {
    write_file_atomically(path("config.json"),
                          transformers_config(options, model.weights(), {}).value());
  }

  std::string python_ = peers_python();
  TempFolder folder_;
};

// NAME.onnx, with NAME-I.x.npy and NAME-I.logits.npy for two sizes each.
TEST_F(ExportPeers, OnnxRuntimeGivesTheSame) {
  for (const std::string& name : kSmallModels) {
    const SmallModel model = small_model(name);
    for (const int64_t opset : {13, 17, 20, 23}) {
      const std::string stem = path(fmt::format("{} {}", name, opset));
      const int64_t most = name == "mlp" ? 1000 : onnx::kMostBytesInside;
      export_onnx(*model.source,
                  model.weights(),
                  {{"classes", "[\"a\"]"}},
                  stem + ".onnx",
                  {.opset = opset, .most_bytes_inside = most});
      int i = 0;
      for (Binding binding : {Binding{{"B", 1}}, Binding{{"B", 3}}}) {
        if (name == "gpt") binding["T"] = 8 - 3 * i;
        const NamedTensors data = data_for(model.source->inputs(), binding);
        const std::string to = fmt::format("{}-{}", stem, i++);
        write_npy(to + ".x.npy", data.at("x"));
        write_npy(to + ".logits.npy", model.run(data).at("logits"));
      }
    }
  }
  EXPECT_EQ(run("check_onnx.py"), "");
}

// GPT2LMHeadModel, saved by transformers with the sizes of small_options(); its folder is a model.
TEST_F(ExportPeers, Gpt2OfTransformersGivesItsLogits) {
  if (is_short_scale()) GTEST_SKIP() << "its library takes seconds to load; ./dev full runs it";
  const SmallModel model = small_model("gpt");
  const NamedTensors data = data_for(model.source->inputs(), {{"B", 2}, {"T", 7}});
  write_npy(path("x.npy"), data.at("x"));
  write_npy(path("own.npy"), model.run(data).at("logits"));
  const auto views = with_foreign_names(model.views(), model.kind, TensorNames::kHuggingFace);
  save_safetensors(path("own.safetensors"), views.tensors, {{"format", "pt"}});
  write_config(small_options("gpt"), model);
  ASSERT_EQ(run("check_weights.py", "gpt2"), "");
  SmallModel theirs = model;
  TrainObserver nobody;
  const OpenWeights opened = open_weight_file(path("theirs.safetensors"), model.kind, nobody);
  for (auto& [name, value] : theirs.values) value = opened.tensors->read(name);
  const Tensor wanted = read_npy(path("theirs.npy"));
  EXPECT_EQ(difference(theirs.run(data).at("logits"), wanted, 1e-5), "");
  ModelSession session(load_model(path("saved")));
  EXPECT_EQ(to_string(session.inputs().at(0)), "x i64[B,T<=12]");
  EXPECT_EQ(difference(session.run(data).at("logits"), wanted, 1e-5), "");
}

TEST_F(ExportPeers, ResNetOfBothLibrariesGivesItsLogits) {
  if (is_short_scale()) GTEST_SKIP() << "its library takes seconds to load; ./dev full runs it";
  nn::ModelOptions options = small_options("resnet18 of imagenet");
  options.resnet18.width = 64;
  const SmallModel model = small_model("resnet18 of imagenet", options);
  const NamedTensors data = data_for(model.source->inputs(), {{"B", 2}});
  write_npy(path("x.npy"), data.at("x"));
  write_npy(path("own.npy"), model.run(data).at("logits"));
  write_config(options, model);
  for (const TensorNames names : {TensorNames::kHuggingFace, TensorNames::kTorchvision}) {
    const std::string library(name_of(names));
    SCOPED_TRACE(library);
    const auto views = with_foreign_names(model.views(), model.kind, names);
    save_safetensors(path("own.safetensors"), views.tensors, {{"format", "pt"}});
    ASSERT_EQ(run("check_weights.py", library), "");
    SmallModel theirs = model;
    TrainObserver nobody;
    const OpenWeights opened = open_weight_file(path("theirs.safetensors"), model.kind, nobody);
    EXPECT_EQ(opened.names, names);
    for (auto& [name, value] : theirs.values) value = opened.tensors->read(name);
    EXPECT_EQ(difference(theirs.run(data).at("logits"), read_npy(path("theirs.npy")), 1e-4), "");
  }
}

}  // namespace
}  // namespace ridge::test
