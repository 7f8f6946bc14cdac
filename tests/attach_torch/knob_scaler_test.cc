// f16 of a real program that knows nothing of it: its losses, gradients, weights and skipped steps
// are those of the loop that torch's documentation has for a GradScaler (tests/attach/programs/
// knob_scaler.py).
#include <gtest/gtest.h>

#include <map>
#include <sstream>
#include <vector>

#include "tests/attach_torch/shimmed_program.h"
#include "tests/support/peers_python.h"
#include "tests/support/scale.h"

namespace ridge::attach {
namespace {

constexpr const char* kHalf = R"({"model.autocast":"f16"})";

class ScalerKnob : public ::testing::Test {
 protected:
  void SetUp() override {
    if (python_.empty()) GTEST_SKIP() << test::kNoPeers;
    if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  }

  test::ShimmedEnd with(const std::string& mode) const {
    return test::run_with_recipe(python_, kHalf, "knob_scaler.py " + mode + " plain");
  }
  /// The knob's words on a run whose bits are those of the loop written by hand.
  std::string same_as_by_hand(const std::string& mode) const {
    SCOPED_TRACE(mode);
    const test::ShimmedEnd by_hand = test::run_shimmed(python_, "knob_scaler.py " + mode + " hand");
    const test::ShimmedEnd ended = with(mode);
    EXPECT_GT(by_hand.out.size(), 200u);
    EXPECT_EQ(ended.out, by_hand.out);
    EXPECT_EQ(ended.knob().state, "applied") << ended.knob().text;
    return ended.knob().text;
  }

  std::string python_ = test::peers_python();
};

TEST_F(ScalerKnob, BitsAreThoseOfTheDocumentedLoop) {
  constexpr std::string_view kNone = "losses are scaled, and 0 of 8 steps were left out";
  EXPECT_TRUE(same_as_by_hand("clipped").ends_with(kNone));
  // Gradients of several batches, clipping of the program's own, which sees its own gradients, and
  // layers whose gradients call backward() themselves.
  for (const char* mode : {"steps", "added", "value", "checkpointed"})
    EXPECT_TRUE(same_as_by_hand(mode).ends_with(kNone)) << mode;
  EXPECT_TRUE(same_as_by_hand("overflow").ends_with("and 5 of 8 steps were left out"));
}

TEST_F(ScalerKnob, RefusesWhatItCannotFollow) {
  const std::map<std::string, std::string> reasons = {
      {"two", "several optimizers step: it is not known which losses are theirs"},
      {"hook", "parameters of Model have hooks, which would see scaled gradients"},
      {"scaler", "the program has a GradScaler itself"},
      {"unowned", "parameters of Model that no optimizer has get gradients"},
      {"gradients", "the program computes gradients by torch.autograd.grad"},
      {"second", "the program computes gradients of gradients"},
      {"closure", "a step of AdamW computes losses itself"}};
  for (const auto& [mode, reason] : reasons) {
    const test::ShimmedEnd ended = with(mode);
    EXPECT_EQ(ended.knob().state, "refused") << mode;
    EXPECT_EQ(ended.knob().text, reason);
  }
}

// On GPUs that are made up: which formats come with which of them.
TEST_F(ScalerKnob, IsOfferedAsTheDeviceHasIt) {
  const auto offers = [&](const std::string& mode) {
    const test::ShimmedEnd ended =
        test::run_shimmed(python_,
                          "knob_scaler.py " + mode + " probe",
                          ShimOptions{.profiled_steps = 0, .probes = true});
    std::vector<std::string> found;
    std::istringstream lines(ended.out);
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with("offer ")) found.push_back(line.substr(6));
    return found;
  };
  using Lines = std::vector<std::string>;
  const std::string none =
      "6 refused: this GPU has no products of 16 bits: they came with compute capability 7.0";
  EXPECT_EQ(offers("steps"), (Lines{"0 bf16", none, "7 f16", "8 bf16", "8 f16"}));
  EXPECT_EQ(offers("two"),
            (Lines{"0 bf16",
                   none,
                   "7 refused: several optimizers step: it is not known which losses are theirs",
                   "8 bf16"}));
}

}  // namespace
}  // namespace ridge::attach
