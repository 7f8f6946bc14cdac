// Kernels that were picked by time, in checkpoints: what a resumed run keeps, what it picks again,
// and what it says of that. The clock of these tests is what a fake tuner favors.
#include "ridge/train/run_kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "ridge/io/checkpoint.h"
#include "ridge/run/backends.h"
#include "ridge/train/checkpointing.h"
#include "ridge/train/task.h"
#include "ridge/train/verify.h"
#include "tests/support/errors.h"
#include "tests/support/temp_folder.h"
#include "tests/train/train_runs.h"

namespace ridge::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using Texts = std::map<std::string, std::string>;

// Picks the first candidate, or, once its clock favors others, the last one with other bits.
class FakeTuner {
 public:
  bool favors_others = false;

  ChooseCandidate choose() {
    return [this](const Node&, const std::vector<Choice>& choices) {
      size_t pick = 0;
      for (size_t i = 1; i < choices.size(); ++i)
        if (choices[i].bits != choices[0].bits && choices[i].name != kExpandedChoice) pick = i;
      timed_ += pick > 0 ? 1 : 0;
      return favors_others ? pick : 0;
    };
  }
  /// Nodes of which it had to choose among bits.
  int timed() const { return timed_; }

 private:
  int timed_ = 0;
};

// A network of convolutions for which the CPU has kernels of several bits.
TrainConfig convolutions() {
  TrainConfig c = small_config("cnn");
  c.model.cnn.widths = {16, 32};
  c.train.kernels = KernelsChoice::kFastest;
  return c;
}

struct Resumed {
  TrainResult result;
  std::vector<std::string> messages;
  int timed = 0;
};

class RunKernelsOfTraining : public testing::Test {
 protected:
  TrainConfig config(int64_t steps, KernelsChoice kernels = KernelsChoice::kFastest) const {
    TrainConfig c = convolutions();
    c.data.eval_fraction = 0;
    c.schedule = {};  // one that does not depend on the number of steps
    c.train.steps = steps;
    c.train.kernels = kernels;
    c.train.out = (folder_ / "run").string();
    return c;
  }
  static Resumed run(const TrainConfig& config,
                     bool favors_others,
                     const std::string& resume = "no") {
    FakeTuner tuner;
    tuner.favors_others = favors_others;
    Watch watch;
    TrainRequest request;
    request.config = config;
    request.resume = resume;
    request.choose = tuner.choose();
    TrainResult result = train(request, watch);
    return {std::move(result), watch.messages, tuner.timed()};
  }
  Resumed resumed(bool favors_others, KernelsChoice kernels = KernelsChoice::kFastest) const {
    return run(config(8, kernels), favors_others, "auto");
  }
  // State hash of a run that nothing stops.
  std::string whole_hash(bool favors_others) const {
    TrainConfig c = config(8);
    c.train.out.clear();
    return run(c, favors_others).result.state_hash;
  }

  Texts texts() const { return checkpoint().info().texts; }
  // Writes the run's newest checkpoint anew with other texts.
  void rewrite(const Texts& texts) const {
    const OpenCheckpoint old = checkpoint();
    Checkpoint info = old.info();
    info.texts = texts;
    std::vector<Tensor> tensors;
    std::vector<TensorView> views;
    for (const auto& entry : old.tensors()) tensors.push_back(old.read(entry.name));
    for (size_t i = 0; i < tensors.size(); ++i)
      views.push_back({old.tensors()[i].name, tensors[i].type(), tensors[i].data()});
    save_checkpoint(checkpoint_folder(folder_ / "run"), info, views);
  }
  static std::string all(const std::vector<std::string>& messages) {
    std::string text;
    for (const std::string& each : messages) text += each + "\n";
    return text;
  }

 private:
  OpenCheckpoint checkpoint() const {
    std::vector<std::string> skipped;
    return *open_latest(checkpoint_folder(folder_ / "run"), skipped);
  }

  TempFolder folder_;
};

TEST_F(RunKernelsOfTraining, OnTheSameDeviceARunGoesOnWithTheKernelsThatItHad) {
  const std::string others = whole_hash(true);
  ASSERT_NE(others, whole_hash(false));
  EXPECT_GT(run(config(4), true).timed, 0);
  const Resumed end = resumed(false);
  EXPECT_EQ(end.result.state_hash, others);
  EXPECT_EQ(end.timed, 0);
  EXPECT_EQ(end.result.kernels_changed.size(), 0u);
  EXPECT_THAT(all(end.messages), Not(HasSubstr("kernel")));
}

TEST_F(RunKernelsOfTraining, TheNextCheckpointKeepsThemToo) {
  run(config(4), true);
  const Texts first = texts();
  ASSERT_FALSE(first.empty());
  EXPECT_EQ(first.at("kernels.device"), kernel_device(*make_backend("cpu")));
  resumed(false);
  EXPECT_EQ(texts(), first);
}

TEST_F(RunKernelsOfTraining, OnAnotherDeviceTheyArePickedAgainAndNamed) {
  run(config(4), true);
  Texts changed = texts();
  changed["kernels.device"] = "another GPU";
  rewrite(changed);
  const Resumed end = resumed(false);
  EXPECT_GT(end.timed, 0);
  ASSERT_GT(end.result.kernels_changed.size(), 3u);
  const ChangedKernel& first = end.result.kernels_changed[0];
  EXPECT_NE(first.was, first.is);
  const std::string said = all(end.messages);
  EXPECT_THAT(said,
              HasSubstr(fmt::format("{} kernels are other than the checkpoint's, since they were "
                                    "picked on 'another GPU', and this is 'cpu; ",
                                    end.result.kernels_changed.size())));
  EXPECT_THAT(said, HasSubstr(fmt::format("{} ({}, was {})", first.site, first.is, first.was)));
  EXPECT_THAT(said, HasSubstr(" more (--json lists all)\n"));
  EXPECT_EQ(texts().at("kernels.device"), kernel_device(*make_backend("cpu")));
}

TEST_F(RunKernelsOfTraining, OnesThatAreGoneAreNamed) {
  run(config(4), true);
  Texts changed = texts();
  ASSERT_GE(changed.size(), 2u);
  std::next(changed.find("kernels.device"))->second = "of\nold";
  rewrite(changed);
  const Resumed end = resumed(true);
  ASSERT_FALSE(end.result.kernels_changed.empty());
  EXPECT_EQ(end.result.kernels_changed[0].was, "of\nold");
  EXPECT_THAT(all(end.messages), HasSubstr("since the device no longer has them"));
  EXPECT_THAT(all(end.messages), HasSubstr(", was of?old)"));
}

TEST_F(RunKernelsOfTraining, ACheckpointWithoutThemLoads) {
  run(config(4, KernelsChoice::kSameBits), false);
  EXPECT_FALSE(texts().contains("kernels.device"));
  const Resumed end = resumed(true);
  EXPECT_GT(end.timed, 0);
  EXPECT_EQ(end.result.steps, 8);
  EXPECT_EQ(end.result.kernels_changed.size(), 0u);
}

TEST_F(RunKernelsOfTraining, SameBitsTakesNoneOfThem) {
  run(config(4), true);
  const Resumed end = resumed(false, KernelsChoice::kSameBits);
  ASSERT_FALSE(end.result.kernels_changed.empty());
  EXPECT_THAT(all(end.messages), HasSubstr("since train.kernels no longer asks for the fastest"));
  EXPECT_FALSE(texts().contains("kernels.device"));
}

TEST_F(RunKernelsOfTraining, DamagedTextsAreToldAndLeftOut) {
  run(config(4), true);
  const Texts whole = texts();
  const std::string node = std::next(whole.find("kernels.device"))->first;
  Texts no_device = whole, empty = whole, no_hash = whole;
  no_device.erase("kernels.device");
  empty[node].clear();
  no_hash["kernels.node.12"] = "direct";
  for (const auto& [texts, why] :
       {std::pair{no_device, std::string("'kernels.device' is missing")},
        {empty, fmt::format("'{}' is empty", node)},
        {no_hash, "'kernels.node.12' does not end in 16 hexadecimal digits"}}) {
    EXPECT_EQ(user_error([&] { read_picks(texts); }), why);
    rewrite(texts);
    const Resumed end = run(config(4), true, "auto");
    EXPECT_THAT(all(end.messages),
                HasSubstr("what the checkpoint says of its kernels is damaged (" + why + ")"));
    EXPECT_GT(end.timed, 0);
    EXPECT_EQ(end.result.steps, 4);
  }
}

TEST(KernelPicks, ComeBackFromTexts) {
  const KernelPicks picks{.device = "a device", .choices = {{7, "direct"}, {~uint64_t{0}, "gemm"}}};
  Texts texts = {{"kernel", "of another"}, {"kernelz", ""}};
  write_picks(picks, texts);
  EXPECT_EQ(texts.at("kernels.node.0000000000000007"), "direct");
  EXPECT_EQ(read_picks(texts), picks);
  EXPECT_EQ(read_picks({}), KernelPicks{});
  Texts none;
  write_picks({.device = "a device", .choices = {}}, none);
  EXPECT_EQ(none.size(), 0u);
}

TEST(KernelsOf, AutoIsTheFastestOnAGpuAlone) {
  TrainConfig c;
  EXPECT_EQ(c.train.kernels, KernelsChoice::kAuto);
  for (const auto& [device, range] : {std::pair{"cpu", KernelRange::kSameBits},
                                      {"ref", KernelRange::kSameBits},
                                      {"cuda", KernelRange::kAnyBits},
                                      {"cuda:1", KernelRange::kAnyBits}}) {
    c.train.device = device;
    c.train.kernels = KernelsChoice::kAuto;
    EXPECT_EQ(kernels_of(c), range) << device;
    c.train.kernels = KernelsChoice::kSameBits;
    EXPECT_EQ(kernels_of(c), KernelRange::kSameBits) << device;
    c.train.kernels = KernelsChoice::kFastest;
    EXPECT_EQ(kernels_of(c), KernelRange::kAnyBits) << device;
  }
}

// While all kernels have the bits of the first there is no reason to compare less.
TEST(VerifyTraining, ComparesBitsUnlessAPickHasOthers) {
  const TrainConfig c = convolutions();
  const auto backend = make_backend("cpu");
  for (const bool favors_others : {false, true}) {
    FakeTuner tuner;
    tuner.favors_others = favors_others;
    Task task = open_task(c);
    task.choose = tuner.choose();
    const VerifyReport report = verify_training(task, c, *backend, program_options(c, task));
    EXPECT_TRUE(report.passed) << report.text;
    EXPECT_THAT(
        report.text,
        HasSubstr(favors_others ? "3 steps agree in loss with the plain program's to 0.1 %, "
                                  "not bit by bit, since kernels of "
                                : "3 steps have the same bits as the plain program's; "));
  }
}

}  // namespace
}  // namespace ridge::test
