// Attention on demand: bench/attention.py has it run in turn with the peer's.
//
//   bench_attention HEADS DEPTH THREADS   reads lines "KIND LENGTH COUNT" from stdin, KIND being
//                                         forward or backward; runs so many on a batch of one, in
//                                         f32, causal, and answers with the seconds of one.
#include "ridge/graph/ops/attention.h"

#include <fmt/core.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "bench/exit_code.h"
#include "ridge/base/clock.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/base/error.h"
#include "ridge/graph/ops/source.h"
#include "ridge/run/backends.h"

namespace {

using namespace ridge;

// One node with memory of its own, ready to be launched.
class Runner {
 public:
  Runner(Backend& backend, const Node& node) : backend_(backend), stream_(backend.make_stream()) {
    kernel_ = backend.instantiate(node, 0);
    std::mt19937 random(1);
    for (const TensorType& type : node.input_types()) {
      float* data = take<float>(type.bytes());
      for (int64_t i = 0; i < type.elements(); ++i)
        data[i] = static_cast<float>(random()) * 0x1p-31f - 1.0f;
      inputs_.push_back(data);
    }
    for (const TensorType& type : node.outputs) outputs_.push_back(take<char>(type.bytes()));
    workspace_ = take<char>(static_cast<int64_t>(kernel_->workspace_bytes()));
  }

  double seconds(int count) {
    const int64_t start = now_ns();
    for (int i = 0; i < count; ++i) kernel_->launch(*stream_, {inputs_, outputs_, workspace_});
    stream_->synchronize();
    return static_cast<double>(now_ns() - start) * 1e-9 / count;
  }

 private:
  template <typename T>
  T* take(int64_t bytes) {
    memory_.emplace_back(backend_, static_cast<size_t>(bytes) + 64);
    return static_cast<T*>(memory_.back().get());
  }

  Backend& backend_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<NodeKernel> kernel_;
  std::vector<DeviceMemory> memory_;
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
  void* workspace_ = nullptr;
};

// The node that a line asks for.
const Node& add_attention(
    Graph& graph, bool backward, int64_t heads, int64_t depth, int64_t length) {
  const TensorType type{DType::kF32, {1, heads, length, depth}};
  const auto add = [&](const char* name, const TensorType& t) { return input(graph, name, t); };
  const Value q = add("q", type), k = add("k", type), v = add("v", type);
  const Value y = attention(q, k, v, {.causal = true});
  if (!backward) return *y.node;
  AttentionGrad grad;
  static_cast<AttentionForm&>(grad) = y.node->op_as<Attention>();
  const Value logsumexp = add("logsumexp", {DType::kF32, {1, heads, length}});
  return *add_node(std::move(grad), {q, k, v, add("y", type), logsumexp, add("dy", type)}).node;
}

void run(int64_t heads, int64_t depth, int threads) {
  set_num_threads(threads);
  const auto backend = make_backend("cpu");
  std::map<std::string, std::unique_ptr<Runner>> runners;
  char kind[16];
  long length = 0;
  for (int count = 0; std::scanf("%15s %ld %d", kind, &length, &count) == 3;) {
    check(length >= 1 && length <= 65536 && count >= 1,
          "no attention over {} positions, {} times",
          length,
          count);
    std::unique_ptr<Runner>& runner = runners[fmt::format("{} {}", kind, length)];
    if (runner == nullptr) {
      Graph graph;
      const bool backward = std::string(kind) == "backward";
      runner =
          std::make_unique<Runner>(*backend, add_attention(graph, backward, heads, depth, length));
    }
    fmt::print("{:.9f}\n", runner->seconds(count));
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    fmt::print(stderr, "usage: bench_attention HEADS DEPTH THREADS\n");
    return 2;
  }
  return ridge::bench::exit_code(
      [&] { run(std::atoll(argv[1]), std::atoll(argv[2]), std::atoi(argv[3])); });
}
