// Initializers of 2 and 4 bits, which files have packed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/import/model_bytes.h"
#include "tests/import/run_model.h"
#include "tests/support/errors.h"
#include "tests/support/temp_folder.h"

namespace ridge::test {
namespace {

using testing::HasSubstr;

constexpr int kUint4 = 21, kInt4 = 22, kUint2 = 25, kInt2 = 26;
constexpr int64_t kOpset = 25;

// y = (w - z) * 0.5, with the initializer w of `shape` and, where it has bytes, a zero point.
std::string dequantizing(const ProtoBytes& w, int type, const std::vector<uint8_t>& zero = {}) {
  GraphParts parts{.nodes = {node_bytes("DequantizeLinear", {"w", "s"}, {"y"})},
                   .initializers = {w, floats_bytes("s", {}, {0.5f})},
                   .inputs = {},
                   .outputs = {value_bytes("y", kFloat, {3})}};
  if (!zero.empty()) {
    parts.nodes = {node_bytes("DequantizeLinear", {"w", "s", "z"}, {"y"})};
    parts.initializers.push_back(tensor_bytes("z", type, {}, zero));
  }
  return model_bytes(parts, kOpset);
}

std::vector<double> dequantized(const std::string& model) {
  return elements_of(run_model(model_of(model), {}).at("y"));
}

std::string import_error(const std::string& bytes) {
  return user_error([&] { model_of(bytes).import(); });
}

TEST(PackedElements, TheFirstHasTheLowestBits) {
  const std::vector<uint8_t> bytes{0x8f, 0x07};
  const auto of = [&](int type, const std::vector<uint8_t>& zero = {}) {
    return dequantized(dequantizing(tensor_bytes("w", type, {3}, bytes), type, zero));
  };
  EXPECT_EQ(of(kUint4), (std::vector{7.5, 4.0, 3.5}));
  EXPECT_EQ(of(kInt4), (std::vector{-0.5, -4.0, 3.5}));
  EXPECT_EQ(of(kUint4, {0x0f}), (std::vector{0.0, -3.5, -4.0}));
  EXPECT_EQ(of(kInt4, {0x0f}), (std::vector{0.0, -3.5, 4.0}));
  const std::vector<uint8_t> pairs{0x1e};
  const auto of_pairs = [&](int type) {
    return dequantized(dequantizing(tensor_bytes("w", type, {3}, pairs), type));
  };
  EXPECT_EQ(of_pairs(kUint2), (std::vector{1.0, 1.5, 0.5}));
  EXPECT_EQ(of_pairs(kInt2), (std::vector{-1.0, -0.5, 0.5}));
}

TEST(PackedElements, ListsHaveABytePerNumber) {
  ProtoBytes tensor;
  tensor.number(1, 3).number(2, kInt4).text(8, "w").number(5, 0x8f).number(5, 0x07);
  EXPECT_EQ(dequantized(dequantizing(tensor, kInt4)), (std::vector{-0.5, -4.0, 3.5}));
  ProtoBytes wide;
  wide.number(1, 3).number(2, kInt4).text(8, "w").number(5, 0x8f).number(5, 0x107);
  EXPECT_THAT(import_error(dequantizing(wide, kInt4)),
              HasSubstr("tensor 'w': 263 is not a byte of packed elements"));
}

TEST(PackedElements, SizesHaveToFit) {
  for (const size_t size : {1, 3})
    EXPECT_THAT(import_error(dequantizing(
                    tensor_bytes("w", kUint4, {3}, std::vector<uint8_t>(size)), kUint4)),
                HasSubstr("of 4 bits have 2"));
}

TEST(PackedElements, LieInFilesOfTheFolder) {
  const TempFolder folder;
  std::ofstream(folder / "weights", std::ios::binary) << std::string("\x55\x8f\x07\x55", 4);
  const auto model = [&](bool has_length) {
    ProtoBytes tensor;
    tensor.number(1, 3).number(2, kInt4).text(8, "w").number(14, 1);
    tensor.message(13, ProtoBytes().text(1, "location").text(2, "weights"));
    tensor.message(13, ProtoBytes().text(1, "offset").text(2, "1"));
    if (has_length) tensor.message(13, ProtoBytes().text(1, "length").text(2, "2"));
    std::ofstream(folder / "model.onnx", std::ios::binary) << dequantizing(tensor, kInt4);
    return elements_of(run_model(OnnxModel(folder / "model.onnx"), {}).at("y"));
  };
  for (const bool has_length : {false, true})
    EXPECT_EQ(model(has_length), (std::vector{-0.5, -4.0, 3.5}));
}

// Ridge would round to eight bits, and nobody could tell.
TEST(PackedElements, NothingIsRoundedToThem) {
  const std::vector<ProtoBytes> zeros{tensor_bytes("z", kInt4, {}, std::vector<uint8_t>{0x01}),
                                      tensor_bytes("z", kInt4, {1}, std::vector<uint8_t>{0x01})};
  for (const ProtoBytes& zero : zeros)
    EXPECT_THAT(
        import_error(model_bytes({.nodes = {node_bytes("Reshape", {"z", "none"}, {"r"}),
                                            node_bytes("QuantizeLinear", {"x", "s", "r"}, {"y"})},
                                  .initializers = {zero,
                                                   floats_bytes("s", {}, {0.5f}),
                                                   tensor_bytes<int64_t>("none", kInt64, {0}, {})},
                                  .inputs = {value_bytes("x", kFloat, {3})},
                                  .outputs = {value_bytes("y", kInt4, {3})}},
                                 kOpset)),
        HasSubstr("its result has fewer than 8 bits"));
}

}  // namespace
}  // namespace ridge::test
