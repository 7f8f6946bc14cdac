// ONNX models behind sessions: which sizes outputs have, and files that predictions go through.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <fstream>
#include <iterator>
#include <numeric>
#include <regex>
#include <thread>

#include "ridge/compile/plan.h"
#include "ridge/import/onnx/onnx_source.h"
#include "ridge/import/onnx/op_table.h"
#include "ridge/infer/model_session.h"
#include "ridge/infer/predict.h"
#include "ridge/io/file.h"
#include "ridge/run/state.h"
#include "tests/import/model_bytes.h"
#include "tests/import/run_model.h"
#include "tests/support/errors.h"
#include "tests/support/scale.h"
#include "tests/support/short_of_memory.h"
#include "tests/support/temp_folder.h"

namespace ridge::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

ProtoBytes x_of(const std::vector<NamedSize>& sizes) { return value_bytes("x", kFloat, sizes); }
// Ones of the shape "s".
ProtoBytes ones_like_shape() {
  return node_bytes(
      "ConstantOfShape", {"s"}, {"ones"}, {tensor_attribute("value", floats_bytes("", {1}, {1}))});
}
// The file declares another shape than its nodes give.
std::vector<ProtoBytes> output_y() { return {value_bytes("y", kFloat, {7})}; }

std::string model_of_nodes(const std::vector<ProtoBytes>& nodes,
                           const std::vector<ProtoBytes>& inputs,
                           const std::vector<ProtoBytes>& initializers = {},
                           const std::vector<ProtoBytes>& outputs = output_y()) {
  return model_bytes(
      {.nodes = nodes, .initializers = initializers, .inputs = inputs, .outputs = outputs});
}

std::string spec_of_y(const std::vector<ProtoBytes>& nodes,
                      const std::vector<ProtoBytes>& inputs,
                      const std::vector<ProtoBytes>& initializers = {}) {
  const OnnxSource source(model_of(model_of_nodes(nodes, inputs, initializers)));
  return to_string(source.outputs().at(0));
}

// y = relu(x w).
std::string perceptron() {
  std::vector<float> w(3 * 20);
  std::iota(w.begin(), w.end(), -30.0f);
  return model_of_nodes({node_bytes("MatMul", {"x", "w"}, {"h"}), node_bytes("Relu", {"h"}, {"y"})},
                        {x_of({"N", 3})},
                        {floats_bytes("w", {3, 20}, w)});
}

TEST(OnnxSource, NamesTheSizesOfOutputs) {
  EXPECT_EQ(spec_of_y({node_bytes("Relu", {"x"}, {"y"})}, {x_of({2, 3})}), "y f32[2,3]");
  EXPECT_EQ(spec_of_y({node_bytes("Relu", {"x"}, {"y"})}, {x_of({"N", 3})}), "y f32[N,3]");
  EXPECT_EQ(spec_of_y({node_bytes("Relu", {"x"}, {"y"})}, {x_of({int64_t{0}, int64_t{-1}})}),
            "y f32[x.0,x.1]");
  EXPECT_EQ(spec_of_y({node_bytes("Concat", {"x", "x"}, {"y"}, {int_attribute("axis", 1)})},
                      {x_of({"N", "T"})}),
            "y f32[N,y.1]");
  // Images whose sides are multiples of 32.
  EXPECT_EQ(spec_of_y({node_bytes("Reshape", {"x", "to"}, {"y"})},
                      {x_of({"N", 3, "H"})},
                      {integers_bytes("to", {0, 32, -1})}),
            "y f32[N,32,y.2]");
}

// Rows that go through a session in batches have to be samples.
TEST(OnnxSource, RowsAreSamplesThatStandAlone) {
  EXPECT_EQ(spec_of_y({node_bytes("Softmax", {"x"}, {"y"}, {int_attribute("axis", 1)})},
                      {x_of({"N", 3})}),
            "y f32[N,3]");
  EXPECT_EQ(spec_of_y({node_bytes("Softmax", {"x"}, {"y"}, {int_attribute("axis", 0)})},
                      {x_of({"N", 3})}),
            "y f32[y.0,3]");
  EXPECT_EQ(spec_of_y({node_bytes("CumSum", {"x", "axis"}, {"y"})},
                      {x_of({"T", 3})},
                      {tensor_bytes<int64_t>("axis", kInt64, {}, {0})}),
            "y f32[y.0,3]");
  // Each row has the number of its place added.
  EXPECT_EQ(spec_of_y({node_bytes("Shape", {"x"}, {"s"}),
                       ones_like_shape(),
                       node_bytes("CumSum", {"ones", "axis"}, {"places"}),
                       node_bytes("Add", {"x", "places"}, {"y"})},
                      {x_of({"N", 3})},
                      {tensor_bytes<int64_t>("axis", kInt64, {}, {0})}),
            "y f32[y.0,3]");
}

// A constant of the same row for each sample is none of the batch.
TEST(OnnxSource, RowsMayHaveAConstantInCommon) {
  std::vector<float> w(20);
  std::iota(w.begin(), w.end(), 1.0f);
  const std::string bytes =
      model_of_nodes({node_bytes("Shape", {"x"}, {"s"}),
                      node_bytes("Expand", {"w", "s"}, {"rows"}),
                      node_bytes("Mul", {"rows", "two"}, {"twice"}),
                      node_bytes("Add", {"x", "twice"}, {"y"})},
                     {x_of({"N", 20})},
                     {floats_bytes("w", {20}, w), floats_bytes("two", {}, {2})});
  const OnnxSource source(model_of(bytes));
  EXPECT_EQ(to_string(source.outputs()[0]), "y f32[N,20]");
  const ProgramGraphs program = source.bind({{"N", 7}});
  ASSERT_EQ(program.state.size(), 1u);
  EXPECT_EQ(program.state[0].type, (TensorType{DType::kF32, {20}}));
  const Tensor x({DType::kF32, {7, 20}});
  EXPECT_EQ(run_model(model_of(bytes), {{"x", x}}).at("y").at(6 * 20 + 19), 40);
}

// x (N, T), looked up by rows that are "first + step * row", of all columns: as a Gather of the
// flattened elements, or as a GatherND of pairs of numbers.
std::string lookup_of_rows(bool by_pairs, const std::string& first, const std::string& step) {
  std::vector<ProtoBytes> nodes = {
      node_bytes("Shape", {"x"}, {"s"}),
      node_bytes("Gather", {"s", "zero"}, {"n"}),
      node_bytes("Gather", {"s", "one"}, {"t"}),
      node_bytes("Sub", {"n", "one"}, {"last"}),
      node_bytes("Range", {"zero", "n", "one"}, {"numbers"}),
      node_bytes("Mul", {"numbers", step}, {"steps"}),
      node_bytes("Add", {"steps", first}, {"taken"}),
      node_bytes("Range", {"zero", "t", "one"}, {"columns"}),
      node_bytes("Unsqueeze", {"taken", "axis_1"}, {"rows"}),
      node_bytes("Unsqueeze", {"columns", "axis_0"}, {"row_of_columns"})};
  const auto add = [&](const ProtoBytes& node) { nodes.push_back(node); };
  if (by_pairs) {
    add(node_bytes("Expand", {"rows", "s"}, {"all_rows"}));
    add(node_bytes("Expand", {"row_of_columns", "s"}, {"all_columns"}));
    add(node_bytes("Unsqueeze", {"all_rows", "axis_2"}, {"a"}));
    add(node_bytes("Unsqueeze", {"all_columns", "axis_2"}, {"b"}));
    add(node_bytes("Concat", {"a", "b"}, {"pairs"}, {int_attribute("axis", 2)}));
    add(node_bytes("GatherND", {"x", "pairs"}, {"y"}));
  } else {
    add(node_bytes("Mul", {"rows", "t"}, {"begins"}));
    add(node_bytes("Add", {"begins", "row_of_columns"}, {"places"}));
    add(node_bytes("Reshape", {"x", "open"}, {"flat"}));
    add(node_bytes("Gather", {"flat", "places"}, {"y"}));
  }
  const auto scalar = [](const char* name, int64_t value) {
    return tensor_bytes<int64_t>(name, kInt64, {}, {value});
  };
  return model_of_nodes(nodes,
                        {x_of({"N", "T"})},
                        {scalar("zero", 0),
                         scalar("one", 1),
                         scalar("minus_one", -1),
                         integers_bytes("axis_0", {0}),
                         integers_bytes("axis_1", {1}),
                         integers_bytes("axis_2", {2}),
                         integers_bytes("open", {-1})});
}

// Exporters write the padding mask of a transformer as a lookup of all of its rows and columns.
TEST(OnnxSource, RowsStayApartWhereALookupTakesAllOfThemInOrder) {
  Tensor x({DType::kF32, {5, 3}});
  for (int64_t i = 0; i < x.elements(); ++i) x.set(i, static_cast<double>(i * i));
  for (const bool by_pairs : {false, true}) {
    const std::string in_order = lookup_of_rows(by_pairs, "zero", "one");
    EXPECT_EQ(to_string(OnnxSource(model_of(in_order)).outputs()[0]), "y f32[N,T]") << by_pairs;
    EXPECT_EQ(elements_of(run_model(model_of(in_order), {{"x", x}}).at("y")), elements_of(x));
    // Backwards, a row depends on another sample; so it does where all are the first or the last.
    const std::string backwards = lookup_of_rows(by_pairs, "last", "minus_one");
    EXPECT_EQ(to_string(OnnxSource(model_of(backwards)).outputs()[0]), "y f32[y.0,T]") << by_pairs;
    const Tensor y = run_model(model_of(backwards), {{"x", x}}).at("y");
    for (int64_t i = 0; i < y.elements(); ++i)
      EXPECT_EQ(y.at(i), x.at((4 - i / 3) * 3 + i % 3)) << by_pairs << " " << i;
    for (const char* const row : {"zero", "last"})
      EXPECT_EQ(to_string(OnnxSource(model_of(lookup_of_rows(by_pairs, row, "zero"))).outputs()[0]),
                "y f32[y.0,T]")
          << by_pairs << " " << row;
  }
}

TEST(OnnxSource, RowsThatMeetInAMeanAreNoSamples) {
  // Each row less the mean of all.
  const std::vector<ProtoBytes> nodes = {
      node_bytes("ReduceMean", {"x"}, {"mean"}, {ints_attribute("axes", {0})}),
      node_bytes("Sub", {"x", "mean"}, {"y"})};
  EXPECT_EQ(spec_of_y(nodes, {x_of({"N", 3})}), "y f32[y.0,3]");
}

TEST(OnnxSource, TakesWhatTheFileDeclaresWhereItCannotLook) {
  // Nothing but 5 fits.
  const auto model = [](const std::vector<NamedSize>& y) {
    return model_of(model_of_nodes({node_bytes("Add", {"x", "w"}, {"y"})},
                                   {x_of({"N"})},
                                   {floats_bytes("w", {5}, {1, 2, 3, 4, 5})},
                                   {value_bytes("y", kFloat, y)}));
  };
  const OnnxSource source(model({"whatever"}));
  EXPECT_EQ(to_string(source.outputs()[0]), "y f32[y.0]");
  EXPECT_EQ(source.bind({{"N", 5}}).entries[0].outputs()[0].value.shape(), Shape{5});
  EXPECT_THAT(user_error([&] { source.bind({{"N", 4}}); }), HasSubstr("1 x Add"));
  EXPECT_THAT(user_error([&] { OnnxSource(model({2, 3})).bind({{"N", 5}}); }),
              HasSubstr("output 'y' is f32[5] for inputs of these sizes"));
}

TEST(OnnxSource, RefusesWhatIsForNoBindingAtOnce) {
  EXPECT_THAT(
      user_error([] {
        OnnxSource(model_of(model_of_nodes(
            {node_bytes("Det", {"x"}, {"a"}), node_bytes("Det", {"x"}, {"y"})}, {x_of({"N", 3})})));
      }),
      AllOf(HasSubstr("2 of its nodes cannot be imported:\n"
                      "  2 x Det: the operator is not supported (a, y)"),
            HasSubstr("docs/onnx.md")));
}

TEST(OnnxSource, RefusesBadNames) {
  const auto error_for = [](const std::vector<ProtoBytes>& inputs,
                            const std::string& output = "y") {
    return user_error([&] {
      OnnxSource(model_of(model_of_nodes(
          {node_bytes("Relu", {"x"}, {output})}, inputs, {}, {value_bytes(output, kFloat, {1})})));
    });
  };
  EXPECT_THAT(error_for({x_of({1}), x_of({1})}), HasSubstr("two inputs are named 'x'"));
  EXPECT_THAT(error_for({value_bytes("", kFloat, {1})}), HasSubstr("has no name"));
  EXPECT_THAT(error_for({x_of({1})}, "\x1b[31m"), HasSubstr("a name of 5 bytes is no text"));
  EXPECT_THAT(error_for({x_of({1})}, "\xff"), HasSubstr("is no text"));
  EXPECT_THAT(error_for({x_of({1})}, std::string(5000, 'a')), HasSubstr("a name has 5000 bytes"));
}

// Parts of the address space that are mapped.
int64_t count_mappings() {
  std::ifstream maps("/proc/self/maps");
  return std::count(std::istreambuf_iterator<char>(maps), {}, '\n');
}

class OnnxFile : public testing::Test {
 protected:
  std::string write(const std::string& bytes) {
    const std::string path = (folder_ / "model.onnx").string();
    write_file_atomically(path, bytes);
    return path;
  }

  TempFolder folder_;
};

TEST_F(OnnxFile, RunsInASessionInBatches) {
  ModelSession session(load_model(write(perceptron())));
  EXPECT_EQ(session.outputs(), (std::vector<DataSpec>{{"y", DType::kF32, {"N", 20}}}));
  EXPECT_EQ(session.model().weights, (folder_ / "model.onnx").string());
  Tensor x({DType::kF32, {10, 3}});
  for (int64_t i = 0; i < x.elements(); ++i) x.set(i, static_cast<double>(i % 7) - 3);
  NamedRows rows;
  rows.emplace("x", std::make_unique<TensorRows>(x));
  const Prediction batched = predict(session, rows, 4);
  EXPECT_EQ(batched.batches, 3);
  const NamedTensors whole = session.run({{"x", x}});
  EXPECT_EQ(elements_of(batched.outputs.at("y")), elements_of(whole.at("y")));
  EXPECT_EQ(elements_of(run_model(OnnxModel(folder_ / "model.onnx"), {{"x", x}}).at("y")),
            elements_of(whole.at("y")));
}

// Constants of one binding alone go with its programs.
TEST_F(OnnxFile, ManyShapesKeepMemoryBounded) {
  const std::string path = write(model_of_nodes({node_bytes("Shape", {"x"}, {"s"}),
                                                 ones_like_shape(),
                                                 node_bytes("CumSum", {"ones", "axis"}, {"table"}),
                                                 node_bytes("Add", {"x", "table"}, {"y"})},
                                                {x_of({"N", 30})},
                                                {tensor_bytes<int64_t>("axis", kInt64, {}, {0})}));
  const LoadedModel model = load_model(path);
  ModelSession session(model, {.bindings = 2, .programs = 1});
  for (int64_t n = 1; n <= 20; ++n) {
    const NamedTensors outputs = session.run({{"x", Tensor({DType::kF32, {n, 30}})}});
    EXPECT_EQ(outputs.at("y").type(), (TensorType{DType::kF32, {n, 30}}));
    EXPECT_EQ(outputs.at("y").at(n * 30 - 1), n);
  }
  EXPECT_EQ(model.state->bytes(), 0);
}

// Shapes leave nothing behind but the programs of the last ones. Memory of the device is counted to
// the byte; the bytes of the heap and the parts of the address space are those of half the way.
TEST_F(OnnxFile, AThousandShapesKeepMemoryBounded) {
  const std::string bytes =
      model_of_nodes({node_bytes("MatMul", {"x", "w"}, {"h"}),
                      node_bytes("Softmax", {"h"}, {"p"}, {int_attribute("axis", 2)}),
                      node_bytes("Shape", {"x"}, {"s"}),
                      ones_like_shape(),
                      node_bytes("CumSum", {"ones", "axis"}, {"places"}),
                      node_bytes("Add", {"p", "places"}, {"y"})},
                     {x_of({"N", "T", 6})},
                     {floats_bytes("w", {6, 6}, std::vector<float>(36, 0.5f)),
                      tensor_bytes<int64_t>("axis", kInt64, {}, {1})});
  const size_t shapes = is_full_scale() ? 1000 : is_short_scale() ? 60 : 600, kept = 4;
  auto backend = std::make_unique<ShortOfMemory>();
  const ShortOfMemory& device = *backend;
  const LoadedModel model{.source = std::make_shared<const OnnxSource>(model_of(bytes)),
                          .state = make_state(std::move(backend)),
                          .weights = {}};
  ModelSession session(model, {.bindings = kept, .programs = 1});
  std::deque<int64_t> planned;
  size_t heap = 0;
  int64_t mappings = 0;
  for (size_t i = 0; i < shapes; ++i) {
    const int64_t n = 1 + static_cast<int64_t>(i * 7 % 25), t = 1 + static_cast<int64_t>(i / 25);
    const NamedTensors outputs = session.run({{"x", Tensor({DType::kF32, {n, t, 6}})}});
    EXPECT_NEAR(outputs.at("y").at(n * t * 6 - 1), static_cast<double>(t) + 1.0 / 6, 1e-5);
    planned.push_back(session.bind({{"N", n}, {"T", t}})->arena_bytes);
    if (planned.size() > kept) planned.pop_front();
    EXPECT_EQ(device.bytes(),
              model.state->bytes() + std::accumulate(planned.begin(), planned.end(), int64_t{0}));
    // The places of a binding: a row for each T, the same for all samples.
    EXPECT_LE(model.state->bytes(), static_cast<int64_t>(kept) * (t * 6 * 4 + 64) + 4096);
    if (i == shapes / 2) {
      heap = ::mallinfo2().uordblks;
      mappings = count_mappings();
    }
  }
  EXPECT_LT(::mallinfo2().uordblks, heap + (size_t{1} << 20));
  // The machine code of loops is kept by body: 256 of plain loops, and 256 of those behind
  // products.
  EXPECT_LT(count_mappings(), mappings + 2 * 256 + 20);
}

// Each thread has sizes of its own at first, and then those of the others.
TEST_F(OnnxFile, ThreadsShareAModel) {
  ModelSession session(load_model(write(perceptron())), {.bindings = 3, .programs = 2});
  constexpr int kThreads = 4;
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread)
    threads.emplace_back([&, thread] {
      for (int i = 0; i < 8; ++i) {
        const int64_t n = 1 + (thread + i / 2) % kThreads;
        Tensor x({DType::kF32, {n, 3}});
        for (int64_t k = 0; k < x.elements(); ++k) x.set(k, 1);
        const NamedTensors outputs = session.run({{"x", std::move(x)}});
        // Column 19 of the weights is -11, 9, 29.
        if (outputs.at("y").at((n - 1) * 20 + 19) != 27) ++wrong;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(OnnxFile, HasItsOwnWeightsAndNoConfiguration) {
  const std::string path = write(perceptron());
  EXPECT_THAT(user_error([&] { load_model(path, {.weights = "other"}); }),
              HasSubstr("has weights of its own; leave out 'other'"));
  EXPECT_NO_THROW(load_model(path, {.set = {{"threads", "3", "--set"}}}));
  EXPECT_THAT(user_error([&] { load_model(path, {.set = {{"train.steps", "3", "--set"}}}); }),
              HasSubstr("has no configuration; leave out 'train.steps'"));
  EXPECT_THAT(user_error([&] { load_model(write("no model")); }), HasSubstr("no ONNX model"));
  EXPECT_THAT(user_error([&] { load_model((folder_ / "none.onnx").string()); }),
              HasSubstr("none.onnx"));
}

TEST(OnnxTable, IsInTheDocumentation) {
  const std::string page = read_file("docs/onnx.md");
  for (const onnx::OpRow& row : onnx::all_ops())
    EXPECT_TRUE(std::regex_search(page, std::regex(fmt::format("\\b{}\\b", row.name)))) << row.name;
}

}  // namespace
}  // namespace ridge::test
