// `ridge inspect`, from a file to the report and the exit code. Runs in the root of the project.
#include "ridge/cli/inspect/inspect.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "ridge/base/error.h"
#include "tests/cli/run_words.h"

namespace ridge {
namespace {

using test::Outcome;
using test::run;

constexpr const char* kExample = "examples/mlp.graph";

// A file that goes with the test.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& text)
      : path_(std::filesystem::temp_directory_path() /
              fmt::format("ridge_inspect_test_{}.graph", std::rand())) {
    std::ofstream(path_) << text;
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

TEST(Inspect, ExampleInNumbers) {
  const auto report = nlohmann::json::parse(inspect({.file = kExample, .json = true}));
  EXPECT_EQ(report["schema"], "ridge.inspect/1");
  EXPECT_EQ(report["dims"]["B"], 64);
  EXPECT_TRUE(report["separable"]);
  EXPECT_EQ(report["not_separable_because"], "");
  // Two layers, forward and two gradients each; the gradient of the data is counted too:
  // 2 * 64 * (3 * 784 * 128 + 3 * 128 * 10).
  double product_flops = 0;
  for (const auto& op : report["ops"])
    if (op["op"] == "matmul") product_flops = op["flops"].get<double>();
  EXPECT_EQ(product_flops, 2.0 * 64 * 3 * (784 * 128 + 128 * 10));
  // The gradient buffers are the state: 784 * 128 + 128 + 128 * 10 + 10 floats.
  EXPECT_EQ(report["state_bytes"], 4 * (784 * 128 + 128 + 128 * 10 + 10));
}

TEST(Inspect, CaptureInNumbers) {
  constexpr const char* kCapture = "tests/fuzz/corpus/aten_graph/capture";
  const auto report = nlohmann::json::parse(inspect({.file = kCapture, .json = true}));
  EXPECT_EQ(report["kind"], "capture");
  const auto& graph = report["graphs"][0];
  EXPECT_EQ(graph["kind"], "forward");
  EXPECT_EQ(graph["left"][0]["op"], "aten.sort.default");
  // A scaled sum, and a product by a number, of six elements each.
  EXPECT_EQ(graph["flops"], 6 * 3);
  const Outcome text = run({"inspect", kCapture, "--nodes"});
  EXPECT_EQ(text.code, 0);
  EXPECT_NE(text.out.find("left to PyTorch: 1 aten.sort.default"), text.out.npos);
  const Outcome plan = run({"inspect", kCapture, "--plan"});
  EXPECT_EQ(plan.code, 2);
  EXPECT_NE(plan.err.find("is a capture"), plan.err.npos);
  const TemporaryFile broken(R"({"format":"ridge.capture/1","graphs":[{"kind":"forward"}]})");
  EXPECT_EQ(run({"inspect", broken.path()}).code, 2);
}

TEST(Inspect, DataGoToStdoutAndNothingElse) {
  const Outcome text = run({"inspect", kExample});
  EXPECT_EQ(text.code, 0);
  EXPECT_EQ(text.err, "");
  EXPECT_NE(text.out.find("micro-batches: separable"), text.out.npos);
  const Outcome json = run({"inspect", kExample, "--json", "--nodes"});
  EXPECT_EQ(json.code, 0);
  const auto report = nlohmann::json::parse(json.out);
  const TemporaryFile printed(report["text"].get<std::string>());
  EXPECT_EQ(run({"inspect", printed.path(), "--json", "--nodes"}).out, json.out);
}

TEST(Inspect, WrongInputGivesOneLineAndCodeTwo) {
  const TemporaryFile broken("ridge.graph/1 \"g\"\n%0 = inputt() : f32[] @ \"x\"\n");
  const std::vector<std::vector<std::string>> wrong = {{"inspect", broken.path()},
                                                       {"inspect", "no/such.graph"},
                                                       {"inspect", "examples"},
                                                       {"inspect"},
                                                       {"inspekt", kExample},
                                                       {"inspect", kExample, "--jsn"},
                                                       {}};
  for (const auto& words : wrong) {
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.code, 2);
    EXPECT_EQ(outcome.out, "");
    EXPECT_TRUE(outcome.err.starts_with("error: ")) << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  }
  EXPECT_EQ(run({"inspect", broken.path()}).err,
            "error: " + broken.path() +
                ":2:1: unknown op 'inputt', at site 'x'; did you mean 'input'?\n");
}

}  // namespace
}  // namespace ridge
