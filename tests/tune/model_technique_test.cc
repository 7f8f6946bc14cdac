// Changes of a model that could be tried, and the reasons against others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "ridge/tune/onnx/model_techniques.h"

namespace ridge::test {
namespace {

using Texts = std::vector<std::string>;

ModelSituation some_situation() {
  ModelSituation situation;
  situation.cpus = 8;
  situation.cores = 4;
  situation.threads = 8;
  situation.has_rows = true;
  situation.step_seconds = 0.01;
  situation.huge_pages = "always [madvise] never";
  return situation;
}

// The texts of a technique's proposals, or "-" and the reason why it has none.
Texts proposed(const ModelSituation& situation, std::string_view technique) {
  Texts texts;
  for (const ModelProposal& proposal : model_proposals(situation))
    if (proposal.technique == technique)
      texts.push_back(proposal.text.empty() ? "- " + proposal.hypothesis : proposal.text);
  return texts;
}

ModelRecipe applied(const ModelSituation& situation, const std::string& text) {
  ModelRecipe recipe = situation.recipe;
  for (const ModelProposal& proposal : model_proposals(situation))
    if (proposal.text == text) proposal.apply(recipe);
  return recipe;
}

TEST(ModelTechnique, EachHasProposalsOrAReason) {
  std::set<std::string> named;
  for (const ModelProposal& proposal : model_proposals(some_situation())) {
    named.insert(proposal.technique);
    EXPECT_FALSE(proposal.hypothesis.empty()) << proposal.technique;
    EXPECT_EQ(proposal.text.empty(), proposal.apply == nullptr) << proposal.technique;
  }
  const Texts all = model_techniques();
  EXPECT_EQ(named, std::set<std::string>(all.begin(), all.end()));
}

TEST(ModelTechnique, BatchesAndInstancesAreForThroughput) {
  ModelSituation s = some_situation();
  EXPECT_EQ(proposed(s, "batch"),
            Texts{"- the goal is the time of a run: --goal throughput tries it"});
  s.is_throughput = true;
  EXPECT_EQ(proposed(s, "batch"), (Texts{"batch 1 -> 4", "batch 1 -> 16", "batch 1 -> 64"}));
  s.step_seconds = 0.1;
  EXPECT_EQ(proposed(s, "batch"), Texts{"batch 1 -> 4"});  // longer runs make no trial
  EXPECT_EQ(applied(s, "batch 1 -> 4").batch, 4);
  const std::string instances = "instances 1 -> 8, each with one thread";
  EXPECT_EQ(proposed(s, "instances"), Texts{instances});
  s.recipe = applied(s, instances);
  EXPECT_EQ(s.recipe.instances, 8);
  EXPECT_EQ(s.recipe.threads, 1);
  EXPECT_EQ(proposed(s, "threads"), Texts{"- each instance has one"});
  s.has_rows = false;
  EXPECT_EQ(proposed(s, "batch"), Texts{"- the model has no dimension of samples that do not mix"});
}

TEST(ModelTechnique, ThreadsAreThoseOfCoresAndFewer) {
  ModelSituation s = some_situation();
  EXPECT_EQ(proposed(s, "threads"), (Texts{"threads 8 -> 4", "threads 8 -> 2", "threads 8 -> 1"}));
  s.recipe.threads = 1;
  EXPECT_EQ(proposed(s, "threads"), (Texts{"threads 1 -> 4", "threads 1 -> 2"}));
  s.may_set_threads = false;
  EXPECT_EQ(proposed(s, "threads"), Texts{"- the environment sets them"});
  EXPECT_EQ(applied(some_situation(), "threads 8 -> 2").threads, 2);
  EXPECT_EQ(proposed(s, "pin"), Texts{"pin false -> true"});
  s.recipe.pin = true;
  EXPECT_EQ(proposed(s, "pin"), Texts{"- threads stay on CPUs of their own already"});
}

TEST(ModelTechnique, KernelsAreTimedWhereThereAreOthers) {
  ModelSituation s = some_situation();
  EXPECT_EQ(proposed(s, "kernels"), Texts{"- each node of the model has one kernel here"});
  s.facts.has_alternatives = s.facts.has_other_bits = true;
  s.facts.replaceable = {"winograd"};
  s.recipe.choices.kernels = {{"0123456789abcdef", "winograd"}};
  EXPECT_EQ(proposed(s, "kernels"),
            (Texts{"kernels: the fastest of those with the same bits",
                   "kernels: the fastest of all that are right",
                   "kernels and their layouts: without winograd"}));
  const ModelRecipe without = applied(s, "kernels and their layouts: without winograd");
  EXPECT_EQ(without.choices.kernels_off, Texts{"winograd"});
  EXPECT_TRUE(without.choices.kernels.empty());
  EXPECT_EQ(applied(s, "kernels: the fastest of all that are right").choices.pick,
            KernelPick::kTimedAnyBits);
  s.may_time = false;
  EXPECT_EQ(proposed(s, "kernels"), Texts{"kernels and their layouts: without winograd"});
}

TEST(ModelTechnique, FusionLeavesOutPassesThatChangedTheGraph) {
  ModelSituation s = some_situation();
  EXPECT_EQ(proposed(s, "fusion"), Texts{"- nothing in the model is fused"});
  s.facts.passes = {"fuse_loops", "recognize_norms", "simplify", "fuse_products"};
  EXPECT_EQ(proposed(s, "fusion"),
            (Texts{"fusion: without fuse_loops", "fusion: without recognize_norms"}));
  for (const ModelProposal& proposal : model_proposals(s)) {
    if (proposal.text == "fusion: without fuse_loops") {
      EXPECT_EQ(proposal.semantic_class, SemanticClass::kBitIdentical);
    } else if (proposal.text == "fusion: without recognize_norms") {
      EXPECT_EQ(proposal.semantic_class, SemanticClass::kReassociation);
    }
  }
  EXPECT_EQ(applied(s, "fusion: without fuse_loops").choices.passes_off, Texts{"fuse_loops"});
}

TEST(ModelTechnique, PrecisionAndPagesAreTheMachines) {
  ModelSituation s = some_situation();
  EXPECT_EQ(proposed(s, "precision"),
            Texts{"- the processor multiplies no bf16, or the model has no products"});
  s.facts.has_bf16 = true;
  EXPECT_EQ(proposed(s, "precision"), Texts{"precision f32 -> bf16"});
  s.recipe.choices.precision = DType::kBF16;
  EXPECT_EQ(proposed(s, "precision"), Texts{"- products round to bf16 already"});
  EXPECT_EQ(proposed(s, "pages"),
            Texts{"- memory of results and packed weights asks for pages of 2 MiB already"});
  s.huge_pages = "always madvise [never]";
  EXPECT_EQ(proposed(s, "pages"), Texts{"- the system gives no pages of 2 MiB"});
}

}  // namespace
}  // namespace ridge::test
