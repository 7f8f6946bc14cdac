#include "ridge/backend/cuda/driver/nvrtc.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

#include "ridge/backend/cuda/driver/library_search.h"
#include "ridge/backend/cuda/print/kernel.h"
#include "ridge/base/error.h"
#include "ridge/base/hash.h"

namespace ridge::cuda {
namespace {

// Written by us from NVRTC's documentation; 0 is success.
using Program = void*;
using Result = int;

// Contraction would change bits, and a host function has no place in a kernel.
constexpr const char* kOptions[] = {
    "--std=c++17", "--fmad=false", "--device-as-default-execution-space", "--disable-warnings"};

}  // namespace

struct Nvrtc::Api {
  const char* (*error_text)(Result) = nullptr;
  Result (*version)(int*, int*) = nullptr;
  Result (*create)(
      Program*, const char*, const char*, int, const char* const*, const char* const*) = nullptr;
  Result (*destroy)(Program*) = nullptr;
  Result (*compile)(Program, int, const char* const*) = nullptr;
  Result (*log_size)(Program, size_t*) = nullptr;
  Result (*log)(Program, char*) = nullptr;
  Result (*cubin_size)(Program, size_t*) = nullptr;
  Result (*cubin)(Program, char*) = nullptr;
  Result (*ptx_size)(Program, size_t*) = nullptr;
  Result (*ptx)(Program, char*) = nullptr;
  Result (*count_architectures)(int*) = nullptr;
  Result (*architectures)(int*) = nullptr;

  bool find_all(const OpenedLibrary& from) {
    return from.find(error_text, "nvrtcGetErrorString") && from.find(version, "nvrtcVersion") &&
           from.find(create, "nvrtcCreateProgram") && from.find(destroy, "nvrtcDestroyProgram") &&
           from.find(compile, "nvrtcCompileProgram") &&
           from.find(log_size, "nvrtcGetProgramLogSize") && from.find(log, "nvrtcGetProgramLog") &&
           from.find(cubin_size, "nvrtcGetCUBINSize") && from.find(cubin, "nvrtcGetCUBIN") &&
           from.find(ptx_size, "nvrtcGetPTXSize") && from.find(ptx, "nvrtcGetPTX") &&
           from.find(count_architectures, "nvrtcGetNumSupportedArchs") &&
           from.find(architectures, "nvrtcGetSupportedArchs");
  }

  void check_call(Result result, const char* call, const std::string& name = {}) const {
    check(result == 0,
          "[nvrtc] {} failed{}: {}",
          call,
          name.empty() ? "" : fmt::format(" for kernel '{}'", name),
          error_text(result));
  }
};

Nvrtc::~Nvrtc() = default;

std::shared_ptr<const Nvrtc> Nvrtc::open(int driver) {
  std::shared_ptr<Nvrtc> made(new Nvrtc);
  made->api_ = std::make_unique<Api>();
  int major = 0, minor = 0;
  const OpenedLibrary library = open_library(
      {.variable = "RIDGE_NVRTC",
       .files = {"libnvrtc.so.13", "libnvrtc.so.12"},
       .failed = "[nvrtc] cannot open the compiler of CUDA kernels",
       .fix = by_driver(driver,
                        "install it by `pip install nvidia-cuda-nvrtc` and name its "
                        "libnvrtc.so.13 in RIDGE_NVRTC",
                        "install one for this driver by `pip install nvidia-cuda-nvrtc-cu12` and "
                        "name its libnvrtc.so.12 in RIDGE_NVRTC")},
      [&](const OpenedLibrary& opened) {
        const bool fits = made->api_->find_all(opened) && made->api_->version(&major, &minor) == 0;
        return fits ? newer_than_driver(opened.path, static_cast<size_t>(major), driver)
                    : fmt::format("{} is no NVRTC of CUDA 12 or later", opened.path);
      });
  made->version_ = fmt::format("{}.{}", major, minor);
  made->path_ = library.path;
  return made;
}

std::string Nvrtc::target_for(int major, int minor) const {
  int count = 0;
  api_->check_call(api_->count_architectures(&count), "nvrtcGetNumSupportedArchs");
  std::vector<int> known(static_cast<size_t>(std::max(count, 0)));
  if (!known.empty()) api_->check_call(api_->architectures(known.data()), "nvrtcGetSupportedArchs");
  const int wanted = 10 * major + minor;
  int newest = 0;
  for (const int each : known)
    if (each <= wanted) newest = std::max(newest, each);
  // The compiler says so itself where all that it knows are newer.
  return newest == 0 || newest == wanted ? fmt::format("sm_{}", wanted)
                                         : fmt::format("compute_{}", newest);
}

std::string Nvrtc::compile(const std::string& source,
                           const std::string& name,
                           const std::string& architecture) const {
  std::vector<const char*> texts, names;
  std::vector<std::string> copies;  // the texts end in a zero only as such
  // NVRTC has no standard headers of its own.
  copies.reserve(2 * device_headers().size() + 2);
  const auto add_header = [&](std::string_view header, std::string_view text) {
    texts.push_back(copies.emplace_back(text).c_str());
    names.push_back(copies.emplace_back(header).c_str());
  };
  for (const auto& [header, text] : device_headers()) add_header(header, text);
  add_header("cstdint",
             "typedef signed char int8_t; typedef short int16_t; typedef int int32_t;\n"
             "typedef long long int64_t; typedef unsigned char uint8_t;\n"
             "typedef unsigned short uint16_t; typedef unsigned int uint32_t;\n"
             "typedef unsigned long long uint64_t;\n");
  Program program = nullptr;
  const std::string file = name + ".cu";
  api_->check_call(api_->create(&program,
                                source.c_str(),
                                file.c_str(),
                                static_cast<int>(texts.size()),
                                texts.data(),
                                names.data()),
                   "nvrtcCreateProgram",
                   name);
  const auto destroy = [this](void* made) {
    Program each = made;
    api_->destroy(&each);
  };
  const std::unique_ptr<void, decltype(destroy)> owned(program, destroy);
  const std::string target = "--gpu-architecture=" + architecture;
  std::vector<const char*> options(std::begin(kOptions), std::end(kOptions));
  options.push_back(target.c_str());
  const Result compiled = api_->compile(program, static_cast<int>(options.size()), options.data());
  if (compiled != 0) {
    size_t size = 0;
    std::string log;
    if (api_->log_size(program, &size) == 0 && size > 1) {
      log.resize(size);
      if (api_->log(program, log.data()) != 0) log.clear();
      log.resize(std::strlen(log.c_str()));
    }
    throw UserError(fmt::format("[nvrtc] kernel '{}' does not compile for {} with NVRTC {}: {}\n{}",
                                name,
                                architecture,
                                version_,
                                api_->error_text(compiled),
                                log));
  }
  const bool is_ptx = architecture.starts_with("compute_");
  const char* const call = is_ptx ? "nvrtcGetPTX" : "nvrtcGetCUBIN";
  size_t size = 0;
  api_->check_call((is_ptx ? api_->ptx_size : api_->cubin_size)(program, &size), call, name);
  check(size > 0, "[nvrtc] made nothing of kernel '{}' for {}", name, architecture);
  std::string image(size, '\0');
  api_->check_call((is_ptx ? api_->ptx : api_->cubin)(program, image.data()), call, name);
  return image;
}

// ---- the cache ----

namespace {

// A file: this, the hash of the cubin in eight bytes, the cubin.
constexpr std::string_view kMagic = "ridgecu1";
constexpr size_t kHead = kMagic.size() + sizeof(uint64_t);

std::string read_kept(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string all{std::istreambuf_iterator<char>(file), {}};
  if (!file || all.size() <= kHead || !all.starts_with(kMagic)) return {};
  uint64_t hash = 0;
  std::memcpy(&hash, all.data() + kMagic.size(), sizeof hash);
  std::string cubin = all.substr(kHead);
  return hash64(cubin) == hash ? cubin : std::string();
}

// Under another name first: a reader finds all of it or nothing.
void keep(const std::filesystem::path& path, const std::string& cubin) {
  static std::atomic<int> written{0};
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  auto other = path;
  other += fmt::format(".{}.{}", getpid(), written++);
  const uint64_t hash = hash64(cubin);
  {
    std::ofstream file(other, std::ios::binary);
    file.write(kMagic.data(), static_cast<std::streamsize>(kMagic.size()));
    file.write(reinterpret_cast<const char*>(&hash), sizeof hash);
    file.write(cubin.data(), static_cast<std::streamsize>(cubin.size()));
    file.close();
    if (!file) {
      std::filesystem::remove(other, error);
      return;
    }
  }
  std::filesystem::rename(other, path, error);
  if (error) std::filesystem::remove(other, error);
}

}  // namespace

CubinCache::CubinCache(std::shared_ptr<const Nvrtc> compiler, std::filesystem::path folder)
    : compiler_(std::move(compiler)), folder_(std::move(folder)) {}

std::string CubinCache::compile(const std::string& source,
                                const std::string& name,
                                const std::string& architecture) const {
  if (folder_.empty()) return compiler_->compile(source, name, architecture);
  std::string key =
      fmt::format("{}\n{}\n{}\n", compiler_->version(), architecture, fmt::join(kOptions, " "));
  for (const auto& [header, text] : device_headers()) key += fmt::format("{}\n{}\n", header, text);
  key += source;
  const auto path =
      folder_ /
      fmt::format("{:016x}{:016x}.cubin", hash64(key), hash64(key, hash64("another start")));
  if (std::string kept = read_kept(path); !kept.empty()) return kept;
  std::string cubin = compiler_->compile(source, name, architecture);
  keep(path, cubin);
  return cubin;
}

}  // namespace ridge::cuda
