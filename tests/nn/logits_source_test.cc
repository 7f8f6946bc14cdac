// Trained models as callers see them: their data by name, and a graph for each size.
#include "ridge/nn/logits_source.h"

#include <gtest/gtest.h>

#include "ridge/graph/text.h"
#include "tests/support/errors.h"

namespace ridge::test {
namespace {

nn::Training training(nn::ModelKind kind) {
  nn::ModelOptions options;
  options.kind = kind;
  options.mlp = {{9, 7}, 5, 0.3};
  options.gpt = {.vocab = 11, .context = 8, .layers = 1, .heads = 2, .width = 8, .dropout = 0.3};
  const TensorType tokens{DType::kI32, {6}};
  const nn::SampleTypes images{{DType::kU8, {4, 3}}, {DType::kI64, {}}};
  return {nn::make_model(options,
                         kind == nn::ModelKind::kGpt ? nn::SampleTypes{tokens, tokens} : images),
          {}};
}

TEST(LogitsSource, OfSamplesHasTheBatchAsItsDimension) {
  const nn::Training mlp = training(nn::ModelKind::kMlp);
  const nn::LogitsSource source(mlp);
  ASSERT_EQ(source.inputs().size(), 1u);
  EXPECT_EQ(to_string(source.inputs()[0]), "x u8[B,4,3]");
  EXPECT_EQ(to_string(source.outputs()[0]), "logits f32[B,5]");
  const ProgramGraphs graphs = source.bind({{"B", 3}});
  EXPECT_EQ(print(graphs.entries.at(0)), print(mlp.logits(3)));
  EXPECT_EQ(graphs.state.size(), mlp.parameters().size());
}

TEST(LogitsSource, OfTokensHasTheLengthToo) {
  const nn::Training gpt = training(nn::ModelKind::kGpt);
  const nn::LogitsSource source(gpt);
  EXPECT_EQ(to_string(source.inputs()[0]), "x i32[B,T<=6]");
  EXPECT_EQ(to_string(source.outputs()[0]), "logits f32[B,T<=6,11]");
  EXPECT_EQ(print(source.bind({{"B", 2}, {"T", 4}}).entries.at(0)), print(gpt.logits({2, 4})));
  EXPECT_EQ(user_error([&] { source.bind({{"B", 2}, {"T", 7}}); }),
            "dimension 'T' must be at most 6; got 7");
}

}  // namespace
}  // namespace ridge::test
