// Descriptions of data: their text back and forth, hostile texts, and data read as described.
#include "ridge/data/description.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <nlohmann/json.hpp>

#include "ridge/data/dataset.h"
#include "ridge/data/table_dataset.h"
#include "ridge/io/png.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/errors.h"

namespace ridge::data {
namespace {

using test::TemporaryFolder;
using test::user_error;
using testing::AllOf;
using testing::HasSubstr;

FieldType field(const char* name, DType dtype, std::vector<int64_t> shape) {
  return {.name = name, .dtype = dtype, .shape = std::move(shape)};
}

DataDescription small_table() {
  return {.kind = DataKind::kTable,
          .fields = {field("x", DType::kF32, {2}), field("y", DType::kI64, {})},
          .classes = 2,
          .class_names = {"cat", "dog \"\xc3\xa9\""},
          .columns = {"age", "length\n"},
          .target = "label",
          .mean = {0.1, -1e300},
          .deviation = {1.0 / 3, std::numeric_limits<double>::denorm_min()}};
}

std::vector<DataDescription> one_of_each() {
  DataDescription numbers = small_table();
  numbers.fields[1].dtype = DType::kF32;
  numbers.classes = 0;
  numbers.class_names.clear();
  return {small_table(),
          numbers,
          {.kind = DataKind::kIdx,
           .fields = {field("x", DType::kF32, {28, 28, 1}), field("y", DType::kI64, {})},
           .classes = 10,
           .mean = {0.286},
           .deviation = {0.353}},
          {.kind = DataKind::kImages,
           .fields = {field("x", DType::kF32, {16, 16, 3}), field("y", DType::kI64, {})},
           .classes = 1,
           .class_names = {"blue"},
           .mean = {0, 0, 0},
           .deviation = {1, 1, 1}},
          {.kind = DataKind::kText,
           .fields = {field("x", DType::kI64, {128}), field("y", DType::kI64, {128})},
           .classes = 256,
           .tokenizer = "bytes"},
          {.kind = DataKind::kRandom,
           .fields = {field("x", DType::kF32, {4, 5}), field("y", DType::kI64, {})},
           .classes = 3},
          {.kind = DataKind::kRandom,
           .fields = {field("x", DType::kI64, {8}), field("y", DType::kI64, {8})},
           .classes = 11}};
}

TEST(Description, ReadsBackAsItWas) {
  for (const DataDescription& description : one_of_each()) {
    const std::string text = print_description(description);
    EXPECT_EQ(parse_description(text, "test"), description) << text;
    EXPECT_EQ(nlohmann::json::parse(text).at("schema"), "ridge.data/1");
  }
}

// Each change of a good text, and a word of the refusal.
TEST(Description, RefusesWhatNoDataAre) {
  const auto refusal = [](size_t which, auto&& change) {
    auto json = nlohmann::json::parse(print_description(one_of_each()[which]));
    change(json);
    const std::string message = user_error([&] { parse_description(json.dump(), "here"); });
    EXPECT_THAT(message, HasSubstr("here")) << json;
    return message;
  };
  enum { kTable, kNumbers, kIdx, kImages, kText, kRandom, kTokens };
  using nlohmann::json;
  const auto set = [&](size_t which, const std::string& pointer, const json& value) {
    return refusal(which, [&](json& j) { j[json::json_pointer(pointer)] = value; });
  };
  const json whole = json::parse(print_description(small_table()));
  for (const auto& [key, value] : whole.items()) {
    EXPECT_THAT(refusal(kTable, [&](json& j) { j.erase(key); }), HasSubstr("is missing")) << key;
    EXPECT_THAT(set(kTable, "/" + key, nullptr), HasSubstr("expected")) << key;
  }
  EXPECT_THAT(set(kTable, "/schema", "ridge.data/2"), HasSubstr("the version of ridge"));
  EXPECT_THAT(set(kTable, "/kind", "tables"), HasSubstr("unknown kind of data 'tables'"));
  EXPECT_THAT(set(kTable, "/x/dtype", "u8"), HasSubstr("is not u8[2]"));
  EXPECT_THAT(set(kTable, "/x/dtype", "u9"), HasSubstr("unknown dtype 'u9'"));
  EXPECT_THAT(set(kTable, "/x/shape", json::array({1LL << 40, 1LL << 40})), HasSubstr("too large"));
  EXPECT_THAT(set(kTable, "/x/shape", json::array({-2})), HasSubstr("at least 1"));
  EXPECT_THAT(set(kTable, "/x/shape", json::array({2.0})), HasSubstr("expected an integer"));
  EXPECT_THAT(set(kTable, "/x/shape", json::array({2, 1})), HasSubstr("is not f32[2,1]"));
  EXPECT_THAT(set(kTable, "/x/shape", json::array({3})), HasSubstr("there are 2 columns"));
  EXPECT_THAT(set(kTable, "/y/shape", json::array({1})), HasSubstr("y of data of kind 'table'"));
  EXPECT_THAT(set(kTable, "/classes", 3), HasSubstr("3 classes have 2 names"));
  EXPECT_THAT(set(kTable, "/classes", -1), HasSubstr("have -1 classes"));
  EXPECT_THAT(set(kNumbers, "/classes", 2), HasSubstr("have 2 classes"));
  EXPECT_THAT(set(kTable, "/class_names", json::array({"a", "a"})),
              HasSubstr("two classes are called 'a'"));
  EXPECT_THAT(set(kTable, "/columns", json::array({"a", "a"})),
              HasSubstr("two columns are called 'a'"));
  EXPECT_THAT(set(kTable, "/columns", json::array({"a", ""})),
              HasSubstr("names of columns are text"));
  EXPECT_THAT(set(kTable, "/columns", json::array({"a"})), HasSubstr("there are 1 columns"));
  EXPECT_THAT(set(kTable, "/mean", json::array({0.0})), HasSubstr("1 numbers as mean"));
  EXPECT_THAT(set(kTable, "/deviation/0", 0), HasSubstr("deviation 0 is 0"));
  EXPECT_THAT(set(kTable, "/deviation/1", -1e-9), HasSubstr("deviation 1 is -1e-09"));
  EXPECT_THAT(set(kIdx, "/classes", 257), HasSubstr("have 257 classes"));
  EXPECT_THAT(set(kIdx, "/x/shape", json::array({28, 28, 3})), HasSubstr("is not f32[28,28,3]"));
  EXPECT_THAT(set(kIdx, "/deviation/0", 1e-40), HasSubstr("leave the range of f32"));
  EXPECT_THAT(set(kIdx, "/target", "label"), HasSubstr("no part of this kind"));
  EXPECT_THAT(set(kImages, "/mean/0", 1e39), HasSubstr("leave the range of f32"));
  EXPECT_THAT(set(kText, "/classes", 255), HasSubstr("vocabulary of bytes is not 255"));
  EXPECT_THAT(set(kText, "/tokenizer", "words"), HasSubstr("unknown tokenizer 'words'"));
  EXPECT_THAT(set(kText, "/x/dtype", "f32"), HasSubstr("is not f32[128]"));
  EXPECT_THAT(set(kImages, "/x/shape", json::array({8, 9, 3})),
              HasSubstr("f32[8,9,3]: both sides"));
  EXPECT_THAT(set(kImages, "/x/shape", json::array({5000, 5000, 3})),
              HasSubstr("1 to 4096 pixels"));
  EXPECT_THAT(set(kText, "/x/shape", json::array({1, 128})), HasSubstr("is not i64[1,128]"));
  EXPECT_THAT(set(kRandom, "/classes", 1LL << 31), HasSubstr("classes"));
  EXPECT_THAT(set(kRandom, "/tokenizer", "bytes"), HasSubstr("unknown tokenizer"));
  EXPECT_THAT(set(kTokens, "/y/shape", json::array({7})),
              HasSubstr("is not i64[7] where x is i64[8]"));
}

TEST(Description, SaysNothingThatWouldNotReadBack) {
  DataDescription description = small_table();
  description.mean[0] = std::numeric_limits<double>::infinity();
  EXPECT_THAT(user_error([&] { print_description(description); }), HasSubstr("mean 0 is inf"));
  description = small_table();
  description.columns[1] = "\xff";
  EXPECT_THAT(user_error([&] { print_description(description); }), HasSubstr("are text"));
  description.columns = {std::string(40 << 20, 'a'), "b"};
  EXPECT_THAT(user_error([&] { print_description(description); }), HasSubstr("at most 33554432"));
}

TEST(Description, OtherDataAreRefusedWithWhatToDo) {
  const std::vector<DataDescription> all = one_of_each();
  enum { kTable, kNumbers, kIdx, kImages, kText, kRandom, kTokens };
  const auto refusal = [](const DataDescription& trained, const DataDescription& found) {
    return user_error([&] { check_fits(trained, found); });
  };
  for (const DataDescription& each : all) EXPECT_EQ(refusal(each, each), "no error");
  EXPECT_THAT(refusal(all[kIdx], all[kTable]),
              AllOf(HasSubstr("kind 'idx', not 'table'"), HasSubstr("set data.kind to 'idx'")));
  EXPECT_THAT(refusal(all[kTable], all[kNumbers]), HasSubstr("set data.task to 'classify'"));
  EXPECT_THAT(refusal(all[kNumbers], all[kTable]), HasSubstr("set data.task to 'regress'"));
  DataDescription other = all[kTable];
  other.target = "kind";
  EXPECT_THAT(refusal(all[kTable], other),
              AllOf(HasSubstr("column 'label', not 'kind'"), HasSubstr("data.target to 'label'")));
  other = all[kImages];
  other.fields[0].shape = {8, 8, 3};
  EXPECT_THAT(refusal(all[kImages], other),
              AllOf(HasSubstr("f32[8,8,3], but the model was trained on f32[16,16,3]"),
                    HasSubstr("set data.size to 16")));
  other = all[kRandom];
  other.classes = 4;
  EXPECT_THAT(refusal(all[kRandom], other), HasSubstr("have 4 classes"));
  EXPECT_THAT(refusal(all[kRandom], all[kTokens]), HasSubstr("x is i64[8]"));
  other = all[kTokens];
  other.classes = 12;
  EXPECT_THAT(refusal(all[kTokens], other), HasSubstr("have 12 tokens"));
  // Tokens come in samples of any length.
  other = all[kText];
  other.fields[0].shape = other.fields[1].shape = {64};
  EXPECT_EQ(refusal(all[kText], other), "no error");
}

// ---- tables, read as described ----

struct Row {
  std::vector<float> x;
  int64_t y = -1;
  bool operator==(const Row&) const = default;
};

std::vector<Row> rows_of(const Dataset& dataset) {
  std::vector<Row> rows;
  const auto scratch = dataset.make_scratch(nullptr);
  for (int64_t i = 0; i < dataset.size(); ++i) {
    Row& row = rows.emplace_back();
    row.x.resize(static_cast<size_t>(dataset.fields()[0].elements()));
    const std::array<void*, 2> out{row.x.data(), &row.y};
    dataset.read(i, {}, out, *scratch);
  }
  return rows;
}

class Described : public testing::Test {
 protected:
  Described() {
    options_.kind = DataKind::kTable;
    options_.path = folder_.write("t.csv", "a,b,label\n1,10,cat\n3,30,dog\n8,20,cow\n");
    options_.eval_path = options_.path;
    trained_ = open_dataset(options_, Split::kTrain)->description();
  }

  // The rows of a file to evaluate on, which has no training data beside it.
  std::vector<Row> rows(const std::string& text, std::vector<std::string>* notes = nullptr) {
    DataOptions options = options_;
    options.path = folder_.path("gone.csv");
    options.eval_path = folder_.write("e.csv", text);
    const auto dataset = open_dataset(options, Split::kEval, &trained_);
    EXPECT_EQ(dataset->description(), trained_);
    if (notes != nullptr) *notes = dataset->notes();
    return rows_of(*dataset);
  }
  std::string refusal(const std::string& text) {
    return user_error([&] { rows(text); });
  }

  TemporaryFolder folder_;
  DataOptions options_;
  DataDescription trained_;
};

TEST_F(Described, ColumnsAndClassesAreFoundByName) {
  EXPECT_EQ(trained_.columns, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(trained_.class_names, (std::vector<std::string>{"cat", "cow", "dog"}));
  const std::vector<Row> wanted = rows("a,b,label\n3,30,dog\n8,,cat\n");
  EXPECT_EQ(wanted[0].y, 2);  // there is no cow in this file
  EXPECT_EQ(wanted[1].y, 0);
  EXPECT_EQ(wanted[1].x[1], 0);
  EXPECT_EQ(wanted[0], rows_of(*open_dataset(options_, Split::kTrain))[1]);
  std::vector<std::string> notes;
  EXPECT_EQ(rows("label,b,a\ndog,30,3\ncat,,8\n", &notes), wanted);
  EXPECT_TRUE(notes.empty());
  EXPECT_EQ(rows("name,b,label,a,id\nx,30,dog,3,7\ny,,cat,8,8\n", &notes), wanted);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_THAT(notes[0], HasSubstr("columns 'name' and 'id' are ignored"));
}

TEST_F(Described, WhatDoesNotFitIsOneError) {
  EXPECT_THAT(refusal("a,B,label\n3,30,dog\n"),
              AllOf(HasSubstr("e.csv' has no column 'b', which the model was trained on"),
                    HasSubstr("did you mean 'B'")));
  EXPECT_THAT(refusal("c,label\n3,dog\n"), HasSubstr("no columns 'a' and 'b'"));
  EXPECT_THAT(refusal("a,b,label\n3,30,emu\n"),
              AllOf(HasSubstr("row 1 is of class 'emu'"), HasSubstr("train on all classes")));
  EXPECT_THAT(refusal("a,b,label\n3,x,dog\n"), HasSubstr("'b' is no column of numbers"));
  EXPECT_THAT(refusal("a,b,label\n3,1e200,dog\n"), HasSubstr("row 1 has 1e+200 in column 'b'"));
  EXPECT_THAT(refusal("a,b,kind\n3,30,dog\n"), HasSubstr("no column 'label'"));
  options_.target = "kind";
  EXPECT_THAT(refusal("a,b,kind\n3,30,dog\n"), HasSubstr("set data.target to 'label'"));
  options_.target = "label";
  options_.task = TableTask::kRegress;
  EXPECT_THAT(refusal("a,b,label\n3,30,1\n"), HasSubstr("set data.task to 'classify'"));
  options_.kind = DataKind::kIdx;
  EXPECT_THAT(refusal(""), HasSubstr("set data.kind to 'table'"));
}

TEST_F(Described, InputsAloneNeedNoTarget) {
  const std::vector<Row> wanted = rows("a,b,label\n3,30,dog\n8,,cat\n");
  for (const char* text : {"b,a\n30,3\n,8\n", "b,label,a\n30,,3\n,,8\n", "b,a,c\n30,3,x\n,8,y\n"}) {
    std::vector<std::string> notes;
    const auto x = read_table_inputs(folder_.write("x.csv", text), trained_, notes);
    EXPECT_EQ(x, (std::vector<float>{wanted[0].x[0], wanted[0].x[1], wanted[1].x[0], 0}));
    EXPECT_EQ(notes.size(), std::string(text).starts_with("b,a,c") ? 1u : 0u);
  }
  std::vector<std::string> notes;
  const std::string part = folder_.write("x.csv", "a\n3\n");
  EXPECT_THAT(user_error([&] { read_table_inputs(part, trained_, notes); }),
              HasSubstr("has no column 'b'"));
}

TEST_F(Described, NamesThatAreNoUtf8AreReadAsSuch) {
  options_.path = folder_.write("t.csv", "\xe4,b,label\n1,10,\xfc\n3,30,dog\n");
  trained_ = open_dataset(options_, Split::kTrain)->description();
  EXPECT_EQ(parse_description(print_description(trained_), "test"), trained_);
  EXPECT_EQ(rows("b,\xe4,label\n30,3,dog\n10,1,\xfc\n"),
            rows("\xe4,b,label\n3,30,dog\n1,10,\xfc\n"));
}

TEST_F(Described, NumbersBeyondAnyMeanAreRefused) {
  options_.path = folder_.write("t.csv", "a,label\n1e300,cat\n-1e300,dog\n");
  EXPECT_THAT(user_error([&] { open_dataset(options_, Split::kTrain); }),
              HasSubstr("column 'a' are too large to standardise"));
}

// ---- pictures ----

void write_pictures(const TemporaryFolder& folder, const std::string& name) {
  const std::vector<uint8_t> pixels(8 * 8 * 3, 51);
  for (const char* file : {"/1.png", "/2.png"})
    folder.write(name + file, encode_png(pixels, {8, 8}));
}

TEST(DescribedPictures, ClassesByNameAndNormalizationOfTheTraining) {
  const TemporaryFolder training, evaluated;
  for (const char* name : {"ape", "bee", "cat"}) write_pictures(training, name);
  for (const char* name : {"bee", "cat"}) write_pictures(evaluated, name);
  DataOptions options{.kind = DataKind::kImages, .path = training.path(), .size = 8};
  options.mean = {0.2, 0, 0};
  const DataDescription trained = open_dataset(options, Split::kTrain)->description();
  options.path = evaluated.path();
  options.eval_path = evaluated.path();
  options.mean.clear();
  const auto dataset = open_dataset(options, Split::kEval, &trained);
  const std::vector<Row> rows = rows_of(*dataset);
  EXPECT_EQ(rows[0].y, 1);
  EXPECT_EQ(rows[3].y, 2);
  EXPECT_NEAR(rows[0].x[0], 0, 1e-6);
  EXPECT_NEAR(rows[0].x[1], 0.2, 1e-6);
  ASSERT_EQ(dataset->notes().size(), 1u);
  EXPECT_THAT(dataset->notes()[0], HasSubstr("normalised as in training, by mean [0.2, 0, 0]"));
  write_pictures(evaluated, "dog");
  EXPECT_THAT(user_error([&] { open_dataset(options, Split::kEval, &trained); }),
              HasSubstr("holds class 'dog', which the training data has not"));
  options.eval_path = training.path();
  options.size = 16;
  EXPECT_THAT(user_error([&] { open_dataset(options, Split::kEval, &trained); }),
              HasSubstr("set data.size to 8"));
}

}  // namespace
}  // namespace ridge::data
