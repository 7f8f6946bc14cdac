// Trials where batches differ in length: both sides meet the same ones, what is kept is a fair mix,
// and the guard holds a program without padding against the one with it.
#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "ridge/tune/engine/engine_variant.h"
#include "ridge/tune/engine/guard/configs.h"
#include "tests/support/temp_folder.h"

namespace ridge {
namespace {

class RaggedTrial : public ::testing::Test {
 protected:
  RaggedTrial() {
    std::mt19937 random(13);
    std::ofstream text(folder_ / "text");
    for (int i = 0; i < 700; ++i)
      text << std::string(1 + random() % (i % 4 == 0 ? 32 : 6), static_cast<char>('a' + i % 26))
           << '\n';
  }

  std::string config(const std::string& pad) const {
    return "[model]\nkind = 'gpt'\ncontext = 32\nlayers = 1\nheads = 2\nwidth = 32\n"
           "[data]\nkind = 'text'\nsamples = 'lines'\ncontext = 32\npath = '" +
           (folder_ / "text").string() + "'\n[loader]\nworkers = 2\npad = '" + pad +
           "'\n[optimizer]\nlr = 1e-3\n[train]\nbatch = 4\nepochs = 2\n";
  }

  test::TempFolder folder_;
};

TEST_F(RaggedTrial, RewoundVariantsMeetTheSameBatches) {
  EngineVariant fresh(config("longest"), 1), used(config("longest"), 1);
  used.run(7, StepKind::kLoad);
  used.rewind();
  fresh.run(5);
  used.run(5);
  EXPECT_EQ(used.state_hash(), fresh.state_hash());
}

TEST_F(RaggedTrial, KeptBatchesAreTheSameMixForAll) {
  EngineVariant fresh(config("longest"), 0), used(config("longest"), 0);
  EXPECT_EQ(fresh.facts().mix, 8);
  used.run(5, StepKind::kLoad);
  fresh.run(11, StepKind::kKept);
  used.run(11, StepKind::kKept);
  EXPECT_EQ(used.state_hash(), fresh.state_hash());
  std::string windows = config("context");
  windows.replace(windows.find("'lines'"), 7, "'windows'");
  EXPECT_EQ(EngineVariant(windows, 0).facts().mix, 1);
}

TEST_F(RaggedTrial, TheGuardPassesIt) {
  const GuardAnswer answer = guard_configs({.reference = config("context"),
                                            .candidate = config("longest"),
                                            .semantic_class = SemanticClass::kReassociation,
                                            .most_steps = 200});
  EXPECT_TRUE(answer.passed) << answer.text;
}

// Masks of dropout go by the place in a batch: another training, and the guard sees it.
TEST_F(RaggedTrial, TheGuardSeesOtherMasks) {
  const auto with_dropout = [&](const std::string& pad) {
    std::string text = config(pad);
    return text.replace(text.find("width = 32"), 10, "width = 32\ndropout = 0.2");
  };
  const GuardAnswer answer = guard_configs({.reference = with_dropout("context"),
                                            .candidate = with_dropout("longest"),
                                            .semantic_class = SemanticClass::kReassociation,
                                            .most_steps = 200});
  EXPECT_FALSE(answer.passed);
}

}  // namespace
}  // namespace ridge
