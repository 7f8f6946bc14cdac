// A stand-in for NVRTC: the sources that it is given become functions of this machine, by the
// compiler of the tests, on top of cuda_kernels/simt.h. Headers are those that the caller hands
// over and no others, but for the standard's. What was compiled is kept in the folder
// $FAKE_NVRTC_CACHE, if that is set, by all that it depends on.
#include "tests/backend/cuda/fake_nvrtc/fake_nvrtc.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "ridge/base/hash.h"

// NOLINTBEGIN(readability-identifier-naming): the names are those of NVRTC.
namespace {

namespace fs = std::filesystem;

constexpr int kSuccess = 0, kInvalidInput = 3, kCompilation = 6;
// What is ours and comes before the sources.
constexpr const char* kSimulation[] = {RIDGE_SIMULATION "/simt.h",
                                       RIDGE_SIMULATION "/simt_approx.h",
                                       RIDGE_SIMULATION "/simt_mma.h",
                                       RIDGE_SIMULATION "/simulated_image.h"};

using Headers = std::map<std::string, std::string>;

struct Program {
  std::string source;
  Headers headers;
  std::string image, log;
};

// What this process has compiled; of several sources, the image that holds them all.
std::mutex mutex;
std::map<std::string, std::string> known_images;

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

struct Entry {
  std::string name;
  std::vector<size_t> parameters;  // addresses in each
};

// One address, but for a list of them by value, "Addresses<N> NAME".
size_t addresses_in(const std::string& parameter) {
  constexpr std::string_view kList = "Addresses<";
  const size_t at = parameter.find(kList);
  return at == std::string::npos ? 1
                                 : std::strtoul(parameter.c_str() + at + kList.size(), nullptr, 10);
}

// Types of a template have commas too.
std::vector<size_t> parameters_in(const std::string& text) {
  std::vector<size_t> found;
  if (text.find_first_not_of(" \n") == std::string::npos) return found;
  int depth = 0;
  for (size_t i = 0, first = 0; i <= text.size(); ++i) {
    const char each = i < text.size() ? text[i] : ',';
    if (each == '<' || each == '(') ++depth;
    if (each == '>' || each == ')') --depth;
    if (each != ',' || depth != 0) continue;
    found.push_back(addresses_in(text.substr(first, i - first)));
    first = i + 1;
  }
  return found;
}

// Of "extern "C" __global__ void __launch_bounds__(256, 1) NAME(PARAMETERS) {": NAME stands before
// the last parenthesis that opens outside of another.
std::vector<Entry> entries_of(const std::string& source) {
  std::vector<Entry> found;
  constexpr std::string_view kGlobal = "__global__";
  for (size_t at = source.find(kGlobal); at != std::string::npos; at = source.find(kGlobal, at)) {
    at += kGlobal.size();
    const size_t end = source.find('{', at);
    if (end == std::string::npos) break;
    const size_t close = source.rfind(')', end);
    size_t open = close;
    for (int depth = 1; depth > 0 && open > at;) {
      --open;
      if (source[open] == ')') ++depth;
      if (source[open] == '(') --depth;
    }
    const size_t last = source.find_last_not_of(" \n", open - 1) + 1;
    const size_t first = source.find_last_of(" \n)", last - 1) + 1;
    found.push_back({source.substr(first, last - first),
                     parameters_in(source.substr(open + 1, close - open - 1))});
    at = end;
  }
  return found;
}

std::string text_to_compile(const std::vector<std::string>& sources) {
  std::string text = "#include \"simt.h\"\n#include \"simulated_image.h\"\n";
  text +=
      "template <class... A>\nconstexpr size_t parameters_of(void (*)(A...)) {\n"
      "  return sizeof...(A);\n}\n"
      "template <class... A>\nconstexpr size_t sizes[] = {sizeof(A)..., 0};\n"
      "template <class... A>\nconstexpr const size_t* sizes_of(void (*)(A...)) {\n"
      "  return sizes<A...>;\n}\n";
  std::string table;
  for (const std::string& source : sources) {
    text += source;
    for (const auto& [entry, parameters] : entries_of(source)) {
      text += fmt::format(
          "static void call_{0}(void* const* p) {{ simt::call(ridge::cuda::{0}, p); }}\n"
          "static void run_{0}(void* const* p, unsigned blocks, unsigned threads) {{\n"
          "  simt::launch(call_{0}, p, blocks, threads);\n}}\n",
          entry);
      table += fmt::format(
          "  {{\"{0}\", parameters_of(ridge::cuda::{0}), sizes_of(ridge::cuda::{0}), "
          "run_{0}}},\n",
          entry);
    }
  }
  return text + fmt::format(
                    "extern \"C\" const ridge::test::SimulatedKernel {}[] = {{\n{}  "
                    "{{nullptr, 0, nullptr, nullptr}}}};\n",
                    ridge::test::kSimulatedKernels,
                    table);
}

// The form that the stand-in driver reads: kernels without anything in them.
std::string empty_kernels(const std::string& source) {
  std::string text = ".version 8.0\n.target sm_80\n";
  for (const auto& [name, parameters] : entries_of(source)) {
    text += fmt::format(".visible .entry {}(", name);
    for (size_t i = 0; i < parameters.size(); ++i)
      text += fmt::format("{}.param .u64 p{}[{}]", i == 0 ? "" : ", ", i, parameters[i]);
    text += ") { ret; }\n";
  }
  return text;
}

ridge::test::FakeNvrtcControl control;

// A compilation that runs.
class Running {
 public:
  Running() {
    ++control.compilations;
    const int now = ++control.at_once;
    for (int most = control.most_at_once; most < now;)
      if (control.most_at_once.compare_exchange_weak(most, now)) break;
    for (int i = 0; i < 200 && control.most_at_once < control.meeting; ++i) ::usleep(10000);
  }
  ~Running() { --control.at_once; }
};

// A folder that goes with the process.
const fs::path& scratch() {
  struct Scratch {
    Scratch() {
      std::string name = (fs::temp_directory_path() / "fake-nvrtc-XXXXXX").string();
      if (::mkdtemp(name.data()) != nullptr) path = name;
    }
    ~Scratch() {
      std::error_code ignored;
      fs::remove_all(path, ignored);
    }
    fs::path path;
  };
  static const Scratch made;
  return made.path;
}

// Empty, with the compiler's words in `log`, when it refuses.
std::string compile(const std::vector<std::string>& sources,
                    const Headers& headers,
                    std::string& log) {
  // The flags have no sanitizer, so that builds with and without one share what was compiled:
  // kernels run under AddressSanitizer in cuda_kernels.
  const std::string text = text_to_compile(sources);
  uint64_t key = ridge::hash64(RIDGE_SIMULATION_FLAGS);
  for (const char* const header : kSimulation) key = ridge::hash64(text_of(header), key);
  for (const auto& [name, header] : headers) key = ridge::hash64(header, ridge::hash64(name, key));
  key = ridge::hash64(text, key);
  const char* const cache = std::getenv("FAKE_NVRTC_CACHE");
  const fs::path kept =
      cache == nullptr ? fs::path{} : fs::path(cache) / fmt::format("{:016x}.so", key);
  if (!kept.empty() && fs::exists(kept)) {
    std::error_code ignored;
    fs::last_write_time(kept, fs::file_time_type::clock::now(), ignored);  // what is used stays
    return text_of(kept);
  }

  const fs::path folder = scratch() / fmt::format("{:016x}", key);
  for (const auto& [name, header] : headers)
    // The machine has that one.
    if (name != "cstdint") write(folder / "headers" / name, header);
  write(folder / "kernels.cc", text);
  const std::string command =
      fmt::format(RIDGE_GXX " " RIDGE_SIMULATION_FLAGS " -shared -I '" RIDGE_SIMULATION
                            "' -I '{0}/headers' '{0}/kernels.cc' -o '{0}/kernels.so' 2> '{0}/log'",
                  folder.string());
  const bool is_compiled = std::system(command.c_str()) == 0;
  log = text_of(folder / "log");
  std::string image = is_compiled ? text_of(folder / "kernels.so") : "";
  if (is_compiled && !kept.empty()) {
    // Another process finds all of it or nothing.
    const fs::path other = fmt::format("{}.{}", kept.string(), ::getpid());
    write(other, image);
    fs::rename(other, kept);
  }
  fs::remove_all(folder);
  return image;
}

}  // namespace

extern "C" {

int fake_nvrtc_compile_together(const char* const* sources,
                                size_t count,
                                const char* const* header_texts,
                                const char* const* header_names,
                                size_t headers) {
  Headers all;
  for (size_t i = 0; i < headers; ++i) all[header_names[i]] = header_texts[i];
  std::string log;
  const std::string image = compile({sources, sources + count}, all, log);
  if (image.empty()) {
    std::fprintf(stderr, "%s\n", log.substr(0, 4000).c_str());
    return kCompilation;
  }
  const std::lock_guard lock(mutex);
  for (size_t i = 0; i < count; ++i) known_images[sources[i]] = image;
  return kSuccess;
}

ridge::test::FakeNvrtcControl* fake_nvrtc_control() { return &control; }

const char* nvrtcGetErrorString(int code) {
  return code == kSuccess       ? "NVRTC_SUCCESS"
         : code == kCompilation ? "NVRTC_ERROR_COMPILATION"
                                : "NVRTC_ERROR_INVALID_INPUT";
}

int nvrtcVersion(int* major, int* minor) {
  *major = 13, *minor = 0;
  return kSuccess;
}

int nvrtcCreateProgram(Program** program,
                       const char* source,
                       const char*,
                       int count,
                       const char* const* headers,
                       const char* const* names) {
  *program = new Program{.source = source, .headers = {}, .image = {}, .log = {}};
  for (int i = 0; i < count; ++i) (*program)->headers[names[i]] = headers[i];
  return kSuccess;
}

int nvrtcDestroyProgram(Program** program) {
  delete *program;
  *program = nullptr;
  return kSuccess;
}

int nvrtcCompileProgram(Program* program, int count, const char* const* options) {
  const Running running;
  bool has_target = false;
  for (int i = 0; i < count; ++i)
    has_target = has_target || std::string_view(options[i]).starts_with("--gpu-architecture=sm_");
  if (!has_target) return kInvalidInput;
  for (const std::string& text : control.refused)
    if (program->source.find(text) != std::string::npos) {
      program->log = "the source has '" + text + "'";
      return kCompilation;
    }
  if (control.makes_empty) {
    program->image = empty_kernels(program->source);
    return kSuccess;
  }
  {
    const std::lock_guard lock(mutex);
    const auto known = known_images.find(program->source);
    if (known != known_images.end()) program->image = known->second;
  }
  if (!program->image.empty()) return kSuccess;
  program->image = compile({program->source}, program->headers, program->log);
  if (program->image.empty()) return kCompilation;
  const std::lock_guard lock(mutex);
  known_images[program->source] = program->image;
  return kSuccess;
}

int nvrtcGetProgramLogSize(Program* program, size_t* size) {
  *size = program->log.size() + 1;
  return kSuccess;
}

int nvrtcGetProgramLog(Program* program, char* log) {
  std::memcpy(log, program->log.c_str(), program->log.size() + 1);
  return kSuccess;
}

int nvrtcGetCUBINSize(Program* program, size_t* size) {
  *size = program->image.size();
  return kSuccess;
}

int nvrtcGetCUBIN(Program* program, char* cubin) {
  std::memcpy(cubin, program->image.data(), program->image.size());
  return kSuccess;
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
