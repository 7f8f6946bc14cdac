// Configurations: what is read, what is refused and with which words, what is printed back.
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "ridge/config/text.h"
#include "ridge/config/value.h"
#include "tests/support/errors.h"

namespace ridge {
namespace {

constexpr const char* kRun = "[train]\nsteps = 10\n";

LoadedConfig load(const std::string& text, const std::vector<std::string>& sets = {}) {
  Settings settings;
  std::vector<ConfigFlag> flags;
  for (const std::string& set : sets) flags.push_back(parse_set(set));
  return load_config(text, "run.toml", flags, settings);
}

std::string refusal(const std::string& text, const std::vector<std::string>& sets = {}) {
  return test::user_error([&] { load(text, sets); });
}

TEST(Config, FileAndFlagsReachTheirFields) {
  const LoadedConfig loaded = load(
      "[model]\nkind = 'cnn'\nwidths = [8, 16]\ndtype = 'f64'\n"
      "[optimizer]\nlr = 1\nclip = 0.5\n[data]\nshape = [28, 28, 1]\n"
      "[train]\nsteps = 1_000\nseed = 9223372036854775807\nshuffle = false\n",
      {"optimizer.lr=0.25", "train.out=runs/a b", "model.dropout=0.5", "data.classes=3"});
  const TrainConfig& c = loaded.config;
  EXPECT_EQ(c.model.kind, nn::ModelKind::kCnn);
  EXPECT_EQ(c.model.cnn.widths, (std::vector<int64_t>{8, 16}));
  EXPECT_EQ(c.model.dtype, DType::kF64);
  EXPECT_EQ(c.optimizer.lr, 0.25);
  EXPECT_EQ(c.optimizer.clip, 0.5);
  EXPECT_EQ(c.train.steps, 1000);
  EXPECT_EQ(c.train.seed, 9223372036854775807u);
  EXPECT_FALSE(c.train.shuffle);
  EXPECT_EQ(c.train.out, "runs/a b");
  // `model.dropout` is that of the kind in force, and of no other.
  EXPECT_EQ(c.model.cnn.dropout, 0.5);
  EXPECT_EQ(c.model.mlp.dropout, 0.0);
  EXPECT_EQ(loaded.origins.at("model.widths").where, "run.toml:3:10");
  EXPECT_EQ(loaded.origins.at("optimizer.lr").source, Source::kFlag);
  EXPECT_FALSE(loaded.origins.contains("train.batch"));
}

TEST(Config, FlagsNeedNoQuotesAndNoBrackets) {
  const auto with = [](const std::string& set) { return load(kRun, {set}).config; };
  EXPECT_EQ(with("model.hidden=16,32").model.mlp.hidden, (std::vector<int64_t>{16, 32}));
  EXPECT_EQ(with("model.hidden=[16, 32]").model.mlp.hidden, (std::vector<int64_t>{16, 32}));
  EXPECT_EQ(with("model.hidden=").model.mlp.hidden, std::vector<int64_t>{});
  EXPECT_EQ(with("train.out=\"quoted \\u00e9\"").train.out, "quoted \u00e9");
  EXPECT_EQ(with("train.out=12").train.out, "12");
  EXPECT_EQ(with("train.out=a=b").train.out, "a=b");
  const auto text = load("[model]\nkind='gpt'\n[data]\nkind='text'\npath='x'\n[train]\nsteps=1\n",
                         {"data.extensions=.h,.cc"});
  EXPECT_EQ(text.config.data.extensions, (std::vector<std::string>{".h", ".cc"}));
  EXPECT_EQ(load("", {"train.steps=5"}).config.train.steps, 5);
}

TEST(Config, TheOrderOfFileAndFlagsDoesNotMatterForKinds) {
  // The kind comes after its keys, in the file and among the flags.
  const LoadedConfig loaded =
      load("[train]\nsteps = 1\n[optimizer]\nmomentum = 0.5\nkind = 'sgd'\n");
  EXPECT_EQ(loaded.config.optimizer.momentum, 0.5);
  EXPECT_EQ(load(kRun, {"optimizer.momentum=0.25", "optimizer.kind=sgd"}).config.optimizer.momentum,
            0.25);
}

TEST(Config, SettingsOfRidgeGoThroughTheSameDoor) {
  Settings settings;
  load_config("threads = 3\ncpu.isa = 'avx2'\n[train]\nsteps = 1\n",
              "run.toml",
              {parse_set("threads=2")},
              settings);
  EXPECT_EQ(settings.get_int("threads"), 2);
  EXPECT_EQ(settings.get_string("cpu.isa"), "avx2");
  EXPECT_EQ(settings.origin("cpu.isa").where, "run.toml:2:11");
  EXPECT_NE(refusal("threads = -1\n").find("run.toml:1:11: got '-1'"), std::string::npos);
}

struct Wrong {
  const char* text;
  const char* set;
  const char* message;
};

// Each gets its one message, with the place and a way out.
constexpr Wrong kWrong[] = {
    {"[train]\nsteps = \n", "", "run.toml:2:9: this is not TOML: "},
    {"[train]\nsteps = 1\nsteps = 2\n", "", "run.toml:3:"},
    {"[train]\nbach = 3\n",
     "",
     "run.toml:2:1: unknown key 'train.bach'; did you mean 'train.batch'?"},
    {"[trian]\nbatch = 3\n",
     "",
     "run.toml:2:1: unknown key 'trian.batch'; did you mean 'train.batch'?"},
    {"[trian]\n", "", "run.toml:1:2: unknown table 'trian'; did you mean 'train'?"},
    {"batch = 3\n", "", "run.toml:1:1: unknown key 'batch'; did you mean 'train.batch'?"},
    {"\"train.steps\" = 3\n", "", "run.toml:1:1: unknown key '\"train.steps\"'"},
    {"thread = 3\n", "", "run.toml:1:1: unknown key 'thread'; did you mean 'threads'?"},
    {"log.level = 'info'\n",
     "",
     "run.toml:1:5: unknown key 'log.level'; it changed nothing, and was removed: take it out"},
    {"[train]\nsteps = '3'\n",
     "",
     "run.toml:2:9: train.steps: got \"3\", expected an integer from 0 to 1000000000000; leave it "
     "out for the default 0"},
    {"[train]\nsteps = 3.0\n", "", "run.toml:2:9: train.steps: got 3.0, expected an integer"},
    {"[train]\nbatch = 0\n", "", "run.toml:2:9: train.batch: got 0, expected an integer from 1"},
    {"[train]\nsteps = 9223372036854775808\n", "", "run.toml:2:"},
    {"[train]\nseed = -1\n", "", "run.toml:2:8: train.seed: got -1"},
    {"[train]\nshuffle = 1\n",
     "",
     "run.toml:2:11: train.shuffle: got 1, expected true or false; leave it out for the default "
     "true"},
    {"[train]\nsteps = 2024-01-01\n", "", "run.toml:2:9: 'train.steps' holds a date or time"},
    {"[train.steps]\nx = 1\n", "", "run.toml:2:1: unknown key 'train.steps.x'"},
    {"[optimizer]\nlr = nan\n",
     "",
     "run.toml:2:6: optimizer.lr: got nan, expected a number from 0"},
    {"[optimizer]\nbeta1 = 1.0\n",
     "",
     "run.toml:2:9: optimizer.beta1: got 1.0, expected a number from 0 to below 1"},
    {"[optimizer]\nkind = 'adam'\n",
     "",
     "run.toml:2:8: optimizer.kind: got \"adam\", expected one of adamw, sgd; did you mean "
     "'adamw'?"},
    {"[optimizer]\nmomentum = 0.9\n",
     "",
     "run.toml:2:1: 'optimizer.momentum' is a key of kind sgd, but optimizer.kind is 'adamw' (the "
     "default); take the key out or change the kind"},
    {"[model]\nkind = 'gpt'\noutputs = 3\n",
     "",
     "run.toml:3:1: 'model.outputs' is a key of kind mlp or cnn or resnet18 or mobilenetv2, but "
     "model.kind is 'gpt' (run.toml:2:8)"},
    {"[model]\nhidden = [4, 0]\n",
     "",
     "run.toml:2:10: model.hidden: got [4, 0], expected a list of integers from 1 to 1048576"},
    {"[model]\nhidden = [[4]]\n", "", "run.toml:2:11: 'model.hidden' holds a list in a list"},
    {"[data]\nshape = []\n",
     "",
     "run.toml:2:9: data.shape: got [], expected a list of integers with at least 1 item"},
    {kRun, "train.batch=many", "--set: train.batch: got \"many\", expected an integer"},
    {kRun, "train.batch=1\nx=2", "--set: train.batch: got "},
    {kRun, "train.bath=1", "--set: unknown key 'train.bath'; did you mean 'train.batch'"},
    {kRun, "train.batch", "--set train.batch: no value is given"},
    {kRun, "train.out=\xff", "--set: train.out: got "},
    {kRun, "threads=x", "setting 'threads' from flag --set: got 'x'"},
    {"", "", "configuration: train.epochs and train.steps are both 0"},
    {"[train]\nsteps = 1\nbatch = 4\nmicro = 5\n",
     "",
     "run.toml:4:9: train.micro (5) is more than train.batch (4)"},
    {"[train]\nsteps = 1\nprecision = 'bf16'\n[model]\ndtype = 'f64'\n", "", "run.toml:3:13: "},
    {"[train]\nsteps = 1\nprecision = 'fp16'\n[model]\ndtype = 'f64'\n",
     "",
     "run.toml:3:13: train.precision 'fp16' needs model.dtype 'f32'"},
    {"[train]\nsteps = 1\nprecision = 'tf32'\n",
     "",
     "run.toml:3:13: train.precision 'tf32' is arithmetic of GPUs, and train.device is 'cpu'"},
    {"[train]\nsteps = 1\nprecision = 'fp16'\nloss_scale = 3000\n",
     "",
     "run.toml:4:14: train.loss_scale (3000) is no power of two"},
    {"[train]\nsteps = 1\n[checkpoint]\nevery = 5\n", "", "run.toml:4:9: checkpoint.every asks"},
    {"[model]\nkind = 'gpt'\nwidth = 10\nheads = 3\n[train]\nsteps = 1\n",
     "",
     "run.toml:4:9: model.heads (3) does not divide model.width (10)"},
    {"[data]\nkind = 'idx'\n[train]\nsteps = 1\n",
     "",
     "run.toml:2:8: data.kind 'idx' needs data.path"},
    {"[data]\nkind = 'idx'\npath = 'a'\nlabels = 'b'\neval_path = 'c'\n[train]\nsteps = 1\n",
     "",
     "run.toml:5:13: of data.eval_path and data.eval_labels only one is given"},
    {"[data]\nkind = 'text'\npath = 'a'\n[train]\nsteps = 1\n",
     "",
     "configuration: model.kind 'mlp' takes numbers, but data.kind 'text' gives tokens"},
    {"[model]\nkind = 'gpt'\n[data]\nkind = 'text'\npath = 'a'\ncontext = 129\n[train]\nsteps = "
     "1\n",
     "",
     "run.toml:6:11: samples of 129 tokens do not fit model.context (128)"},
    {"[model]\nkind = 'cnn'\n[train]\nsteps = 1\n",
     "",
     "configuration: model.kind 'cnn' takes images"},
    {"[loader]\npad = 'longest'\n[train]\nsteps = 1\n",
     "",
     "run.toml:2:7: loader.pad 'longest' has no padding to leave out"},
    {"[model]\nkind = 'gpt'\n[data]\nkind = 'text'\npath = 'a'\n[loader]\npad = 'longest'\n"
     "[train]\nsteps = 1\n",
     "",
     "run.toml:7:7: loader.pad 'longest' has no padding to leave out"},
    {"[loader]\ncache = true\n[train]\nsteps = 1\n",
     "",
     "run.toml:2:9: loader.cache changes nothing: samples of data.kind 'random' are never read "
     "again; take it out, or use data.kind 'images'"},
    {kRun, "loader.cache=true", "--set: loader.cache changes nothing"},
    {"[loader]\nbuckets = true\n[train]\nsteps = 1\n",
     "",
     "run.toml:2:11: loader.buckets needs samples of different lengths"},
    {"[model]\nkind = 'gpt'\n[data]\nkind = 'text'\npath = 'a'\nsamples = 'lines'\n"
     "[loader]\ntokens = 4096\n[train]\nsteps = 1\n",
     "",
     "run.toml:8:10: loader.tokens gains nothing while samples are padded"},
    {"[model]\nkind = 'gpt'\n[data]\nkind = 'text'\npath = 'a'\nsamples = 'lines'\n"
     "[loader]\npad = 'longest'\ntokens = 100\n[train]\nsteps = 1\n",
     "",
     "run.toml:9:10: loader.tokens (100) has no room for one sample of data.context (128) tokens"},
    {"[model]\nkind = 'gpt'\n[data]\nkind = 'text'\npath = 'a'\nsamples = 'lines'\n"
     "[loader]\npad = 'longest'\ntokens = 1000\n[train]\nsteps = 1\nmemory_limit = 100\n",
     "",
     "run.toml:9:10: loader.tokens and train.memory_limit exclude each other"},
    {"[model]\nkind = 'gpt'\n[data]\nkind = 'text'\npath = 'a'\nsamples = 'words'\n",
     "",
     "run.toml:6:11: "},
    {"[model]\nkind = 'gpt'\n[data]\nkind = 'text'\npath = 'a'\nsamples = 12\n",
     "",
     "run.toml:6:11: "},
    {"[data]\nsamples = 'lines'\n[train]\nsteps = 1\n", "", "run.toml:2:11: "},
};

TEST(Config, WhatIsWrongGetsOneMessage) {
  for (const Wrong& wrong : kWrong) {
    std::vector<std::string> sets;
    if (*wrong.set != '\0') sets.emplace_back(wrong.set);
    const std::string message = refusal(wrong.text, sets);
    EXPECT_TRUE(message.starts_with(wrong.message))
        << "got:      " << message << "\nexpected: " << wrong.message << "\nfor " << wrong.text
        << wrong.set;
  }
}

TEST(Config, HostileTextsAreRefused) {
  std::string deep = "[a";
  for (int i = 0; i < 200000; ++i) deep += ".a";
  EXPECT_NE(refusal(deep + "]\n").find("dots"), std::string::npos);
  EXPECT_NE(refusal("x = " + std::string(100000, '[')).find("not TOML"), std::string::npos);
  EXPECT_NE(refusal(std::string(kLongestToml + 1, '#')).find("too many"), std::string::npos);
  EXPECT_NE(refusal("[train]\nout = \"\xff\"\n").find("not TOML"), std::string::npos);
  const std::string message = refusal("[train]\nout = 3\n" + std::string(5000, 'x') + " = 1\n");
  EXPECT_LT(message.size(), 300u);
}

TEST(Config, UnreadableFilesAreNamed) {
  EXPECT_TRUE(test::user_error([] {
                load_config_file("no/such.toml", {});
              }).starts_with("cannot open 'no/such.toml': No such file"));
  EXPECT_NE(test::user_error([] { load_config_file("tests", {}); }).find("cannot read"),
            std::string::npos);
}

TEST(Config, PrintedTextReadsBackToTheSame) {
  const LoadedConfig loaded = load(
      "[model]\nkind='cnn'\nwidths=[1,2,3]\n[data]\nkind='idx'\npath='a\"\\b'\nlabels='\u00e9'\n"
      "mean=[0.5, 1e-3]\n[optimizer]\nlr=3e-4\nkind='sgd'\n",
      {"train.steps=7", "train.out=tab\there"});
  const std::string text = to_toml(loaded.config);
  EXPECT_EQ(to_toml(load(text).config), text);
  Settings settings;
  const std::string commented = to_toml(loaded, settings);
  EXPECT_EQ(to_toml(load(commented).config), text);
  EXPECT_EQ(load(commented).config.train.out, "tab\there");
  // Keys of other kinds are not in it.
  EXPECT_EQ(text.find("beta1"), std::string::npos);
  EXPECT_NE(text.find("momentum = 0.9\n"), std::string::npos);
}

TEST(Config, PrintedTextSaysWhereValuesComeFrom) {
  Settings settings;
  settings.set("threads", "3", Source::kEnvironment, "RIDGE_THREADS");
  const std::string text = to_toml(load("[train]\nbatch = 32\n", {"train.steps=7"}), settings);
  for (const char* line : {"threads = 3       # environment RIDGE_THREADS\n",
                           "steps = 7           # flag --set\n",
                           "batch = 32          # file run.toml:2:9\n",
                           "epochs = 0          # default\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
}

// The table of keys itself: what the type system does not hold.
TEST(ConfigKeys, TableIsSound) {
  TrainConfig config;
  const std::vector<ConfigKey> keys = config_keys(config);
  std::set<std::string> seen;
  std::set<const void*> fields;
  for (const ConfigKey& key : keys) {
    const std::string name(key.name);
    EXPECT_FALSE(key.help.empty() || key.help.ends_with('.')) << name;
    EXPECT_TRUE(seen.insert(fmt::format("{} {}", name, key.kinds)).second) << name << " twice";
    const void* field = std::visit(
        [](auto held) -> const void* {
          if constexpr (std::is_same_v<decltype(held), NamedField>)
            return held.address();
          else
            return held;
        },
        key.field);
    EXPECT_TRUE(fields.insert(field).second) << name << " shares its field";
    // Its default is a value that it allows, and the text of a value reads back as the value.
    const std::string text = value_text(key.field);
    EXPECT_TRUE(assign(key, parse_flag(key.field, text))) << name << " = " << text;
    EXPECT_EQ(value_text(key.field), text) << name;
    if (key.kinds.empty()) continue;
    EXPECT_NE(key.leaf(), "kind");
    for (const ConfigKey& other : keys)  // its kinds are kinds of its table
      if (other.table() == key.table() && other.leaf() == "kind")
        for (size_t at = 0, end; at <= key.kinds.size(); at = end + 1) {
          end = std::min(key.kinds.find('|', at), key.kinds.size());
          EXPECT_TRUE(has_choice(other.allowed, key.kinds.substr(at, end - at))) << name;
        }
  }
}

TEST(ConfigKeys, EveryNameReadsBack) {
  TrainConfig config;
  int names = 0;
  for (const ConfigKey& key : config_keys(config)) {
    if (!std::holds_alternative<NamedField>(key.field)) continue;
    for (size_t at = 0, end; at <= key.allowed.size(); at = end + 1) {
      end = std::min(key.allowed.find('|', at), key.allowed.size());
      const std::string name(key.allowed.substr(at, end - at));
      EXPECT_TRUE(assign(key, name)) << key.name << " = " << name;
      EXPECT_EQ(value_text(key.field), '"' + name + '"') << key.name;
      EXPECT_FALSE(assign(key, name + "s")) << key.name;
      EXPECT_EQ(value_text(key.field), '"' + name + '"') << key.name;
      ++names;
    }
  }
  EXPECT_GE(names, 30);
}

TEST(ConfigKeys, RangesHoldAtTheirEnds) {
  TrainConfig config;
  for (const ConfigKey& key : config_keys(config)) {
    const size_t dots = key.allowed.find("..");
    if (dots == std::string_view::npos || key.name == "train.seed") continue;
    std::string_view high = key.allowed.substr(dots + 2);
    const bool open = high.starts_with('<');
    if (open) high.remove_prefix(1);
    const double low_end = std::strtod(std::string(key.allowed.substr(0, dots)).c_str(), nullptr);
    const double high_end = std::strtod(std::string(high).c_str(), nullptr);
    const auto fits = [&](double value) {
      const bool whole = type_name(key.field).find("integer") != std::string::npos;
      const TomlScalar scalar = whole ? TomlScalar(static_cast<int64_t>(value)) : TomlScalar(value);
      if (type_name(key.field).starts_with("list")) return assign(key, std::vector{scalar});
      return whole ? assign(key, static_cast<int64_t>(value)) : assign(key, value);
    };
    EXPECT_TRUE(fits(low_end)) << key.name;
    EXPECT_EQ(fits(high_end), !open) << key.name;
    EXPECT_FALSE(fits(low_end - std::max(1.0, std::abs(low_end)))) << key.name;
    EXPECT_FALSE(fits(high_end + std::max(1.0, high_end))) << key.name;
  }
}

}  // namespace
}  // namespace ridge
