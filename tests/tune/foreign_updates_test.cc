// Verdicts over the updates of single tensors and over batches, of records that are made from
// vectors: what a change does to them is known.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "ridge/tune/pytorch/guard/guard.h"
#include "tests/tune/foreign_draws.h"

namespace ridge {
namespace {

using attach::RunRecord;
using attach::TensorUpdates;
using test::Draw;
using Vector = std::vector<double>;

constexpr SemanticClass kOrder = SemanticClass::kReassociation;
constexpr SemanticClass kPrecise = SemanticClass::kPrecision;
constexpr size_t kTensors = 12, kElements = 400, kSteps = 3;
// The last tensor but one is a bias in front of a norm, whose gradient is rounding; the last a
// buffer.
constexpr size_t kRounding = kTensors - 2, kBuffer = kTensors - 1;
constexpr double kRate = 0.05;

double product(const Vector& a, const Vector& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// One tensor in one step: before it, its gradient, and the update.
struct Vectors {
  size_t step = 0, tensor = 0;
  Vector before, gradient, update;
};
using Effect = std::function<void(Vectors&)>;

Effect nothing() {
  return [](Vectors&) {};
}

/// Rounding by a share, and noise where there is nothing but rounding.
Effect rounded(double share, uint64_t seed) {
  return [=](Vectors& of) {
    std::mt19937_64 random(seed * 1000 + of.step * 100 + of.tensor);
    std::normal_distribution<double> normal;
    for (size_t i = 0; i < of.before.size(); ++i) {
      const double factor = 1 + share * normal(random);
      of.update[i] *= factor;
      of.gradient[i] *= factor;
      if (of.tensor == kRounding) of.gradient[i] = of.update[i] = 1e-9 * normal(random);
    }
  };
}

TensorUpdates empty_tensor(size_t tensor) {
  TensorUpdates made;
  made.name = "layer" + std::to_string(tensor);
  made.elements = kElements;
  made.is_buffer = tensor == kBuffer;
  return made;
}

void append(TensorUpdates& to, const Vectors& of) {
  std::mt19937_64 signs(of.tensor);
  for (int64_t direction = 0; direction < TensorUpdates::kDirections; ++direction) {
    Vector signed_ones;
    for (size_t i = 0; i < kElements; ++i) signed_ones.push_back((signs() & 1) != 0 ? 1 : -1);
    to.update_projections.push_back(product(of.update, signed_ones));
    to.gradient_projections.push_back(product(of.gradient, signed_ones));
  }
  const double size = std::sqrt(product(of.before, of.before));
  to.sizes.push_back(size);
  to.updates.push_back(std::sqrt(product(of.update, of.update)));
  to.along.push_back(product(of.update, of.before) / size);
  to.gradients.push_back(std::sqrt(product(of.gradient, of.gradient)));
  to.along_gradients.push_back(product(of.update, of.gradient) / to.gradients.back());
}

std::vector<TensorUpdates> updates_with(const Effect& effect, uint64_t seed = 1) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::vector<TensorUpdates> tensors;
  for (size_t tensor = 0; tensor < kTensors; ++tensor) {
    tensors.push_back(empty_tensor(tensor));
    for (size_t step = 0; step < kSteps; ++step) {
      Vectors of{step, tensor, {}, {}, {}};
      for (size_t i = 0; i < kElements; ++i) {
        of.before.push_back(0.3 * normal(random));
        of.gradient.push_back(tensor == kRounding ? 1e-9 * normal(random) : normal(random));
        of.update.push_back(-kRate * of.gradient.back());
      }
      effect(of);
      append(tensors.back(), of);
    }
  }
  return tensors;
}

class ForeignUpdates : public testing::Test {
 protected:
  ForeignUpdates() : baseline_(Draw(1).baseline({}, 4)) {
    for (size_t i = 0; i < baseline_.seeds.size(); ++i) give(baseline_.seeds[i], nothing(), i);
    baseline_.again = baseline_.seeds[0];
    give(baseline_.fine_controls[0], rounded(1e-6, 5), 0);
    give(baseline_.coarse_controls[0], rounded(0x1p-8, 6), 0);
  }

  static void give(RunRecord& record, const Effect& effect, size_t seed) {
    record.updates = updates_with(effect, seed + 1);
    record.batch_hashes.clear();
    for (int64_t step = 0; step < record.steps; ++step)
      record.batch_hashes.push_back("data" + std::to_string(step) + " more" + std::to_string(seed));
  }
  std::vector<RunRecord> candidates(const Effect& effect) const {
    std::vector<RunRecord> runs = baseline_.seeds;
    for (size_t i = 0; i < runs.size(); ++i) give(runs[i], effect, i);
    return runs;
  }
  GuardOutcome judge(const std::vector<RunRecord>& runs, SemanticClass semantic_class) const {
    return judge_runs(baseline_, runs, semantic_class);
  }
  GuardOutcome with(const Effect& effect, SemanticClass semantic_class) const {
    return judge(candidates(effect), semantic_class);
  }
  std::string refusal_of(const Effect& effect, SemanticClass semantic_class) const {
    const GuardOutcome answer = with(effect, semantic_class);
    EXPECT_TRUE(answer.can_tell && !answer.passed) << answer.text;
    return answer.text;
  }

  ForeignBaseline baseline_;
};

TEST_F(ForeignUpdates, RoundingPassesInItsClass) {
  const GuardOutcome fine = with(rounded(5e-6, 9), kOrder);
  EXPECT_TRUE(fine.passed) << fine.text;
  EXPECT_NE(
      fine.text.find("batches of 40 steps are the same; updates and gradients of 11 tensors in "
                     "3 steps differ by up to "),
      std::string::npos)
      << fine.text;
  EXPECT_NE(fine.text.find("; 1 more may be rounding alone (layer10)"), std::string::npos)
      << fine.text;
  EXPECT_FALSE(with(rounded(0.03, 9), kOrder).passed);
  const GuardOutcome coarse = with(rounded(0x1p-8, 9), kPrecise);
  EXPECT_TRUE(coarse.passed) << coarse.text;
  EXPECT_FALSE(with(rounded(0.2, 9), kPrecise).passed);
  // A program in bf16 is as coarse in another order.
  for (RunRecord& run : baseline_.seeds) run.is_coarse = true;
  EXPECT_TRUE(with(rounded(0x1p-8, 9), kOrder).passed);
}

TEST_F(ForeignUpdates, AnotherLearningRateIsSeenInBothClasses) {
  for (const SemanticClass semantic_class : {kOrder, kPrecise}) {
    const double share = semantic_class == kOrder ? 1e-6 : 0x1p-8;
    const std::string text = refusal_of(
        [=](Vectors& of) {
          rounded(share, 9)(of);
          for (double& x : of.update) x *= of.tensor == kBuffer ? 1.0 : 1.03;
        },
        semantic_class);
    EXPECT_TRUE(
        text.starts_with("the updates of step 1 are longer by 3 % in the median of all tensors"))
        << text;
  }
}

/// Steps of one size, as Adam's first is, by gradients whose size is another one in each tensor and
/// that are rounded by a share of it.
Effect by_signs(double share, uint64_t seed) {
  return [=](Vectors& of) {
    std::mt19937_64 random(seed * 1000 + of.step * 100 + of.tensor);
    std::normal_distribution<double> normal;
    for (size_t i = 0; i < of.before.size(); ++i) {
      if (of.tensor >= kRounding) continue;
      of.gradient[i] = std::exp(of.tensor) * (of.gradient[i] + share * normal(random));
      of.update[i] = std::copysign(kRate, -of.gradient[i]);
    }
  };
}

// The elements that turn are those whose gradient is no more than rounding.
TEST_F(ForeignUpdates, StepsOfOneSizeTurnWhereGradientsAreRounding) {
  for (size_t i = 0; i < baseline_.seeds.size(); ++i) give(baseline_.seeds[i], by_signs(0, 0), i);
  baseline_.again = baseline_.seeds[0];
  give(baseline_.coarse_controls[0], by_signs(0x1p-8, 6), 0);
  give(baseline_.fine_controls[0], by_signs(1e-6, 6), 0);
  const GuardOutcome coarse = with(by_signs(0x1p-7, 9), kPrecise);
  EXPECT_TRUE(coarse.passed) << coarse.text;
  const GuardOutcome order = with(by_signs(0x1p-7, 9), kOrder);
  EXPECT_FALSE(order.passed) << order.text;
  // Those of layer3 whose gradients are smaller than `limit` turn.
  const auto with_turned = [](double limit) {
    return [=](Vectors& of) {
      by_signs(0x1p-8, 9)(of);
      for (size_t i = 0; of.tensor == 3 && i < kElements; ++i)
        if (std::fabs(of.gradient[i]) < limit * std::exp(3)) of.update[i] = -of.update[i];
    };
  };
  EXPECT_TRUE(with(with_turned(0x1p-5), kPrecise).passed);
  EXPECT_TRUE(refusal_of(with_turned(0.3), kPrecise).starts_with("the update of layer3 in step "));
  const std::string longer = refusal_of(
      [](Vectors& of) {
        by_signs(0x1p-8, 9)(of);
        for (double& x : of.update) x *= of.tensor == kBuffer ? 1.0 : 1.03;
      },
      kPrecise);
  EXPECT_NE(longer.find(" along its gradient, "), std::string::npos) << longer;
}

// A third of one tensor has no gradient but the rounding of a candidate, of which steps of one size
// make whole ones: it shows in no control.
TEST_F(ForeignUpdates, CoarseStepsAreSeenAlongTheirGradients) {
  const auto with_silent = [](double share, uint64_t seed, double noise) {
    return [=](Vectors& of) {
      by_signs(share, seed)(of);
      for (size_t i = 0; of.tensor == 3 && i < kElements / 3; ++i) {
        of.gradient[i] *= noise;
        of.update[i] *= noise > 0 ? 1 : 0.1;
      }
    };
  };
  for (size_t i = 0; i < baseline_.seeds.size(); ++i)
    give(baseline_.seeds[i], with_silent(0, 0, 0), i);
  baseline_.again = baseline_.seeds[0];
  give(baseline_.coarse_controls[0], with_silent(0x1p-8, 6, 0), 0);
  const auto candidate = with_silent(0x1p-8, 9, 1e-3);
  const GuardOutcome answer = with(candidate, kPrecise);
  EXPECT_TRUE(answer.passed) << answer.text;
  for (const double factor : {0.0, -1.0, 0.9, 1.1}) {
    const std::string text = refusal_of(
        [&](Vectors& of) {
          candidate(of);
          for (double& x : of.update) x *= of.tensor == 3 ? factor : 1.0;
        },
        kPrecise);
    EXPECT_TRUE(text.starts_with("the update of layer3 in step 1 leads ")) << text;
  }
}

TEST_F(ForeignUpdates, OneLayerIsNamed) {
  const auto scaled = [](Vectors& of) {
    for (double& x : of.gradient) x *= of.tensor == 4 ? 1.3 : 1.0;
  };
  for (const SemanticClass semantic_class : {kOrder, kPrecise})
    EXPECT_TRUE(refusal_of(scaled, semantic_class).starts_with("the gradient of layer4 in step "));
  EXPECT_TRUE(refusal_of(
                  [](Vectors& of) {
                    for (double& x : of.update) x *= of.tensor == 7 ? 0.0 : 1.0;
                  },
                  kOrder)
                  .starts_with("the update of layer7 in step "));
}

// Little in each element, and the same way in all.
TEST_F(ForeignUpdates, AWeightDecayThatIsLostIsSeen) {
  EXPECT_TRUE(refusal_of(
                  [](Vectors& of) {
                    for (size_t i = 0; i < kElements; ++i)
                      of.update[i] += kRate * 3e-3 * of.before[i];
                  },
                  kOrder)
                  .starts_with("the update of layer"));
}

TEST_F(ForeignUpdates, ABufferThatStaysIsSeen) {
  EXPECT_TRUE(refusal_of(
                  [](Vectors& of) {
                    if (of.tensor == kBuffer) of.update.assign(kElements, 0);
                  },
                  kPrecise)
                  .starts_with("the update of layer11 in step "));
}

TEST_F(ForeignUpdates, NumbersThatAreNotFiniteAreSeen) {
  EXPECT_TRUE(refusal_of(
                  [](Vectors& of) {
                    if (of.tensor == 2 && of.step == 1) of.gradient[0] = NAN;
                  },
                  kPrecise)
                  .starts_with("the gradient of layer2 in step 2 is not finite"));
}

// Controls say by how much a training amplifies rounding.
TEST_F(ForeignUpdates, LimitsGrowWithTheControls) {
  const auto growing = [](double share, uint64_t seed) {
    return [=](Vectors& of) { rounded(share * std::pow(1000, of.step), seed)(of); };
  };
  EXPECT_FALSE(with(growing(2e-6, 9), kOrder).passed);
  give(baseline_.fine_controls[0], growing(1e-6, 5), 0);
  const GuardOutcome answer = with(growing(2e-6, 9), kOrder);
  EXPECT_TRUE(answer.passed) << answer.text;
}

// A ReLU that switches shows in one run by chance, and a defect in each.
TEST_F(ForeignUpdates, OneOfTwoRunsMayDiffer) {
  const auto scaled = [](Vectors& of) {
    for (double& x : of.update) x *= of.tensor == 7 ? 1.1 : 1.0;
  };
  std::vector<RunRecord> runs(baseline_.seeds.begin(), baseline_.seeds.begin() + 2);
  give(runs[0], scaled, 0);
  EXPECT_FALSE(judge({runs[0]}, kOrder).passed);
  const GuardOutcome answer = judge(runs, kOrder);
  EXPECT_TRUE(answer.passed) << answer.text;
  EXPECT_NE(answer.text.find("; in another run the update of layer7 in step 1 differs by "),
            std::string::npos)
      << answer.text;
  give(runs[1], scaled, 1);
  EXPECT_FALSE(judge(runs, kOrder).passed);
  give(runs[0], nothing(), 0);
  runs[0].batch_hashes[4] = "others";
  EXPECT_FALSE(judge(runs, kOrder).passed) << "no chance makes another batch";
}

TEST_F(ForeignUpdates, OtherTensorsAreNoComparison) {
  std::vector<RunRecord> runs = baseline_.seeds;
  runs[1].updates.pop_back();
  EXPECT_EQ(judge(runs, kOrder).text, "11 tensors are updated, and not the 12 of before");
  runs[1].updates.clear();
  EXPECT_EQ(judge(runs, kOrder).text, "its updates could not be recorded any more");
  for (RunRecord& run : baseline_.seeds) run.updates.clear();
  const GuardOutcome answer = judge(candidates(nothing()), kOrder);
  EXPECT_TRUE(answer.passed);
  EXPECT_NE(answer.text.find("updates of single tensors were not seen"), std::string::npos);
}

TEST_F(ForeignUpdates, AnotherBatchIsNamed) {
  std::vector<RunRecord> runs = baseline_.seeds;
  runs[3].batch_hashes[6] = "data6 other";
  for (const SemanticClass semantic_class : {kOrder, kPrecise})
    EXPECT_EQ(judge(runs, semantic_class).text, "the batch of step 7 is another one");
  runs[3].batch_hashes[6] = "data6";
  EXPECT_EQ(judge(runs, kOrder).text, "step 7 calls modules with 1 tensors, and not with 2");
  // An input that follows from a computation is another one in a control, too.
  runs[3].batch_hashes[6] = "data6 other";
  baseline_.fine_controls[0].batch_hashes[6] = "data6 moved";
  EXPECT_TRUE(judge(runs, kOrder).passed);
  runs[3].batch_hashes[6] = "others other";
  EXPECT_EQ(judge(runs, kOrder).text, "the batch of step 7 is another one");
}

}  // namespace
}  // namespace ridge
