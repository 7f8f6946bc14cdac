// The examples: each loads, passes --verify, learns, and takes the memory that was planned. Runs in
// the root of the project.
#include <gtest/gtest.h>

#include <cmath>

#include "ridge/train/train.h"
#include "tests/train/example_inputs.h"
#include "tests/train/train_runs.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RIDGE_TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define RIDGE_TEST_SANITIZED 1
#endif
#endif

namespace ridge {
namespace {

// The reference is slow, and many times slower under a sanitizer, which looks for other things than
// whether a model learns.
#ifdef RIDGE_TEST_SANITIZED
constexpr bool kLearns = false;
#else
constexpr bool kLearns = true;
#endif

class Example : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(All,
                         Example,
                         ::testing::ValuesIn(test::kExamples),
                         [](const auto& example) { return example.param; });

double mean(const std::vector<double>& values, size_t first, size_t count) {
  double sum = 0;
  for (size_t i = first; i < first + count; ++i) sum += values.at(i);
  return sum / static_cast<double>(count);
}

TEST_P(Example, VerifiesAndLearns) {
  const test::ExampleInputs inputs(GetParam());
  if (!inputs.missing().empty()) GTEST_SKIP() << inputs.missing();
  TrainRequest request;
  std::vector<std::string> flags = {kLearns ? "train.steps=12" : "train.steps=2",
                                    kLearns ? "train.batch=8" : "train.batch=2",
                                    "schedule.warmup=2",
                                    "train.eval_every=1000000",
                                    "data.eval_fraction=0.001",
                                    "train.eval_batch=500"};
  // The check node by node costs the reference much, and does not depend on sizes.
  if (!kLearns && GetParam() == "gpt_text")
    flags.insert(flags.end(), {"model.context=32", "data.context=32", "train.eval_batch=20"});
  if (!kLearns && GetParam() == "jpeg_folder") flags.emplace_back("data.size=48");
  // A few of the training images instead of all 10,000 test images.
  if (GetParam().starts_with("fashion_"))
    flags.insert(flags.end(), {"data.eval_path=", "data.eval_labels="});
  if (GetParam() == "fashion_mlp") flags.emplace_back("train.micro=2");
  request.config = inputs.config(flags);
  request.verify = true;
  test::Watch watch;
  const TrainResult result = train(request, watch);
  ASSERT_EQ(watch.messages.size(), 1u);
  EXPECT_EQ(result.verified, true) << watch.messages[0];
  if (!kLearns) return;
  ASSERT_EQ(watch.losses.size(), 12u);
  EXPECT_LT(mean(watch.losses, 8, 4), mean(watch.losses, 0, 4)) << watch.messages[0];
}

TEST_P(Example, TakesTheMemoryThatWasPlanned) {
#ifdef RIDGE_TEST_SANITIZED
  GTEST_SKIP() << "the sanitizer's own memory is in the way";
#else
  const test::ExampleInputs inputs(GetParam());
  if (!inputs.missing().empty()) GTEST_SKIP() << inputs.missing();
  // The example has its real size, or the tolerance would hide the difference.
  TrainRequest request;
  request.config = inputs.config({"train.steps=6"});
  test::Watch watch;
  const auto memory = train(request, watch).memory;
  constexpr double kSlack = 8.0 * 1024 * 1024;
  ASSERT_GT(memory.measured_bytes, 0);
  const auto planned = static_cast<double>(memory.planned_bytes);
  EXPECT_LT(std::fabs(static_cast<double>(memory.measured_bytes) - planned),
            std::fmax(0.01 * planned, kSlack));
#endif
}

}  // namespace
}  // namespace ridge
