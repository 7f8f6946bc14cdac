// Convolution and attention of a stand-in for cuDNN on the simulated GPU: choices, and programs
// that are recorded.
#include "ridge/base/cpu/parallel.h"
#include "ridge/compile/pipeline.h"
#include "ridge/graph/ops/attention.h"
#include "ridge/graph/ops/conv.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/source.h"
#include "ridge/run/backends.h"
#include "ridge/run/compare.h"
#include "tests/backend/cuda/fake_dnn/fake_dnn.h"
#include "tests/backend/cuda_engine/simulated_gpu.h"
#include "tests/backend/cuda_kernels/attention_forms.h"
#include "tests/support/case_builder.h"
#include "tests/support/errors.h"
#include "tests/support/has.h"
#include "tests/support/own_program.h"

namespace ridge::test {
namespace {

class CudaDnnEngine : public SimulatedGpu {
 protected:
  CudaDnnEngine() : dnn_(open_fake_dnn()) {
    ::setenv("RIDGE_CUDNN", RIDGE_FAKE_CUDNN, 1);
    dnn_.reset(RIDGE_FAKE_CUDA);
  }
  void TearDown() override {
    expect_clean(dnn_);
    SimulatedGpu::TearDown();
    ::unsetenv("RIDGE_CUDNN");
  }
  static FakeDnn& open_fake_dnn() {
    return *cuda::open_stand_in<FakeDnnEntry>(RIDGE_FAKE_CUDNN, kFakeDnnEntry)();
  }
  static std::unique_ptr<Backend> make_backend_with_dnn(NoteListener note = ignore_note) {
    const cuda::DeviceRef gpu = device();
    return cuda::make_cuda_backend(
        gpu,
        {.compiler = cuda::Nvrtc::open(),
         .dnn = std::make_shared<const cuda::Dnn>(gpu, cuda::DnnLibrary::open())},
        {},
        std::move(note));
  }

  size_t finished() const { return lines_of(dnn_.log(), {"cudnnBackendFinalize"}).size(); }

  FakeDnn& dnn_;
};

Value convolve(Value x, Value w) {
  WindowFields window;
  window.padding = {1, 1, 1, 1};
  return conv2d(x, w, window);
}

TEST_F(CudaDnnEngine, ChoicesAgreeWithTheReference) {
  dnn_.set_engines({{.index = 62, .knobs = {{2, 5}}, .workspace_bytes = 100}, {.index = 57}},
                   {{.index = 1}});
  const auto gpu = make_backend_with_dnn();
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    CaseBuilder b(dtype, 3);
    const Value x = b.input({2, 5, 6, 3}), w = b.input({3, 3, 3, 4});
    b.finish({convolve(x, w)});
    const Node& node = *b.graph().outputs()[0].value.node;
    EXPECT_EQ(names_of(*gpu, node), (Names{"cudnn_eng62_k2=5", "cudnn_eng57"}));
    expect_near_reference(*gpu, b, node);
  }
}

TEST_F(CudaDnnEngine, AttentionOf16BitsAndItsGradientAreItsOwn) {
  const auto gpu = make_backend_with_dnn();
  const AttentionCase form = {
      .batch = 2, .heads = 2, .queries = 5, .keys = 5, .depth = 8, .causal = true, .packed = true};
  CaseBuilder wide = attention_of(form, DType::kF32);
  EXPECT_EQ(names_of(*gpu, *wide.graph().outputs()[0].value.node), Names{});
  CaseBuilder all[] = {attention_of(form, DType::kBF16), gradient_of(form, DType::kBF16)};
  for (CaseBuilder& built : all) {
    const Node& node = *built.graph().outputs()[0].value.node;
    EXPECT_EQ(names_of(*gpu, node).at(0), "cudnn_eng1");
    expect_near_reference(*gpu, built, node);
  }
}

// From its second run on an entry is replayed: what the library launches is in the recording.
TEST_F(CudaDnnEngine, ARecordedProgramIsTheSame) {
  dnn_.set_engines({{.index = 62, .workspace_bytes = 128}}, {});
  const auto gpu = make_backend_with_dnn(), ref = make_backend("ref");
  Graph graph("main");
  const TensorType image{DType::kF32, {2, 5, 6, 3}}, weights{DType::kF32, {3, 3, 3, 4}};
  const Value x = input(graph, "x", image), w = input(graph, "w", weights);
  graph.add_output("y", tanh(convolve(x, w)));
  const Graph plain = graph.clone();
  OwnProgram program(program_of(std::move(graph)), *gpu);
  const size_t entry = program.entry("main");
  for (uint64_t run = 0; run < 4; ++run) {
    CaseBuilder b(DType::kF32, run);
    b.input(image.shape), b.input(weights.shape);
    NamedTensors tensors;
    tensors.emplace("x", b.tensors().at("x0"));
    tensors.emplace("w", b.tensors().at("x1"));
    for (const char* name : {"x", "w"})
      program.write(program.input(entry, name), tensors.at(name).data());
    program.run(entry);
    NamedTensors want = evaluate(plain, *ref, tensors);
    Tensor got(want.at("y").type());
    program.read(program.output(entry, "y"), got.data());
    program.synchronize();
    EXPECT_EQ(difference(got, want.at("y"), tolerance(DType::kF32, OpClass::kContraction)), "")
        << "run " << run;
  }
  EXPECT_EQ(lines({"cuGraphLaunch"}).size(), 3u);
}

// Three convolutions, of which two are the same.
Graph three_convolutions(DType dtype) {
  Graph graph("main");
  const Value w = input(graph, "w", {dtype, {3, 3, 4, 4}});
  const Value a = convolve(input(graph, "x", {dtype, {2, 5, 6, 4}}), w);
  const Value b = convolve(a, w);
  graph.add_output("y", convolve(b, input(graph, "v", {dtype, {3, 3, 4, 8}})));
  return graph;
}

std::vector<const Node*> convolutions(const Graph& graph) {
  std::vector<const Node*> found;
  for (const auto& node : graph.nodes())
    if (node->is<Conv2d>()) found.push_back(node.get());
  return found;
}

// The first that is asked for brings the plans of all; with one thread, and with several, each of
// which has a handle.
TEST_F(CudaDnnEngine, PlansOfAGraphAreMadeSideBySide) {
  const int threads = num_threads();
  std::vector<Names> names;
  for (const int count : {1, 4}) {
    set_num_threads(count);
    dnn_.reset(RIDGE_FAKE_CUDA);
    dnn_.set_engines({{.index = 62, .knobs = {{2, 5}}}, {.index = 57, .behavior_notes = {0}}}, {});
    const auto gpu = make_backend_with_dnn();
    const Graph graph = three_convolutions(DType::kBF16);
    Names all;
    size_t calls = 0;
    for (const Node* node : convolutions(graph)) {
      const Names own = names_of(*gpu, *node);
      all.insert(all.end(), own.begin(), own.end());
      if (calls == 0) {
        calls = finished();
        EXPECT_GT(calls, 0u);
      }
      EXPECT_EQ(finished(), calls) << "planned when it was asked for";
    }
    const std::vector<std::string> live = dnn_.live();
    EXPECT_EQ(std::count(live.begin(), live.end(), "handle"), std::min(count, 2));
    names.push_back(all);
  }
  set_num_threads(threads);
  EXPECT_EQ(names[0].size(), 3u);
  EXPECT_EQ(names[0], names[1]);
}

// A node that the library fails to plan runs without it, and the user hears of each error once.
TEST_F(CudaDnnEngine, AFailedPlanIsANote) {
  const auto expect_note = [](const std::vector<std::string>& notes, const char* fix) {
    ASSERT_EQ(notes.size(), 1u);
    EXPECT_THAT(notes[0], has("attention at site '", "runs without cuDNN", "cuDNN 9.28.1: ", fix));
  };
  Graph graph("main");
  std::vector<const Node*> nodes;
  for (const int64_t rows : {4, 6})
    nodes.push_back(
        packed_attention(input(graph, fmt::format("x{}", rows), {DType::kBF16, {2, rows, 96}}), 2)
            .node);
  const std::vector<std::string> own{"printed_mma"};
  for (const int code : {2000, 4000, 4003, 4004}) {
    SCOPED_TRACE(code);
    std::vector<std::string> notes;
    const NoteListener note = [&](const std::string& text) { notes.push_back(text); };
    dnn_.set_engines({{.index = 62, .plan_status = code}}, {});
    auto gpu = make_backend_with_dnn(note);
    for (const Node* node : nodes) EXPECT_EQ(names_of(*gpu, *node), own);
    expect_note(notes, code == 4004 ? "; see with nvidia-smi" : "; another cuDNN 9, named in");
    // Another engine serves.
    notes.clear();
    dnn_.set_engines({{.index = 62, .plan_status = code}, {.index = 57}}, {});
    gpu = make_backend_with_dnn(note);
    EXPECT_EQ(names_of(*gpu, *nodes[0]).at(0), "cudnn_eng57");
    EXPECT_EQ(notes, std::vector<std::string>{});
    // A graph that this version does not take. Beside another node's its calls have no fixed order.
    Graph lone("lone");
    const Value alone = packed_attention(input(lone, "x", {DType::kBF16, {2, 4, 96}}), 2);
    gpu = make_backend_with_dnn(note);
    dnn_.fail("cudnnBackendSetAttribute", 5, code);
    EXPECT_EQ(names_of(*gpu, *alone.node), own);
    expect_note(notes, "cudnnBackendSetAttribute");
  }
}

TEST_F(CudaDnnEngine, AKernelThatFailsInItsFirstRunIsToldWithItsSite) {
  const auto gpu = make_backend_with_dnn();
  dnn_.fail("cudnnBackendExecute", 1, 5000);
  EXPECT_THAT(user_error([&] { OwnProgram(program_of(three_convolutions(DType::kF32)), *gpu); }),
              has("cudnnBackendExecute(", ", at site '"));
}

// An error of another kind is reported to each caller that asks for that node, each time.
TEST_F(CudaDnnEngine, AnErrorIsToldByWhoAsks) {
  dnn_.set_engines({{.index = 62, .plan_status = 5000}}, {});
  const auto gpu = make_backend_with_dnn();
  const Graph graph = three_convolutions(DType::kBF16);
  std::vector<std::string> told;
  for (int again = 0; again < 2; ++again)
    for (const Node* node : convolutions(graph))
      told.push_back(user_error([&] { gpu->candidates(*node); }));
  EXPECT_EQ(told, std::vector<std::string>(6, told.at(0)));
  EXPECT_NE(told[0], "no error");
  dnn_.set_engines({{.index = 62}}, {});
  for (const Node* node : convolutions(graph))
    EXPECT_EQ(names_of(*gpu, *node).at(0), "cudnn_eng62");
}

// No plan is made of what is cast before it runs.
TEST_F(CudaDnnEngine, OnlyWhatRunsIsPlanned) {
  const auto ask = [](const Backend& gpu, const Graph& graph) {
    for (const Node* node : convolutions(graph))
      EXPECT_EQ(names_of(gpu, *node).at(0), "cudnn_eng1");
  };
  ask(*make_backend_with_dnn(), three_convolutions(DType::kBF16));
  const auto of_16_bits = finished();
  EXPECT_GT(of_16_bits, 0u);
  const auto gpu = make_backend_with_dnn();
  Graph graph = three_convolutions(DType::kF32);
  run_pipeline(graph, *gpu, {.precision = DType::kBF16});
  ask(*gpu, graph);
  EXPECT_EQ(finished(), 2 * of_16_bits);
}

TEST_F(CudaDnnEngine, TheHardwareNamesIt) {
  EXPECT_EQ(make_backend_with_dnn()->hardware(),
            "NVIDIA Fake 9000, sm_90, driver for CUDA 13.2, no cuBLASLt, cuDNN 9.28.1");
}

}  // namespace
}  // namespace ridge::test
