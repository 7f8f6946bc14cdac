// Fused chains out of cache as fractions of the copy bandwidth: in each repetition a copy past the
// caches and then every chain. Bytes are each input read once plus each output written once; the
// copy counts read and written bytes.
#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "bench/exit_code.h"
#include "bench/options.h"
#include "ridge/backend/cpu/cpu_isa.h"
#include "ridge/backend/cpu/isa/peak/peak_kernels.h"
#include "ridge/backend/cpu/loop.h"
#include "ridge/base/clock.h"
#include "ridge/base/cpu/cpu_info.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/base/error.h"
#include "ridge/base/json_writer.h"
#include "ridge/base/stats.h"
#include "ridge/graph/autodiff.h"
#include "ridge/graph/ops/activation.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/norm.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/softmax.h"
#include "ridge/graph/ops/source.h"
#include "ridge/run/backends.h"
#include "ridge/run/program.h"

namespace ridge::cpu {
namespace {

constexpr int64_t kElements = int64_t{1} << 24;  // elements of each array: 64 MiB
constexpr int64_t kGrain = 16384;                // elements a thread takes at a time
constexpr int64_t kColumns = 3072;               // columns of the matrix that a bias is added to

struct Options {
  std::vector<int> threads = {1, 2};
  int repetitions = 9;
  std::string json;
};

// An array on huge pages, mapped beforehand.
class Array {
 public:
  Array() : data_(static_cast<float*>(std::aligned_alloc(kPage, kBytes))) {
    check(data_ != nullptr, "no memory for {} bytes", kBytes);
    madvise(data_, kBytes, MADV_HUGEPAGE);
    for (int64_t i = 0; i < kElements; ++i)
      data_[i] = static_cast<float>(i * 7919 % 2001 - 1000) * 4e-3f;
  }
  ~Array() { std::free(data_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  float* data() const { return data_; }

 private:
  static constexpr size_t kPage = size_t{2} << 20;
  static constexpr size_t kBytes = kElements * sizeof(float);
  float* data_;
};

// Puts a loop together; values are numbered as in Loop. Inputs come before ops.
class LoopBuilder {
 public:
  int stream() { return input(false); }
  int uniform() { return input(true); }

  template <typename T>
  int op(std::vector<int> operands, T made = {}) {
    loop_.ops.push_back(
        {std::make_shared<const T>(std::move(made)), std::move(operands), DType::kF32});
    return static_cast<int>(loop_.inputs.size() + loop_.ops.size()) - 1;
  }
  int number(double value) {
    Constant constant;
    constant.values = {value};
    return op<Constant>({}, constant);
  }
  void store(int value, bool streamed = false) {
    loop_.results.push_back({.value = value, .kind = LoopResult::kStore, .streamed = streamed});
  }
  std::unique_ptr<LoopKernel> make() const {
    auto made = make_jit_loop(loop_);
    check(made != nullptr, "no machine code for the loop; is RIDGE_JIT off?");
    return made;
  }

 private:
  int input(bool is_uniform) {
    loop_.inputs.push_back({DType::kF32, is_uniform});
    return static_cast<int>(loop_.inputs.size()) - 1;
  }
  Loop loop_;
};

// AdamW in place: p, g, m, v in; p, m, v out.
std::unique_ptr<LoopKernel> make_adamw() {
  LoopBuilder b;
  const int p = b.stream(), g = b.stream(), m = b.stream(), v = b.stream();
  const int rate = b.uniform(), scale = b.uniform(), mean = b.uniform(), square = b.uniform();
  const int clipped = b.op<Mul>({g, scale});
  const int m2 = b.op<Add>({b.op<Mul>({m, b.number(0.9)}), b.op<Mul>({clipped, b.number(0.1)})});
  const int v2 = b.op<Add>({b.op<Mul>({v, b.number(0.999)}),
                            b.op<Mul>({b.op<Mul>({clipped, clipped}), b.number(0.001)})});
  const int root = b.op<Sqrt>({b.op<Div>({v2, square})});
  const int step = b.op<Div>({b.op<Div>({m2, mean}), b.op<Add>({root, b.number(1e-8)})});
  const int decayed = b.op<Add>({step, b.op<Mul>({p, b.number(0.01)})});
  b.store(b.op<Sub>({p, b.op<Mul>({decayed, rate})}));
  b.store(m2);
  b.store(v2);
  return b.make();
}

std::unique_ptr<LoopKernel> make_bias_gelu(bool by_tanh) {
  LoopBuilder b;
  const int x = b.stream(), bias = b.stream();
  Gelu gelu;
  gelu.tanh = by_tanh;
  b.store(b.op({b.op<Add>({x, bias})}, gelu), true);
  return b.make();
}

// A graph as the pipeline compiles it.
class Compiled {
 public:
  explicit Compiled(Graph graph)
      : backend_(make_backend("cpu")),
        state_(*backend_),
        program_(graphs_of(std::move(graph)), state_) {
    for (const auto& input : program_.plan().entries[0].inputs) {
      Tensor values(input.type);
      const double scale = is_float(input.type.dtype) ? 0.01 : 1.0;
      for (int64_t i = 0; i < values.elements(); ++i)
        values.set(i, static_cast<double>(i * 37 % 101) * scale);
      program_.write(program_.input(0, input.name), values.data());
    }
  }
  void run() { program_.run(0); }

 private:
  static ProgramGraphs graphs_of(Graph graph) {
    ProgramGraphs graphs;
    graphs.entries.push_back(std::move(graph));
    return graphs;
  }
  std::unique_ptr<Backend> backend_;
  State state_;
  Program program_;
};

constexpr int64_t kNormRows = 16384, kNormColumns = 768;
constexpr int64_t kTokens = 512, kWords = 50257;

Graph layer_norm_graph(bool backward) {
  Graph graph;
  const TensorType rows{DType::kF32, {kNormRows, kNormColumns}};
  const TensorType columns{DType::kF32, {kNormColumns}};
  const Value x = input(graph, "x", rows), gamma = input(graph, "gamma", columns);
  const Value beta = input(graph, "beta", columns), y = layer_norm(x, gamma, beta);
  if (!backward) {
    graph.add_output("y", y);
    return graph;
  }
  const Value dy = input(graph, "dy", rows);
  const auto made = vector_jacobian_product(
      std::vector<Value>{y}, std::vector<Value>{dy}, std::vector<Value>{x, gamma, beta});
  for (size_t i = 0; i < made.size(); ++i) graph.add_output(std::to_string(i), made[i]);
  return graph;
}

// The mean loss and its gradient.
Graph cross_entropy_graph() {
  Graph graph;
  const Value x = input(graph, "x", {DType::kF32, {kTokens, kWords}});
  const Value loss = reduce_mean(cross_entropy(x, input(graph, "t", {DType::kI64, {kTokens}})));
  graph.add_output("loss", loss);
  graph.add_output("gradient", gradients(loss, std::vector<Value>{x})[0]);
  return graph;
}

struct Workload {
  std::string name;
  double floor;  // lower bound of the speed, as a share of the copy bandwidth
  double bytes;
  std::function<void()> run;
};

class Bench {
 public:
  Bench() {
    for (int64_t i = 0; i < kElements; ++i) arrays_[3].data()[i] = std::abs(arrays_[3].data()[i]);
  }

  std::vector<Workload> workloads() {
    constexpr double kBytes = static_cast<double>(kElements) * sizeof(float);
    constexpr double kNorm = kNormRows * kNormColumns * 4.0;
    return {{"adamw", 0.95, 7 * kBytes, [this] { run_adamw(); }},
            {"bias + gelu (tanh)", 0.55, 2 * kRows * kColumns * 4.0, [this] { run_gelu(true); }},
            {"bias + gelu (erf)", 0.55, 2 * kRows * kColumns * 4.0, [this] { run_gelu(false); }},
            {"layer norm", 0.6, 2 * kNorm, [this] { norm_.run(); }},
            {"layer norm, backward", 0.75, 3 * kNorm, [this] { norm_grad_.run(); }},
            {"softmax + loss", 0.42, 2 * kTokens * kWords * 4.0, [this] { loss_.run(); }}};
  }

  // Bytes per second.
  double copy_rate() const {
    const auto copy = for_isa(avx2::peak_kernels, avx512::peak_kernels).copy;
    const int64_t start = now_ns();
    parallel_for(kElements, kGrain, [&](int64_t begin, int64_t end) {
      copy(arrays_[0].data() + begin,
           arrays_[1].data() + begin,
           (end - begin) * static_cast<int64_t>(sizeof(float)));
    });
    return 8.0 * static_cast<double>(kElements) * 1e9 / static_cast<double>(now_ns() - start);
  }

 private:
  static constexpr int64_t kRows = kElements / kColumns;

  void run_adamw() const {
    const float uniforms[] = {1e-4f, 0.5f, 0.1f, 0.001f};
    parallel_for(kElements, kGrain, [&](int64_t begin, int64_t end) {
      float* const p = arrays_[0].data() + begin;
      float* const g = arrays_[1].data() + begin;
      float* const m = arrays_[2].data() + begin;
      float* const v = arrays_[3].data() + begin;
      const void* inputs[] = {p, g, m, v, uniforms, uniforms + 1, uniforms + 2, uniforms + 3};
      void* results[] = {p, m, v};
      adamw_->run({inputs, results, end - begin});
    });
  }

  void run_gelu(bool by_tanh) const {
    const LoopKernel& kernel = by_tanh ? *gelu_tanh_ : *gelu_erf_;
    parallel_for(kRows, 4, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const void* inputs[] = {arrays_[1].data() + row * kColumns, arrays_[3].data()};
        void* results[] = {arrays_[2].data() + row * kColumns};
        kernel.run({inputs, results, kColumns});
      }
    });
  }

  Compiled norm_{layer_norm_graph(false)}, norm_grad_{layer_norm_graph(true)};
  Compiled loss_{cross_entropy_graph()};
  const Array arrays_[4];
  const std::unique_ptr<LoopKernel> adamw_ = make_adamw();
  const std::unique_ptr<LoopKernel> gelu_tanh_ = make_bias_gelu(true);
  const std::unique_ptr<LoopKernel> gelu_erf_ = make_bias_gelu(false);
};

struct Rates {
  std::vector<double> copy, chain, ratio;
};

std::vector<Rates> measure(Bench& bench, const std::vector<Workload>& workloads, int repetitions) {
  std::vector<Rates> rates(workloads.size());
  for (int i = -1; i < repetitions; ++i)
    for (size_t w = 0; w < workloads.size(); ++w) {
      const double copy = bench.copy_rate();
      const int64_t start = now_ns();
      workloads[w].run();
      const double chain = workloads[w].bytes * 1e9 / static_cast<double>(now_ns() - start);
      if (i < 0) continue;  // the first warms up
      rates[w].copy.push_back(copy);
      rates[w].chain.push_back(chain);
      rates[w].ratio.push_back(chain / copy);
    }
  return rates;
}

void write_rates(JsonWriter& json, const char* name, const std::vector<double>& rates) {
  json.key(name).begin_array();
  for (const double rate : rates) json.value(rate);
  json.end_array();
}

void run(const Options& options) {
  Bench bench;
  const std::vector<Workload> workloads = bench.workloads();
  std::string text;
  JsonWriter json(text, 1);
  json.begin_object().field("schema", "ridge.bench_fused/1").field("cpu", cpu_info().model);
  json.field("isa", name_of(isa())).key("results").begin_array();
  fmt::print("{}; GB/s, medians of {} repetitions\n", name_of(isa()), options.repetitions);
  fmt::print("{:<8} {:<20} {:>8} {:>8} {:>8} {:>8}\n",
             "threads",
             "chain",
             "copy",
             "chain",
             "ratio",
             "floor");
  for (const int threads : options.threads) {
    set_num_threads(threads);
    const std::vector<Rates> rates = measure(bench, workloads, options.repetitions);
    for (size_t w = 0; w < workloads.size(); ++w) {
      const Rates& r = rates[w];
      fmt::print("{:<8} {:<20} {:8.1f} {:8.1f} {:8.3f} {:8.2f}\n",
                 threads,
                 workloads[w].name,
                 median(r.copy) / 1e9,
                 median(r.chain) / 1e9,
                 median(r.ratio),
                 workloads[w].floor);
      json.begin_object().field("threads", threads).field("chain", workloads[w].name);
      json.field("ratio_median", median(r.ratio)).field("floor", workloads[w].floor);
      write_rates(json, "copy_bytes_per_second", r.copy);
      write_rates(json, "chain_bytes_per_second", r.chain);
      json.end_object();
    }
  }
  json.end_array().end_object().finish();
  if (options.json.empty()) return;
  std::ofstream file(options.json);
  file << text << '\n';
  file.close();
  check(!file.fail(), "cannot write '{}'", options.json);
}

constexpr const char* kUsage =
    "usage: bench_fused [--threads LIST] [--isa auto|avx2|avx512] [--repetitions N] [--json FILE]\n"
    "LIST: numbers of threads, such as 1,2\n";

// Numbers with commas between them.
void read_threads(std::string list, Options& options) {
  options.threads.clear();
  for (size_t comma = 0; comma != std::string::npos;) {
    comma = list.find(',');
    options.threads.push_back(bench::positive_number<int>(list.substr(0, comma), "--threads"));
    if (comma != std::string::npos) list.erase(0, comma + 1);
  }
}

}  // namespace
}  // namespace ridge::cpu

int main(int argc, char** argv) {
  return ridge::bench::exit_code([&] {
    ridge::cpu::Options options;
    if (ridge::bench::read_options(
            argc,
            argv,
            ridge::cpu::kUsage,
            {{"--threads",
              [&](const std::string& value) { ridge::cpu::read_threads(value, options); }},
             ridge::bench::isa_option(),
             {"--repetitions",
              [&](const std::string& value) {
                options.repetitions = ridge::bench::positive_number<int>(value, "--repetitions");
              }},
             ridge::bench::text_option("--json", options.json)}))
      ridge::cpu::run(options);
  });
}
