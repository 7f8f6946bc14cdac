// Weights under the names of Hugging Face and torchvision, out and in.
#include "ridge/import/huggingface/tensor_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ridge/import/huggingface/gpt2_config.h"
#include "ridge/import/huggingface/write_config.h"
#include "ridge/infer/weights.h"
#include "ridge/io/file.h"
#include "tests/export/small_models.h"
#include "tests/support/errors.h"
#include "tests/support/has.h"
#include "tests/support/temp_folder.h"
#include "tests/train/train_runs.h"

namespace ridge::test {
namespace {

using testing::ElementsAre;

class ForeignNames : public testing::Test {
 protected:
  std::string path() const { return (folder_ / "weights.safetensors").string(); }
  // Writes a model's tensors with those names, and then `change`s the list.
  void write(const SmallModel& model,
             TensorNames names,
             const std::function<void(std::vector<TensorView>&)>& change = {}) const {
    RenamedTensors renamed = with_foreign_names(model.views(), model.kind, names);
    if (change) change(renamed.tensors);
    save_safetensors(path(), renamed.tensors);
  }
  OpenWeights open(nn::ModelKind kind) { return open_weight_file(path(), kind, watch_); }
  // The error of a state that takes them.
  std::string error(const SmallModel& model) {
    return user_error([&] {
      const auto backend = make_cpu_backend();
      State state(*backend);
      load_weights(state, model.source->state(), open(model.kind));
    });
  }

  TempFolder folder_;
  Watch watch_;
};

TEST_F(ForeignNames, ComeBackBitForBit) {
  const std::pair<std::string, TensorNames> cases[] = {
      {"gpt", TensorNames::kHuggingFace},
      {"resnet18 of imagenet", TensorNames::kHuggingFace},
      {"resnet18 of imagenet", TensorNames::kTorchvision}};
  for (const auto& [name, names] : cases) {
    SCOPED_TRACE(name);
    const SmallModel model = small_model(name);
    write(model, names);
    watch_.messages.clear();
    const OpenWeights opened = open(model.kind);
    EXPECT_EQ(opened.names, names);
    EXPECT_EQ(opened.tensors->tensors().size(), model.values.size());
    for (const auto& [tensor, value] : model.values)
      EXPECT_TRUE(opened.tensors->read(tensor).same_bits(value)) << tensor;
    EXPECT_THAT(watch_.messages,
                ElementsAre(has("names its tensors as", std::string(name_of(names)))));
  }
}

TEST_F(ForeignNames, HaveTheLayoutsOfTheOthers) {
  const SmallModel gpt = small_model("gpt"), resnet = small_model("resnet18 of imagenet");
  write(gpt, TensorNames::kHuggingFace);
  {
    const SafetensorsFile file(path());
    EXPECT_EQ(to_string(file->tensor("transformer.h.1.attn.c_attn.weight").type), "f32[16,48]");
    EXPECT_EQ(to_string(file->tensor("transformer.wpe.weight").type), "f32[12,16]");
    EXPECT_FALSE(file->contains("lm_head.weight"));
  }
  write(resnet, TensorNames::kTorchvision);
  const SafetensorsFile file(path());
  EXPECT_EQ(to_string(file->tensor("conv1.weight").type), "f32[8,3,7,7]");
  EXPECT_EQ(to_string(file->tensor("layer2.0.downsample.0.weight").type), "f32[16,8,1,1]");
  EXPECT_EQ(to_string(file->tensor("fc.weight").type), "f32[4,64]");
  EXPECT_EQ(to_string(file->tensor("layer4.1.bn2.num_batches_tracked").type), "i64[]");
  const Tensor own = resnet.values.at("head.weight"), theirs = file->read("fc.weight");
  EXPECT_EQ(theirs.at(1 * 64 + 5), own.at(5 * 4 + 1));
}

// Names as GPT2Model saves itself, with masks of old versions and the head once more.
TEST_F(ForeignNames, OfGpt2MayLackTheirPrefix) {
  const SmallModel model = small_model("gpt");
  const Tensor mask({DType::kBool, {1, 1, 12, 12}});
  const Tensor& table = model.values.at("tokens.weight");
  const auto strip = [&](std::vector<TensorView>& tensors) {
    for (TensorView& tensor : tensors) tensor.name.erase(0, std::string("transformer.").size());
    tensors.push_back({"h.0.attn.bias", mask.type(), mask.data()});
    tensors.push_back({"lm_head.weight", table.type(), table.data()});
  };
  write(model, TensorNames::kHuggingFace, strip);
  EXPECT_EQ(error(model), "no error");
  Tensor other = table;
  other.set(3, 9);
  write(model, TensorNames::kHuggingFace, [&](std::vector<TensorView>& tensors) {
    tensors.push_back({"lm_head.weight", other.type(), other.data()});
  });
  EXPECT_THAT(error(model),
              has("'lm_head.weight' differs from 'transformer.wte.weight'", "one table for both"));
}

TEST_F(ForeignNames, ListWhatIsMissingAndWhatIsLeft) {
  const SmallModel model = small_model("gpt");
  write(model, TensorNames::kHuggingFace, [](std::vector<TensorView>& tensors) {
    std::erase_if(tensors, [](const TensorView& tensor) {
      return tensor.name.find("ln_") != std::string::npos;
    });
  });
  EXPECT_THAT(error(model), has("it lacks 'transformer.h.0.ln_1.weight', ", " and 5 more"));
  const Tensor more({DType::kF32, {2}});
  write(model, TensorNames::kHuggingFace, [&](std::vector<TensorView>& tensors) {
    for (const char* name : {"transformer.h.0.crossattention.bias", "transformer.h.x.ln_1.bias"})
      tensors.push_back({name, more.type(), more.data()});
  });
  EXPECT_THAT(
      error(model),
      has("a model of kind 'gpt' has nothing like 'transformer.h.0.crossattention.bias' and "
          "'transformer.h.x.ln_1.bias'"));
  nn::ModelOptions options = small_options("gpt");
  options.gpt.layers = 1;
  write(model, TensorNames::kHuggingFace);
  EXPECT_THAT(error(small_model("gpt", options)),
              has("the model has nothing like 'transformer.h.1.", " and 7 more"));
  const SmallModel resnet = small_model("resnet18");
  write(small_model("resnet18 of imagenet"), TensorNames::kTorchvision);
  EXPECT_THAT(error(resnet), has("'stem.conv.weight' is f32[7,7,3,8], expected f32[3,3,3,8]"));
}

TEST_F(ForeignNames, AreKnownOfTwoKinds) {
  EXPECT_THAT(user_error([&] { write(small_model("mlp"), TensorNames::kHuggingFace); }),
              has("huggingface has no names for a model of kind 'mlp'; give names of 'ridge'"));
  EXPECT_THAT(user_error([&] { write(small_model("gpt"), TensorNames::kTorchvision); }),
              has("give names of 'ridge' and 'huggingface'"));
  write(small_model("gpt"), TensorNames::kRidge);
  EXPECT_EQ(open(nn::ModelKind::kGpt).names, TensorNames::kRidge);
  EXPECT_THAT(watch_.messages, ElementsAre());
}

TEST_F(ForeignNames, OfGpt2InItsFolderAreAModel) {
  const SmallModel model = small_model("gpt");
  const RenamedTensors renamed =
      with_foreign_names(model.views(), model.kind, TensorNames::kHuggingFace);
  save_safetensors(folder_ / "model.safetensors", renamed.tensors);
  const auto configure = [&](const std::string& more) {
    write_file_atomically(
        folder_ / "config.json",
        R"({"model_type": "gpt2", "vocab_size": 11, "n_positions": 12, "n_embd": 16, "n_layer": 2,
            "n_head": 2)" +
            more + "}");
  };
  configure(R"(, "n_inner": null, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-05)");
  const std::string folder = folder_.path().string();
  const NamedTensors data = data_for(model.source->inputs(), {{"B", 2}, {"T", 5}});
  EXPECT_TRUE(ModelSession(load_model(folder))
                  .run(data)
                  .at("logits")
                  .same_bits(model.run(data).at("logits")));
  for (const auto& [more, message] :
       {std::pair(R"(, "activation_function": "relu")", "activation_function is not 'gelu_new'"),
        std::pair(R"(, "n_inner": 65)", "n_inner is not 64"),
        std::pair(R"(, "tie_word_embeddings": false)", "tie_word_embeddings is not true"),
        std::pair(R"(, "layer_norm_epsilon": 1e-6)", "layer_norm_epsilon is not 1e-05")}) {
    configure(more);
    EXPECT_THAT(user_error([&] { load_model(folder); }), has("config.json", message));
  }
  write_file_atomically(folder_ / "config.json", R"({"model_type": "llama"})");
  EXPECT_THAT(user_error([&] { load_model(folder); }), has("model_type is not 'gpt2'"));
}

TEST_F(ForeignNames, ComeWithAConfigurationThatReadsBack) {
  const SmallModel model = small_model("gpt");
  const std::string text = transformers_config(small_options("gpt"), model.weights(), {}).value();
  write_file_atomically(folder_ / "config.json", text);
  const nn::GptOptions read = read_gpt2_config(folder_ / "config.json"),
                       wanted = small_options("gpt").gpt;
  EXPECT_EQ(std::tuple(read.vocab, read.context, read.layers, read.heads, read.width),
            std::tuple(wanted.vocab, wanted.context, wanted.layers, wanted.heads, wanted.width));
  EXPECT_THAT(text, has("\"GPT2LMHeadModel\"", "\"eos_token_id\": null", "\"float32\""));
}

// Its stem must be that of transformers; its classes have the names that the data gave them.
TEST_F(ForeignNames, ComeWithAConfigurationOfResNets) {
  const auto text = [](const std::string& name, const std::vector<std::string>& classes) {
    return transformers_config(small_options(name), small_model(name).weights(), classes);
  };
  EXPECT_THAT(text("resnet18 of imagenet", {"cat", "dog"}).value(),
              has("\"num_channels\": 3",
                  "\"embedding_size\": 8",
                  "\"0\": \"cat\"",
                  "\"2\": \"LABEL_2\"",
                  "\"dtype\": \"float32\""));
  EXPECT_EQ(text("resnet18", {}), std::nullopt);
  EXPECT_EQ(text("mlp", {}), std::nullopt);
}

// A training that starts from weights of others.
TEST_F(ForeignNames, InitializeATraining) {
  TrainConfig config = small_config("gpt");
  config.train.steps = 1;
  config.train.out = (folder_ / "run").string();
  run_small(config);
  const std::string own = (folder_ / "run/model.safetensors").string();
  const SafetensorsFile file(own);
  const std::vector<TensorView> views = file->tensors();
  const RenamedTensors renamed =
      with_foreign_names(views, nn::ModelKind::kGpt, TensorNames::kHuggingFace);
  save_safetensors(path(), renamed.tensors);
  const auto losses = [&](const std::string& init) {
    TrainRequest request;
    request.config = small_config("gpt");
    request.config.train.steps = 3;
    request.init = init;
    Watch watch;
    train(request, watch);
    return watch.losses;
  };
  EXPECT_EQ(losses(path()), losses(own));
  EXPECT_NE(losses(path()), losses(""));
}

}  // namespace
}  // namespace ridge::test
