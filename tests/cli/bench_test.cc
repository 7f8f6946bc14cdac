// `ridge bench`: what it reports, and what users get wrong. How fast anything is plays no part.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "ridge/cli/common/threads.h"
#include "ridge/io/file.h"
#include "ridge/io/npy.h"
#include "tests/cli/ridge_process.h"
#include "tests/cli/run_words.h"
#include "tests/import/model_bytes.h"
#include "tests/support/has.h"
#include "tests/support/peers_python.h"
#include "tests/support/temp_folder.h"

namespace ridge::test {
namespace {

using nlohmann::json;

// Rows of a table of 5, times x, summed over T: (N, 3).
std::string words_model() {
  const std::vector<float> table(15, 0.5f);
  return model_bytes(
      {.nodes = {node_bytes("Gather", {"table", "words"}, {"rows"}),
                 node_bytes(
                     "ReduceSum", {"rows", "axes"}, {"sums"}, {int_attribute("keepdims", 0)}),
                 node_bytes("Mul", {"sums", "x"}, {"y"}),
                 node_bytes("Cast", {"mask"}, {"kept"}, {int_attribute("to", kFloat)})},
       .initializers = {floats_bytes("table", {5, 3}, table), integers_bytes("axes", {1})},
       .inputs = {value_bytes("words", kInt64, {"N", "T"}),
                  value_bytes("x", kFloat, {"N", 3}),
                  value_bytes("mask", kInt64, {"T"})},
       .outputs = {value_bytes("y", kFloat, {"N", 3}), value_bytes("kept", kFloat, {"T"})}});
}

class Bench : public testing::Test {
 protected:
  Bench() { model_ = write("words.onnx", words_model()); }
  ~Bench() override { set_threads("0", "a test"); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string write(const std::string& name, const std::string& text) const {
    write_file_atomically(path(name), text);
    return path(name);
  }
  std::vector<std::string> words(const std::vector<std::string>& more) const {
    std::vector<std::string> all{"bench", model_, "--seconds", "0.01"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  // One error on stderr, and nothing else.
  std::string error(const std::vector<std::string>& more) const {
    std::vector<std::string> all{"bench", model_};
    all.insert(all.end(), more.begin(), more.end());
    const Outcome outcome = run(all);
    EXPECT_EQ(outcome.code, 2) << outcome.out;
    EXPECT_EQ(outcome.out, "");
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    return outcome.err;
  }

  TempFolder folder_;
  std::string model_;
};

void check_side(const json& side) {
  EXPECT_GE(side["latency_ms"]["runs"], 10);
  EXPECT_GT(side["latency_ms"]["median"], 0);
  EXPECT_GE(side["latency_ms"]["p99"], side["latency_ms"]["median"]);
  EXPECT_GT(side["first_ms"], 0);
}

TEST_F(Bench, HasAResultForEachBatchAndNumberOfThreads) {
  const Outcome outcome =
      run(words({"--batch", "1,8", "--threads", "2,1", "--dim", "T=4", "--json"}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err,
            "note: integers of 'mask' are 0 or 1: the model does not say which may come\n");
  const json report = json::parse(outcome.out);
  EXPECT_EQ(report["schema"], "ridge.bench/1");
  EXPECT_EQ(report["model"], model_);
  EXPECT_EQ(report["device"], "cpu");
  EXPECT_EQ(report["inputs"],
            json::parse(R"([{"name":"words","type":"i64[N,T]","elements":"0 to 4"},
                            {"name":"x","type":"f32[N,3]","elements":"normal"},
                            {"name":"mask","type":"i64[T]","elements":"0 or 1"}])"));
  std::vector<std::pair<int, int>> pairs;
  for (const json& result : report["results"]) {
    pairs.emplace_back(result["batch"].get<int>(), result["threads"].get<int>());
    EXPECT_EQ(result["dims"], json({{"N", result["batch"]}, {"T", 4}}));
    check_side(result);
    const json& memory = result["memory"];
    EXPECT_GE(memory["planned_bytes"],
              memory["state_bytes"].get<int64_t>() + memory["arena_bytes"].get<int64_t>());
    EXPECT_FALSE(result.contains("onnxruntime"));
  }
  EXPECT_THAT(
      pairs,
      testing::ElementsAre(
          testing::Pair(1, 2), testing::Pair(1, 1), testing::Pair(8, 2), testing::Pair(8, 1)));
}

// A convolution by windows of one pixel, of which there are two kernels.
TEST_F(Bench, TunesForAllThatComeLater) {
  const std::vector<float> weights(16 * 8, 0.5f);
  model_ = write("pointwise.onnx",
                 model_bytes({.nodes = {node_bytes("Conv", {"x", "w"}, {"y"})},
                              .initializers = {floats_bytes("w", {8, 16, 1, 1}, weights)},
                              .inputs = {value_bytes("x", kFloat, {"N", 16, 6, 5})},
                              .outputs = {value_bytes("y", kFloat, {"N", 8, 6, 5})}}));
  const auto picks = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = words({"--threads", "1", "--json"});
    all.insert(all.end(), more.begin(), more.end());
    const Ended ended =
        ridge(folder_.path(), all, "export RIDGE_TUNE=true XDG_CACHE_HOME=\"$PWD/cache\";");
    EXPECT_EQ(ended.code, 0) << ended.err;
    return json::parse(ended.out)["results"].at(0)["picks"];
  };
  EXPECT_EQ(picks({}), json({{"timed", 0}, {"kept", 0}}));
  const json tuned = picks({"--tune"});
  EXPECT_GE(tuned["timed"], 1);
  EXPECT_EQ(tuned["kept"], tuned["timed"]);
  for (const std::vector<std::string>& more : {std::vector<std::string>{}, {"--tune"}})
    EXPECT_EQ(picks(more), json({{"timed", 0}, {"kept", tuned["kept"]}}));
}

TEST_F(Bench, WritesAFileBesideItsTable) {
  const Outcome outcome =
      run(words({"--dim", "T=2", "--set", "threads=3", "--json", path("bench.json")}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, has("batch threads     median", "  T = 2\n"));
  const json result = json::parse(read_file(path("bench.json")))["results"][0];
  EXPECT_EQ(result["batch"], 1);
  EXPECT_EQ(result["threads"], 3);
}

TEST_F(Bench, TakesModelsOfConfigurations) {
  const std::string config =
      write("run.toml",
            "[data]\nsamples = 64\nshape = [8, 8, 2]\n[model]\nkind = \"mlp\"\nhidden = [16]\n"
            "outputs = 10\n[train]\nbatch = 12\nsteps = 2\nout = \"" +
                path("out") + "\"\n");
  ASSERT_EQ(run({"train", config}).code, 0);
  for (const std::string& model : {config, path("out")}) {
    model_ = model;
    const Outcome outcome = run(words({"--batch", "3", "--json", "-"}));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(json::parse(outcome.out)["results"][0]["dims"], json({{"B", 3}}));
  }
}

TEST_F(Bench, AModelOfOneBatchHasThat) {
  model_ = write("fixed.onnx",
                 model_bytes({.nodes = {node_bytes("Relu", {"x"}, {"y"})},
                              .initializers = {},
                              .inputs = {value_bytes("x", kFloat, {4, 3})},
                              .outputs = {value_bytes("y", kFloat, {4, 3})}}));
  const Outcome outcome = run(words({"--json"}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(json::parse(outcome.out)["results"][0]["batch"], 4);
  EXPECT_EQ(error({"--batch", "8"}),
            "error: no dimension of the model is one of samples by a name: it takes x f32[4,3]; "
            "leave out "
            "--batch\n");
}

TEST_F(Bench, SaysOnceWhatIsWrong) {
  EXPECT_EQ(error({}), "error: 'T' has no size; give --dim T=SIZE\n");
  EXPECT_THAT(error({"--dim", "K=3"}), has("the model has no dimension 'K', only 'N' and 'T'"));
  EXPECT_EQ(error({"--dim", "T=3", "--dim", "N=8"}),
            "error: 'N' is the dimension of samples; give --batch 8\n");
  EXPECT_THAT(error({"--dim", "T"}), has("'T' gives no dimension a size"));
  const std::vector<std::array<std::string, 3>> wrong = {
      {"--batch", "0", "must be at least 1; got 0"},
      {"--batch", "x", "--batch"},
      {"--tune", "--json", "the setting 'tune' is false"},
      {"--threads", "0", "must be at least 1; got 0"},
      {"--threads", "5000", "threads"},
      {"--seconds", "0", "above 0"},
      {"--seconds", "nan", "above 0"},
      {"--device", "tpu", "tpu"},
      {"--weights", "w", "weights of its own"},
      {"--set", "train.steps=1", "no configuration"},
      {"--json", model_, "write over the model"},
      {"--json", path("none/a.json"), "cannot write"},
      {"--against", "torch", "one of onnxruntime|openvino"},
      {"--python", "python3", "--against onnxruntime"}};
  for (const auto& [option, value, what] : wrong)
    EXPECT_THAT(error({"--dim", "T=3", option, value}), has(what)) << option << " " << value;
  const std::string long_name(300, 'n');
  EXPECT_THAT(error({"--dim", "T=3", "--json", path(long_name)}),
              has("File name too long; give a shorter name"));
  EXPECT_THAT(error({"--dim", "T=3", "--json", "/dev/full"}),
              has("cannot write '/dev/full': No space left on device"));
  for (const char* end : {".onnx", ".toml", ""}) {
    model_ = path(long_name + end);
    EXPECT_THAT(error({}), has("cannot open", "File name too long"));
  }
  model_ = path("none.onnx");
  EXPECT_THAT(error({}), has("none.onnx"));
  model_ = path("none.toml");
  EXPECT_THAT(error({}), has("none.toml"));
  EXPECT_THAT(error({"--against", "onnxruntime"}), has("is no ONNX model"));
}

// ---- the peer, in a process of its own ----

class BenchAgainst : public Bench {
 protected:
  Ended ridge_against(const std::string& runtime,
                      const std::string& python,
                      const std::string& shell = {}) const {
    return ridge(
        folder_.path(),
        words(
            {"--dim", "T=4", "--threads", "1", "--json", "--against", runtime, "--python", python}),
        shell);
  }
};

TEST_F(BenchAgainst, SaysOnceThatThereIsNoPeer) {
  write("numpy.py", "");
  for (const auto& [runtime, title] :
       {std::pair("onnxruntime", "ONNX Runtime"), std::pair("openvino", "OpenVINO")}) {
    const std::string name = runtime;
    const Ended none = ridge_against(name, "/no/such/python");
    EXPECT_EQ(none.code, 2);
    EXPECT_EQ(none.err,
              "error: cannot start '/no/such/python': No such file or directory; give a Python "
              "that has " +
                  name + " by --python\n");
    write(name + ".py", "raise ImportError('nobody has it')\n");
    const Ended no_peer = ridge_against(name, "python3", "PYTHONPATH=.");
    EXPECT_EQ(no_peer.code, 2);
    EXPECT_EQ(no_peer.out, "");
    EXPECT_EQ(no_peer.err,
              std::string("error: 'python3' cannot run ") + title +
                  ": ImportError: nobody has it; give a Python that has " + name +
                  " and numpy by --python\n");
  }
}

// A stand-in for the modules, whose outputs are those that the test gives.
constexpr const char* kNumpy = R"(
import shutil
class Array:
    def __init__(self, name): self.name, self.shape = name, SHAPES[name]
    def __eq__(self, other): return self.name == other
SHAPES = {"words": (1, 4), "x": (1, 3), "mask": (4,)}
class Arrays(dict):
    files = list(SHAPES)
    def __enter__(self): return self
    def __exit__(self, *_): pass
    def __getitem__(self, name): return Array(name)
def load(path): return Arrays()
def savez(path, *outputs): shutil.copy("outputs.npz", path)
)";
constexpr const char* kOnnxRuntime = R"(
import types
__version__ = "9.8.7"
GraphOptimizationLevel = types.SimpleNamespace(ORT_ENABLE_ALL=99)
class SessionOptions: pass
class InferenceSession:
    def __init__(self, model, options, providers):
        assert model.endswith("words.onnx") and providers == ["CPUExecutionProvider"]
        assert options.intra_op_num_threads == 1 and options.graph_optimization_level == 99
        self.left = FAILS_AFTER
    def run(self, names, data):
        assert names is None and data == {"words": "words", "x": "x", "mask": "mask"}
        self.left -= 1
        if self.left == 0: raise RuntimeError("no more runs")
        return ()
)";
constexpr const char* kOpenVino = R"(
__version__ = "9.8.7"
def Tensor(array, shared_memory):
    assert shared_memory
    return array.name
class Core:
    def read_model(self, path):
        assert path.endswith("words.onnx")
        return self
    def reshape(self, shapes): assert shapes == {"words": [1, 4], "x": [1, 3], "mask": [4]}
    def compile_model(self, model, device, options):
        assert device == "CPU" and options == {
            "INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1, "PERFORMANCE_HINT": "LATENCY"}
        return self
    def create_infer_request(self):
        self.left, self.tensors = FAILS_AFTER, {}
        return self
    def set_tensor(self, name, tensor): self.tensors[name] = tensor
    def infer(self, share_outputs):
        assert share_outputs and self.tensors == {name: name for name in ("words", "x", "mask")}
        self.left -= 1
        if self.left == 0: raise RuntimeError("no more runs")
        return {}
)";

class BenchStandIn : public BenchAgainst, public testing::WithParamInterface<const char*> {
 protected:
  std::string runtime() const { return GetParam(); }
  void stand_in(int64_t fails_after) const {
    std::string text = runtime() == "openvino" ? kOpenVino : kOnnxRuntime;
    const std::string mark = "FAILS_AFTER";
    text.replace(text.find(mark), mark.size(), std::to_string(fails_after));
    write(runtime() + ".py", text);
    write("numpy.py", kNumpy);
    write_npz(path("outputs.npz"),
              {{"arr_0", Tensor({DType::kF32, {1, 3}})}, {"arr_1", Tensor({DType::kF32, {4}})}});
  }
};

INSTANTIATE_TEST_SUITE_P(Runtimes, BenchStandIn, testing::Values("onnxruntime", "openvino"));

TEST_P(BenchStandIn, IsTimedInTurn) {
  stand_in(-1);
  const Ended ended = ridge_against(runtime(), "python3", "PYTHONPATH=.");
  ASSERT_EQ(ended.code, 0) << ended.err;
  const json result = json::parse(ended.out)["results"].at(0);
  check_side(result);
  check_side(result[runtime()]);
  EXPECT_EQ(result[runtime()]["version"], "9.8.7");
  const json& ratio = result["times_as_fast"];
  EXPECT_GE(ratio["pairs"], 1);
  if (ratio.contains("low")) {  // the machine may have been taken away from too many pairs
    EXPECT_LE(ratio["low"], ratio["ratio"]);
    EXPECT_GE(ratio["high"], ratio["ratio"]);
    EXPECT_EQ(ratio["confidence"], 0.95);
  }
  // The other's are all 0.
  EXPECT_TRUE(result["output_difference"].is_null());
}

TEST_P(BenchStandIn, ThatFailsIsOneError) {
  const std::string title = runtime() == "openvino" ? "OpenVINO" : "ONNX Runtime";
  for (const int64_t runs : {1, 3}) {
    stand_in(runs);
    const Ended ended = ridge_against(runtime(), "python3", "PYTHONPATH=.");
    EXPECT_EQ(ended.code, 2) << runs;
    EXPECT_EQ(ended.out, "");
    EXPECT_THAT(ended.err,
                has("error: " + title + " 9.8.7 cannot run '" + model_ +
                    "': RuntimeError: no more runs; leave out --against\n"));
  }
}

TEST_F(BenchAgainst, TheRealOneGivesTheSameOutputs) {
  const std::string python = peers_python();
  if (python.empty()) GTEST_SKIP() << kNoPeers;
  const Ended ended = ridge_against("onnxruntime", python);
  ASSERT_EQ(ended.code, 0) << ended.err;
  const json result = json::parse(ended.out)["results"].at(0);
  check_side(result["onnxruntime"]);
  EXPECT_LT(result["output_difference"], 1e-5);
  EXPECT_GT(result["times_as_fast"]["ratio"], 0);
}

}  // namespace
}  // namespace ridge::test
