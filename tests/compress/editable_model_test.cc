// Parts of a model that are not replaced keep their bytes; and elements in other files.
#include "ridge/compress/editable_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ridge/compress/calibration.h"
#include "tests/compress/small_models.h"
#include "tests/support/errors.h"
#include "tests/support/temp_folder.h"

namespace ridge::test {
namespace {

using compress::EditableModel;
using testing::HasSubstr;

// A model whose parts all have a field that no version of ONNX knows.
std::string model_with_unknown_fields() {
  constexpr int kUnknown = 900;
  GraphParts parts = mlp_parts();
  for (auto* list : {&parts.nodes, &parts.initializers, &parts.inputs, &parts.outputs})
    for (ProtoBytes& part : *list) part.text(kUnknown, "of a later version");
  ProtoBytes graph = graph_bytes(parts);
  graph.number(kUnknown, 3).message(13, value_bytes("r1", kFloat, {"N", 24}));
  return ProtoBytes()
      .number(1, 8)
      .text(2, "a producer")
      .message(7, graph)
      .message(8, ProtoBytes().text(1, "").number(2, 17))
      .message(14, ProtoBytes().text(1, "key").text(2, "value"))
      .real(kUnknown, 2.5f)
      .bytes();
}

size_t count_in(const std::string& text, std::string_view part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(EditableModel, KeepsAllThatIsNotReplaced) {
  const std::string before = model_with_unknown_fields();
  const EditableModel model = editable(before);
  const std::string after = model.bytes();
  EXPECT_EQ(after.size(), before.size());
  EXPECT_EQ(count_in(after, "of a later version"), count_in(before, "of a later version"));
  EXPECT_EQ(count_in(before, "of a later version"), 12u);
  EXPECT_EQ(editable(after).bytes(), after);
  for (const char* part : {"a producer", "key", "value"}) EXPECT_THAT(after, HasSubstr(part));
}

TEST(EditableModel, RenamesInputsAndOutputsOfANodeAlone) {
  EditableModel model = editable(model_with_unknown_fields());
  model.nodes()[2] = compress::renamed(model.nodes()[2], {"a", "b", "c"}, {"d"});
  const std::string after = model.bytes();
  EXPECT_EQ(count_in(after, "of a later version"), 12u);
  const EditableModel again = editable(after);
  const onnx::NodeProto& node = again.nodes()[2].proto;
  EXPECT_EQ(node.inputs, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(node.outputs, std::vector<std::string>{"d"});
  EXPECT_EQ(node.name, "second");
  ASSERT_EQ(node.attributes.size(), 1u);
  EXPECT_EQ(node.attributes[0].integer, 1);
}

TEST(EditableModel, GivesNamesThatNothingHas) {
  EditableModel model = editable(model_bytes(mlp_parts()));
  EXPECT_EQ(model.new_name("w1"), "w1_2");
  EXPECT_EQ(model.new_name("w1"), "w1_3");
  EXPECT_EQ(model.new_name("first"), "first_2");
  EXPECT_EQ(model.new_name("free"), "free");
  EXPECT_EQ(model.new_name("free"), "free_2");
}

TEST(EditableModel, RemovesWhatNobodyReads) {
  GraphParts parts = mlp_parts();
  parts.inputs.push_back(value_bytes("w1", kFloat, {16, 24}));  // as older files declare them
  EditableModel model = editable(model_bytes(parts));
  model.nodes()[0] = compress::renamed(model.nodes()[0], {"x", "other", "b1"}, {"h1"});
  model.remove_unused({"w1", "w2"});
  const EditableModel after = editable(model.bytes());
  EXPECT_EQ(after.constant("w1"), nullptr);
  EXPECT_NE(after.constant("w2"), nullptr);
  EXPECT_NE(after.constant("b1"), nullptr);
}

TEST(EditableModel, KnowsConstantsOfNodesAndUsesInGraphsInsideOfNodes) {
  GraphParts inner;
  inner.nodes = {node_bytes("Add", {"h", "w"}, {"s"})};
  inner.outputs = {value_bytes("s", kFloat, {2})};
  GraphParts parts;
  parts.nodes = {
      node_bytes("Constant", {}, {"w"}, {tensor_attribute("value", floats_bytes("", {2}, {1, 2}))}),
      node_bytes("Identity", {"x"}, {"h"}),
      node_bytes("If",
                 {"c"},
                 {"y"},
                 {graph_attribute("then_branch", graph_bytes(inner)),
                  graph_attribute("else_branch", graph_bytes(inner))})};
  parts.inputs = {value_bytes("x", kFloat, {2}), value_bytes("c", kBool, {})};
  parts.outputs = {value_bytes("y", kFloat, {2})};
  EditableModel model = editable(model_bytes(parts));
  ASSERT_NE(model.constant("w"), nullptr);
  EXPECT_EQ(model.elements(*model.constant("w")).at(1), 2);
  EXPECT_EQ(model.uses().at("w"), 2);
  EXPECT_EQ(model.uses().at("h"), 2);
  EXPECT_EQ(model.new_name("s"), "s_2");
  model.remove_unused({"w"});
  EXPECT_EQ(model.nodes().size(), 3u);
}

TEST(EditableModel, MovesElementsOfOtherFilesInsideAndOutAgain) {
  const TempFolder folder, other;
  EditableModel inside = editable(model_bytes(mlp_parts()));
  const std::string path = (folder / "model.onnx").string();
  const std::string data = inside.write(path, /*most_bytes=*/1000);
  ASSERT_FALSE(data.empty());
  const compress::QuantizeData samples = normal_data({2, 16}, 1);
  const SampleOutputs wanted = compress::outputs_on(inside, samples.samples.samples);
  const EditableModel outside((std::filesystem::path(path)));
  EXPECT_TRUE(compress::outputs_on(outside, samples.samples.samples)[0].at("y").same_bits(
      wanted[0].at("y")));
  EXPECT_THAT(outside.bytes(), HasSubstr("location"));
  // Written to another folder, all is in one file, or beside it.
  for (const int64_t most : {onnx::kMostBytesInside, int64_t{1000}}) {
    const std::string copy = (other / "copy.onnx").string();
    EXPECT_EQ(outside.write(copy, most).empty(), most > 1000);
    const EditableModel again((std::filesystem::path(copy)));
    EXPECT_TRUE(compress::outputs_on(again, samples.samples.samples)[0].at("y").same_bits(
        wanted[0].at("y")));
  }
  std::filesystem::remove(data);
  EXPECT_THAT(user_error([&] { EditableModel model((std::filesystem::path(path))); }),
              HasSubstr("copy the whole file beside the model"));
}

TEST(EditableModel, RefusesWhatIsNoModel) {
  EXPECT_THAT(user_error([] { editable("no model"); }), HasSubstr("no ONNX model"));
  const std::string whole = model_bytes(mlp_parts());
  EXPECT_THAT(user_error([&] { editable(whole.substr(0, whole.size() / 2)); }),
              HasSubstr("no ONNX model"));
}

}  // namespace
}  // namespace ridge::test
