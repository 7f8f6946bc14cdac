// Tests of the engine on a simulated GPU: the driver is tests/backend/cuda/fake_driver, which runs
// printed kernels as tests/backend/cuda/fake_nvrtc has compiled them for this machine.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "ridge/backend/cuda/cuda_backend.h"
#include "ridge/backend/cuda/print/kernel.h"
#include "ridge/graph/ops/source.h"
#include "ridge/run/backends.h"
#include "ridge/run/compare.h"
#include "ridge/run/program.h"
#include "tests/backend/cuda/fake_blas/fake_blas.h"
#include "tests/backend/cuda/fake_driver_test.h"
#include "tests/backend/cuda/fake_nvrtc/fake_nvrtc.h"
#include "tests/support/case_builder.h"

namespace ridge::test {

using Names = std::vector<std::string>;

class SimulatedGpu : public cuda::FakeDriverTest {
 protected:
  SimulatedGpu() { ::setenv("RIDGE_NVRTC", RIDGE_FAKE_NVRTC, 1); }

  /// A backend of the device, which is as new.
  static std::unique_ptr<Backend> make_backend_cuda() {
    return cuda::make_cuda_backend(device(), {.compiler = cuda::Nvrtc::open()}, {});
  }

  /// The same with products of the stand-in for cuBLASLt, which was reset.
  static std::unique_ptr<Backend> make_backend_with_blas() {
    ::setenv("RIDGE_CUBLASLT", RIDGE_FAKE_CUBLASLT, 1);
    const cuda::DeviceRef gpu = device();
    auto blas = std::make_shared<const cuda::Blas>(gpu, cuda::BlasLibrary::open());
    ::unsetenv("RIDGE_CUBLASLT");
    return cuda::make_cuda_backend(
        gpu, {.compiler = cuda::Nvrtc::open(), .blas = std::move(blas)}, {});
  }
  static FakeBlas& fake_blas() {
    return *cuda::open_stand_in<FakeBlasEntry>(RIDGE_FAKE_CUBLASLT, kFakeBlasEntry)();
  }

  /// A program of one entry, the graph.
  static ProgramGraphs program_of(Graph graph) {
    ProgramGraphs graphs;
    graphs.entries.push_back(std::move(graph));
    return graphs;
  }
  /// Names of the kernels that the backend has for a node, in their order.
  static Names names_of(const Backend& gpu, const Node& node) {
    Names names;
    for (const Choice& choice : gpu.candidates(node)) names.push_back(choice.name);
    return names;
  }
  /// Each choice for the node of these results, whose operands are inputs of what was built,
  /// against the reference.
  static void expect_near_reference(Backend& gpu, CaseBuilder& built, const Node& node) {
    const auto ref = make_backend("ref");
    NamedTensors operands;
    for (const Value& value : node.inputs)
      operands.emplace(fmt::format("{}", operands.size()),
                       built.tensors().at(value.node->op_as<Input>().input_name));
    const Graph lone = lone_node(node);
    const NamedTensors want = evaluate(lone, *ref, operands);
    for (const std::string& line : choice_differences(lone, operands, want, gpu, *ref))
      EXPECT_EQ(line, "") << node.op->name();
  }
  /// By call of a log, whether it is one of those that make a recording: without it a run launches
  /// one by one.
  static std::vector<bool> records(const std::vector<std::string>& log) {
    std::vector<bool> found;
    bool is_recording = false;
    for (const std::string& line : log) {
      is_recording = is_recording || line.starts_with("cuStreamBeginCapture");
      found.push_back(is_recording);
      if (line.starts_with("cuGraphInstantiate")) is_recording = false;
    }
    return found;
  }

  /// The controls of the stand-in for NVRTC.
  static FakeNvrtcControl& compiler() {
    return *cuda::open_stand_in<FakeNvrtcControlEntry>(RIDGE_FAKE_NVRTC, kFakeNvrtcControl)();
  }

  /// Compiles kernels together, each of which would take as long alone.
  static void compile_together(const std::vector<std::string>& printed) {
    auto* const compile = cuda::open_stand_in<CompileTogether>(RIDGE_FAKE_NVRTC, kCompileTogether);
    std::vector<std::string> headers, names;
    for (const auto& [name, text] : cuda::device_headers())
      names.emplace_back(name), headers.emplace_back(text);
    const auto pointers = [](const std::vector<std::string>& texts) {
      std::vector<const char*> all;
      for (const std::string& text : texts) all.push_back(text.c_str());
      return all;
    };
    constexpr size_t kTogether = 60;
    for (size_t first = 0; first < printed.size(); first += kTogether) {
      const std::vector<std::string> part(
          printed.begin() + static_cast<ptrdiff_t>(first),
          printed.begin() + static_cast<ptrdiff_t>(std::min(printed.size(), first + kTogether)));
      if (compile(pointers(part).data(),
                  part.size(),
                  pointers(headers).data(),
                  pointers(names).data(),
                  headers.size()) != 0)
        throw std::runtime_error("printed kernels do not compile");
    }
  }
};

}  // namespace ridge::test
