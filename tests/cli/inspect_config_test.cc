// `ridge inspect` of a configuration: the program that `ridge train` would run, in numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/run_words.h"
#include "tests/support/temp_folder.h"

namespace ridge {
namespace {

using nlohmann::json;
using test::Outcome;
using test::run;

// A configuration in a folder that goes with the test.
class Config {
 public:
  explicit Config(const std::string& model, const std::string& name = "run.toml")
      : path_(folder_ / name) {
    std::ofstream(path_)
        << "[data]\nsamples = 64\nshape = [8, 8, 2]\neval_fraction = 0.25\n[model]\n"
        << model << "outputs = 10\n[train]\nbatch = 12\nsteps = 2\n";
  }
  const std::string& path() const { return path_; }

  json inspect(std::vector<std::string> more = {}) const {
    std::vector<std::string> words{"inspect", path_, "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    return json::parse(outcome.out);
  }

 private:
  test::TempFolder folder_;
  std::string path_;
};

constexpr const char* kMlp = "kind = \"mlp\"\nhidden = [16]\n";
constexpr const char* kCnn = "kind = \"cnn\"\nwidths = [4, 8]\n";

TEST(InspectConfig, NumbersOfASmallNetwork) {
  const json report = Config(kMlp).inspect();
  EXPECT_EQ(report["schema"], "ridge.inspect/1");
  EXPECT_EQ(report["kind"], "program");
  EXPECT_EQ(report["model"], "mlp");
  const int parameters = 128 * 16 + 16 + 16 * 10 + 10;
  EXPECT_EQ(report["parameters"]["count"], parameters);
  EXPECT_EQ(report["parameters"]["bytes"], 4 * parameters);
  EXPECT_EQ(report["parameters"]["tensors"].size(), 4u);
  EXPECT_EQ(report["memory"]["state_by_role"]["parameter"], 4 * parameters);
  EXPECT_EQ(report["memory"]["state_by_role"]["optimizer"], 8 * parameters);
  EXPECT_EQ(report["memory"]["state_by_role"]["gradient"], 0);
  EXPECT_EQ(report["memory"]["planned_bytes"],
            report["memory"]["state_bytes"].get<int64_t>() +
                report["memory"]["arena_bytes"].get<int64_t>());
  EXPECT_EQ(report["memory"]["loader"]["batch_bytes"], 12 * (4 * 128 + 8));
  // A step of 12 samples: forward and gradient of the weights in both layers, the gradient of the
  // input in the second alone.
  double product_flops = 0;
  for (const auto& op : report["entries"][0]["ops"])
    if (op["op"] == "matmul") product_flops = op["flops"].get<double>();
  EXPECT_EQ(product_flops, 2.0 * 12 * (2 * 128 * 16 + 3 * 16 * 10));
  EXPECT_TRUE(report["separable"]);
}

TEST(InspectConfig, PlanIsTheOneThatTrains) {
  for (const std::vector<std::string>& more :
       std::vector<std::vector<std::string>>{{},
                                             {"--set", "train.micro=2"},
                                             {"--set", "train.precision=bf16"},
                                             {"--set", "train.precision=fp16"}}) {
    const Config config(kCnn);
    std::vector<std::string> words{"train", config.path(), "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome trained = run(words);
    ASSERT_EQ(trained.code, 0) << trained.err;
    EXPECT_EQ(config.inspect(more)["plan_hash"], json::parse(trained.out)["plan_hash"]);
  }
}

TEST(InspectConfig, BuffersAtThePeakAddUp) {
  const json report = Config(kCnn).inspect();
  for (const auto& entry : report["entries"]) {
    int64_t most = 0, at_peak = 0;
    for (const auto& bytes : entry["live_bytes"]) most = std::max(most, bytes.get<int64_t>());
    EXPECT_EQ(most, entry["lower_bound_bytes"]);
    EXPECT_EQ(most, entry["live_bytes"][entry["peak_step"].get<size_t>()]);
    for (const auto& buffer : entry["live_at_peak"])
      at_peak += (buffer["bytes"].get<int64_t>() + 63) / 64 * 64;
    EXPECT_GE(at_peak, most);  // more where a result overwrites an operand
    EXPECT_EQ(entry["passes"].size(), report["entries"][0]["passes"].size());
    EXPECT_EQ(entry["passes"].back()["nodes_after"], entry["nodes"]);
  }
}

TEST(InspectConfig, BatchNormIsNamedWhereItMixesSamples) {
  const json normed = Config(kCnn).inspect();
  EXPECT_FALSE(normed["separable"]);
  EXPECT_NE(normed["not_separable_because"].get<std::string>().find("stem.norm"),
            std::string::npos);
  EXPECT_TRUE(Config(kCnn).inspect({"--set", "model.batch_norm=false"})["separable"]);
}

TEST(InspectConfig, TextHoldsWhatIsAskedFor) {
  const Config config(kCnn);
  const Outcome text = run({"inspect", config.path()});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_NE(text.out.find("micro-batches: not separable; output"), text.out.npos);
  EXPECT_NE(text.out.find("more; --nodes lists all"), text.out.npos);
  EXPECT_EQ(text.out.find("ridge.graph/1"), text.out.npos);
  const Outcome all = run({"inspect", config.path(), "--nodes", "--plan"});
  const json report = config.inspect({"--nodes", "--plan"});
  EXPECT_NE(all.out.find(report["entries"][0]["text"].get<std::string>()), all.out.npos);
  EXPECT_NE(all.out.find(report["plan"].get<std::string>()), all.out.npos);
  EXPECT_NE(all.out.find("head.bias "), all.out.npos);
}

TEST(InspectConfig, PlanShowsEveryLaunchWithItsCandidates) {
  const Config config(kMlp);
  const json report = config.inspect({"--plan"});
  for (const json& entry : report["entries"]) {
    EXPECT_EQ(entry["kernels"].size(), entry["launches"].get<size_t>());
    for (const json& launch : entry["kernels"]) {
      EXPECT_GT(launch["bytes"].get<double>(), 0);
      EXPECT_GE(launch["flops"].get<double>(), 0);
      EXPECT_EQ(launch["other_bits"], false) << launch;
      double picked = 0;
      for (const json& candidate : launch["candidates"]) {
        EXPECT_TRUE(candidate.contains("seconds") || candidate.contains("note")) << launch;
        if (candidate["name"] == launch["pick"]) picked = candidate["seconds"];
      }
      EXPECT_GT(picked, 0) << launch;
    }
  }
  const Outcome text = run({"inspect", config.path(), "--plan"});
  EXPECT_NE(text.out.find("kernels of 'step'"), text.out.npos);
  EXPECT_NE(text.out.find("packed_gemm "), text.out.npos);
  EXPECT_EQ(text.out.find("bits may differ"), text.out.npos);
}

TEST(InspectConfig, KindOfFileIsSeenFromWhatIsInIt) {
  EXPECT_EQ(Config(kMlp, "run.conf").inspect()["kind"], "program");
  EXPECT_EQ(json::parse(run({"inspect", "examples/mlp.graph", "--json"}).out)["kind"], "graph");
  const Outcome wrong = run({"inspect", "examples/mlp.graph", "--plan"});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_NE(wrong.err.find("for configurations"), wrong.err.npos);
  EXPECT_EQ(run({"inspect", "no/such.toml"}).code, 2);
  const Config config(kMlp);
  EXPECT_EQ(run({"inspect", config.path(), "--set", "model.hiden=[4]"}).code, 2);
  EXPECT_EQ(run({"inspect", config.path(), "--device", "abacus"}).code, 2);
}

}  // namespace
}  // namespace ridge
