// Files that are no models, damaged ones, and ones that are made to do harm: a UserError each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "ridge/import/onnx/elements.h"
#include "ridge/import/onnx/known.h"
#include "ridge/import/onnx/model_proto.h"
#include "tests/import/model_bytes.h"
#include "tests/import/run_model.h"
#include "tests/support/errors.h"
#include "tests/support/scale.h"
#include "tests/support/temp_folder.h"

namespace ridge::test {
namespace {

using onnx::Known;
using testing::HasSubstr;

// y = x + w, with w of the file.
std::string sum_model() {
  return model_bytes({.nodes = {node_bytes("Add", {"x", "w"}, {"y"})},
                      .initializers = {floats_bytes("w", {3}, {1, 2, 3})},
                      .inputs = {value_bytes("x", kFloat, {2, 3})},
                      .outputs = {value_bytes("y", kFloat, {2, 3})}});
}

// A model whose one initializer is `tensor`; its output is named w.
std::string model_with(const ProtoBytes& tensor) {
  return model_bytes({.nodes = {node_bytes("Identity", {"w"}, {"y"})},
                      .initializers = {tensor},
                      .inputs = {},
                      .outputs = {value_bytes("y", kFloat, {3})}});
}

std::string import_error(const std::string& bytes) {
  return user_error([&] { model_of(bytes).import(); });
}

TEST(OnnxReader, ReadsNodesInputsAndInitializers) {
  const std::string bytes = sum_model();
  const onnx::ModelProto model = onnx::parse_model(as_bytes(bytes), "sum");
  EXPECT_EQ(model.ir_version, 8);
  EXPECT_EQ(model.opsets.at(""), 17);
  ASSERT_EQ(model.graph.nodes.size(), 1u);
  EXPECT_EQ(model.graph.nodes[0].op, "Add");
  EXPECT_EQ(model.graph.nodes[0].inputs, (std::vector<std::string>{"x", "w"}));
  ASSERT_EQ(model.graph.initializers.size(), 1u);
  EXPECT_EQ(model.graph.initializers[0].dims, std::vector<int64_t>{3});
  ASSERT_EQ(model.graph.inputs.size(), 1u);
  EXPECT_EQ(model.graph.inputs[0].dims[1].value, 3);
}

TEST(OnnxReader, NamesWhatIsNoModel) {
  EXPECT_THAT(user_error([] { model_of(""); }), HasSubstr("no ONNX model"));
  EXPECT_THAT(user_error([] { model_of("not a model at all"); }), HasSubstr("no ONNX model"));
  EXPECT_THAT(user_error([] { OnnxModel(std::filesystem::path("/nowhere/model.onnx")); }),
              HasSubstr("/nowhere/model.onnx"));
  const auto old = model_bytes({.nodes = {node_bytes("Relu", {"x"}, {"y"})},
                                .initializers = {},
                                .inputs = {value_bytes("x", kFloat, {1})},
                                .outputs = {value_bytes("y", kFloat, {1})}},
                               6);
  EXPECT_THAT(user_error([&] { model_of(old); }), HasSubstr("version 6; 7 to 27 are read"));
}

// Wherever a file ends, and whichever of its bytes is another: an error, or a model that imports or
// says why not.
TEST(OnnxReader, SurvivesDamage) {
  const std::string whole = sum_model();
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_NE(import_error(whole.substr(0, size)), "no error") << size;
  std::mt19937 random(7);
  for (int i = 0; i < cases(2000); ++i) {
    std::string damaged = whole;
    for (int k = 0; k < 3; ++k) damaged[random() % damaged.size()] = static_cast<char>(random());
    import_error(damaged);
  }
}

TEST(OnnxReader, RefusesSizesThatDoNotFitTheBytes) {
  EXPECT_THAT(import_error(model_with(floats_bytes("w", {4}, {1, 2, 3}))),
              HasSubstr("tensor 'w': 12 bytes of elements; f32[4] has 16"));
  EXPECT_THAT(import_error(model_with(floats_bytes("w", {-3}, {1, 2, 3}))),
              HasSubstr("a dimension is negative"));
  const int64_t large = int64_t{1} << 40;
  EXPECT_THAT(import_error(model_with(floats_bytes("w", {large}, {1, 2, 3}))),
              HasSubstr("bytes of elements"));
  EXPECT_THAT(import_error(model_with(floats_bytes("w", {large, large}, {1}))),
              HasSubstr("too large"));
  EXPECT_THAT(import_error(model_with(floats_bytes("w", std::vector<int64_t>(9, 1), {1}))),
              HasSubstr("too many dimensions"));
  // 2^32 * 2^32 elements are 0 in 64 bits.
  EXPECT_THAT(
      import_error(model_with(floats_bytes("w", {large, large, large}, std::vector<float>{}))),
      HasSubstr("too large"));
  EXPECT_THAT(import_error(model_with(tensor_bytes<uint8_t>("w", kBool, {2}, {1, 7}))),
              HasSubstr("a bool is 0 or 1"));
}

// No tensor of a graph is empty; what is known may be, whatever its other sizes.
TEST(OnnxReader, EmptyTensorsAreNoFaultOfOurs) {
  for (const std::vector<int64_t>& dims : {std::vector<int64_t>{0, int64_t{1} << 30},
                                           std::vector<int64_t>{int64_t{1} << 30, 0},
                                           std::vector<int64_t>{0}})
    EXPECT_THAT(import_error(model_with(floats_bytes("w", dims, {}))),
                HasSubstr("has no elements"));
  EXPECT_THAT(import_error(model_with(floats_bytes("w", {0, int64_t{1} << 62}, {}))),
              HasSubstr("too large"));
}

TEST(OnnxReader, RefusesDtypesThatRidgeHasNot) {
  EXPECT_THAT(import_error(model_with(tensor_bytes<uint32_t>("w", 12, {1}, {1}))),
              HasSubstr("initializer: dtype UINT32 is not supported (w)"));
  EXPECT_THAT(import_error(model_with(tensor_bytes<uint8_t>("w", 99, {1}, {1}))),
              HasSubstr("dtype 99 is not supported"));
}

TEST(OnnxReader, RefusesWhatIsTooDeep) {
  ProtoBytes graph = graph_bytes({.nodes = {node_bytes("Relu", {"x"}, {"y"})},
                                  .initializers = {},
                                  .inputs = {},
                                  .outputs = {value_bytes("y", kFloat, {1})}});
  for (int depth = 0; depth < 40; ++depth)
    graph = graph_bytes(
        {.nodes = {node_bytes("If", {"c"}, {"y"}, {graph_attribute("then_branch", graph)})},
         .initializers = {},
         .inputs = {},
         .outputs = {value_bytes("y", kFloat, {1})}});
  const std::string bytes = ProtoBytes().number(1, 8).message(7, graph).bytes();
  EXPECT_THAT(user_error([&] { model_of(bytes); }), HasSubstr("deep in one another"));
}

TEST(OnnxReader, RefusesCyclesAndNamesThatAreTwice) {
  const std::vector<ProtoBytes> x{value_bytes("x", kFloat, {2})};
  const std::vector<ProtoBytes> y{value_bytes("y", kFloat, {2})};
  EXPECT_THAT(import_error(model_bytes({.nodes = {node_bytes("Add", {"x", "z"}, {"y"}, {}, "first"),
                                                  node_bytes("Relu", {"y"}, {"z"})},
                                        .initializers = {},
                                        .inputs = x,
                                        .outputs = y})),
              HasSubstr("node 'first' (Add) reads 'z', which no node before it gives"));
  EXPECT_THAT(import_error(model_bytes(
                  {.nodes = {node_bytes("Relu", {"x"}, {"y"}), node_bytes("Neg", {"x"}, {"y"})},
                   .initializers = {},
                   .inputs = x,
                   .outputs = y})),
              HasSubstr("two nodes give 'y'"));
  EXPECT_THAT(import_error(model_bytes({.nodes = {node_bytes("Relu", {"x"}, {"z"})},
                                        .initializers = {},
                                        .inputs = x,
                                        .outputs = y})),
              HasSubstr("nothing gives the output 'y'"));
}

// ---- external data ----

ProtoBytes entry(std::string_view key, std::string_view value) {
  return ProtoBytes().text(1, key).text(2, value);
}

ProtoBytes external_tensor(const std::vector<std::pair<std::string, std::string>>& entries) {
  ProtoBytes tensor;
  tensor.number(1, 3).number(2, kFloat).text(8, "w").number(14, 1);
  for (const auto& [key, value] : entries) tensor.message(13, entry(key, value));
  return tensor;
}

class ExternalData : public testing::Test {
 protected:
  void write(const std::filesystem::path& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string error(const ProtoBytes& tensor) {
    write(folder_ / "model.onnx", model_with(tensor));
    return user_error([&] { OnnxModel(folder_ / "model.onnx").import(); });
  }

  TempFolder folder_;
};

TEST_F(ExternalData, IsReadWhereItLies) {
  const float numbers[] = {0, 5, 6, 7};
  write(folder_ / "weights", {reinterpret_cast<const char*>(numbers), sizeof numbers});
  write(folder_ / "model.onnx",
        model_with(external_tensor({{"location", "weights"}, {"offset", "4"}, {"length", "12"}})));
  const NamedTensors outputs = run_model(OnnxModel(folder_ / "model.onnx"), {});
  EXPECT_EQ(elements_of(outputs.at("y")), (std::vector<double>{5, 6, 7}));
}

TEST_F(ExternalData, StaysInTheFolder) {
  std::filesystem::create_directory(folder_ / "inner");
  write(folder_ / "weights", std::string(12, '\0'));
  const auto outside = HasSubstr("outside of the model's folder");
  EXPECT_THAT(error(external_tensor({{"location", "/etc/passwd"}})), outside);
  EXPECT_THAT(error(external_tensor({{"location", "../weights"}})), outside);
  EXPECT_THAT(error(external_tensor({{"location", "inner/../../weights"}})), outside);
  EXPECT_THAT(error(external_tensor({{"location", ""}})), outside);
  std::filesystem::create_symlink("/etc/passwd", folder_ / "link");
  EXPECT_THAT(error(external_tensor({{"location", "link"}})), outside);
  std::filesystem::create_directory_symlink("..", folder_ / "inner" / "up");
  std::filesystem::create_directory_symlink("/etc", folder_ / "away");
  EXPECT_THAT(error(external_tensor({{"location", "away/passwd"}})), outside);
  EXPECT_THAT(error(external_tensor({{"location", "inner/up/../weights"}})), outside);
  // Links that stay in it are as good as files.
  EXPECT_EQ(error(external_tensor({{"location", "inner/up/weights"}})), "no error");
  // A model in memory has no folder.
  EXPECT_THAT(import_error(model_with(external_tensor({{"location", "weights"}}))), outside);
}

TEST_F(ExternalData, ItsPlaceIsChecked) {
  write(folder_ / "weights", std::string(12, '\0'));
  EXPECT_EQ(error(external_tensor({{"location", "missing"}, {"offset", "4"}})),
            path("model.onnx") + ": tensor 'w' needs a file of 16 bytes: cannot open '" +
                path("missing") +
                "': No such file or directory; copy the whole file beside the model");
  EXPECT_THAT(error(external_tensor({})), HasSubstr("no location"));
  EXPECT_EQ(error(external_tensor({{"location", "weights"}, {"offset", "4"}})),
            path("model.onnx") + ": tensor 'w' needs a file of 16 bytes: '" + path("weights") +
                "' has 12; copy the whole file beside the model");
  EXPECT_THAT(error(external_tensor({{"location", "weights"}, {"offset", "-4"}})),
              HasSubstr("which is no number"));
  EXPECT_THAT(error(external_tensor({{"location", "weights"}, {"offset", "9223372036854775807"}})),
              HasSubstr("needs a file of 9223372036854775807 bytes"));
  EXPECT_THAT(error(external_tensor({{"location", "weights"}, {"length", "8"}})),
              HasSubstr("8 bytes of elements; f32[3] has 12"));
  // Offset and length overflow as a sum, or by themselves.
  EXPECT_THAT(error(external_tensor(
                  {{"location", "weights"}, {"offset", "8"}, {"length", "9223372036854775807"}})),
              HasSubstr("needs a file of 9223372036854775807 bytes"));
  EXPECT_THAT(error(external_tensor({{"location", "weights"}, {"offset", "18446744073709551608"}})),
              HasSubstr("which is no number"));
  EXPECT_THAT(error(external_tensor({{"location", "weights"}, {"length", "0x0c"}})),
              HasSubstr("which is no number"));
  write(folder_ / "short", std::string(11, '\0'));
  EXPECT_THAT(error(external_tensor({{"location", "short"}})), HasSubstr("short' has 11;"));
  write(folder_ / "empty", "");
  EXPECT_THAT(error(external_tensor({{"location", "empty"}})), HasSubstr("empty' has 0;"));
}

// Before there is a size that the model could be bound to.
TEST_F(ExternalData, IsMissedAsSoonAsTheModelIsOpened) {
  const auto external = [](const char* name, const char* location, const char* offset) {
    ProtoBytes tensor;
    tensor.number(1, 3).number(2, kFloat).text(8, name).number(14, 1);
    return tensor.message(13, entry("location", location)).message(13, entry("offset", offset));
  };
  const auto open_error = [&](const GraphParts& parts) {
    write(folder_ / "model.onnx", model_bytes(parts));
    return user_error([&] { OnnxModel(folder_ / "model.onnx"); });
  };
  write(folder_ / "weights", std::string(24, '\0'));
  GraphParts parts{.nodes = {node_bytes("Add", {"x", "w"}, {"y"})},
                   .initializers = {external("w", "weights", "0"), external("v", "weights", "12")},
                   .inputs = {value_bytes("x", kFloat, {"N", 3})},
                   .outputs = {value_bytes("y", kFloat, {"N", 3})}};
  EXPECT_EQ(open_error(parts), "no error");
  // The tensor that ends last is named, of those that lie beyond the end.
  std::filesystem::resize_file(folder_ / "weights", 10);
  EXPECT_THAT(open_error(parts), HasSubstr("tensor 'v' needs a file of 24 bytes: '"));
  // Nodes have tensors, too, and graphs with tensors.
  parts.initializers.clear();
  const ProtoBytes missing = external("c", "none", "0");
  const ProtoBytes branch =
      graph_bytes({.nodes = {}, .initializers = {missing}, .inputs = {}, .outputs = {}});
  for (const ProtoBytes& attribute :
       {tensor_attribute("value", missing), graph_attribute("then_branch", branch)}) {
    parts.nodes = {node_bytes("Constant", {}, {"w"}, {attribute})};
    EXPECT_THAT(open_error(parts), HasSubstr("tensor 'c' needs a file of 12 bytes: cannot open '"));
  }
}

TEST_F(ExternalData, IsAFile) {
  std::filesystem::create_directory(folder_ / "weights");
  EXPECT_THAT(error(external_tensor({{"location", "weights"}})), HasSubstr("Is a directory"));
  EXPECT_THAT(error(external_tensor({{"location", "."}})), HasSubstr("Is a directory"));
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);  // nobody waits for a writer
  EXPECT_THAT(error(external_tensor({{"location", "pipe"}})), HasSubstr("not a regular file"));
}

TEST(Known, TransposesAndReshapesWhatIsKnown) {
  const Known matrix = Known::of({1, 2, 3, 4, 5, 6}).reshaped({2, 3});
  EXPECT_EQ(matrix.transposed({1, 0}).integers(), (std::vector<int64_t>{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(matrix.transposed({1, 0}).shape(), (Shape{3, 2}));
  EXPECT_TRUE(Known::empty(DType::kF32, {0, 5}).transposed({1, 0}).is_empty());
}

}  // namespace
}  // namespace ridge::test
