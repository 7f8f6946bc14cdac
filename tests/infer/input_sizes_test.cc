// Sizes of dimensions that no data give, and data that are made up.
#include "ridge/infer/input_sizes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "ridge/backend/cpu/cpu_backend.h"
#include "ridge/infer/made_inputs.h"
#include "ridge/infer/model_session.h"
#include "ridge/run/compare.h"
#include "tests/infer/hand_built.h"
#include "tests/support/errors.h"

namespace ridge::test {
namespace {

using testing::ElementsAre;

const std::vector<DataSpec> kInputs = {{"image", DType::kF32, {"N", 3, "H", "W"}},
                                       {"past", DType::kF32, {"M", "H"}},
                                       {"words", DType::kI64, {"H", {"T", 12}}}};

TEST(InputSizes, DimensionsOfSamplesComeFirstAndNowhereElse) {
  EXPECT_THAT(sample_dims(kInputs), ElementsAre("N", "M"));  // H is a height, too
  EXPECT_THAT(sample_dims({{"x", DType::kF32, {1, "N"}}, {"scale", DType::kF32, {}}}),
              ElementsAre());
  EXPECT_THAT(sample_dims({{"x", DType::kF32, {"N"}}, {"y", DType::kF32, {"N"}}}),
              ElementsAre("N"));
}

TEST(InputSizes, TakesWhatIsGivenAndSaysWhatIsMissing) {
  const InputSizes some = input_sizes(kInputs, {{"W", 5}, {"M", 2}}, 8);
  EXPECT_EQ(some.binding, (Binding{{"N", 8}, {"M", 2}, {"W", 5}, {"T", 12}}));
  EXPECT_THAT(some.missing, ElementsAre("H"));
  EXPECT_THAT(input_sizes(kInputs, {}, 8).missing, ElementsAre("H", "W"));
  EXPECT_EQ(user_error([&] { refuse_missing_sizes({"H", "W", "D"}); }),
            "'H', 'W' and 'D' have no size; give --dim H=SIZE --dim W=SIZE --dim D=SIZE");
  EXPECT_EQ(user_error([&] { refuse_missing_sizes({"H"}); }), "'H' has no size; give --dim H=SIZE");
}

TEST(InputSizes, SaysOnceWhatDoesNotSuit) {
  const auto error_of = [](const Binding& given, int64_t samples) {
    return user_error([&] { input_sizes(kInputs, given, samples); });
  };
  EXPECT_THAT(
      error_of({{"HH", 5}}, 1),
      testing::StartsWith(
          "the model has no dimension 'HH', only 'N', 'H', 'W', 'M' and 'T'; did you mean 'H'"));
  EXPECT_EQ(error_of({{"T", 13}}, 1), "dimension 'T' must be at most 12; got 13");
  EXPECT_EQ(error_of({{"H", 0}}, 1), "dimension 'H' must be at least 1; got 0");
  EXPECT_EQ(error_of({}, 0), "dimension 'N' must be at least 1; got 0");
}

TEST(InputSizes, ReadsTexts) {
  EXPECT_EQ(parse_sizes({"T=128", "a=b=3"}), (Binding{{"T", 128}, {"a=b", 3}}));
  for (const char* text : {"T", "T=", "=3", "T=x", "T=3x", "T=99999999999999999999"})
    EXPECT_EQ(
        user_error([&] { parse_sizes({text}); }),
        fmt::format("'{}' gives no dimension a size; write --dim NAME=SIZE, as --dim T=128", text));
  EXPECT_EQ(user_error([&] { parse_sizes({"T=3", "T=3"}); }), "--dim gives 'T' two sizes");
}

TEST(MadeInputs, SuitTheModel) {
  const LoadedModel model = hand_built(make_cpu_backend());
  const Binding binding{{"N", 50}, {"L", 9}};
  const MadeInputs made = make_inputs(*model.source, binding, 1);
  ModelSession(model).run(made.tensors);  // which refuses an index that no word has
  EXPECT_EQ(bit_difference(made.tensors, make_inputs(*model.source, binding, 1).tensors), "");
  EXPECT_NE(bit_difference(made.tensors, make_inputs(*model.source, binding, 2).tensors), "");
  EXPECT_EQ(made.bounds,
            (std::map<std::string, std::optional<int64_t>>{{"image", std::nullopt},
                                                           {"words", HandBuilt::kWords}}));
  double least = 100, most = 0;
  for (const int32_t word : made.tensors.at("words").span<int32_t>()) {
    least = std::min<double>(least, word);
    most = std::max<double>(most, word);
  }
  EXPECT_EQ(least, 0);
  EXPECT_EQ(most, HandBuilt::kWords - 1);  // of 450
  for (const uint8_t pixel : made.tensors.at("image").span<uint8_t>()) EXPECT_LE(pixel, 1);
}

TEST(MadeInputs, FloatsAreStandardNormal) {
  class Floats final : public ModelSource {
   public:
    std::vector<DataSpec> inputs() const override { return {{"x", DType::kBF16, {"N"}}}; }
    std::vector<DataSpec> outputs() const override { return {{"y", DType::kBF16, {"N"}}}; }
    std::vector<StateEntry> state() const override { return {}; }

   private:
    ProgramGraphs build(const Binding& binding) const override {
      Graph g("main");
      g.add_output("y", neg(input(g, "x", {DType::kBF16, {binding.at("N")}}, 0)));
      return only_entry(std::move(g));
    }
  };
  const Tensor x = make_inputs(Floats(), {{"N", 10000}}, 1).tensors.at("x");
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < x.elements(); ++i) {
    sum += x.at(i);
    squares += x.at(i) * x.at(i);
  }
  EXPECT_NEAR(sum / 10000, 0, 0.04);
  EXPECT_NEAR(squares / 10000, 1, 0.06);
}

// Importers make such a choice of indices that may count from the end.
TEST(MadeInputs, AnIndexIsFollowedToItsSmallestTable) {
  Graph g("main");
  const Value x = input(g, "x", {DType::kI32, {2, 3}});
  const Value wide = cast(reshape(transpose(x, {1, 0}), {6}), DType::kI64);
  const Value places = where(lt(wide, constant_like(wide, 0.0)), wide + 30.0, wide);
  g.add_output("a", gather(input(g, "a.w", {DType::kF32, {30, 4}}), places, 0));
  g.add_output("b", gather(input(g, "b.w", {DType::kF32, {4, 7}}), slice(wide, 0, 1, 3), 1));
  // A number that is made of an index is none.
  g.add_output("c", gather(input(g, "c.w", {DType::kF32, {2, 4}}), wide + wide, 0));
  EXPECT_EQ(index_bound(g, "x"), 7);
  EXPECT_EQ(index_bound(g, "a.w"), std::nullopt);
  EXPECT_EQ(index_bound(g, "none"), std::nullopt);
}

}  // namespace
}  // namespace ridge::test
