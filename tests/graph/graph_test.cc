#include "ridge/graph/graph.h"

#include <gtest/gtest.h>

#include "ridge/graph/model_source.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/source.h"
#include "ridge/graph/text.h"
#include "ridge/graph/verify.h"
#include "tests/support/errors.h"

namespace ridge {
namespace {

TEST(Site, PathOperationAndOrdinal) {
  Graph graph;
  const Value x = input(graph, "x", {DType::kF32, {2}});
  EXPECT_EQ(x.node->site.name, "x");
  const SiteScope blocks(graph, "blocks.0");
  {
    const SiteScope attention(graph, "attn");
    EXPECT_EQ(exp(x).node->site.name, "blocks.0.attn:exp.0");
    EXPECT_EQ(exp(x).node->site.name, "blocks.0.attn:exp.1");
    EXPECT_EQ(tanh(x).node->site.name, "blocks.0.attn:tanh.0");
  }
  EXPECT_EQ(exp(x).node->site.name, "blocks.0:exp.0");
  const SiteScope attention(graph, "attn");
  EXPECT_EQ(exp(x).node->site.name, "blocks.0.attn:exp.2");
}

TEST(Site, StaysWhenNodesAreAddedElsewhere) {
  const auto site_of_tanh = [](bool with_more) {
    Graph graph;
    const Value x = input(graph, "x", {DType::kF32, {2}});
    if (with_more) {
      const SiteScope scope(graph, "new");
      tanh(exp(x));
    }
    const SiteScope scope(graph, "fc");
    return tanh(x).node->site.name;
  };
  EXPECT_EQ(site_of_tanh(false), site_of_tanh(true));
}

TEST(Graph, MovedGraphKeepsItsNodes) {
  Graph graph("first");
  graph.add_output("y", exp(input(graph, "x", {DType::kF32, {2}})));
  Graph moved = std::move(graph);
  verify(moved);
  EXPECT_EQ(&moved.outputs()[0].value.graph(), &moved);
}

TEST(Graph, CloneIsEqualAndIndependent) {
  Graph graph("first");
  const Value x = input(graph, "x", {DType::kF32, {2, 2}});
  graph.add_output("y", matmul(x, x), "x");
  Graph copy = graph.clone();
  EXPECT_EQ(print(copy), print(graph));
  copy.add_output("z", exp(copy.outputs()[0].value));
  verify(copy);
  EXPECT_EQ(graph.nodes().size() + 1, copy.nodes().size());
}

TEST(Graph, RefusesValuesOfAnotherGraph) {
  Graph one, other;
  const Value x = input(one, "x", {DType::kF32, {2}});
  const Value y = input(other, "y", {DType::kF32, {2}});
  EXPECT_THROW(add(x, y), UserError);
  EXPECT_THROW(one.add_output("y", y), UserError);
}

TEST(Verify, FindsWhatIsNotLegal) {
  const auto broken = [](auto damage) {
    Graph graph;
    const Value x = input(graph, "x", {DType::kF32, {2, 3}});
    const Value y = exp(x);
    graph.add_output("y", tanh(y));
    verify(graph);
    damage(*y.node, graph);
    EXPECT_THROW(verify(graph), InternalError);
  };
  broken([](Node& node, Graph&) { node.outputs[0].shape[0] = 9; });
  broken([](Node& node, Graph&) { node.outputs[0].dtype = DType::kF64; });
  broken([](Node& node, Graph&) { node.inputs.clear(); });
  broken([](Node& node, Graph&) { node.id = 0; });
  broken([](Node& node, Graph& graph) { node.inputs[0] = {graph.nodes().back().get(), 0}; });
  broken([](Node& node, Graph&) { node.inputs[0].index = 1; });
  broken([](Node& node, Graph& graph) { graph.nodes().back()->site = node.site; });
}

// A model of one product, whose batch and width are named dimensions.
class Line final : public ModelSource {
 public:
  std::vector<DataSpec> inputs() const override {
    return {{"x", DType::kF32, {{"batch", 9}, "width"}}, {"more", DType::kI64, {"batch", 2}}};
  }
  std::vector<DataSpec> outputs() const override { return {{"y", DType::kF32, {"batch", 3}}}; }
  std::vector<StateEntry> state() const override { return {{"bias", {DType::kF32, {3}}}}; }

 private:
  ProgramGraphs build(const Binding& binding) const override {
    Graph graph("line");
    const Value x = input(graph, "x", {DType::kF32, {binding.at("batch"), binding.at("width")}}, 0);
    const Value w = constant(graph, {DType::kF32, {binding.at("width"), 3}}, 0.5);
    input(graph, "more", {DType::kI64, {binding.at("batch"), 2}}, 0);
    graph.add_output("y", matmul(x, w) + input(graph, "bias", {DType::kF32, {3}}));
    return only_entry(std::move(graph));
  }
};

TEST(ModelSource, AnotherSizeIsAnotherBinding) {
  const Line line;
  EXPECT_EQ(line.dims(), (std::vector<std::string>{"batch", "width"}));
  const auto y = [](const ProgramGraphs& graphs) {
    return to_string(graphs.entries.at(0).outputs()[0].value.type());
  };
  EXPECT_EQ(y(line.bind({{"batch", 4}, {"width", 5}})), "f32[4,3]");
  const ProgramGraphs graphs = line.bind({{"batch", 7}, {"width", 5}});
  EXPECT_EQ(y(graphs), "f32[7,3]");
  ASSERT_EQ(graphs.state.size(), 1u);
  EXPECT_EQ(graphs.state[0].name, "bias");
  EXPECT_EQ(parse_graph(print(graphs.entries[0])).binding(), (Binding{{"batch", 7}, {"width", 5}}));
}

TEST(ModelSource, SaysWhatItTakes) {
  EXPECT_EQ(to_string(Line().inputs()[0]), "x f32[batch<=9,width]");
  EXPECT_EQ(to_string(Line().inputs()[1]), "more i64[batch,2]");
  EXPECT_EQ(to_string(DataSpec{"loss", DType::kF64, {}}), "loss f64[]");
}

TEST(ModelSource, NamesWhatIsWrongWithABinding) {
  const auto error_of = [](const Binding& binding) {
    return test::user_error([&] { Line().bind(binding); });
  };
  EXPECT_EQ(error_of({{"batch", 4}}), "the model needs a size for dimension 'width'");
  EXPECT_EQ(error_of({{"batch", 4}, {"widht", 5}}),
            "the model has no dimension 'widht'; did you mean 'width'?");
  EXPECT_EQ(error_of({{"batch", 0}, {"width", 5}}), "dimension 'batch' must be at least 1; got 0");
  EXPECT_EQ(error_of({{"batch", 10}, {"width", 5}}), "dimension 'batch' must be at most 9; got 10");
}

}  // namespace
}  // namespace ridge
