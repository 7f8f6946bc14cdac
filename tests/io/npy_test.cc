#include "ridge/io/npy.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/support/errors.h"
#include "tests/support/temp_folder.h"

namespace ridge {
namespace {

using test::user_error;
namespace fs = std::filesystem;

const fs::path kFolder = "tests/data/io/npy";  // tools/make_io_fixtures.py

/// A version 1 file with that header.
std::string file_of(const std::string& header, const std::string& data) {
  std::string file = "\x93NUMPY\x01";
  file += '\0';
  file += static_cast<char>(header.size() & 0xff);
  file += static_cast<char>(header.size() >> 8);
  return file + header + data;
}

std::string error_of(const std::string& file) {
  return user_error([&] { parse_npy(as_bytes(file), "f.npy"); });
}

TEST(Npy, EveryFormThatNumpyWrites) {
  const std::map<std::string, DType> dtypes = {{"b1", DType::kBool},
                                               {"i1", DType::kI8},
                                               {"u1", DType::kU8},
                                               {"i2", DType::kI16},
                                               {"u2", DType::kU16},
                                               {"i4", DType::kI32},
                                               {"u4", DType::kI64},
                                               {"i8", DType::kI64},
                                               {"u8", DType::kI64},
                                               {"f2", DType::kF16},
                                               {"f4", DType::kF32},
                                               {"f8", DType::kF64}};
  int read = 0;
  for (const auto& entry : fs::directory_iterator(kFolder)) {
    const std::string name = entry.path().stem().string(), code = name.substr(0, 2);
    const auto found = dtypes.find(code);
    if (found == dtypes.end()) continue;
    ++read;
    const Tensor tensor = read_npy(entry.path());
    ASSERT_EQ(tensor.type(), (TensorType{found->second, {2, 3, 4}})) << name;
    const int first = code[0] == 'u' ? 0 : -2;
    for (int i = 0; i < 24; ++i)
      EXPECT_EQ(tensor.at(i), code == "b1" ? i % 2 : i + first) << name << " " << i;
  }
  EXPECT_EQ(read, 12 + 9 + 4);
}

// Byte for byte.
TEST(Npy, WritesWhatNumpyWrites) {
  const test::TempFolder folder;
  int written = 0;
  for (const auto& entry : fs::directory_iterator(kFolder)) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with("_little.npy") || name.starts_with("u4") || name.starts_with("u8"))
      continue;
    ++written;
    write_npy(folder / "x.npy", read_npy(entry.path()));
    EXPECT_EQ(read_file(folder / "x.npy"), read_file(entry.path())) << name;
  }
  EXPECT_EQ(written, 10);
  write_npy(folder / "x.npy", read_npy(kFolder / "scalar.npy"));
  EXPECT_EQ(read_file(folder / "x.npy"), read_file(kFolder / "scalar.npy"));
}

TEST(Npy, WritesShapesAndDtypesOfAnyKind) {
  const test::TempFolder folder;
  for (const Shape& shape : {Shape{}, Shape{5}, Shape{1, 7}, Shape(8, 2)})
    for (const DType dtype : kAllDTypes) {
      Tensor tensor({dtype, shape});
      for (int64_t i = 0; i < tensor.elements(); ++i)
        tensor.set(
            i, dtype == DType::kBool ? static_cast<double>(i % 2) : static_cast<double>(i % 100));
      write_npy(folder / "x.npy", tensor);
      const Tensor read = read_npy(folder / "x.npy");
      if (dtype != DType::kBF16) {
        EXPECT_TRUE(read.same_bits(tensor)) << to_string(tensor.type());
        continue;
      }
      ASSERT_EQ(read.type(), (TensorType{DType::kF32, shape}));
      for (int64_t i = 0; i < tensor.elements(); ++i) EXPECT_EQ(read.at(i), tensor.at(i));
    }
  EXPECT_EQ(folder.names(), std::vector<std::string>{"x.npy"});
}

TEST(Npy, ScalarsAndVectors) {
  const Tensor scalar = read_npy(kFolder / "scalar.npy");
  EXPECT_EQ(to_string(scalar.type()), "f32[]");
  EXPECT_EQ(scalar.at(0), 1.5);
  const std::string header = "{\"shape\": (2L,), 'fortran_order': True ,'descr':'|u1'}\n";
  EXPECT_EQ(parse_npy(as_bytes(file_of(header, "\x01\xff")), "f").at(1), 255);
}

TEST(Npy, WhatRidgeHasNot) {
  EXPECT_NE(user_error([] { read_npy(kFolder / "complex.npy"); }).find("NPY dtype '<c8' is not"),
            std::string::npos);
  EXPECT_NE(user_error([] { read_npy(kFolder / "empty.npy"); }).find("at least 1"),
            std::string::npos);
  const auto with = [](std::string_view descr) {
    return fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': (1,)}}", descr);
  };
  for (const char* descr : {"", "f4", "<f44", "<O8", "<U3", "<f1", "?f4", "<V2", "<i3"})
    EXPECT_NE(error_of(file_of(with(descr), "12345678")).find("is not one that Ridge has"),
              std::string::npos)
        << descr;
  EXPECT_EQ(error_of(file_of(with("<u8"), "\xff\xff\xff\xff\xff\xff\xff\xff")),
            "f.npy: element 0 is 18446744073709551615, beyond i64");
  EXPECT_EQ(error_of(file_of(with("|b1"), "\x02")),
            "f.npy: element 0 is the byte 2, and a bool is 0 or 1");
}

TEST(Npy, EveryTruncationIsRefused) {
  for (const char* name : {"i2_fortran_big.npy", "f8_version3.npy"}) {
    const std::string whole = read_file(kFolder / name);
    for (size_t size = 0; size < whole.size(); ++size) {
      const std::string error = error_of(whole.substr(0, size));
      EXPECT_NE(error.find(size < 8 ? "not an NPY file" : "truncated"), std::string::npos) << size;
    }
    EXPECT_EQ(
        error_of(whole + "x"),
        fmt::format(
            "f.npy: too long: header says {} bytes, file has {}", whole.size(), whole.size() + 1));
  }
}

TEST(Npy, WrongHeaders) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "byte 0: expected '{'"},
      {"{}", "expected descr, fortran_order and shape"},
      {"{'descr': '<f4', 'fortran_order': False}", "expected descr, fortran_order and shape"},
      {"{'descr': '<f4', 'descr': '<f4'}", "expected descr once"},
      {"{'name': 1}", "expected descr, fortran_order or shape"},
      {"{'descr' '<f4'}", "expected ':'"},
      {"{'descr': '<f4' 'shape': ()}", "expected '}'"},
      {"{'descr': [('a', '<f4')]}", "expected a string"},
      {"{'descr': '<f4", "expected the end of a string"},
      {"{'descr': '<\\x664'}", "expected a string without escapes"},
      {"{'fortran_order': 1}", "expected True or False"},
      {"{'shape': [1]}", "expected '('"},
      {"{'shape': (1", "expected ')'"},
      {"{'shape': (1.5,)}", "expected ')'"},
      {"{'shape': (99999999999999999999,)}", "expected a size"},
      {"{'shape': (1,1,1,1,1,1,1,1,1)}", "at most 8 dimensions"},
      {"{'shape': (), 'fortran_order': False, 'descr': '<f4'} x", "expected the end of the header"},
      {"{'shape': (-1,), 'fortran_order': False, 'descr': '<f4'}", "at least 1"},
      {"{'shape': (4294967296, 4294967296), 'fortran_order': False, 'descr': '<f4'}", "too large"}};
  for (const auto& [header, message] : cases)
    EXPECT_NE(error_of(file_of(header, "1234")).find(message), std::string::npos)
        << header << "\n"
        << error_of(file_of(header, "1234"));
  std::string version = file_of("{}", "");
  version[6] = 4;
  EXPECT_EQ(error_of(version), "f.npy: unknown version 4 of NPY");
}

}  // namespace
}  // namespace ridge
