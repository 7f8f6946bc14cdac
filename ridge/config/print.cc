// Printing: a configuration as TOML, and the reference page of all keys.
#include <algorithm>
#include <optional>

#include "ridge/base/error.h"
#include "ridge/base/utf8.h"
#include "ridge/config/text.h"
#include "ridge/config/value.h"

namespace ridge {
namespace {

constexpr size_t kWidestColumn = 40;  // comments of longer lines follow them at once

// "default", "file run.toml:3:9", "flag --steps".
std::string origin_text(Source source, const std::string& where) {
  return where.empty() ? std::string(name_of(source))
                       : fmt::format("{} {}", name_of(source), where);
}

struct Line {
  std::string text, comment;
};

// A file's name may hold anything, a comment no control characters.
std::string printable(std::string_view text) {
  std::string result = valid_utf8(text);
  for (char& c : result)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return result;
}

std::string joined(const std::vector<Line>& lines) {
  size_t column = 0;
  for (const Line& line : lines)
    if (line.text.size() <= kWidestColumn) column = std::max(column, line.text.size());
  std::string text;
  for (const Line& line : lines)
    text += line.comment.empty()
                ? line.text + "\n"
                : fmt::format("{:<{}}  # {}\n", line.text, column, printable(line.comment));
  return text;
}

// `origins` null: without comments.
std::string tables_text(const TrainConfig& config, const ConfigOrigins* origins) {
  TrainConfig copy = config;
  const std::vector<ConfigKey> keys = config_keys(copy);
  std::string text;
  std::vector<Line> lines;
  for (size_t i = 0; i < keys.size(); ++i) {
    const ConfigKey& key = keys[i];
    if (lines.empty()) text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", key.table());
    if (is_active(key, keys)) {
      Line line{fmt::format("{} = {}", key.leaf(), value_text(key.field)), {}};
      if (origins != nullptr) {
        const auto origin = origins->find(key.name);
        line.comment = origin == origins->end()
                           ? "default"
                           : origin_text(origin->second.source, origin->second.where);
      }
      lines.push_back(std::move(line));
    }
    if (i + 1 == keys.size() || keys[i + 1].table() != key.table()) {
      text += joined(lines);
      lines.clear();
    }
  }
  return text;
}

std::string settings_text(const Settings& settings) {
  std::vector<Line> lines;
  for (const SettingRow& row : setting_rows()) {
    const Settings::Origin origin = settings.origin(row.name);
    const std::string value =
        row.type == SettingType::kString ? toml_quoted(origin.value) : origin.value;
    lines.push_back(
        {fmt::format("{} = {}", row.name, value), origin_text(origin.source, origin.where)});
  }
  return joined(lines);
}

std::string with_commas(std::string_view choices) {
  std::string text;
  for (char c : choices) text += c == '|' ? ", " : std::string(1, c);
  return text;
}

// "1 to 64", "mlp, cnn, gpt".
std::string allowed_text(const ConfigKey& key) {
  const size_t dots = key.allowed.find("..");
  if (dots == std::string_view::npos) return with_commas(key.allowed);
  std::string_view high = key.allowed.substr(dots + 2);
  const bool open = high.starts_with('<');
  if (open) high.remove_prefix(1);
  return fmt::format("{} to {}{}", key.allowed.substr(0, dots), open ? "below " : "", high);
}

std::string_view about_table(std::string_view table) {
  struct About {
    std::string_view table, text;
  };
  constexpr About kAbout[] = {
      {"model", "What is trained."},
      {"optimizer", "How gradients become updates."},
      {"schedule", "The learning rate over the steps."},
      {"data", "Where samples come from. Paths are relative to the working directory."},
      {"loader", "How samples are loaded; no value but `buckets` and `tokens` changes a result."},
      {"train", "The run itself."},
      {"metrics", "What a run tells of its steps; no value here changes a result."},
      {"checkpoint", "What is kept in `train.out`, besides the state at the end."},
  };
  for (const About& about : kAbout)
    if (about.table == table) return about.text;
  throw InternalError(fmt::format("[config_markdown] no words about table '{}'", table));
}

std::string row_text(const ConfigKey& key) {
  return fmt::format("| `{}` | {} | {} | `{}` | {} | {} |\n",
                     key.leaf(),
                     key.kinds.empty() ? "all" : with_commas(key.kinds),
                     type_name(key.field),
                     value_text(key.field),
                     allowed_text(key),
                     key.help);
}

constexpr std::string_view kOpening = R"page(# Configuration

<!-- Made from the table of keys by tests/train/config_docs_test.cc; edits are overwritten. -->

`ridge train run.toml` reads one TOML file. Every key has a default, so that a file says only what
differs from it:

```toml
[model]
kind = "cnn"
widths = [32, 64]

[optimizer]
lr = 3e-3

[data]
kind = "idx"
path = "/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz"
labels = "/usr/share/datasets/fashion-mnist/train-labels-idx1-ubyte.gz"

[train]
epochs = 10
batch = 128
out = "runs/fashion"
```

- A table's `kind` says which of its keys there are; a key of another kind is an error.
- A flag wins over the environment, that over a recipe, that over the file, the file over the default.
  `--set model.widths=16,32` gives any key a value; `--steps`, `--seed`, `--out` and `--device` are short for
  `train.` keys.
- The settings at the end may stand in the file too, before the first table: `threads = 4`.
- A run writes what it used, with where each value came from, to `config.toml` in `train.out`.

A **recipe** (`ridge train run.toml --recipe recipe.toml`; also for `eval`, `generate` and `inspect`) is a file of
the same form that holds only what differs from `run.toml`, and so can be told apart from it, tried, and left out
again:

```toml
threads = 2

[recipe]
schema = "ridge.recipe/1"
claim = "1.84 times as fast (1.79 to 1.90, 95 %)"

[loader]
workers = 2

[train]
precision = "bf16"
```

The table `[recipe]` may be left out. It holds texts that say what was proven of the values: `schema`, `version`
(of Ridge), `claim`, `plan` (the hash of the plan that was timed), `config` (the hash of the configuration that it
was proven on) and `machine`. A run on another configuration or machine says so, as does one in which a flag or the
environment overrides the recipe.
)page";

}  // namespace

std::string to_toml(const TrainConfig& config) { return tables_text(config, nullptr); }

std::string to_toml(const LoadedConfig& loaded, const Settings& settings) {
  return settings_text(settings) + "\n" + tables_text(loaded.config, &loaded.origins);
}

std::string config_markdown() {
  TrainConfig defaults;
  std::string text(kOpening);
  std::string_view table;
  for (const ConfigKey& key : config_keys(defaults)) {
    if (key.table() != table) {
      table = key.table();
      text += fmt::format("\n## [{}]\n\n{}\n\n", table, about_table(table));
      text += "| key | kinds | type | default | allowed | meaning |\n|---|---|---|---|---|---|\n";
    }
    text += row_text(key);
  }
  text += "\n## Settings\n\nNone of them changes a result.\n\n";
  return text + settings_markdown();
}

}  // namespace ridge
