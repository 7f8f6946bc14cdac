// Rate of the GEMM for a list of shapes, against the FMA peak measured in the same minutes: each
// repetition times the peak, the GEMM (packing included) and, where it is installed, oneDNN.
#include "ridge/backend/cpu/gemm/gemm.h"

#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "bench/exit_code.h"
#include "bench/options.h"
#include "ridge/backend/cpu/cpu_isa.h"
#include "ridge/backend/cpu/gemm/gemm_amx.h"
#include "ridge/backend/cpu/peak.h"
#include "ridge/base/clock.h"
#include "ridge/base/cpu/cpu_info.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/base/error.h"
#include "ridge/base/json_writer.h"
#include "ridge/base/stats.h"

#ifdef RIDGE_BENCH_DNNL
#include <omp.h>

#include <oneapi/dnnl/dnnl.hpp>
#endif

namespace ridge::cpu {
namespace {

constexpr int kRepetitions = 9;
constexpr double kSecondsOfRepetition = 0.02;

struct Options {
  std::string shapes = RIDGE_BENCH_SHAPES;
  std::string json;
  bool serve = false;
};

struct Case {
  GemmShape shape;
  DType dtype = DType::kF32;
  int64_t batch = 1;

  std::string name() const {
    const bool rounds = dtype == DType::kF32 && shape.products != GemmProducts::kOwn;
    return fmt::format("{}x{}x{} {}{} {}{}{}",
                       shape.m,
                       shape.n,
                       shape.k,
                       shape.transpose_a ? 'T' : 'N',
                       shape.transpose_b ? 'T' : 'N',
                       name_of(dtype),
                       rounds ? " rounded" : "",
                       batch > 1 ? fmt::format(" x{}", batch) : "");
  }
  double flops() const {
    return 2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) *
           static_cast<double>(shape.k) * static_cast<double>(batch);
  }
};

// FLOP/s of every repetition.
struct Rates {
  std::vector<double> peak, ridge, dnnl;
};

Case parse_case(const std::string& line, const std::string& where) {
  std::istringstream words(line);
  std::string word;
  Case c;
  for (int64_t* size : {&c.shape.m, &c.shape.n, &c.shape.k}) {
    check(static_cast<bool>(words >> word), "{}: a shape needs m, n and k", where);
    *size = bench::positive_number(word, where);
  }
  while (words >> word) {
    if (word == "NN" || word == "NT" || word == "TN" || word == "TT") {
      c.shape.transpose_a = word[0] == 'T';
      c.shape.transpose_b = word[1] == 'T';
    } else if (word == "rounded") {
      c.shape.products = GemmProducts::kRounded;
    } else if (word[0] == 'x') {
      c.batch = bench::positive_number(word.substr(1), where);
    } else {
      const std::optional<DType> dtype = parse_dtype(word);
      check(dtype && is_float(*dtype), "{}: '{}' is no float dtype", where, word);
      c.dtype = *dtype;
    }
  }
  // The engine's matrix products use pairs wherever the machine has them, or tiles.
  if (has_bf16_pairs() && (c.dtype == DType::kBF16 || c.shape.products == GemmProducts::kRounded))
    c.shape.products = GemmProducts::kPairs;
  c.shape.lda = c.shape.transpose_a ? c.shape.m : c.shape.k;
  c.shape.ldb = c.shape.transpose_b ? c.shape.k : c.shape.n;
  c.shape.ldc = c.shape.n;
  return c;
}

std::vector<Case> read_cases(const std::string& path) {
  std::ifstream file(path);
  check(file.is_open(), "cannot read '{}'", path);
  std::vector<Case> cases;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    line.resize(std::min(line.size(), line.find('#')));
    if (line.find_first_not_of(" \t\r") != std::string::npos)
      cases.push_back(parse_case(line, fmt::format("{}:{}", path, number)));
  }
  return cases;
}

// Memory as the engine's arena has it: on huge pages where the system allows, mapped beforehand.
class Arena {
 public:
  explicit Arena(size_t bytes) : bytes_((bytes + kPage - 1) / kPage * kPage) {
    data_ = std::aligned_alloc(kPage, std::max(bytes_, kPage));
    check(data_ != nullptr, "no memory for {} bytes", bytes_);
    madvise(data_, bytes_, MADV_HUGEPAGE);
  }
  ~Arena() { std::free(data_); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  static constexpr size_t kPage = size_t{2} << 20;
  size_t bytes_;
  void* data_ = nullptr;
};

template <typename T>
void fill(T* values, int64_t count, uint64_t seed) {
  std::mt19937 random(static_cast<uint32_t>(seed));
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (int64_t i = 0; i < count; ++i) values[i] = static_cast<T>(uniform(random));
}

// Calls per second of `work`, over as many calls as fill the time of one repetition.
double calls_per_second(const std::function<void()>& work, int64_t calls) {
  const int64_t start = now_ns();
  for (int64_t i = 0; i < calls; ++i) work();
  return static_cast<double>(calls) * 1e9 / static_cast<double>(now_ns() - start);
}

int64_t calls_of_repetition(const std::function<void()>& work) {
  work();
  const double once = 1 / calls_per_second(work, 1);
  return std::max<int64_t>(1, static_cast<int64_t>(kSecondsOfRepetition / once));
}

#ifdef RIDGE_BENCH_DNNL
// The same product by oneDNN's matmul primitive, or nothing where it has none for the dtype.
class DnnlMatmul {
 public:
  DnnlMatmul(const Case& c, void* a, void* b, void* result) : engine_(kCpu, 0), stream_(engine_) {
    const GemmShape& s = c.shape;
    omp_set_num_threads(num_threads());
    const auto type =
        c.dtype == DType::kF32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
    const auto matrix = [&](int64_t rows, int64_t cols, int64_t stride, bool transposed) {
      return dnnl::memory::desc({c.batch, rows, cols},
                                type,
                                {rows * cols, transposed ? 1 : stride, transposed ? stride : 1});
    };
    const auto left = matrix(s.m, s.k, s.lda, s.transpose_a);
    const auto right = matrix(s.k, s.n, s.ldb, s.transpose_b);
    const auto product = matrix(s.m, s.n, s.ldc, false);
    matmul_ = dnnl::matmul(
        dnnl::matmul::primitive_desc(dnnl::matmul::desc(left, right, product), engine_));
    arguments_ = {{DNNL_ARG_SRC, dnnl::memory(left, engine_, a)},
                  {DNNL_ARG_WEIGHTS, dnnl::memory(right, engine_, b)},
                  {DNNL_ARG_DST, dnnl::memory(product, engine_, result)}};
  }
  static bool has(DType dtype) { return dtype == DType::kF32 || dtype == DType::kBF16; }
  void operator()() {
    matmul_.execute(stream_, arguments_);
    stream_.wait();
  }

 private:
  static constexpr auto kCpu = dnnl::engine::kind::cpu;
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::matmul matmul_;
  std::unordered_map<int, dnnl::memory> arguments_;
};
#endif

// The operands of a case, and its product.
template <typename T>
struct Work {
  explicit Work(const Case& c)
      : shape(c.shape),
        batch{c.batch, c.shape.m * c.shape.k, c.shape.k * c.shape.n, c.shape.m * c.shape.n},
        a(bytes(c.batch * batch.stride_a)),
        b(bytes(c.batch * batch.stride_b)),
        result(bytes(c.batch * batch.stride_c)),
        workspace(runs_by_tiles() ? gemm_amx_workspace_bytes(c.shape, batch, /*has_panels=*/false)
                                  : gemm_workspace_bytes(c.shape, c.dtype, c.batch)) {
    fill(a.as<T>(), c.batch * batch.stride_a, 1);
    fill(b.as<T>(), c.batch * batch.stride_b, 2);
  }
  static size_t bytes(int64_t count) { return static_cast<size_t>(count) * sizeof(T); }
  bool runs_by_tiles() const { return has_amx() && shape.products == GemmProducts::kPairs; }
  void operator()() const {
    if constexpr (std::is_same_v<T, float> || std::is_same_v<T, BF16>)
      if (runs_by_tiles())
        return gemm_amx(
            shape, batch, a.as<T>(), b.as<T>(), result.as<T>(), false, workspace.as<void>());
    gemm_batched<T>(
        shape, batch, a.as<T>(), b.as<T>(), result.as<T>(), false, workspace.as<void>());
  }

  GemmShape shape;
  GemmBatch batch;
  Arena a, b, result, workspace;
};

template <typename T>
Rates measure(const Case& c) {
  const Work<T> work(c);
  const std::function<void()> ours = [&] { work(); };
  std::function<void()> theirs;
#ifdef RIDGE_BENCH_DNNL
  if (DnnlMatmul::has(c.dtype) &&
      (c.dtype != DType::kF32 || c.shape.products == GemmProducts::kOwn))
    theirs = [matmul = DnnlMatmul(c,
                                  work.a.template as<void>(),
                                  work.b.template as<void>(),
                                  work.result.template as<void>())]() mutable { matmul(); };
#endif
  DType multiplied = c.dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  if (c.shape.products == GemmProducts::kPairs) multiplied = DType::kBF16;
  const int64_t our_calls = calls_of_repetition(ours);
  const int64_t their_calls = theirs ? calls_of_repetition(theirs) : 0;
  if (theirs) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  Rates rates;
  for (int i = 0; i < kRepetitions; ++i) {
    rates.peak.push_back(measure_fma_peak(multiplied));
    rates.ridge.push_back(calls_per_second(ours, our_calls) * c.flops());
    if (!theirs) continue;
    rates.dnnl.push_back(calls_per_second(theirs, their_calls) * c.flops());
    // OpenMP's threads spin for some milliseconds after their last work.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return rates;
}

double best(const std::vector<double>& rates) {
  return *std::max_element(rates.begin(), rates.end());
}

void print_row(const Case& c, const Rates& r) {
  const double peak = best(r.peak);
  fmt::print("{:<28} {:8.1f} {:8.1f} {:8.3f} {:8.3f} {:8.1f}",
             c.name(),
             median(r.ridge) / 1e9,
             best(r.ridge) / 1e9,
             median(r.ridge) / peak,
             best(r.ridge) / peak,
             peak / 1e9);
  if (!r.dnnl.empty()) fmt::print(" {:8.1f} {:8.1f}", median(r.dnnl) / 1e9, best(r.dnnl) / 1e9);
  fmt::print("\n");
  std::fflush(stdout);
}

void write_rates(JsonWriter& json, const char* name, const std::vector<double>& rates) {
  json.key(name).begin_array();
  for (double rate : rates) json.value(rate);
  json.end_array();
}

void write_case(JsonWriter& json, const Case& c, const Rates& r) {
  json.begin_object();
  json.field("m", c.shape.m).field("n", c.shape.n).field("k", c.shape.k);
  json.field("transpose_a", c.shape.transpose_a).field("transpose_b", c.shape.transpose_b);
  json.field("dtype", name_of(c.dtype)).field("batch", c.batch);
  json.field("fraction_of_peak_median", median(r.ridge) / best(r.peak));
  json.field("fraction_of_peak_best", best(r.ridge) / best(r.peak));
  write_rates(json, "peak_flops_per_second", r.peak);
  write_rates(json, "ridge_flops_per_second", r.ridge);
  write_rates(json, "dnnl_flops_per_second", r.dnnl);
  json.end_object();
}

// Answers lines of input, for a program that compares with peers (gemm.py):
// "case SHAPE" -> "ok", "run N" -> seconds of N calls, "peak f32" -> FLOP/s for 10 ms: not the best
// moment of them, as what is compared is not either.
void serve() {
  std::function<void()> work;
  std::string line;
  while (std::getline(std::cin, line)) {
    const size_t blank = std::min(line.find(' '), line.size() - 1);
    const std::string verb = line.substr(0, blank), rest = line.substr(blank + 1);
    if (verb == "case") {
      work = nullptr;  // frees the last operands first
      const Case c = parse_case(rest, "stdin");
      work = dispatch_float(c.dtype, "bench_gemm", [&](auto tag) -> std::function<void()> {
        using T = typename decltype(tag)::type;
        return [held = std::make_shared<Work<T>>(c)] { (*held)(); };
      });
      fmt::print("ok\n");
    } else if (verb == "peak") {
      const std::optional<DType> dtype = parse_dtype(rest);
      check(dtype.has_value(), "stdin: '{}' is no dtype", rest);
      constexpr int kRuns = 20;
      double inverse = 0;
      for (int i = 0; i < kRuns; ++i) inverse += 1 / measure_fma_peak(*dtype, 1);
      fmt::print("{}\n", kRuns / inverse);
    } else {
      check(verb == "run" && work, "stdin: '{}' is not understood here", line);
      const int64_t calls = bench::positive_number(rest, "stdin");
      fmt::print("{}\n", static_cast<double>(calls) / calls_per_second(work, calls));
    }
    std::fflush(stdout);
  }
}

constexpr const char* kUsage =
    "usage: bench_gemm [--threads N] [--isa auto|avx2|avx512|amx] [--shapes FILE] [--json FILE]\n"
    "       bench_gemm [--threads N] [--isa ISA] --serve yes, then lines of input: case SHAPE, run "
    "N,\n"
    "       peak f32\n"
    "lines of FILE: m n k [NN|NT|TN|TT] [f32|f64|f16|bf16] [rounded] [xBATCH]; rounded: f32 to "
    "bf16\n";

void run(const Options& options) {
  const std::vector<Case> cases = read_cases(options.shapes);
  std::string text;
  JsonWriter json(text, 1);
  json.begin_object().field("schema", "ridge.bench_gemm/1").field("cpu", cpu_info().model);
  json.field("isa", name_of(isa())).field("threads", num_threads());
  json.key("results").begin_array();
  fmt::print(
      "{}, {} threads; GFLOP/s, fractions of the best peak\n", name_of(isa()), num_threads());
  fmt::print("{:<28} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}\n",
             "m x n x k",
             "median",
             "best",
             "of peak",
             "best",
             "peak",
             "oneDNN",
             "best");
  for (const Case& c : cases) {
    const Rates rates = dispatch_float(
        c.dtype, "bench_gemm", [&](auto tag) { return measure<typename decltype(tag)::type>(c); });
    print_row(c, rates);
    write_case(json, c, rates);
  }
  json.end_array().end_object().finish();
  if (options.json.empty()) return;
  std::ofstream file(options.json);
  file << text << '\n';
  file.close();
  check(!file.fail(), "cannot write '{}'", options.json);
}

}  // namespace
}  // namespace ridge::cpu

int main(int argc, char** argv) {
  return ridge::bench::exit_code([&] {
    ridge::cpu::Options options;
    if (!ridge::bench::read_options(
            argc,
            argv,
            ridge::cpu::kUsage,
            {ridge::bench::threads_option(),
             ridge::bench::isa_option(),
             ridge::bench::text_option("--json", options.json),
             ridge::bench::text_option("--shapes", options.shapes),
             {"--serve", [&](const std::string& value) { options.serve = value == "yes"; }}}))
      return;
    if (options.serve)
      ridge::cpu::serve();
    else
      ridge::cpu::run(options);
  });
}
