// `ridge quantize MODEL.onnx`: the commands of its page, what it writes and says, and wrong usage.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "ridge/infer/model_session.h"
#include "ridge/io/file.h"
#include "ridge/io/npy.h"
#include "tests/cli/run_words.h"
#include "tests/compress/small_models.h"
#include "tests/support/temp_folder.h"

namespace ridge::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class QuantizeVerb : public testing::Test {
 protected:
  static constexpr int64_t kRows = 160;

  QuantizeVerb() {
    model_ = path("model.onnx");
    write_file_atomically(model_, model_bytes(mlp_parts()));
    // Rows of x, and the class that the model itself gives each.
    const compress::QuantizeData data = normal_data({1, 16}, kRows);
    NamedTensors arrays;
    Tensor x({DType::kF32, {kRows, 16}});
    for (size_t i = 0; i < size_t{kRows}; ++i)
      for (int64_t k = 0; k < 16; ++k)
        x.set(static_cast<int64_t>(i) * 16 + k, data.samples.samples[i].at("x").at(k));
    arrays.emplace("x", std::move(x));
    ModelSession session(load_model(model_));
    const Tensor y = session.run(arrays).at("y");
    Tensor labels({DType::kI64, {kRows}});
    for (int64_t i = 0; i < kRows; ++i) {
      int64_t best = 0;
      for (int64_t k = 1; k < 4; ++k)
        if (y.at(i * 4 + k) > y.at(i * 4 + best)) best = k;
      labels.set(i, static_cast<double>(best));
    }
    arrays.emplace("labels", std::move(labels));
    write_npz(path("samples.npz"), arrays);
  }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  Outcome quantize(std::vector<std::string> more) const {
    more.insert(more.begin(), {"quantize", model_, "--gain", "flops"});
    return run(more);
  }
  nlohmann::json report(std::vector<std::string> more) const {
    more.insert(more.end(), {"--data", path("samples.npz"), "-o", path("q.onnx"), "--json"});
    const Outcome outcome = quantize(more);
    EXPECT_EQ(outcome.err, "");
    return nlohmann::json::parse(outcome.out);
  }
  static std::string error(const Outcome& outcome) {
    EXPECT_EQ(outcome.code, 2) << outcome.out;
    return outcome.err;
  }

  TempFolder folder_;
  std::string model_;
};

TEST_F(QuantizeVerb, TheCommandsOfItsPageRun) {
  std::istringstream page(read_file("docs/quantization.md"));
  int commands = 0;
  for (std::string line; std::getline(page, line);) {
    const std::string prompt = "    $ build/release/ridge ";
    if (!line.starts_with(prompt)) continue;
    std::istringstream text(line.substr(prompt.size()));
    std::vector<std::string> words;
    for (std::string word; text >> word;)
      words.push_back(std::regex_search(word, std::regex("\\.(onnx|np[yz])$")) ? path(word) : word);
    // How fast a site is here plays no part.
    if (words.at(0) == "quantize") words.insert(words.end(), {"--gain", "flops"});
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.code, 0) << line << "\n" << outcome.out << outcome.err;
    ++commands;
  }
  EXPECT_EQ(commands, 5);
}

TEST_F(QuantizeVerb, WritesAModelAndSaysWhatItCosts) {
  const auto json = report({});
  EXPECT_EQ(json["schema"], "ridge.quantize/1");
  EXPECT_EQ(json["method"], "static");
  EXPECT_EQ(json["samples"]["calibrated"], 80);
  EXPECT_EQ(json["samples"]["chosen_by"], 40);
  EXPECT_EQ(json["samples"]["held_out"], 40);
  EXPECT_EQ(json["quantized"], 3);
  EXPECT_TRUE(json["statement"]["passed"]);
  EXPECT_EQ(json["statement"]["measure"], "error power");
  EXPECT_GT(json["statement"]["drop_percent"], 0);
  EXPECT_EQ(json["bytes"], std::filesystem::file_size(path("q.onnx")));
  ASSERT_EQ(json["tried"].size(), 4u);
  const auto least = std::min_element(
      json["tried"].begin(), json["tried"].end(), [](const auto& a, const auto& b) {
        return a["error_power"].template get<double>() < b["error_power"].template get<double>();
      });
  EXPECT_EQ((*least)["ranges"], json["ranges"]);
  EXPECT_EQ((*least)["corrects_bias"], json["corrects_bias"]);
  for (const auto& site : json["sites"]) {
    EXPECT_TRUE(site["quantized"]);
    EXPECT_GT(site["error_power"], 0);
    EXPECT_GT(site["flops"], 0);
  }
  const Outcome text = quantize({"--data", path("samples.npz"), "-o", path("q.onnx")});
  EXPECT_EQ(text.code, 0);
  EXPECT_THAT(text.out,
              AllOf(HasSubstr("80 of your 160 samples for calibration, 40 for the choice"),
                    HasSubstr("on 40 held-out samples: output 'y' is off by"),
                    HasSubstr(" % with all sites in bytes, ranges by minmax\n"),
                    HasSubstr("(limit 1 %): within the limit")));
  const auto asked = report({"--ranges", "mse", "--no-correct-bias"});
  EXPECT_EQ(asked["ranges"], "mse");
  EXPECT_FALSE(asked["corrects_bias"]);
  EXPECT_TRUE(asked["tried"].empty());
}

// Which sites are faster in bytes is the machine's matter: what is told follows from it.
TEST_F(QuantizeVerb, TimesDecideWhereNothingElseIsAsked) {
  const Outcome outcome =
      run({"quantize", model_, "--data", path("samples.npz"), "-o", path("q.onnx"), "--json"});
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["gain"], "time");
  EXPECT_GT(json["seconds_as_it_is"], 0);
  int quantized = 0;
  for (const auto& site : json["sites"]) {
    quantized += site["quantized"].get<bool>() ? 1 : 0;
    if (site["quantized"]) {
      EXPECT_LT(site["seconds"], site["seconds_as_it_is"]);
    } else {
      EXPECT_FALSE(site["reason"].get<std::string>().empty());
    }
  }
  EXPECT_EQ(json["quantized"], quantized);
  EXPECT_EQ(outcome.code, json["statement"]["passed"] ? 0 : 1);
  EXPECT_EQ(std::filesystem::exists(path("q.onnx")), outcome.code == 0);
}

TEST_F(QuantizeVerb, LabelsGiveAccuracies) {
  const auto json = report({"--eval", "--max-drop", "10"});
  EXPECT_EQ(json["statement"]["measure"], "top-1");
  EXPECT_EQ(json["statement"]["before"]["accuracy"], 1.0);
  EXPECT_GE(json["statement"]["after"]["accuracy"], 0.9);
}

TEST_F(QuantizeVerb, WritesNothingBeyondTheLimit) {
  const Outcome outcome = quantize(
      {"--data", path("samples.npz"), "-o", path("q.onnx"), "--max-drop", "1e-9", "--json"});
  EXPECT_EQ(outcome.code, 1);
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_FALSE(json["statement"]["passed"]);
  EXPECT_EQ(json["quantized"], 0);
  EXPECT_FALSE(json.contains("file"));
  EXPECT_FALSE(std::filesystem::exists(path("q.onnx")));
}

TEST_F(QuantizeVerb, DrawsSamplesWhereNoneAreGiven) {
  const Outcome outcome = quantize({"-o", path("q.onnx"), "--max-drop", "50"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("note: ranges and errors are of drawn samples"));
  EXPECT_THAT(outcome.out, HasSubstr("8 of 16 drawn samples for calibration"));
}

TEST_F(QuantizeVerb, WrongUsage) {
  const std::string q = path("q.onnx"), data = path("samples.npz");
  EXPECT_THAT(error(quantize({})), HasSubstr("--output"));
  EXPECT_THAT(error(quantize({"-o", model_})),
              HasSubstr("would be replaced; give -o another file"));
  EXPECT_THAT(error(quantize({"-o", q, "--method", "best"})),
              HasSubstr("--method must be one of static|dynamic; got 'best'"));
  EXPECT_THAT(error(quantize({"-o", q, "--ranges", "all"})),
              HasSubstr("--ranges must be one of minmax|percentile|mse; got 'all'"));
  EXPECT_THAT(error(quantize({"-o", q, "--eval"})), HasSubstr("give --data FILE.npz"));
  EXPECT_THAT(error(quantize({"-o", q, "--data", data, "--keep", "secnd"})),
              HasSubstr("did you mean 'second'?"));
  EXPECT_THAT(error(quantize({"-o", q, "--data", data, "--method", "dynamic", "--equalize"})),
              HasSubstr("are for the static method"));
  EXPECT_THAT(error(run({"quantize", path("run"), "-o", q})), HasSubstr("run"));
  EXPECT_THAT(error(quantize({"-o", q, "--weights", "w"})), HasSubstr("an ONNX model has its own"));
  EXPECT_THAT(error(quantize({"-o", path("missing/q.onnx")})), HasSubstr("missing"));
  EXPECT_EQ(quantize({"-o", q, "--data", data}).code, 0);
  EXPECT_THAT(error(run({"quantize", q, "--data", data, "-o", path("again.onnx")})),
              HasSubstr("the model is quantized already"));
}

}  // namespace
}  // namespace ridge::test
