#include "ridge/import/huggingface/write_config.h"

#include "ridge/base/error.h"
#include "ridge/base/json_writer.h"

namespace ridge {
namespace {

std::string_view torch_name(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return "float64";
    case DType::kF16:
      return "float16";
    case DType::kBF16:
      return "bfloat16";
    default:
      return "float32";
  }
}

void write_list(JsonWriter& json, std::string_view key, const std::vector<int64_t>& numbers) {
  json.key(key).begin_array();
  for (const int64_t number : numbers) json.value(number);
  json.end_array();
}

// Tokens that begin and end a text are those of the tokenizer, which transformers would take for
// GPT-2's.
void write_gpt2(JsonWriter& json, const nn::GptOptions& gpt) {
  json.key("architectures").begin_array().value("GPT2LMHeadModel").end_array();
  json.field("model_type", "gpt2").field("vocab_size", gpt.vocab);
  json.field("n_positions", gpt.context).field("n_embd", gpt.width);
  json.field("n_layer", gpt.layers).field("n_head", gpt.heads);
  json.field("activation_function", "gelu_new").field("layer_norm_epsilon", 1e-5);
  for (const char* dropout : {"resid_pdrop", "embd_pdrop", "attn_pdrop"})
    json.field(dropout, gpt.dropout);
  json.field("bos_token_id", nullptr).field("eos_token_id", nullptr);
  json.field("tie_word_embeddings", true);
}

void write_resnet(JsonWriter& json,
                  const nn::ResNet18Options& net,
                  int64_t channels,
                  const std::vector<std::string>& classes) {
  const int64_t width = net.width;
  json.key("architectures").begin_array().value("ResNetForImageClassification").end_array();
  json.field("model_type", "resnet").field("num_channels", channels);
  json.field("embedding_size", width).field("layer_type", "basic").field("hidden_act", "relu");
  write_list(json, "hidden_sizes", {width, 2 * width, 4 * width, 8 * width});
  write_list(json, "depths", {2, 2, 2, 2});
  json.field("downsample_in_first_stage", false);
  json.key("id2label").begin_object();  // a model may have more outputs than classes
  for (int64_t i = 0; i < net.outputs; ++i)
    json.field(
        fmt::format("{}", i),
        i < std::ssize(classes) ? classes[static_cast<size_t>(i)] : fmt::format("LABEL_{}", i));
  json.end_object();
}

}  // namespace

std::optional<std::string> transformers_config(const nn::ModelOptions& options,
                                               const SafetensorsView& weights,
                                               const std::vector<std::string>& classes) {
  std::string text;
  JsonWriter json(text, 2);
  json.begin_object();
  if (options.kind == nn::ModelKind::kGpt) {
    write_gpt2(json, options.gpt);
  } else if (options.kind == nn::ModelKind::kResNet18 &&
             options.resnet18.stem == nn::Stem::kImageNet) {
    const int64_t channels = weights.tensor("stem.conv.weight").type.shape.at(2);
    write_resnet(json, options.resnet18, channels, classes);
  } else {
    return std::nullopt;
  }
  json.field("dtype", torch_name(options.dtype)).end_object().finish();
  return text + "\n";
}

}  // namespace ridge
