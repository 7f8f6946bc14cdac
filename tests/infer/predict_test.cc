// Predictions in batches: those of each batch alone, in order.
#include "ridge/infer/predict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "ridge/backend/cpu/cpu_backend.h"
#include "ridge/backend/ref/ref_backend.h"
#include "ridge/run/compare.h"
#include "tests/infer/hand_built.h"
#include "tests/support/errors.h"
#include "tests/support/has.h"
#include "tests/support/lazy_backend.h"

namespace ridge::test {
namespace {

NamedRows rows_of(const NamedTensors& data) {
  NamedRows rows;
  for (const auto& [name, tensor] : data) rows.emplace(name, std::make_unique<TensorRows>(tensor));
  return rows;
}

Tensor cut(const Tensor& tensor, int64_t first, int64_t count) {
  TensorType type = tensor.type();
  if (type.rank() == 0) return tensor;
  const size_t row = tensor.bytes() / static_cast<size_t>(type.shape[0]);
  type.shape[0] = count;
  Tensor part(type);
  std::memcpy(
      part.data(), static_cast<const std::byte*>(tensor.data()) + first * row, part.bytes());
  return part;
}

NamedTensors cut(const NamedTensors& data, int64_t first, int64_t count) {
  NamedTensors part;
  for (const auto& [name, tensor] : data) part.emplace(name, cut(tensor, first, count));
  return part;
}

TEST(Predict, JoinsBatchesInOrder) {
  constexpr int64_t kRows = 23;
  std::unique_ptr<Backend> backends[] = {
      make_cpu_backend(), make_ref_backend(), std::make_unique<LazyBackend>()};
  for (std::unique_ptr<Backend>& backend : backends) {
    const LoadedModel model = hand_built(std::move(backend));
    ModelSession session(model);
    const NamedTensors data = hand_built_data(kRows, 5, 1);
    for (const int64_t batch : {1, 5, 22, 23, 1000}) {
      const Prediction all = predict(session, rows_of(data), batch);
      EXPECT_EQ(all.rows, kRows);
      EXPECT_EQ(all.batches, (kRows + batch - 1) / batch);
      for (int64_t first = 0; first < kRows; first += batch) {
        const int64_t count = std::min(batch, kRows - first);
        const Binding binding{{"N", count}, {"L", 5}};
        EXPECT_EQ(bit_difference(cut(all.outputs, first, count),
                                 run_alone(model, binding, cut(data, first, count))),
                  "")
            << batch << " " << first;
      }
    }
  }
}

TEST(Predict, CompilesTwoSizesAtMost) {
  const LoadedModel model = hand_built(make_cpu_backend());
  ModelSession session(model, {.bindings = 2, .programs = 1});
  predict(session, rows_of(hand_built_data(100, 3, 0)), 7);
  EXPECT_EQ(static_cast<const HandBuilt&>(*model.source).built, 2);
}

TEST(Predict, SaysWhichRowsAreWrong) {
  ModelSession session(hand_built(make_cpu_backend()));
  NamedTensors data = hand_built_data(10, 3, 0);
  data.at("words").set(3 * 7 + 1, HandBuilt::kWords);
  EXPECT_THAT(user_error([&] { predict(session, rows_of(data), 4); }), has("rows 4 to 7: ", "20"));
  EXPECT_THAT(user_error([&] { predict(session, rows_of(data), 10); }), lacks("rows"));
  data.at("words").set(3 * 7 + 1, 0);
  EXPECT_EQ(predict(session, rows_of(data), 4).rows, 10);  // as if nothing had been
}

TEST(Predict, SaysOnceWhatDoesNotFit) {
  ModelSession session(hand_built(make_cpu_backend()));
  NamedTensors data = hand_built_data(10, 3, 0);
  data.erase("keep");
  EXPECT_EQ(user_error([&] { predict(session, rows_of(data), 4); }),
            "input 'keep' is missing; give image u8[N,6,5], words i32[N,L<=12], keep bool[N] and "
            "scale f64[]");
  data.emplace("keep", Tensor({DType::kBool, {9}}));
  EXPECT_THAT(user_error([&] { predict(session, rows_of(data), 4); }),
              has("input 'keep' has another 'N' than 10, which came before; got bool[9]"));
  data.emplace("kept", Tensor({DType::kBool, {9}}));
  EXPECT_THAT(user_error([&] { predict(session, rows_of(data), 4); }),
              has("no input 'kept'", "did you mean 'keep'?"));
}

// A sum over all samples is no result a row.
class Summed final : public ModelSource {
 public:
  std::vector<DataSpec> inputs() const override { return {{"x", DType::kF32, {"N", 2}}}; }
  std::vector<DataSpec> outputs() const override { return {{"sum", DType::kF32, {2}}}; }
  std::vector<StateEntry> state() const override { return {}; }

 private:
  ProgramGraphs build(const Binding& binding) const override {
    Graph g("sum");
    const Value x = input(g, "x", {DType::kF32, {binding.at("N"), 2}}, 0);
    g.add_output("sum", reduce_sum(x, {0}));
    return only_entry(std::move(g));
  }
};

TEST(Predict, RunsOnceWhereTheModelHasNoRows) {
  ModelSession session({.source = std::make_shared<const Summed>(),
                        .state = make_state(make_cpu_backend()),
                        .weights = {}});
  Tensor x({DType::kF32, {10, 2}});
  for (int64_t i = 0; i < 20; ++i) x.set(i, static_cast<double>(i));
  NamedTensors data;
  data.emplace("x", std::move(x));
  const Prediction sum = predict(session, rows_of(data), 3);
  EXPECT_EQ(sum.rows, 0);
  EXPECT_EQ(sum.batches, 1);
  EXPECT_EQ(sum.outputs.at("sum").at(0), 90);
}

}  // namespace
}  // namespace ridge::test
