// `ridge predict` as users run it: files of each kind, and what is said of those that do not fit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "ridge/base/error.h"
#include "ridge/io/file.h"
#include "ridge/io/npy.h"
#include "ridge/io/png.h"
#include "tests/cli/run_words.h"
#include "tests/support/has.h"
#include "tests/support/temp_folder.h"

namespace ridge {
namespace {

using test::has;
using test::Outcome;
using test::run;

constexpr int kRows = 30;

// Rows of a table whose class follows from its numbers.
std::string table(const std::string& header) {
  std::string text = header + "\n";
  for (int i = 0; i < kRows; ++i) {
    const int kind = i % 3;
    std::string row = header;
    const auto put = [&](const std::string& column, const std::string& value) {
      if (const size_t at = row.find(column); at != row.npos) row.replace(at, column.size(), value);
    };
    put("length", fmt::format("{}", 100 * kind + i));
    put("width", fmt::format("{}.5", -kind * kind));
    put("kind", std::vector<std::string>{"cat", "dog", "\"emu, big\""}[static_cast<size_t>(kind)]);
    text += row + "\n";
  }
  return text;
}

// A model of two columns, trained once for all tests.
class Predict : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    shared_folder = new test::TempFolder;
    write("train.csv", table("length,width,kind"));
    write("model.toml",
          fmt::format("[model]\nkind = 'mlp'\nhidden = [16]\n[data]\nkind = 'table'\n"
                      "path = '{}'\ntarget = 'kind'\n[train]\nbatch = 10\nsteps = 120\nout = "
                      "'{}'\neval_every = 0\n[optimizer]\nlr = 0.02\n",
                      at("train.csv"),
                      at("run")));
    const Outcome trained = run({"train", at("model.toml")});
    ASSERT_EQ(trained.code, 0) << trained.err;
    write_npy(at("x.npy"), Tensor({DType::kF32, {7, 2}}));
  }
  static void TearDownTestSuite() {
    delete shared_folder;
    shared_folder = nullptr;
  }

  static std::string at(const std::string& name) { return (*shared_folder / name).string(); }
  static std::string write(const std::string& name, const std::string& text) {
    std::ofstream(at(name), std::ios::binary) << text;
    return at(name);
  }
  static Outcome predict(std::vector<std::string> words) {
    words.insert(words.begin(), "predict");
    return run(std::move(words));
  }
  // The output for a file, by any way to the model.
  static Tensor logits(const std::string& model,
                       const std::string& input,
                       std::vector<std::string> more = {}) {
    std::vector<std::string> words = {model, "--input", input, "--output", at("logits.npy")};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = predict(words);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return read_npy(at("logits.npy"));
  }

  inline static test::TempFolder* shared_folder = nullptr;
};

TEST_F(Predict, NamesTheClassesOfATable) {
  write("new.csv", table("width,length"));  // in another order, and nobody knows the class
  const Outcome outcome = predict({at("run"),
                                   "--input",
                                   "x=" + at("new.csv"),
                                   "--output",
                                   at("out.npz"),
                                   "--batch",
                                   "8",
                                   "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  const auto report = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(report["schema"], "ridge.predict/1");
  EXPECT_EQ(report["model"], "mlp");
  EXPECT_THAT(report["weights"].get<std::string>(), has("checkpoints/step-"));
  EXPECT_EQ(report["rows"], kRows);
  EXPECT_EQ(report["batches"], 4);
  EXPECT_EQ(report["inputs"], nlohmann::json::parse(R"([{"name": "x", "type": "f32[30,2]"}])"));
  EXPECT_EQ(report["outputs"][0]["type"], "f32[30,3]");
  EXPECT_EQ(report["outputs"][0]["file"], at("out.npz"));
  EXPECT_EQ(report["classes"], (std::vector<std::string>{"cat", "dog", "emu, big"}));
  ASSERT_EQ(report["argmax"].size(), static_cast<size_t>(kRows));
  const std::string bytes = read_file(at("out.npz"));
  const NpzView arrays(as_bytes(bytes), "out.npz");
  EXPECT_EQ(arrays.names(), std::vector<std::string>{"logits"});
  const Tensor logits = arrays.read("logits");
  for (int i = 0; i < kRows; ++i) {
    EXPECT_EQ(report["argmax"][static_cast<size_t>(i)], i % 3);
    for (int c = 0; c < 3; ++c) EXPECT_LE(logits.at(3 * i + c), logits.at(3 * i + i % 3));
  }
}

TEST_F(Predict, EachWayToTheModelAndTheOutputIsTheSame) {
  const Tensor wanted = logits(at("model.toml"), at("train.csv"));
  EXPECT_EQ(to_string(wanted.type()), "f32[30,3]");
  const std::string weights = at("run/model.safetensors");
  EXPECT_TRUE(logits(at("run"), "x=" + at("train.csv")).same_bits(wanted));
  EXPECT_TRUE(logits(at("model.toml"), at("train.csv"), {"--weights", weights}).same_bits(wanted));
  EXPECT_TRUE(logits(at("run/checkpoints/step-00000120"), at("train.csv")).same_bits(wanted));
  const Tensor plain = logits(at("run"), at("train.csv"), {"--device", "ref"});
  for (int64_t i = 0; i < wanted.elements(); ++i) EXPECT_NEAR(plain.at(i), wanted.at(i), 1e-3);
  // The training data are not asked for: the weights say what they were.
  EXPECT_TRUE(logits(at("run"), at("train.csv"), {"--set", "data.path=gone"}).same_bits(wanted));
  for (const int round : {1, 2}) {  // made, and then replaced
    const Outcome outcome =
        predict({at("run"), "--input", at("train.csv"), "--output", at("outputs")});
    EXPECT_EQ(outcome.code, 0) << round << outcome.err;
    EXPECT_THAT(outcome.out,
                has("mlp of ", "30 rows in ", "  logits  f32[30,3]  " + at("outputs")));
  }
  EXPECT_TRUE(read_npy(at("outputs/logits.npy")).same_bits(wanted));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(at("outputs")), {}), 1);
}

TEST_F(Predict, ArraysAreTakenAsTheyAre) {
  const Tensor one = logits(at("run"), at("x.npy"));
  EXPECT_EQ(to_string(one.type()), "f32[7,3]");
  write_npy(at("wide.npy"), Tensor({DType::kF64, {7, 2}}));
  EXPECT_TRUE(logits(at("run"), at("wide.npy"), {"--batch", "100"}).same_bits(one));
  const Outcome outcome =
      predict({at("run"), "--input", at("x.npy"), "--output", at("logits.npy")});
  EXPECT_EQ(outcome.err,
            fmt::format("note: '{}' is taken as it is; the model was trained on (value - mean) / "
                        "deviation\n",
                        at("x.npy")));
}

TEST_F(Predict, NamesThePicturesOfAFolder) {
  for (const std::string name : {"a/1.png", "a/2.png", "b/1.png"}) {
    std::filesystem::create_directories(
        std::filesystem::path(at("pictures/" + name)).parent_path());
    const auto bytes = encode_png(std::vector<uint8_t>(16 * 16 * 3, 100), {16, 16});
    write("pictures/" + name, std::string(as_text(bytes)));
  }
  const std::string model = write(
      "pictures.toml",
      fmt::format("[model]\nkind = 'cnn'\nwidths = [4]\n[data]\nkind = 'images'\npath = '{0}'\n"
                  "eval_path = '{0}'\nsize = 8\n[train]\nbatch = 3\nsteps = 1\nout = '{1}'\n",
                  at("pictures"),
                  at("pictures_run")));
  ASSERT_EQ(run({"train", model}).code, 0);
  const Outcome outcome = predict(
      {model, "--input", at("pictures"), "--output", at("pictures.npy"), "--batch", "2", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto report = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(report["inputs"][0]["type"], "f32[3,8,8,3]");
  EXPECT_EQ(report["inputs"][0]["files"],
            (std::vector<std::string>{
                at("pictures/a/1.png"), at("pictures/a/2.png"), at("pictures/b/1.png")}));
  EXPECT_EQ(report["classes"], (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(report["argmax"].size(), 3u);
  EXPECT_EQ(to_string(read_npy(at("pictures.npy")).type()), "f32[3,2]");
}

TEST_F(Predict, WhatDoesNotFitIsAnErrorOfOneLine) {
  write_npy(at("dims.npy"), Tensor({DType::kF32, {7, 3}}));
  write_npy(at("rank.npy"), Tensor({DType::kF32, {7}}));
  write_npy(at("dtype.npy"), Tensor({DType::kI64, {7, 2}}));
  Tensor nan({DType::kF32, {7, 2}});
  nan.set(9, std::nan(""));
  write_npy(at("nan.npy"), nan);
  const std::string x = read_file(at("x.npy"));
  write("short.npy", x.substr(0, x.size() - 1));
  write("short.npz", "PK");
  write("a.txt", "1,2\n");
  write("column.csv", table("length,kind"));
  write("word.csv", "length,width\n1,two\n");
  write("rows.csv", "length,width\n");
  write("empty.csv", "");
  std::filesystem::create_directory(at("folder.csv"));
  std::filesystem::create_symlink("/dev/full", at("full.npy"));
  const std::string out = at("never.npy"), long_name(300, 'n');
  struct Case {
    std::string input, output;
    std::vector<std::string> more, parts;
  };
  const Case cases[] = {
      {at("none.npy"), out, {}, {"cannot open", "none.npy", "No such file"}},
      {"y=" + at("x.npy"), out, {}, {"the model has no input 'y', only x f32[B,2]"}},
      {at("dims.npy"),
       out,
       {},
       {"dims.npy': input 'x' has another size in dimension 1", "f32[B,2]"}},
      {at("rank.npy"), out, {}, {"another number of dimensions; got f32[7], expected f32[B,2]"}},
      {at("dtype.npy"), out, {}, {"another dtype; got i64[7,2], expected f32[B,2]"}},
      {at("nan.npy"), out, {}, {"input 'x' is nan at [4,1]", "fill it in"}},
      {at("short.npy"), out, {}, {"short.npy: truncated"}},
      {at("short.npz"), out, {}, {"short.npz: not a ZIP archive"}},
      {at("a.txt"), out, {}, {"a.txt' has no columns 'length' and 'width'"}},
      {at("column.csv"), out, {}, {"has no column 'width'"}},
      {at("word.csv"), out, {}, {"'width' is no column of numbers", "'two' is not a number"}},
      {at("rows.csv"), out, {}, {"rows.csv' has no rows; give one at least"}},
      {at("empty.csv"), out, {}, {"empty.csv: no rows"}},
      {at("none.csv"), out, {}, {"cannot open", "none.csv", "No such file"}},
      {at("folder.csv"), out, {}, {"cannot read", "folder.csv", "Is a directory"}},
      {at("x.npy"), at("full.npy"), {}, {"cannot write", "No space left on device"}},
      {at("x.npy"), at(long_name + ".npy"), {}, {"cannot write", "name too long; give a shorter"}},
      {at("x.npy"), at(long_name), {}, {"cannot write", "name too long; give a shorter"}},
      {at(long_name + ".npy"), out, {}, {"cannot open", "File name too long"}},
      {at(long_name + ".csv"), out, {}, {"cannot open", "File name too long"}},
      {at(long_name), out, {}, {"File name too long"}},
      {at("x.npy"), out, {"--weights", at(long_name)}, {long_name}},
      {at("x.npy"), at("out.txt"), {}, {"Ridge writes no '.txt'", "FILE.npz or a folder"}},
      {at("x.npy"), at("a/b.npy"), {}, {"cannot write", "a/b.npy", "No such file"}},
      {at("x.npy"),
       at("train.csv/b.npy"),
       {},
       {"cannot write", "train.csv/b.npy': Not a directory"}},
      {at("x.npy"), at("train.csv/"), {}, {"train.csv' is a file of no known suffix"}},
      {at("x.npy"), "/proc/never.npy", {}, {"/proc/"}},
      {at("x.npy"), out, {"--batch", "0"}, {"--batch must be at least 1; got 0"}},
      {at("x.npy"), out, {"--device", "tpu"}, {"unknown device 'tpu'"}},
      {at("x.npy"), out, {"--weights", at("x.npy")}, {"x.npy: not a safetensors file"}},
      {at("x.npy"), out, {"--input", at("x.npy")}, {"input 'x' is given twice"}},
  };
  const std::vector<std::string> before = shared_folder->names();
  for (const Case& each : cases) {
    std::vector<std::string> words = {at("run"), "--input", each.input, "--output", each.output};
    words.insert(words.end(), each.more.begin(), each.more.end());
    const Outcome outcome = predict(words);
    SCOPED_TRACE(each.input + " " + each.output + "\n" + outcome.err);
    EXPECT_EQ(outcome.code, 2);
    EXPECT_EQ(outcome.out, "");
    EXPECT_TRUE(outcome.err.starts_with("error: "));
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1);
    for (const std::string& part : each.parts) EXPECT_THAT(outcome.err, has(part));
  }
  EXPECT_THAT(predict({at("none"), "--input", "x", "--output", "y"}).err,
              has("cannot open", "none", "No such file"));
  EXPECT_THAT(predict({at("run"), "--output", "y"}).err, has("--input is required"));
  EXPECT_EQ(shared_folder->names(), before);  // nothing was written
}

}  // namespace
}  // namespace ridge
