#include "ridge/io/idx.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/errors.h"

namespace ridge {
namespace {

using test::user_error;

const std::filesystem::path kFolder = "tests/data/io";  // tools/make_io_fixtures.py

std::string error_of(std::string_view bytes) {
  return user_error([&] { parse_idx(as_bytes(bytes), "f.idx"); });
}

/// "00 00 08 01" and so on as bytes.
std::string octets(std::string_view hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 3)
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  return bytes;
}

TEST(Idx, EveryTypeIsRead) {
  for (DType dtype : {DType::kU8, DType::kI8, DType::kI16, DType::kI32, DType::kF32, DType::kF64}) {
    const Tensor tensor = read_idx(kFolder / fmt::format("{}.idx", name_of(dtype)));
    ASSERT_EQ(tensor.type(), (TensorType{dtype, {2, 1, 3}}));
    const double first = dtype == DType::kU8 ? 250 : -2;
    for (int i = 0; i < 6; ++i) EXPECT_EQ(tensor.at(i), first + i) << name_of(dtype);
  }
}

TEST(Idx, GzippedIsTheSame) {
  const Tensor plain = read_idx(kFolder / "i16.idx");
  EXPECT_TRUE(read_idx(kFolder / "i16.idx.gz").same_bits(plain));
}

TEST(Idx, ScalarAndVector) {
  EXPECT_EQ(parse_idx(as_bytes(octets("00 00 0b 00 ff fe")), "f").at(0), -2);
  EXPECT_EQ(to_string(parse_idx(as_bytes(octets("00 00 08 01 00 00 00 02 07 08")), "f").type()),
            "u8[2]");
}

TEST(Idx, WrongSizesAreOneClearLine) {
  EXPECT_EQ(error_of(octets("00 00 0b 01 00 00 00 02 00 01 00")),
            "f.idx: truncated: header says 12 bytes, file has 11");
  EXPECT_EQ(error_of(octets("00 00 08 01 00 00 00 02 00 01 00")),
            "f.idx: too long: header says 10 bytes, file has 11");
  EXPECT_EQ(error_of(octets("00 00 08 02 ff ff ff ff 00 00 ff ff 00")),
            "f.idx: truncated: header says 281470681677837 bytes, file has 13");
  EXPECT_EQ(error_of(octets("00 00 08 02 00 00 00 01 00 00")),
            "f.idx: truncated: file ends in the header of rank 2");
}

TEST(Idx, WrongHeaders) {
  EXPECT_NE(error_of("").find("not an IDX file"), std::string::npos);
  EXPECT_NE(error_of("PK\x03\x04").find("not an IDX file"), std::string::npos);
  EXPECT_EQ(error_of(octets("00 00 0a 01 00 00 00 01 00")),
            "f.idx: not an IDX file: unknown type 0x0a");
  EXPECT_NE(error_of(octets("00 00 08 01 00 00 00 00")).find("at least 1"), std::string::npos);
  EXPECT_NE(error_of(octets("00 00 08 ff") + std::string(1020, '\1')).find("too many dimensions"),
            std::string::npos);
  EXPECT_NE(error_of(octets("00 00 0e 02 ff ff ff ff ff ff ff ff 00")).find("too large"),
            std::string::npos);
}

TEST(Idx, TruncatedAndLongGzip) {
  const std::string whole = read_file(kFolder / "i16.idx.gz");
  for (size_t size = 2; size < whole.size(); ++size)
    EXPECT_NE(error_of(whole.substr(0, size)).find("truncated"), std::string::npos) << size;
  EXPECT_EQ(error_of(whole + read_file(kFolder / "u8.idx.gz")),
            "f.idx: too long: header says 28 bytes, file has 50");
}

TEST(Idx, FashionMnist) {
  const std::filesystem::path folder = "/usr/share/datasets/fashion-mnist";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "needs dataset-fashion-mnist";
  const Tensor images = read_idx(folder / "t10k-images-idx3-ubyte.gz");
  const Tensor labels = read_idx(folder / "t10k-labels-idx1-ubyte.gz");
  EXPECT_EQ(to_string(images.type()), "u8[10000,28,28]");
  ASSERT_EQ(to_string(labels.type()), "u8[10000]");
  int counts[10] = {};
  for (uint8_t label : labels.span<uint8_t>()) ++counts[label];
  for (int count : counts) EXPECT_EQ(count, 1000);
}

}  // namespace
}  // namespace ridge
