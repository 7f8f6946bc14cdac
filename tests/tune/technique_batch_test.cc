// A larger batch brings all that is counted in steps with it.
#include "ridge/tune/engine/technique_batch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include "ridge/tune/engine/resolved_config.h"
#include "ridge/tune/prediction.h"

namespace ridge {
namespace {

ResolvedConfig resolved(const std::string& more) {
  return resolve_config(
      "[model]\nkind = 'cnn'\noutputs = 3\nmomentum = 0.1\n[data]\nkind = 'random'\n"
      "shape = [8, 8, 1]\nclasses = 3\n" +
          more,
      "test",
      Recipe{});
}

std::map<std::string, std::string> grown(const std::string& more, int64_t growth) {
  std::map<std::string, std::string> changes;
  const ResolvedConfig config = resolved(more);
  for (const ConfigFlag& change : grown_batch(config.loaded.config, growth))
    changes[change.key] = change.value;
  return changes;
}

Proposals propose(const ResolvedConfig& config, int64_t epoch_samples, double room = 100) {
  return propose_batch({.config = config.loaded.config,
                        .settings = *config.settings,
                        .epoch_samples = epoch_samples,
                        .epoch_steps = epoch_samples / config.loaded.config.train.batch,
                        .batch_room = room});
}

using Changes = std::map<std::string, std::string>;

// By hand: sqrt(4) = 2, 0.9^4 = 0.6561, 0.999^4 = 0.996006, 1 - 0.9^4 = 0.3439.
TEST(TechniqueBatch, AdamGoesWithTheRoot) {
  const Changes expected = {{"train.batch", "128"},
                            {"optimizer.lr", "0.006"},
                            {"optimizer.beta1", "0.6561"},
                            {"optimizer.beta2", "0.996006"},
                            {"optimizer.weight_decay", "0.02"},
                            {"model.momentum", "0.3439"},
                            {"schedule.warmup", "25"},
                            {"train.eval_every", "13"},
                            {"checkpoint.every", "100"}};
  EXPECT_EQ(grown("[optimizer]\nlr = 0.003\n[schedule]\nwarmup = 100\n[train]\nout = 'x'\n"
                  "batch = 32\nepochs = 3\neval_every = 50\n[checkpoint]\nevery = 400\n",
                  4),
            expected);
}

TEST(TechniqueBatch, SgdGoesInProportion) {
  const Changes expected = {{"train.batch", "64"},
                            {"train.micro", "4"},
                            {"optimizer.lr", "0.1"},
                            {"model.momentum", "0.19"},
                            {"train.steps", "501"}};
  EXPECT_EQ(grown("[optimizer]\nkind = 'sgd'\nlr = 0.05\n[train]\nbatch = 32\nmicro = 2\n"
                  "steps = 1001\n",
                  2),
            expected);
}

// The same samples, and by them the same schedule: the grown run ends where the other one does.
TEST(TechniqueBatch, ARecipeOfTheChangesIsARunOfAsManySamples) {
  const std::string text = "[schedule]\nwarmup = 40\n[train]\nbatch = 16\nsteps = 4000\n";
  const ResolvedConfig before = resolved(text);
  Recipe recipe;
  for (const ConfigFlag& change : grown_batch(before.loaded.config, 2))
    recipe.set(change.key, change.value);
  const Recipe read = parse_recipe(to_toml(recipe), "recipe");
  EXPECT_EQ(read.changes().size(), recipe.changes().size());
  const TrainConfig after = resolve_config(before.toml, "test", read).loaded.config;
  const TrainConfig& config = before.loaded.config;
  EXPECT_EQ(after.train.batch * after.train.steps, config.train.batch * config.train.steps);
  EXPECT_EQ(after.train.batch * after.schedule.warmup, config.train.batch * config.schedule.warmup);
}

TEST(TechniqueBatch, DataAndMemoryBoundIt) {
  const ResolvedConfig epochs = resolved("[train]\nbatch = 10\nepochs = 3\n");
  EXPECT_EQ(propose(epochs, 4000).tries.size(), 2u);
  EXPECT_EQ(propose(epochs, 3999).tries.size(), 1u);
  EXPECT_EQ(propose(epochs, 1999).reason,
            "2 times the batch would leave 99 steps an epoch or a run, fewer than 100");
  EXPECT_EQ(propose(epochs, 4000, 3.9).tries.size(), 1u);
  EXPECT_EQ(propose(epochs, 4000, 1.9).reason, "2 times the batch does not fit into free memory");
  const ResolvedConfig steps = resolved("[train]\nbatch = 10\nsteps = 399\n");
  EXPECT_EQ(propose(steps, 1 << 20).tries.size(), 1u);
  const ResolvedConfig large = resolved("[train]\nbatch = 1048576\nepochs = 1\n");
  EXPECT_NE(propose(large, int64_t{1} << 40).reason.find("the largest there is"),
            std::string::npos);
  for (const Proposal& proposal : propose(epochs, 4000).tries)
    EXPECT_EQ(proposal.semantic_class, SemanticClass::kTrajectory);
}

// A step that takes 10 ms for 32 samples and 16 for 64, of which loading takes 2 and 4.
TEST(TechniqueBatch, PredictionsAreOfTheSameSamples) {
  const StepCosts before{.step = 0.010, .compute = 0.008, .load = 0.002, .samples = 32};
  StepChange change{.compute = {.log_ratio = std::log(1.5)},
                    .load = {.log_ratio = std::log(2.0)},
                    .workers_after = 0,
                    .threads_after = 1,
                    .work = 2};
  const SpeedRange gain = predicted_speedup(before, change, 1);
  EXPECT_LT(gain.low, 1.25);
  EXPECT_GT(gain.high, 1.25);
  EXPECT_LT(gain.high, 1.4);
  change.compute.log_ratio = std::log(2.0);  // twice the time for twice the samples
  EXPECT_LT(predicted_speedup(before, change, 1).low, 1.0);
  EXPECT_GT(predicted_speedup(before, change, 1).high, 1.0);
  EXPECT_DOUBLE_EQ(batch_ceiling(before, 4), 4);
  EXPECT_DOUBLE_EQ(batch_ceiling({.step = 0.010, .load = 0.005}, 4), 2);
  EXPECT_DOUBLE_EQ(batch_ceiling({.step = 0.010, .load = 0.012}, 4), 1);
}

}  // namespace
}  // namespace ridge
