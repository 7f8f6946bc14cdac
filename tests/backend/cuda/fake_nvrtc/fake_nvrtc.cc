// A stand-in for NVRTC: the sources that it is given become functions of this machine, by the
// compiler of the tests. Headers are those that the caller hands over, and the standard's. It is of
// CUDA 13.0, or of $FAKE_NVRTC_MAJOR.0.
#include "tests/backend/cuda/fake_nvrtc/fake_nvrtc.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tests/backend/cuda/simulation/compile.h"

// NOLINTBEGIN(readability-identifier-naming): the names are those of NVRTC.
namespace {

constexpr int kSuccess = 0, kInvalidInput = 3, kCompilation = 6;

using Headers = std::map<std::string, std::string>;

struct Program {
  std::string source;
  bool is_ptx = false;
  Headers headers;
  std::string image, log;
};

// Images that this process has compiled; several sources may share the image that holds them all.
std::mutex mutex;
std::map<std::string, std::string> known_images;

// Throws when the compiler refuses it. The flags have no sanitizer: kernels run under
// AddressSanitizer in cuda_kernels.
std::string compile(const std::vector<std::string>& sources, const Headers& headers) {
  std::ifstream file(ridge::test::compile_simulated(sources, headers, false), std::ios::binary);
  std::string image{std::istreambuf_iterator<char>(file), {}};
  const std::lock_guard lock(mutex);
  for (const std::string& source : sources) known_images[source] = image;
  return image;
}

// The form that the stand-in driver reads: kernels without anything in them.
std::string empty_kernels(const std::string& source) {
  std::string text = ".version 8.0\n.target sm_80\n";
  for (const auto& [name, parameters] : ridge::test::entries_of(source)) {
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
    for (int i = 0; i < 6000 && control.most_at_once < control.meeting; ++i) ::usleep(10000);
  }
  ~Running() { --control.at_once; }
};

template <typename T>
int give(size_t number, T* to) {
  *to = static_cast<T>(number);
  return kSuccess;
}
template <typename From, typename T>
int copy(const From& from, T* to) {
  std::copy(from.begin(), from.end(), to);
  return kSuccess;
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
  try {
    compile({sources, sources + count}, all);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return kCompilation;
  }
  return kSuccess;
}

ridge::test::FakeNvrtcControl* fake_nvrtc_control() { return &control; }

const char* nvrtcGetErrorString(int code) {
  return code == kSuccess       ? "NVRTC_SUCCESS"
         : code == kCompilation ? "NVRTC_ERROR_COMPILATION"
                                : "NVRTC_ERROR_INVALID_INPUT";
}

int nvrtcVersion(int* major, int* minor) {
  const char* const named = std::getenv("FAKE_NVRTC_MAJOR");
  *major = named == nullptr ? 13 : std::atoi(named), *minor = 0;
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
  constexpr std::string_view kDevice = "--gpu-architecture=sm_",
                             kPtx = "--gpu-architecture=compute_";
  int target = 0;
  for (int i = 0; i < count; ++i) {
    const std::string_view option = options[i];
    program->is_ptx = program->is_ptx || option.starts_with(kPtx);
    if (option.starts_with(kDevice) || option.starts_with(kPtx))
      target = std::atoi(option.data() + option.find('_') + 1);
  }
  const std::vector<int>& known = control.architectures;
  if (std::find(known.begin(), known.end(), target) == known.end()) return kInvalidInput;
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
    const auto found = known_images.find(program->source);
    if (found != known_images.end()) program->image = found->second;
  }
  if (program->image.empty()) try {
      program->image = compile({program->source}, program->headers);
    } catch (const std::exception& error) {
      program->log = error.what();
      return kCompilation;
    }
  return kSuccess;
}

int nvrtcGetProgramLogSize(Program* program, size_t* size) {
  return give(program->log.size() + 1, size);
}
int nvrtcGetProgramLog(Program* program, char* log) {
  log[program->log.size()] = '\0';
  return copy(program->log, log);
}
// A source that was compiled to PTX has no cubin: it runs on no device yet.
int nvrtcGetCUBINSize(Program* program, size_t* size) {
  return give(program->is_ptx ? 0 : program->image.size(), size);
}
int nvrtcGetPTXSize(Program* program, size_t* size) { return give(program->image.size(), size); }
int nvrtcGetPTX(Program* program, char* ptx) { return copy(program->image, ptx); }
int nvrtcGetCUBIN(Program* program, char* cubin) { return copy(program->image, cubin); }

int nvrtcGetNumSupportedArchs(int* count) { return give(control.architectures.size(), count); }
int nvrtcGetSupportedArchs(int* architectures) {
  return copy(control.architectures, architectures);
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
