#include "ridge/io/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/case_builder.h"
#include "tests/support/errors.h"
#include "tests/support/scale.h"
#include "tests/support/temp_folder.h"

namespace ridge {
namespace {

using test::user_error;

constexpr const char* kGolden = "tests/data/io/all.safetensors";  // tools/make_io_fixtures.py

/// A file with that header and `data_bytes` zeros.
std::string file_of(std::string_view header, size_t data_bytes) {
  std::string file(8, '\0');
  const uint64_t length = header.size();
  std::memcpy(file.data(), &length, 8);
  return file + std::string(header) + std::string(data_bytes, '\0');
}

std::string error_of(const std::string& file) {
  return user_error([&] { SafetensorsView view(as_bytes(file), "f"); });
}

std::string written(std::span<const TensorView> tensors, const TextMap& metadata = {}) {
  std::string file;
  write_safetensors([&](Bytes bytes) { file += as_text(bytes); }, tensors, metadata);
  return file;
}

TEST(Safetensors, ReadsTheFileOfAnotherWriter) {
  const SafetensorsFile file(kGolden);
  EXPECT_EQ(file->metadata(), (TextMap{{"format", "pt"}, {"note", "\xc3\xa9 \" \\"}}));
  ASSERT_EQ(file->tensors().size(), 12u);
  for (DType dtype : kAllDTypes) {
    const Tensor tensor = file->read(name_of(dtype));
    ASSERT_EQ(tensor.type(), (TensorType{dtype, {2, 3}}));
    const int first = dtype == DType::kU16 || dtype == DType::kU8 ? 0 : -2;
    for (int i = 0; i < 6; ++i)
      EXPECT_EQ(tensor.at(i), dtype == DType::kBool ? i != 2 : i + first) << name_of(dtype) << i;
  }
  const Tensor scalar = file->read("t");
  EXPECT_EQ(to_string(scalar.type()), "f32[]");
  EXPECT_EQ(scalar.at(0), 1.5);
}

// Adds spaces to the header of a file, so that its data begin at a multiple of 64 bytes.
std::string padded(const std::string& file) {
  uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  std::string text = file.substr(8, length);
  while ((8 + text.size()) % 64 != 0) text += ' ';
  const uint64_t longer = text.size();
  std::string start(8, '\0');
  std::memcpy(start.data(), &longer, 8);
  return start + text + file.substr(8 + length);
}

// The alignment of the data, 64 bytes here and 8 there, is the only difference.
TEST(Safetensors, WritesTheSameBytesAsAnotherWriter) {
  const std::string golden = padded(read_file(kGolden));
  const SafetensorsView view(as_bytes(golden), "golden");
  std::vector<TensorView> tensors(view.tensors().rbegin(), view.tensors().rend());
  EXPECT_EQ(written(tensors, view.metadata()), golden);
}

TEST(Safetensors, RoundTripOfRandomTensors) {
  const test::TempFolder folder;
  for (int seed = 0; seed < test::cases(20); ++seed) {
    test::Random random(static_cast<uint64_t>(seed));
    std::vector<Tensor> tensors;
    std::vector<TensorView> views;
    for (int64_t i = random.integer(0, 6); i > 0; --i) {
      TensorType type{kAllDTypes[random.integer(0, 10)], {}};
      for (int64_t rank = random.integer(0, 4); rank > 0; --rank)
        type.shape.push_back(random.integer(1, 9));
      Tensor tensor(type);
      for (int64_t e = 0; e < tensor.elements(); ++e) tensor.set(e, random.uniform(-99, 99));
      tensors.push_back(std::move(tensor));
    }
    for (const Tensor& tensor : tensors)
      views.push_back({"n." + std::to_string(views.size()), tensor.type(), tensor.data()});
    save_safetensors(folder / "f", views);
    const SafetensorsFile file(folder / "f");
    ASSERT_EQ(file->tensors().size(), tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i) {
      EXPECT_TRUE(file->read(views[i].name).same_bits(tensors[i]));
      const auto address = reinterpret_cast<uintptr_t>(file->tensor(views[i].name).data);
      EXPECT_EQ(address % size_of(tensors[i].type().dtype), 0u);
    }
  }
}

TEST(Safetensors, EveryTruncationIsRefused) {
  const std::string golden = read_file(kGolden);
  for (size_t size = 0; size < golden.size(); ++size)
    EXPECT_NE(error_of(golden.substr(0, size)).find("truncated"), std::string::npos) << size;
  EXPECT_EQ(error_of(golden + "x"), "f: 1 bytes after the last tensor");
}

TEST(Safetensors, WrongHeaders) {
  const std::pair<const char*, const char*> cases[] = {
      {R"([])", "no '{' at byte 8"},
      {R"({"a")", "not valid JSON"},
      {R"({"a":1})", "'a': expected an object"},
      {R"({"a":{"dtype":"F32","shape":[1]}})", "expected dtype, shape, data_offsets"},
      {R"({"a":{"dtype":"F32","shape":[1],"offsets":[0,4]}})", "'data_offsets' is missing"},
      {R"({"a":{"dtype":"C64","shape":[1],"data_offsets":[0,8]}})", "dtype 'C64' is not one"},
      {R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})", "at least 1"},
      {R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", "at least 1"},
      {R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", "expected an integer"},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387905,4],"data_offsets":[0,16]}})",
       "too large"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", "f32[2] needs 8 bytes"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,4]}})", "two integers"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", "wrong offsets"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}})", "wrong offsets"},
      {R"({"a":{"dtype":"F32","shape":[9],"data_offsets":[0,36]}})", "truncated"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "4 bytes after the last"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", "gap before it"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},
           "b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       "'b' overlaps"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
           "a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       "key 'a' appears twice"},
      {R"({"__metadata__":{"k":1}})", "expected a string"},
      {R"({"__metadata__":"k"})", "expected an object"}};
  for (const auto& [header, message] : cases)
    EXPECT_NE(error_of(file_of(header, 8)).find(message), std::string::npos)
        << header << "\n"
        << error_of(file_of(header, 8));
  EXPECT_EQ(error_of(file_of(R"({})", 0)), "no error");
}

TEST(Safetensors, HeaderLengthIsChecked) {
  std::string file = file_of("{}", 0);
  std::memset(file.data(), 0xff, 8);
  EXPECT_NE(error_of(file).find("not a safetensors file"), std::string::npos);
  const uint64_t beyond = 3;
  std::memcpy(file.data(), &beyond, 8);
  EXPECT_EQ(error_of(file), "f: truncated: its header says 11 bytes, file has 10");
}

TEST(Safetensors, ReadingTheWrongThing) {
  const SafetensorsFile file(kGolden);
  EXPECT_NE(user_error([&] { file->read("bf61"); }).find("did you mean 'bf16'"), std::string::npos);
  float data[6];
  EXPECT_NE(user_error([&] {
              file->read_into("f32", {DType::kF32, {3, 2}}, data);
            }).find("tensor 'f32' is f32[2,3], expected f32[3,2]"),
            std::string::npos);
  file->read_into("f32", {DType::kF32, {2, 3}}, data);
  EXPECT_EQ(data[5], 3.0f);
  std::string bad = file_of(R"({"a":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}})", 2);
  bad.back() = 2;
  EXPECT_EQ(user_error([&] { SafetensorsView(as_bytes(bad), "f").read("a"); }),
            "f: tensor 'a': element 1 is the byte 2, and a bool is 0 or 1");
}

TEST(Safetensors, WriterRefusesBadNames) {
  const float one = 1;
  const TensorType type{DType::kF32, {}};
  const auto error = [&](std::vector<TensorView> tensors, const TextMap& metadata = {}) {
    return user_error([&] { written(tensors, metadata); });
  };
  EXPECT_NE(error({{"a", type, &one}, {"a", type, &one}}).find("two tensors are called 'a'"),
            std::string::npos);
  EXPECT_NE(error({{"__metadata__", type, &one}}).find("may not be called"), std::string::npos);
  EXPECT_NE(error({{"\xff", type, &one}}).find("not UTF-8"), std::string::npos);
  EXPECT_NE(error({}, {{"k", "\xff"}}).find("not UTF-8"), std::string::npos);
  EXPECT_NE(error({{"a", {DType::kF32, {0}}, &one}}).find("at least 1"), std::string::npos);
}

TEST(Safetensors, FailedSaveLeavesTheOldFile) {
  const test::TempFolder folder;
  const float one = 1;
  const TensorView good{"a", {DType::kF32, {}}, &one};
  const TensorView bad{"__metadata__", {DType::kF32, {}}, &one};
  save_safetensors(folder / "f", std::span(&good, 1));
  EXPECT_NE(user_error([&] { save_safetensors(folder / "f", std::span(&bad, 1)); }), "no error");
  EXPECT_EQ(SafetensorsFile(folder / "f")->read("a").at(0), 1.0);
  EXPECT_EQ(folder.names(), std::vector<std::string>{"f"});
}

}  // namespace
}  // namespace ridge
