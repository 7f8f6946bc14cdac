// Speed of matrix products of bytes (i8 by i8, scaled to f32), as a share of the rate at which the
// same instructions multiply between registers in the same run.
#include "ridge/backend/cpu/gemm/gemm_i8.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "bench/exit_code.h"
#include "bench/options.h"
#include "ridge/base/clock.h"
#include "ridge/base/cpu/cpu_info.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/base/error.h"
#include "ridge/base/json_writer.h"
#include "ridge/base/stats.h"

namespace ridge::cpu {
namespace {

constexpr int kRepetitions = 9;
constexpr double kSecondsOfRepetition = 0.02;

constexpr const char* kUsage =
    "usage: bench_gemm_i8 [--threads N] [--isa auto|avx2|avx512|amx] [--form FORM] [--json FILE]\n"
    "FORM is avx2, avx-vnni, avx512-vnni or amx-int8; without it all that the machine has are "
    "measured\n";

struct Options {
  std::string json, form;
};

// Factors are of i8; op(B) lies packed, as in a session with constant weights, or is packed at each
// run.
struct Case {
  int64_t m, n, k;
  bool transpose_a, transpose_b, is_packed;

  std::string name() const {
    return fmt::format("{}x{}x{} {}{}{}",
                       m,
                       n,
                       k,
                       transpose_a ? 'T' : 'N',
                       transpose_b ? 'T' : 'N',
                       is_packed ? " packed" : "");
  }
  double operations() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
};

constexpr Case kCases[] = {{256, 256, 256, false, false, true},
                           {256, 256, 256, false, false, false},
                           {256, 256, 256, false, true, false},
                           {512, 512, 512, false, false, true},
                           {512, 512, 512, false, false, false},
                           {512, 512, 512, true, true, false},
                           {1024, 1024, 1024, false, false, true},
                           {1024, 1024, 1024, false, true, false},
                           {2048, 2048, 2048, false, false, true},
                           {128, 3072, 768, false, true, true},
                           {128, 768, 3072, false, true, true},
                           {384, 768, 768, false, true, true},
                           {32, 4096, 4096, false, true, true},
                           {1, 4096, 4096, false, true, true},
                           {1, 4096, 4096, false, true, false}};

struct alignas(64) Line {
  char bytes[64];
};
using Memory = std::vector<Line>;

Memory memory_of(int64_t bytes) { return Memory(static_cast<size_t>(bytes / 64 + 1)); }

Memory random_memory(int64_t bytes, uint32_t seed) {
  Memory memory = memory_of(bytes);
  std::mt19937 random(seed);
  for (Line& line : memory)
    for (char& byte : line.bytes) byte = static_cast<char>(random());
  return memory;
}

// The operands of a case, and its product.
class Work {
 public:
  Work(const Case& c, I8Form form)
      : a_(random_memory(c.m * c.k, 1)),
        b_(random_memory(c.k * c.n, 2)),
        c_(memory_of(c.m * c.n * int64_t{sizeof(float)})),
        scales_(static_cast<size_t>(c.n), 1e-3f) {
    problem_.shape = {.m = c.m,
                      .n = c.n,
                      .k = c.k,
                      .transpose_a = c.transpose_a,
                      .transpose_b = c.transpose_b,
                      .lda = c.transpose_a ? c.m : c.k,
                      .ldb = c.transpose_b ? c.k : c.n,
                      .ldc = c.n};
    problem_.form = form;
    if (c.is_packed) {
      Memory packed = memory_of(static_cast<int64_t>(packed_i8_bytes(problem_.shape)));
      pack_i8(problem_.shape, b_.data(), true, packed.data());
      b_ = std::move(packed);
      problem_.b_is_packed = true;
    }
    workspace_ = memory_of(static_cast<int64_t>(gemm_i8_workspace_bytes(problem_)));
  }
  void operator()() {
    gemm_i8(problem_,
            {.a = a_.data(), .b = b_.data(), .a_zero = {}, .b_zero = {}},
            {.c = c_.data(),
             .dtype = DType::kF32,
             .column_scale = scales_.data(),
             .has_scale_each_column = true},
            workspace_.data());
  }

 private:
  I8Problem problem_;
  Memory a_, b_, c_, workspace_;
  std::vector<float> scales_;
};

double calls_per_second(Work& work, int64_t calls) {
  const int64_t start = now_ns();
  for (int64_t i = 0; i < calls; ++i) work();
  return static_cast<double>(calls) * 1e9 / static_cast<double>(now_ns() - start);
}

// Operations per second of every repetition.
struct Rates {
  std::vector<double> peak, ridge;
};

Rates measure(const Case& c, I8Form form) {
  Work work(c, form);
  work();
  const double once = 1 / calls_per_second(work, 1);
  const auto calls = std::max<int64_t>(1, static_cast<int64_t>(kSecondsOfRepetition / once));
  Rates rates;
  for (int i = 0; i < kRepetitions; ++i) {
    rates.peak.push_back(measure_i8_peak(form));
    rates.ridge.push_back(calls_per_second(work, calls) * c.operations());
  }
  return rates;
}

double best(const std::vector<double>& rates) {
  return *std::max_element(rates.begin(), rates.end());
}

void write_rates(JsonWriter& json, const char* name, const std::vector<double>& rates) {
  json.key(name).begin_array();
  for (double rate : rates) json.value(rate);
  json.end_array();
}

void report(JsonWriter& json, const Case& c, I8Form form, const Rates& r) {
  const double peak = best(r.peak);
  fmt::print("{:<12} {:<24} {:8.1f} {:8.1f} {:8.3f} {:8.3f} {:8.1f}\n",
             name_of(form),
             c.name(),
             median(r.ridge) / 1e9,
             best(r.ridge) / 1e9,
             median(r.ridge) / peak,
             best(r.ridge) / peak,
             peak / 1e9);
  std::fflush(stdout);
  json.begin_object().field("form", name_of(form));
  json.field("m", c.m).field("n", c.n).field("k", c.k);
  json.field("transpose_a", c.transpose_a).field("transpose_b", c.transpose_b);
  json.field("packed", c.is_packed);
  json.field("fraction_of_peak_median", median(r.ridge) / peak);
  json.field("fraction_of_peak_best", best(r.ridge) / peak);
  write_rates(json, "peak_operations_per_second", r.peak);
  write_rates(json, "ridge_operations_per_second", r.ridge);
  json.end_object();
}

void run(const Options& options) {
  std::string text;
  JsonWriter json(text, 1);
  json.begin_object().field("schema", "ridge.bench_gemm_i8/1").field("cpu", cpu_info().model);
  json.field("threads", num_threads()).key("results").begin_array();
  fmt::print("{} threads; 10^9 operations a second, fractions of the best peak\n", num_threads());
  fmt::print("{:<12} {:<24} {:>8} {:>8} {:>8} {:>8} {:>8}\n",
             "form",
             "m x n x k",
             "median",
             "best",
             "of peak",
             "best",
             "peak");
  int measured = 0;
  for (const I8Form form : kAllI8Forms) {
    if (!has_i8_form(form) || (!options.form.empty() && options.form != name_of(form))) continue;
    ++measured;
    for (const Case& c : kCases) report(json, c, form, measure(c, form));
  }
  check(measured > 0, "--form: there is no '{}' here", options.form);
  json.end_array().end_object().finish();
  if (options.json.empty()) return;
  std::FILE* const file = std::fopen(options.json.c_str(), "we");
  const bool is_written = file != nullptr && std::fputs((text + "\n").c_str(), file) >= 0;
  check(file != nullptr && std::fclose(file) == 0 && is_written, "cannot write '{}'", options.json);
}

}  // namespace
}  // namespace ridge::cpu

int main(int argc, char** argv) {
  return ridge::bench::exit_code([&] {
    ridge::cpu::Options options;
    if (ridge::bench::read_options(argc,
                                   argv,
                                   ridge::cpu::kUsage,
                                   {ridge::bench::threads_option(),
                                    ridge::bench::isa_option(),
                                    ridge::bench::text_option("--json", options.json),
                                    ridge::bench::text_option("--form", options.form)}))
      ridge::cpu::run(options);
  });
}
