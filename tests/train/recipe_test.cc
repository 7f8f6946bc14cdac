// Recipes: round trips, who wins over whom, and what is refused with which words.
#include "ridge/config/recipe.h"

#include <gtest/gtest.h>

#include "tests/support/errors.h"

namespace ridge {
namespace {

constexpr const char* kRecipe =
    "threads = 2\n"
    "cpu.isa = 'avx2'\n"
    "[train]\nprecision = 'bf16'\nmicro = 4\n"
    "[loader]\nworkers = 3\n"
    "[data]\nmean = [0.5, 1]\n"
    "[recipe]\nschema = 'ridge.recipe/1'\nclaim = \"twice\\nas \\\"fast\\\"\"\nmachine = 'a'\n";

// The file's keys are of a kind that has data.mean.
constexpr const char* kRun =
    "threads = 7\n[data]\nkind = 'idx'\npath = 'x'\nlabels = 'y'\nmean = [0.25, 0.25]\n"
    "[loader]\nworkers = 1\n[train]\nsteps = 10\nmicro = 2\n";

TEST(Recipe, TextIsCanonicalAndReadsBack) {
  const Recipe recipe = parse_recipe(kRecipe, "r.toml");
  const std::string text = to_toml(recipe);
  EXPECT_EQ(text,
            "threads = 2\ncpu.isa = \"avx2\"\n\n"
            "[recipe]\nschema = \"ridge.recipe/1\"\nclaim = \"twice\\u000Aas \\\"fast\\\"\"\n"
            "machine = \"a\"\n\n"
            "[data]\nmean = [0.5, 1.0]\n\n[loader]\nworkers = 3\n\n"
            "[train]\nprecision = \"bf16\"\nmicro = 4\n");
  const Recipe again = parse_recipe(text, "again.toml");
  EXPECT_EQ(to_toml(again), text);
  EXPECT_EQ(again.proven, recipe.proven);
  EXPECT_EQ(again.proven.claim, "twice\nas \"fast\"");
  EXPECT_EQ(recipe_hash(again), recipe_hash(recipe));
  EXPECT_EQ(recipe.changes()[3].where, "r.toml:7:11");
}

TEST(Recipe, HashIsOfTheOverridesAlone) {
  Recipe a, b;
  a.set("loader.workers", "2");
  a.set("optimizer.eps", "1");
  a.set("cpu.jit", "no");
  b.set("cpu.jit", "false");
  b.set("optimizer.eps", "1.0");
  b.set("loader.workers", "5");
  EXPECT_NE(recipe_hash(a), recipe_hash(b));
  b.set("loader.workers", "2");  // in place of 5
  EXPECT_EQ(recipe_hash(a), recipe_hash(b));
  EXPECT_EQ(b.changes().size(), 3u);
  b.proven.claim = "fast";
  EXPECT_EQ(recipe_hash(a), recipe_hash(b));
  EXPECT_EQ(recipe_hash(a).size(), 16u);
  // FNV-1a of "train.micro = 2\n", worked out by hand.
  Recipe one;
  one.set("train.micro", "2");
  EXPECT_EQ(recipe_hash(one), "88669c62bdd62860");
}

LoadedConfig load(const std::vector<std::string>& sets, Settings& settings) {
  std::vector<ConfigFlag> flags;
  for (const std::string& set : sets) flags.push_back(parse_set(set));
  const Recipe recipe = parse_recipe(kRecipe, "r.toml");
  // Behind the flags on purpose: the source decides.
  flags.insert(flags.end(), recipe.changes().begin(), recipe.changes().end());
  return load_config(kRun, "run.toml", flags, settings);
}

TEST(Recipe, FlagsWinOverEnvironmentOverRecipeOverFile) {
  Settings settings;
  settings.set("cpu.isa", "avx512", Source::kEnvironment, "RIDGE_CPU_ISA");
  const LoadedConfig loaded = load({"train.micro=8"}, settings);
  EXPECT_EQ(loaded.config.train.micro, 8);
  EXPECT_EQ(loaded.config.loader.workers, 3);
  EXPECT_EQ(loaded.config.train.precision, Precision::kBf16);
  EXPECT_EQ(loaded.config.train.steps, 10);
  EXPECT_EQ(loaded.config.data.mean, (std::vector<double>{0.5, 1}));
  EXPECT_EQ(settings.get_int("threads"), 2);
  EXPECT_EQ(settings.get_string("cpu.isa"), "avx512");
  EXPECT_EQ(loaded.origins.at("loader.workers").source, Source::kRecipe);
  EXPECT_EQ(settings.origin("threads").where, "r.toml:1:11");
  const std::string text = to_toml(loaded, settings);
  EXPECT_NE(text.find("# recipe r.toml:7:11\n"), std::string::npos) << text;
  EXPECT_NE(text.find("# recipe r.toml:1:11\n"), std::string::npos) << text;
  EXPECT_NE(text.find("# flag --set\n"), std::string::npos) << text;
  EXPECT_EQ(load({"threads=5"}, settings).config.train.micro, 4);
  EXPECT_EQ(settings.get_int("threads"), 5);
}

TEST(Recipe, SetFromCodeIsWhatAFlagWouldBe) {
  Recipe recipe;
  recipe.set("data.mean", "0.5,1");
  recipe.set("train.precision", "bf16");
  recipe.set("cpu.isa", "avx2");
  EXPECT_EQ(to_toml(parse_recipe(to_toml(recipe), "r")), to_toml(recipe));
  EXPECT_EQ(recipe.changes()[1].value, "[0.5, 1.0]");
  EXPECT_EQ(recipe.changes()[2].value, "\"bf16\"");
  EXPECT_EQ(test::user_error([&] { recipe.set("train.precisoin", "bf16", "bf16 trial"); }),
            "bf16 trial: unknown key 'train.precisoin'; did you mean 'train.precision'?");
  EXPECT_EQ(recipe.changes().size(), 3u);
}

struct Wrong {
  const char* text;
  const char* message;
};

constexpr Wrong kWrong[] = {
    {"[train]\nmicor = 2\n", "r.toml:2:1: unknown key 'train.micor'; did you mean 'train.micro'?"},
    {"thread = 2\n", "r.toml:1:1: unknown key 'thread'; did you mean 'threads'?"},
    {"[trian]\n", "r.toml:1:2: unknown table 'trian'; did you mean 'train'?"},
    {"[train]\nmicro = 0\n",
     "r.toml:2:9: train.micro: got 0, expected an integer from 1 to 1048576; leave it out for the "
     "default 1"},
    {"[train]\ndevice = 3\n", "r.toml:2:10: train.device: got 3, expected a string"},
    {"[train]\nprecision = 'fb16'\n",
     "r.toml:2:13: train.precision: got \"fb16\", expected one of f32, tf32, bf16, fp16; did you "
     "mean "
     "'bf16' or 'fp16'?"},
    {"threads = 'many'\n", "setting 'threads' from recipe r.toml:1:11: got 'many'"},
    {"[recipe]\nschema = 'ridge.recipe/2'\n",
     "r.toml:2:10: the schema is 'ridge.recipe/2', not ridge.recipe/1; use the version"},
    {"[recipe]\nclam = 'x'\n",
     "r.toml:2:1: unknown key 'recipe.clam'; did you mean 'claim' or 'plan'?"},
    {"[recipe]\nclaim = 2\n", "r.toml:2:9: recipe.claim is no string; put its value in quotes"},
    {"recipe = 2\n", "r.toml:1:1: unknown key 'recipe'"},
    {"[train\n", "r.toml:1:7: this is not TOML: "},
    {"[train]\nmicro = 2\nmicro = 2\n", "r.toml:3:"},
};

TEST(Recipe, BadOnesAreRefusedWithTheirPlace) {
  for (const Wrong& wrong : kWrong) {
    const std::string said = test::user_error([&] { parse_recipe(wrong.text, "r.toml"); });
    EXPECT_EQ(said.rfind(wrong.message, 0), 0u) << said << "\nnot\n" << wrong.message;
  }
  EXPECT_NE(test::user_error([] { read_recipe_file("no/such.toml"); }).find("no/such.toml"),
            std::string::npos);
}

TEST(Recipe, EmptyOnesChangeNothing) {
  for (const char* text : {"", "[recipe]\n", "[train]\n"}) {
    const Recipe recipe = parse_recipe(text, "r.toml");
    EXPECT_TRUE(recipe.empty());
    EXPECT_EQ(recipe_hash(recipe), recipe_hash(Recipe()));
  }
}

// A key of a kind that is not in force is for the configuration to refuse.
TEST(Recipe, KeysOfOtherKindsAreRefusedWithTheConfiguration) {
  const Recipe recipe = parse_recipe("[model]\nwidths = [8]\n", "r.toml");
  Settings settings;
  EXPECT_EQ(
      test::user_error([&] {
        load_config("[train]\nsteps = 1\n", "run.toml", recipe.changes(), settings);
      }).rfind("r.toml:2:10: 'model.widths' is a key of kind cnn, but model.kind is 'mlp'", 0),
      0u);
}

TEST(ConfigHash, IsOfWhatTheSpeedDependsOn) {
  TrainConfig a, b;
  b.train.out = "runs/b";
  b.train.steps = 7;
  b.train.seed = 3;
  b.checkpoint.every = 5;
  EXPECT_EQ(config_hash(a), config_hash(b));
  b.loader.workers = 9;
  EXPECT_NE(config_hash(a), config_hash(b));
}

}  // namespace
}  // namespace ridge
