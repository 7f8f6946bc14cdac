#include "ridge/import/huggingface/gpt2_config.h"

#include <string>

#include "ridge/base/error.h"
#include "ridge/io/file.h"
#include "ridge/io/json.h"

namespace ridge {
namespace {

constexpr size_t kMostBytes = size_t{1} << 20;

class Gpt2Config {
 public:
  explicit Gpt2Config(const std::filesystem::path& path)
      : source_(path.string()), root_(parse_json(read_file(path, kMostBytes), source_)) {
    root_.as_object(source_);
  }

  // Null where the value is null or not there: it has transformers' default then.
  const JsonValue* find(const std::string& key) const {
    const JsonValue* value = root_.find(key);
    const bool is_null = value != nullptr && std::holds_alternative<std::nullptr_t>(value->data());
    return is_null ? nullptr : value;
  }
  std::string where(const std::string& key) const { return fmt::format("{}: {}", source_, key); }

  int64_t size(const std::string& key) const {
    return root_.at(key, source_).as_integer(where(key));
  }
  void expect_text(const std::string& key, const std::string& wanted) const {
    if (const JsonValue* value = find(key))
      check(value->as_string(where(key)) == wanted, "{} is not '{}'", where(key), wanted);
  }
  void expect_bool(const std::string& key, bool wanted) const {
    if (const JsonValue* value = find(key))
      check(value->as_bool(where(key)) == wanted, "{} is not {}", where(key), wanted);
  }
  void expect_number(const std::string& key, double wanted) const {
    if (const JsonValue* value = find(key))
      check(value->as_number(where(key)) == wanted, "{} is not {}", where(key), wanted);
  }

 private:
  std::string source_;
  JsonValue root_;
};

}  // namespace

nn::GptOptions read_gpt2_config(const std::filesystem::path& path) {
  const Gpt2Config config(path);
  check(config.find("model_type") != nullptr, "{}: it has no model_type", path.string());
  config.expect_text("model_type", "gpt2");
  config.expect_text("activation_function", "gelu_new");
  config.expect_number("layer_norm_epsilon", 1e-5);
  config.expect_bool("scale_attn_weights", true);
  config.expect_bool("scale_attn_by_inverse_layer_idx", false);
  config.expect_bool("add_cross_attention", false);
  config.expect_bool("tie_word_embeddings", true);
  const nn::GptOptions gpt{.vocab = config.size("vocab_size"),
                           .context = config.size("n_positions"),
                           .layers = config.size("n_layer"),
                           .heads = config.size("n_head"),
                           .width = config.size("n_embd")};
  config.expect_number("n_inner", 4.0 * static_cast<double>(gpt.width));
  return gpt;
}

}  // namespace ridge
