// Seconds and memory from a file of weights to the first result, phase by phase.
//
//   bench_load [--rounds N] [--dim NAME=SIZE]... [--plain] [--checkpoint | --weights PATH] MODEL...
//
// MODEL is a configuration or a file NAME.onnx. The weights of a configuration are first values,
// in a file or in a checkpoint, or those of PATH. With --plain no weights are packed. Each round is
// a process of its own, since much is done once a process, and the file is in the page cache.
// Prints medians of the rounds:
//
//   read     one thread reads the file once, in pieces of 1 MiB into one buffer
//   open     the file is opened: a checkpoint is verified, an ONNX model parsed and imported for
//            some sizes
//   load     the state gets its values
//   compile  the graph is built, goes through the passes and is planned
//   prepare  kernels are made ready, and the arena is taken
//   first    the first run
//   second   the second one
//   later    the median of five more
//
// and how long the first result takes beyond `read`. The peak is what the process grew by until
// then, pages of mapped files included.
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/exit_code.h"
#include "bench/first_values.h"
#include "ridge/base/clock.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/base/descriptor.h"
#include "ridge/base/error.h"
#include "ridge/base/stats.h"
#include "ridge/config/text.h"
#include "ridge/import/onnx/onnx_source.h"
#include "ridge/infer/load_model.h"
#include "ridge/infer/weights.h"
#include "ridge/io/checkpoint.h"
#include "ridge/nn/logits_source.h"
#include "ridge/run/backends.h"
#include "ridge/train/task.h"

namespace {

using namespace ridge;
namespace fs = std::filesystem;

enum Column {
  kRead,
  kOpen,
  kLoad,
  kCompile,
  kPrepare,
  kFirst,
  kSecond,
  kLater,
  kPeak,
  kPlanned,
  kColumns
};
using Row = std::array<double, kColumns>;
constexpr auto kRowBytes = static_cast<ssize_t>(sizeof(Row));

struct Request {
  std::vector<std::string> models;
  Binding dims;
  std::string weights;
  int rounds = 12;
  bool checkpoint = false;
  bool plain = false;
};

struct Model {
  std::string path;
  std::string weights;  ///< A file or the folder of a checkpoint; of an ONNX model itself.
  std::vector<Row> rows = {};
};

// The result of `body` in a process of its own. This one must have no threads.
template <typename Body>
Row in_process(const Body& body) {
  int ends[2];
  check(pipe(ends) == 0, "there is no pipe");
  const Descriptor from(ends[0]);
  Descriptor to(ends[1]);
  std::fflush(nullptr);
  const pid_t child = fork();
  check(child >= 0, "there is no other process");
  if (child == 0)
    _exit(bench::exit_code([&] {
      const Row row = body();
      check(write(to.get(), row.data(), sizeof row) == kRowBytes, "the pipe takes no result");
    }));
  to = Descriptor();
  Row row{};
  const bool is_whole = read(from.get(), row.data(), sizeof row) == kRowBytes;
  waitpid(child, nullptr, 0);
  check(is_whole, "a process ended without a result");
  return row;
}

// The seconds since it was made or asked last.
class Laps {
 public:
  double next() {
    const int64_t now = now_ns();
    return static_cast<double>(now - std::exchange(last_, now)) * 1e-9;
  }

 private:
  int64_t last_ = now_ns();
};

fs::path file_of(const std::string& weights) {
  return fs::is_directory(weights) ? fs::path(weights) / "state.safetensors" : fs::path(weights);
}

void read_once(const fs::path& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  check(file.get() >= 0, "cannot open '{}'", path.string());
  std::vector<std::byte> buffer(size_t{1} << 20);
  while (read(file.get(), buffer.data(), buffer.size()) > 0) {
  }
}

double peak_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

Binding binding_of(const ModelSource& source, const Binding& wanted) {
  Binding binding;
  for (const DataSpec& input : source.inputs())
    for (const Dim& dim : input.dims) {
      if (dim.name.empty()) continue;
      const auto given = wanted.find(dim.name);
      binding[dim.name] = given == wanted.end() ? std::max<int64_t>(dim.size, 1) : given->second;
    }
  return binding;
}

// Zeros as inputs, which later results may write over.
void run_program(Program& program) {
  std::vector<std::byte> zeros;
  for (const PlanSlot& slot : program.plan().entries[0].inputs) {
    zeros.resize(std::max(zeros.size(), static_cast<size_t>(slot.place.bytes)));
    program.write(program.input(0, slot.name), zeros.data());
  }
  program.run(0);
  program.synchronize();
}

std::shared_ptr<const ModelSource> logits_of(const TrainConfig& config) {
  return std::make_shared<const nn::LogitsSource>(*open_task(config).training);
}

Row measure(const Model& model, const Request& request) {
  const bool is_onnx = is_onnx_file(model.path);
  TrainConfig config;
  std::shared_ptr<const ModelSource> source;
  if (!is_onnx) {
    config = load_config_file(model.path, {}).config;
    source = logits_of(config);
  }
  const std::unique_ptr<Backend> backend = make_backend("cpu");
  Row row{};
  Laps laps;
  read_once(file_of(model.weights));
  row[kRead] = laps.next();
  const double before = peak_bytes();
  laps.next();
  TrainObserver observer;
  OpenWeights weights;
  if (is_onnx)
    source = std::make_shared<const OnnxSource>(OnnxModel(model.path));
  else
    weights = open_weights(config, model.weights, observer);
  row[kOpen] = laps.next();
  State state(*backend);
  if (!is_onnx) load_weights(state, source->state(), weights);
  weights = {};
  row[kLoad] = laps.next();
  ProgramOptions options = inference_options();
  options.plan.packs = options.plan.packs && !request.plain;
  const auto compiled = std::make_shared<const CompiledProgram>(
      compile_program(source->bind(binding_of(*source, request.dims)), *backend, options));
  row[kCompile] = laps.next();
  Program program(compiled, state, options);
  row[kPrepare] = laps.next();
  run_program(program);
  row[kFirst] = laps.next();
  row[kPeak] = peak_bytes() - before;
  row[kPlanned] = static_cast<double>(program.plan().total_bytes());
  laps.next();
  run_program(program);
  row[kSecond] = laps.next();
  std::vector<double> later;
  for (int run = 0; run < 5; ++run) {
    run_program(program);
    later.push_back(laps.next());
  }
  row[kLater] = median(later);
  return row;
}

// First values in `folder`, in a file or a checkpoint.
std::string write_weights(const std::string& path, const fs::path& folder, bool as_checkpoint) {
  const fs::path file = folder / "first.safetensors";
  in_process([&] {
    const auto backend = make_backend("cpu");
    const auto source = logits_of(load_config_file(path, {}).config);
    bench::with_first_values(source->state(), *backend, [&](std::span<const TensorView> views) {
      if (as_checkpoint)
        save_checkpoint(folder, {.step = 1}, views);
      else
        save_safetensors(file, views);
    });
    return Row{};
  });
  return (as_checkpoint ? checkpoint_path(folder, 1) : file).string();
}

void report(const Model& model) {
  const auto column = [&](auto value) {
    std::vector<double> values;
    for (const Row& row : model.rows) values.push_back(value(row));
    return values;
  };
  const auto at = [&](Column number) {
    return median(column([&](const Row& row) { return row[number]; }));
  };
  const std::vector<double> beyond = column([](const Row& row) {
    return row[kOpen] + row[kLoad] + row[kCompile] + row[kPrepare] + row[kFirst] - row[kRead];
  });
  const auto interval = median_interval(beyond, 0.95);
  const double mib = 1 << 20;
  fmt::print(
      "{}: file {:.1f} MiB\n  read {:.3f}; open {:.3f}, load {:.3f}, compile {:.3f}, prepare "
      "{:.3f}, first {:.3f}, second {:.3f}, later {:.4f} s\n  beyond reading {:.3f} ({:.3f} to "
      "{:.3f}) s; peak "
      "{:.1f} MiB, planned {:.1f}\n",
      model.path,
      static_cast<double>(fs::file_size(file_of(model.weights))) / mib,
      at(kRead),
      at(kOpen),
      at(kLoad),
      at(kCompile),
      at(kPrepare),
      at(kFirst),
      at(kSecond),
      at(kLater),
      median(beyond),
      interval ? interval->low : 0.0,
      interval ? interval->high : 0.0,
      at(kPeak) / mib,
      at(kPlanned) / mib);
}

void run(const Request& request) {
  const fs::path folder = fs::temp_directory_path() / fmt::format("bench_load_{}", now_ns());
  fs::create_directory(folder);
  const std::unique_ptr<const fs::path, void (*)(const fs::path*)> removed(
      &folder, [](const fs::path* path) { fs::remove_all(*path); });
  std::vector<Model> models;
  for (const std::string& path : request.models) {
    const fs::path own = folder / std::to_string(models.size());
    fs::create_directory(own);
    std::string weights = is_onnx_file(path) ? path : request.weights;
    if (weights.empty()) weights = write_weights(path, own, request.checkpoint);
    models.push_back({path, weights});
  }
  for (int round = 0; round < request.rounds; ++round)
    for (Model& model : models)
      model.rows.push_back(in_process([&] { return measure(model, request); }));
  for (const Model& model : models) report(model);
}

}  // namespace

int main(int argc, char** argv) {
  Request request;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const std::string value = i + 1 < argc ? argv[i + 1] : "";
    const size_t equals = value.find('=');
    if (word == "--checkpoint" || word == "--plain") {
      (word == "--plain" ? request.plain : request.checkpoint) = true;
      continue;
    }
    if (word.starts_with("--")) ++i;
    if (word == "--rounds")
      request.rounds = std::atoi(value.c_str());
    else if (word == "--weights")
      request.weights = value;
    else if (word == "--dim" && equals != std::string::npos)
      request.dims[value.substr(0, equals)] = std::atoll(value.c_str() + equals + 1);
    else
      request.models.push_back(word);
  }
  if (request.models.empty() || request.rounds < 1) {
    fmt::print(stderr,
               "usage: bench_load [--rounds N] [--dim NAME=SIZE]... [--plain] [--checkpoint | "
               "--weights PATH] MODEL...\n");
    return 2;
  }
  return ridge::bench::exit_code([&] { run(request); });
}
