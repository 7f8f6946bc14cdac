// Rate and memory of reading a Kineto trace on one thread.
#include "ridge/doctor/read/read_trace.h"

#include <fmt/core.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "bench/exit_code.h"
#include "bench/options.h"
#include "ridge/base/clock.h"
#include "ridge/base/error.h"
#include "ridge/base/json_writer.h"

namespace ridge {
namespace {

constexpr const char* kUsage =
    "usage: bench_read_trace [--megabytes N] [--file FILE] [--json FILE]\n"
    "without a file it makes one of N megabytes in the folder for temporary files, and removes "
    "it\n";

struct Options {
  std::string file, json;
  int64_t megabytes = 1000;
};

std::string operator_event(int64_t i, int64_t us, const std::string& host) {
  return fmt::format(R"j(  {{
    "ph": "X", "cat": "cpu_op", "name": "aten::operator_{}", {}, "ts": {}.{:03}, "dur": 18.250,
    "args": {{
      "External id": {}, "Record function id": 0, "Sequence number": {}, "Fwd thread id": 0,
      "Input Dims": [[64, {}, 56, 56], [64]], "Input type": ["float", "float"]
    }}
  }},
)j",
                     i % 97,
                     host,
                     us,
                     i % 1000,
                     i,
                     i,
                     16 << (i % 5));
}

std::string call_event(int64_t i, int64_t us, const std::string& host) {
  return fmt::format(R"j(  {{
    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", {0}, "ts": {1}.125, "dur": 4.125,
    "args": {{
      "External id": {2}, "cbid": 211, "correlation": {2}
    }}
  }},
  {{
    "ph": "s", "id": {2}, {0}, "ts": {1}.125, "cat": "ac2g", "name": "ac2g"
  }},
)j",
                     host,
                     us,
                     i);
}

std::string kernel_event(int64_t i, int64_t us) {
  const std::string functor = fmt::format("at::native::CUDAFunctor_{}<float>", i % 31);
  const std::string arrays = "at::detail::Array<char*, 3>";
  const std::string name =
      fmt::format("void at::native::vectorized_elementwise_kernel<4, {0}, {1} >(int, {0}, {1})",
                  functor,
                  arrays);
  return fmt::format(R"j(  {{
    "ph": "X", "cat": "kernel", "name": "{0}", "pid": 0, "tid": 7, "ts": {1}.500, "dur": 9.375,
    "args": {{
      "External id": {2}, "queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": {2},
      "registers per thread": 32, "shared memory": 0, "blocks per SM": 4.740741,
      "warps per SM": 75.851852, "grid": [{3}, 1, 1], "block": [512, 1, 1],
      "est. achieved occupancy %": 75
    }}
  }},
  {{
    "ph": "f", "id": {2}, "pid": 0, "tid": 7, "ts": {1}.500, "cat": "ac2g", "name": "ac2g"
  }},
)j",
                     name,
                     us,
                     i,
                     128 + i % 512);
}

/// The events of an operator with one kernel: three events and two arrows, laid out as
/// torch.profiler does.
std::string events_of(int64_t i) {
  const int64_t us = 4458676416431 + 20 * i;
  const std::string host = fmt::format(R"("pid": 2910249, "tid": {})", 2910249 + i % 2);
  return operator_event(i, us, host) + call_event(i, us + 5, host) + kernel_event(i, us + 12);
}

void write_trace(const std::filesystem::path& path, int64_t bytes) {
  std::ofstream out(path, std::ios::binary);
  out << "{\n  \"schemaVersion\": 1,\n  \"traceEvents\": [\n";
  for (int64_t i = 0, written = 0; written < bytes; ++i) {
    const std::string text = events_of(i);
    out << text;
    written += static_cast<int64_t>(text.size());
  }
  out << "  {\"ph\": \"i\", \"name\": \"Record Window End\", \"ts\": 0}\n  ],\n"
      << "  \"baseTimeNanoseconds\": 1711964646000000000\n}";
  check(static_cast<bool>(out.flush()), "cannot write '{}'", path.string());
}

/// A file that is removed at the end, where it is ours.
class TraceFile {
 public:
  explicit TraceFile(const Options& options) : path_(options.file) {
    if (!options.file.empty()) return;
    std::string name = (std::filesystem::temp_directory_path() / "ridge-trace-XXXXXX").string();
    const int descriptor = mkstemp(name.data());
    check(descriptor >= 0, "cannot make a file for the trace");
    close(descriptor);
    path_ = name;
    is_ours_ = true;
    write_trace(path_, options.megabytes * 1'000'000);
  }
  ~TraceFile() {
    std::error_code ignored;
    if (is_ours_) std::filesystem::remove(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  bool is_ours_ = false;
};

int64_t peak_resident_bytes() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

void report(const Options& options, const TraceFile& file) {
  const auto megabytes = static_cast<double>(std::filesystem::file_size(file.path())) * 1e-6;
  const int64_t start = now_ns();
  const doctor::Trace trace = doctor::read_trace(file.path().string());
  const double seconds = static_cast<double>(now_ns() - start) * 1e-9;
  const double peak = static_cast<double>(peak_resident_bytes()) / (1 << 20);
  fmt::print("{:.0f} MB, {} rows, {} warnings: {:.2f} s, {:.0f} MB/s, peak of memory {:.0f} MiB\n",
             megabytes,
             trace.size(),
             trace.warnings.size(),
             seconds,
             megabytes / seconds,
             peak);
  if (options.json.empty()) return;
  std::ofstream out(options.json);
  JsonWriter(out)
      .begin_object()
      .field("schema", "ridge.bench.read_trace/1")
      .field("megabytes", megabytes)
      .field("rows", static_cast<int64_t>(trace.size()))
      .field("seconds", seconds)
      .field("peak_mebibytes", peak)
      .end_object()
      .finish();
}

}  // namespace
}  // namespace ridge

int main(int argc, char** argv) {
  return ridge::bench::exit_code([&] {
    ridge::Options options;
    if (!ridge::bench::read_options(argc,
                                    argv,
                                    ridge::kUsage,
                                    {ridge::bench::text_option("--file", options.file),
                                     ridge::bench::text_option("--json", options.json),
                                     {"--megabytes", [&](const std::string& value) {
                                        options.megabytes = std::atoll(value.c_str());
                                      }}}))
      return;
    ridge::report(options, ridge::TraceFile(options));
  });
}
