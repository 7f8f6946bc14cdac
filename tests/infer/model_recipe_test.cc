// Recipes for models: what is written is read back, and what is wrong is told with its place.
#include "ridge/infer/model_recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>
#include <string>

#include "ridge/infer/callers.h"
#include "ridge/io/file.h"
#include "tests/support/errors.h"
#include "tests/support/temp_folder.h"

namespace ridge::test {
namespace {

using testing::HasSubstr;

ModelRecipe some_recipe() {
  ModelRecipe recipe;
  recipe.threads = 2;
  recipe.pin = true;
  recipe.batch = 16;
  recipe.instances = 2;
  recipe.choices = {.precision = DType::kBF16,
                    .passes_off = {"join_loops"},
                    .pick = KernelPick::kTimed,
                    .kernels_off = {"winograd"},
                    .kernels = {{"0123456789abcdef", "im2col_gemm"}}};
  recipe.sizes = {{"T", 128}, {"a.b \"c\"", 3}};
  recipe.quantized = "m.static.onnx";
  recipe.files = {{"m.static.onnx", "0123456789abcdef"}};
  recipe.proven.claim = "1.5 times as fast";
  recipe.proven.config = "ff";
  return recipe;
}

TEST(ModelRecipe, IsReadBackAsItIsWritten) {
  const ModelRecipe recipe = some_recipe();
  const std::string text = to_toml(recipe);
  const ModelRecipe again = parse_model_recipe(text, "r.toml");
  EXPECT_EQ(to_toml(again), text);
  EXPECT_EQ(again.threads, 2);
  EXPECT_EQ(again.pin, true);
  EXPECT_EQ(again.batch, 16);
  EXPECT_EQ(again.instances, 2);
  EXPECT_EQ(again.choices, recipe.choices);
  EXPECT_EQ(again.sizes, recipe.sizes);
  EXPECT_EQ(again.quantized, recipe.quantized);
  EXPECT_EQ(again.files, recipe.files);
  EXPECT_EQ(again.proven, recipe.proven);
  EXPECT_TRUE(is_model_recipe(text, "r.toml"));
  EXPECT_FALSE(again.empty());
  EXPECT_TRUE(ModelRecipe{}.empty());
}

TEST(ModelRecipe, HashIsOfWhatItChanges) {
  ModelRecipe recipe = some_recipe();
  const std::string hash = recipe_hash(recipe);
  recipe.proven = {};
  recipe.sizes = {};
  recipe.files = {};
  EXPECT_EQ(recipe_hash(recipe), hash);
  recipe.choices.kernels["0123456789abcdef"] = "winograd";
  EXPECT_NE(recipe_hash(recipe), hash);
}

TEST(ModelRecipe, WhatIsWrongHasItsPlace) {
  const auto error = [](const std::string& text) {
    return user_error([&] { parse_model_recipe(text, "r.toml"); });
  };
  EXPECT_THAT(error("[session]\nthread = 2\n"),
              HasSubstr("r.toml:2:1: unknown key 'session.thread'; did you mean 'threads'?"));
  EXPECT_THAT(error("[session]\nthreads = 0\n"), HasSubstr("an integer from 1 to 1024"));
  EXPECT_THAT(error("[session]\npin = 1\n"), HasSubstr("is not true or false"));
  EXPECT_THAT(error("[session]\nprecision = \"f16\"\n"), HasSubstr("\"f32\" or \"bf16\""));
  EXPECT_THAT(error("[session]\npick = \"best\"\n"), HasSubstr("first|timed|timed_any_bits"));
  EXPECT_THAT(error("[session]\npasses_off = [\"fuse\"]\n"), HasSubstr("names of passes"));
  EXPECT_THAT(error("[session]\nquantized = \"a/m.onnx\"\n"),
              HasSubstr("the name of a file beside the recipe"));
  EXPECT_THAT(error("[kernels]\nx = \"gemm\"\n"), HasSubstr("'x' is no hash of a node"));
  EXPECT_THAT(error("[sizes]\nT = -1\n"), HasSubstr("an integer from 1"));
  EXPECT_THAT(error("[sesion]\nthreads = 2\n"), HasSubstr("did you mean 'session'?"));
  EXPECT_THAT(error("[recipe]\nschema = \"ridge.recipe/1\"\n"),
              HasSubstr("this recipe is for a configuration of ridge"));
}

TEST(ModelRecipe, IsForItsModel) {
  const TempFolder folder;
  const std::string model = (folder / "m.onnx").string(), path = (folder / "r.toml").string();
  write_file_atomically(model, "one model");
  ModelRecipe recipe = some_recipe();
  recipe.proven.config = model_hash(model);
  write_file_atomically(path, to_toml(recipe));
  EXPECT_EQ(read_model_recipe(path, model).batch, 16);
  write_file_atomically(model, "another model");
  EXPECT_THAT(user_error([&] { read_model_recipe(path, model); }),
              HasSubstr("was made for another model than"));
  recipe.proven.config.clear();
  recipe.runtime = "onnxruntime";
  write_file_atomically(path, to_toml(recipe));
  EXPECT_THAT(user_error([&] { read_model_recipe(path, model); }),
              HasSubstr("is of the runtime 'onnxruntime'"));
}

TEST(ModelRecipe, RunsAQuantizedModelThatLiesBesideIt) {
  const TempFolder folder;
  const std::string quantized = (folder / "m.static.onnx").string();
  const std::string path = (folder / "r.toml").string();
  ModelRecipe recipe = some_recipe();
  EXPECT_THAT(user_error([&] { model_to_run(recipe, path, "m.onnx"); }),
              HasSubstr("m.static.onnx' is missing, which the recipe"));
  write_file_atomically(quantized, "a quantized model");
  EXPECT_THAT(user_error([&] { model_to_run(recipe, path, "m.onnx"); }),
              HasSubstr("is another file than the recipe"));
  recipe.files["m.static.onnx"] = model_hash(quantized);
  EXPECT_EQ(model_to_run(recipe, path, "m.onnx"), quantized);
  EXPECT_EQ(model_to_run(recipe, folder.path().string(), "m.onnx"), quantized);
  EXPECT_EQ(model_to_run({}, path, "m.onnx"), "m.onnx");
}

TEST(CallersTest, AllAreInTheCallAtTheSameTime) {
  Callers callers(3);
  for (int round = 0; round < 20; ++round) {
    std::mutex mutex;
    std::condition_variable changed;
    size_t inside = 0;
    callers.run([&](size_t) {  // it returns only when all of them are in it
      std::unique_lock lock(mutex);
      ++inside;
      changed.notify_all();
      changed.wait(lock, [&] { return inside == 3; });
    });
    EXPECT_EQ(inside, 3u);
  }
}

TEST(CallersTest, TheErrorOfTheLowestIsThrownAndTheNextRoundIsAsAnyOther) {
  Callers callers(3);
  const auto message = [&]() -> std::string {
    try {
      callers.run([](size_t number) {
        if (number > 0) throw std::runtime_error(std::to_string(number));
      });
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return {};
  };
  EXPECT_EQ(message(), "1");
  std::array<int, 3> calls{};
  callers.run([&](size_t number) { ++calls[number]; });
  EXPECT_EQ(calls, (std::array{1, 1, 1}));
}

}  // namespace
}  // namespace ridge::test
