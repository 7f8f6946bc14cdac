// Models that are made to do harm by what they compute, not by their bytes, and one that is merely
// large.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "ridge/import/onnx/onnx_source.h"
#include "ridge/infer/model_session.h"
#include "ridge/io/file.h"
#include "ridge/run/state.h"
#include "tests/import/model_bytes.h"
#include "tests/import/run_model.h"
#include "tests/support/errors.h"
#include "tests/support/short_of_memory.h"
#include "tests/support/temp_folder.h"

namespace ridge::test {
namespace {

using testing::HasSubstr;

constexpr int64_t kLarge = int64_t{1} << 40;

std::vector<ProtoBytes> one(const char* name, const std::vector<NamedSize>& sizes = {2}) {
  return {value_bytes(name, kFloat, sizes)};
}

// ---- cycles ----

std::string error_of(const std::vector<ProtoBytes>& nodes, const std::string& functions = "") {
  return user_error([&] {
    model_of(
        model_bytes({.nodes = nodes, .initializers = {}, .inputs = one("x"), .outputs = one("y")}) +
        functions)
        .import();
  });
}

TEST(OnnxCycles, OfNodes) {
  EXPECT_THAT(error_of({node_bytes("Add", {"x", "y"}, {"y"}, {}, "self")}),
              HasSubstr("node 'self' (Add) reads 'y', which no node before it gives"));
  EXPECT_THAT(error_of({node_bytes("Add", {"x", "b"}, {"a"}, {}, "first"),
                        node_bytes("Neg", {"a"}, {"b"}),
                        node_bytes("Relu", {"b"}, {"y"})}),
              HasSubstr("node 'first' (Add) reads 'b', which no node before it gives"));
}

TEST(OnnxCycles, ThroughABranch) {
  const ProtoBytes branch = graph_bytes({.nodes = {node_bytes("Neg", {"y"}, {"b"}, {}, "inner")},
                                         .initializers = {},
                                         .inputs = {},
                                         .outputs = one("b")});
  EXPECT_THAT(
      error_of({node_bytes("Constant",
                           {},
                           {"c"},
                           {tensor_attribute("value", tensor_bytes<uint8_t>("", kBool, {}, {1}))}),
                node_bytes("If",
                           {"c"},
                           {"y"},
                           {graph_attribute("then_branch", branch),
                            graph_attribute("else_branch", branch)})}),
      HasSubstr("reads 'y', which no node before it gives"));
}

// A function of the model's own, of domain "own", with one input and one output.
std::string function_bytes(const char* name, const std::vector<ProtoBytes>& nodes) {
  ProtoBytes function;
  function.text(1, name).text(4, "in").text(5, "out");
  for (const ProtoBytes& node : nodes) function.message(7, node);
  function.text(10, "own");
  return ProtoBytes().message(25, function).bytes();
}

ProtoBytes call(const char* name, const char* input, const char* output) {
  return node_bytes(name, {input}, {output}).text(7, "own");
}

TEST(OnnxCycles, OfFunctions) {
  const auto deep = HasSubstr("graphs or functions lie more than 64 deep");
  EXPECT_THAT(error_of({call("f", "x", "y")}, function_bytes("f", {call("f", "in", "out")})), deep);
  EXPECT_THAT(error_of({call("f", "x", "y")},
                       function_bytes("f", {call("g", "in", "out")}) +
                           function_bytes("g", {call("f", "in", "out")})),
              deep);
  // Each calls the next twice: 2^60 nodes.
  std::string functions = function_bytes("f60", {node_bytes("Relu", {"in"}, {"out"})});
  for (int i = 0; i < 60; ++i) {
    const std::string next = fmt::format("f{}", i + 1);
    functions +=
        function_bytes(fmt::format("f{}", i).c_str(),
                       {call(next.c_str(), "in", "half"), call(next.c_str(), "half", "out")});
  }
  EXPECT_THAT(error_of({call("f0", "x", "y")}, functions), HasSubstr("more than 200000 nodes"));
}

// ---- sizes ----

// A machine with 64 GiB, whatever this one has.
ModelSession session_of(const std::string& bytes) {
  auto backend = std::make_unique<ShortOfMemory>();
  backend->most = size_t{1} << 36;
  return ModelSession(LoadedModel{.source = std::make_shared<const OnnxSource>(model_of(bytes)),
                                  .state = make_state(std::move(backend)),
                                  .weights = {}});
}

TEST(OnnxSizes, ModelsOf2To40ElementsAreAnError) {
  const ProtoBytes large = integers_bytes("large", {kLarge});
  const auto number = [](const char* name, int64_t value) {
    return tensor_bytes<int64_t>(name, kInt64, {}, {value});
  };
  struct Case {
    const char* what;
    std::vector<ProtoBytes> nodes, initializers;
    int64_t input = 1;
  };
  const Case cases[] = {
      {"input", {node_bytes("Relu", {"x"}, {"y"})}, {}, kLarge},
      {"constant",
       {node_bytes("ConstantOfShape", {"large"}, {"c"}), node_bytes("Add", {"x", "c"}, {"y"})},
       {large}},
      {"expand", {node_bytes("Expand", {"x", "large"}, {"y"})}, {large}},
      {"tile", {node_bytes("Tile", {"x", "large"}, {"y"})}, {large}},
      {"range",
       {node_bytes("Range", {"begin", "end", "step"}, {"r"}),
        node_bytes("Cast", {"r"}, {"f"}, {int_attribute("to", kFloat)}),
        node_bytes("Add", {"x", "f"}, {"y"})},
       {number("begin", 0), number("end", kLarge), number("step", 1)}},
      {"pad", {node_bytes("Pad", {"x", "pads"}, {"y"})}, {integers_bytes("pads", {0, kLarge})}},
      {"one hot",
       {node_bytes("Cast", {"x"}, {"i"}, {int_attribute("to", kInt64)}),
        node_bytes("OneHot", {"i", "depth", "values"}, {"y"})},
       {number("depth", kLarge), floats_bytes("values", {2}, {0, 1})}},
      {"outer product",
       {node_bytes("ConstantOfShape", {"side"}, {"a"}),
        node_bytes("Reshape", {"a", "column"}, {"b"}),
        node_bytes("Mul", {"a", "b"}, {"c"}),
        node_bytes("Add", {"x", "c"}, {"y"})},
       {integers_bytes("side", {int64_t{1} << 20}), integers_bytes("column", {-1, 1})}},
      {"three sides",
       {node_bytes("ConstantOfShape", {"sides"}, {"c"}), node_bytes("Add", {"x", "c"}, {"y"})},
       {integers_bytes("sides", {int64_t{1} << 20, int64_t{1} << 20, int64_t{1} << 20})}},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.what);
    const std::string bytes = model_bytes({.nodes = each.nodes,
                                           .initializers = each.initializers,
                                           .inputs = one("x", {each.input}),
                                           .outputs = one("y")});
    const std::string error = user_error([&] { session_of(bytes).bind({}); });
    EXPECT_NE(error, "no error");
    EXPECT_LT(error.size(), 1000u) << error;
  }
}

// ---- external data ----

ProtoBytes external_bytes(const char* name, const std::vector<int64_t>& dims, int64_t offset) {
  ProtoBytes tensor;
  for (const int64_t dim : dims) tensor.number(1, static_cast<uint64_t>(dim));
  tensor.number(2, kFloat).text(8, name).number(14, 1);
  tensor.message(13, ProtoBytes().text(1, "location").text(2, "weights"));
  tensor.message(13, ProtoBytes().text(1, "offset").text(2, std::to_string(offset)));
  return tensor;
}

// The file is sparse: it takes a few blocks of the disk, and of the table a run reads a few rows.
TEST(OnnxLarge, ThreeGigabytesOfExternalDataRunWhereTheyLie) {
  constexpr int64_t kRows = 3 << 18, kWidth = 1024, kFirst = 4096;
  constexpr int64_t kRowBytes = kWidth * static_cast<int64_t>(sizeof(float));
  constexpr int64_t kEnd = kFirst + kRows * kRowBytes;  // of the table of 3 GiB
  const TempFolder folder;
  {
    std::ofstream file(folder / "weights", std::ios::binary);
    const auto put = [&](int64_t at, float value) {
      file.seekp(at);
      file.write(reinterpret_cast<const char*>(&value), sizeof value);
    };
    put(kFirst + 7 * 4, 5);                // row 0, column 7
    put(kEnd - kRowBytes + 7 * 4, 2);      // the last row, column 7
    put(kEnd + (7 * 2 + 1) * 4, 3);        // of the projection: row 7, column 1
    put(kEnd + (kWidth * 2 - 1) * 4, -1);  // its last element
  }
  const std::string path = (folder / "model.onnx").string();
  write_file_atomically(
      path,
      model_bytes({.nodes = {node_bytes("Gather", {"table", "ids"}, {"rows"}),
                             node_bytes("MatMul", {"rows", "projection"}, {"y"})},
                   .initializers = {external_bytes("table", {kRows, kWidth}, kFirst),
                                    external_bytes("projection", {kWidth, 2}, kEnd)},
                   .inputs = {value_bytes("ids", kInt64, {"N"})},
                   .outputs = {value_bytes("y", kFloat, {"N", 2})}}));
  {
    ModelSession session(load_model(path));
    const Tensor ids = tensor_of({DType::kI64, {3}}, {kRows - 1, 1, 0});
    const NamedTensors outputs = session.run({{"ids", ids}});
    EXPECT_EQ(elements_of(outputs.at("y")), (std::vector<double>{0, 6, 0, 0, 0, 15}));
    EXPECT_LT(session.model().state->bytes(), 1 << 20);  // what is packed of the projection
  }
  // One byte less is an error at the load.
  std::filesystem::resize_file(folder / "weights",
                               static_cast<uintmax_t>(kEnd + kWidth * 2 * 4 - 1));
  EXPECT_THAT(user_error([&] { load_model(path); }), HasSubstr("tensor 'projection' needs a file"));
}

}  // namespace
}  // namespace ridge::test
