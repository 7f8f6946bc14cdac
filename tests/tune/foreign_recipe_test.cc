// Recipes for third-party programs: round trips, what is refused with which words, what a run is
// told.
#include <gtest/gtest.h>

#include <algorithm>

#include "ridge/config/recipe.h"
#include "ridge/tune/pytorch/recipe.h"
#include "tests/support/errors.h"

namespace ridge {
namespace {

constexpr const char* kText =
    "[environment]\nPYTORCH_CUDA_ALLOC_CONF = 'expandable_segments:True'\n"
    "LD_PRELOAD = '/usr/lib/libjemalloc.so.2'\n"
    "[pytorch]\nmodel.compile = 'max-autotune'\nloader.persistent = true\nloader.workers = 2\n"
    "cpus = '0-1,3'\n"
    "[sites]\nloader.workers = 'a b/train.py:53'\n"
    "[recipe]\nschema = 'ridge.recipe.pytorch/1'\nclaim = 'twice'\ncommand = 'python a.py'\n";

TEST(ForeignRecipe, TextIsCanonicalAndReadsBack) {
  const ForeignRecipe recipe = parse_foreign_recipe(kText, "r.toml");
  const std::string text = to_toml(recipe);
  EXPECT_EQ(text,
            "[recipe]\nschema = \"ridge.recipe.pytorch/1\"\nclaim = \"twice\"\n"
            "command = \"python a.py\"\n\n"
            "[pytorch]\nloader.workers = 2\nloader.persistent = true\ncpus = \"0-1,3\"\n"
            "model.compile = \"max-autotune\"\n\n"
            "[environment]\nLD_PRELOAD = \"/usr/lib/libjemalloc.so.2\"\n"
            "PYTORCH_CUDA_ALLOC_CONF = \"expandable_segments:True\"\n\n"
            "[sites]\nloader.workers = \"a b/train.py:53\"\n");
  const ForeignRecipe again = parse_foreign_recipe(text, "again.toml");
  EXPECT_EQ(to_toml(again), text);
  EXPECT_EQ(again.proven, recipe.proven);
  EXPECT_EQ(again.sites.at("loader.workers"), "a b/train.py:53");
  EXPECT_EQ(recipe_hash(again), recipe_hash(recipe));
}

TEST(ForeignRecipe, TheShimIsToldTypesAndAllValues) {
  EXPECT_EQ(parse_foreign_recipe(kText, "r").shim_json(),
            R"({"loader.workers":2,"loader.persistent":true,"cpus":"0-1,3",)"
            R"("model.compile":"max-autotune"})");
  EXPECT_EQ(ForeignRecipe().shim_json(), "");
  ForeignRecipe variables;
  variables.set_environment("A", "1");
  EXPECT_EQ(variables.shim_json(), "");
  EXPECT_FALSE(variables.empty());
}

TEST(ForeignRecipe, HashIsOfWhatIsChangedAlone) {
  ForeignRecipe a, b;
  a.set("loader.workers", "2");
  a.set("threads", "1");
  b.set("threads", "1");
  b.set("loader.workers", "3");
  EXPECT_NE(recipe_hash(a), recipe_hash(b));
  b.set("loader.workers", "02");  // in place of 3, in its one spelling
  EXPECT_EQ(b.get("loader.workers"), "2");
  b.sites["threads"] = "a.py:1";
  b.proven.claim = "fast";
  EXPECT_EQ(recipe_hash(a), recipe_hash(b));
  b.set_environment("A", "1");
  EXPECT_NE(recipe_hash(a), recipe_hash(b));
  // A variable is no key.
  ForeignRecipe key, variable;
  key.set("threads", "1");
  variable.set_environment("threads", "1");
  EXPECT_NE(recipe_hash(key), recipe_hash(variable));
  b.erase("threads");
  EXPECT_EQ(b.get("threads"), "");
  EXPECT_EQ(b.changes().size(), 1u);
}

TEST(ForeignRecipe, SitesOfAnotherFormAreNotWritten) {
  ForeignRecipe recipe;
  const std::string plain = to_toml(recipe);
  for (const char* site : {"", ":3", "train.py", "train.py:", "train.py:0", "train.py:x"}) {
    recipe.sites["threads"] = site;
    EXPECT_EQ(to_toml(recipe), plain) << site;
  }
  recipe.sites["nothing"] = "train.py:1";
  EXPECT_EQ(to_toml(recipe), plain);
  recipe.sites["threads"] = "a\xff:1";
  EXPECT_EQ(to_toml(parse_foreign_recipe(to_toml(recipe), "r")), to_toml(recipe));
}

TEST(ForeignRecipe, ChangesAreToldInWords) {
  ForeignRecipe from, to;
  from.set("threads", "1");
  from.set("loader.workers", "2");
  from.set_environment("A", "1");
  to.set("threads", "1");
  to.set("loader.workers", "4");
  to.set("model.autocast", "bf16");
  to.set_environment("A", "1");
  to.set_environment("B", "x");
  EXPECT_EQ(change_text(from, to), "loader.workers = 4, model.autocast = bf16, B = x");
  EXPECT_EQ(change_text(from, from), "");
}

TEST(ForeignRecipe, EveryKnobHasASentenceAndTakesAValue) {
  ForeignRecipe all;
  for (const Knob& knob : knobs()) {
    EXPECT_FALSE(knob.text.empty()) << knob.key;
    const std::string word = knob.words.empty() ? "0-1" : knob.words[0];
    const std::string key(knob.key);
    all.set(key,
            knob.type == KnobType::kFlag     ? "true"
            : knob.type == KnobType::kNumber ? std::to_string(std::max<int64_t>(1, knob.least))
                                             : word);
    for (const char* wrong : {"", "nonsense", "-1", "1e3", "\"1\"", "99999999999999999999"})
      EXPECT_NE(test::user_error([&] { all.set(key, wrong); }), "no error") << key << " " << wrong;
  }
  EXPECT_EQ(all.changes().size(), knobs().size());
  EXPECT_EQ(to_toml(parse_foreign_recipe(to_toml(all), "r")), to_toml(all));
}

TEST(ForeignRecipe, TheCommandIsKnownWhateverStandsForItsOutput) {
  ForeignRecipe recipe;
  EXPECT_TRUE(is_proven_for(recipe, {"python", "b.py"}));
  recipe.proven.command = "python train.py --out '{out}' --steps={steps}";
  EXPECT_TRUE(is_proven_for(recipe, {"python", "train.py", "--out", "a b", "--steps=7"}));
  EXPECT_TRUE(is_proven_for(recipe, {"python", "train.py", "--out", "{out}", "--steps={steps}"}));
  EXPECT_FALSE(is_proven_for(recipe, {"python", "train.py", "--out", "a", "--step=7"}));
  EXPECT_FALSE(is_proven_for(recipe, {"python", "other.py", "--out", "a", "--steps=7"}));
  recipe.proven.command = "python train.py --out {out} last";
  EXPECT_TRUE(is_proven_for(recipe, {"python", "train.py", "--out", "last", "last"}));
  EXPECT_FALSE(is_proven_for(recipe, {"python", "train.py", "--out", "last", "lost"}));
  recipe.proven.command = "python train.py";
  EXPECT_FALSE(is_proven_for(recipe, {"python", "train.py", "--lr", "1"}));
  EXPECT_TRUE(is_proven_for(recipe, {"python", "train.py"}));
}

struct Wrong {
  const char* text;
  const char* message;
};

constexpr Wrong kWrong[] = {
    {"[pytorch]\nloader.worker = 2\n",
     "r.toml:2:8: unknown key 'loader.worker'; did you mean 'loader.workers'?"},
    {"[pytorch]\nbatch = 2\n",
     "r.toml:2:1: unknown key 'batch'; docs/recipes_pytorch.md lists all"},
    {"[pytorch]\nloader.workers = -1\n",
     "r.toml:2:18: loader.workers: got -1, expected an integer from 0 to 1024"},
    {"[pytorch]\nloader.workers = '2'\n",
     "r.toml:2:18: loader.workers: got \"2\", expected an integer from 0 to 1024"},
    {"[pytorch]\nloader.workers = [2]\n", "r.toml:2:18: loader.workers: got [2], expected"},
    {"[pytorch]\nthreads = 0\n", "r.toml:2:11: threads: got 0, expected an integer from 1 to 4096"},
    {"[pytorch]\nloader.pin = 1\n", "r.toml:2:14: loader.pin: got 1, expected true or false"},
    {"[pytorch]\nmodel.autocast = true\n",
     "r.toml:2:18: model.autocast: got true, expected one of bf16, f16"},
    {"[pytorch]\nmodel.compile = 'max-autotun'\n",
     "r.toml:2:17: model.compile: got max-autotun, expected one of default, reduce-overhead, "
     "max-autotune, ridge; did you mean 'max-autotune'?"},
    {"[pytorch]\ncpus = '1-0'\n",
     "r.toml:2:8: cpus: got 1-0, expected CPUs, such as \"0-3\" or \"0,2\""},
    {"[pytorch]\ncpus = '0,'\n", "r.toml:2:8: cpus: got 0,, expected"},
    {"[environment]\n'A=B' = 'x'\n", "r.toml:2:1: '\"A=B\"' is no name of an environment variable"},
    {"[environment]\nPYTHONPATH = 'x'\n", "r.toml:2:1: PYTHONPATH is what Ridge sets itself"},
    {"[environment]\nA = \"\\u0000\"\n", "r.toml:2:1: the value of A is no text"},
    {"[environment]\nA = 1.5\n", "r.toml:2:5: environment.A is no string; put its value in quotes"},
    {"[environment]\nA.B = 'x'\n", "r.toml:2:3: 'A.B' is no name of an environment variable"},
    {"[sites]\nloader.workers = 'train.py'\n",
     "r.toml:2:18: loader.workers: got 'train.py', expected a file and its line, such as "
     "\"train.py:53\""},
    {"[sites]\nthread = 'train.py:1'\n",
     "r.toml:2:1: unknown key 'thread'; did you mean 'threads'?"},
    {"[pytroch]\nthreads = 1\n", "r.toml:2:1: unknown table 'pytroch'; did you mean 'pytorch'?"},
    {"threads = 1\n",
     "r.toml:1:1: 'threads' does not stand below [pytorch]; put it there, or give a recipe of a "
     "configuration to 'ridge train --recipe'"},
    {"[train]\nprecision = 'bf16'\n",
     "r.toml:2:1: this recipe is for a configuration of ridge; apply it with 'ridge train CONFIG "
     "--recipe FILE'"},
    {"threads = 1\n[recipe]\nschema = 'ridge.recipe/1'\n",
     "r.toml:3:10: this recipe is for a configuration of ridge"},
    {"[recipe]\nschema = 'ridge.recipe.pytorch/2'\n",
     "r.toml:2:10: the schema is 'ridge.recipe.pytorch/2', not ridge.recipe.pytorch/1; use the"},
    {"[recipe]\nclam = 'x'\n", "r.toml:2:1: unknown key 'recipe.clam'"},
    {"pytorch = 2\n", "r.toml:1:1: unknown table 'pytorch'"},
    {"[pytorch\n", "r.toml:1:9: this is not TOML: "},
};

TEST(ForeignRecipe, BadOnesAreRefusedWithTheirPlace) {
  for (const Wrong& wrong : kWrong) {
    const std::string said = test::user_error([&] { parse_foreign_recipe(wrong.text, "r.toml"); });
    EXPECT_EQ(said.rfind(wrong.message, 0), 0u) << said << "\nnot\n" << wrong.message;
  }
  EXPECT_NE(test::user_error([] { read_foreign_recipe_file("no/such.toml"); }).find("no/such.toml"),
            std::string::npos);
}

TEST(ForeignRecipe, AConfigurationRefusesThem) {
  constexpr const char* kSaid =
      "this recipe is for a program in PyTorch; apply it with 'ridge run --recipe FILE -- COMMAND'";
  for (const char* text : {kText, "[environment]\nA = '1'\n", "[pytorch]\n", "[sites]\n"}) {
    const std::string said = test::user_error([&] { parse_recipe(text, "r.toml"); });
    EXPECT_NE(said.find(kSaid), std::string::npos) << said;
  }
  const std::string whole = to_toml(parse_foreign_recipe(kText, "r.toml"));
  EXPECT_EQ(test::user_error([&] { parse_recipe(whole, "r.toml"); }),
            "r.toml:2:10: " + std::string(kSaid));
}

TEST(ForeignRecipe, EmptyOnesChangeNothing) {
  for (const char* text : {"", "[recipe]\n", "[pytorch]\n[environment]\n[sites]\n"}) {
    const ForeignRecipe recipe = parse_foreign_recipe(text, "r.toml");
    EXPECT_TRUE(recipe.empty());
    EXPECT_EQ(recipe_hash(recipe), recipe_hash(ForeignRecipe()));
  }
}

}  // namespace
}  // namespace ridge
