// NVIDIA's compiler of CUDA C++ at run time, opened with dlopen: the one file that knows its API.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "ridge/backend/cuda/driver/library_search.h"

namespace ridge::cuda {

class Nvrtc {
 public:
  /// The library that $RIDGE_NVRTC names; else libnvrtc.so.13 or .12 where the loader finds one, in
  /// the toolkit at /usr/local/cuda, or in the active Python environment ($VIRTUAL_ENV), where the
  /// wheel nvidia-cuda-nvrtc puts it. UserError when there is none whose kernels the driver loads,
  /// with all places searched.
  static std::shared_ptr<const Nvrtc> open(int driver = kAnyDriver);
  ~Nvrtc();

  const std::string& version() const { return version_; }  ///< "13.2".
  const std::string& path() const { return path_; }

  /// The target to compile for, for a device of compute capability MAJOR.MINOR: "sm_90"; for a
  /// capability that this version does not know, the newest before it in a form that the driver
  /// compiles when it is loaded: "compute_120".
  std::string target_for(int major, int minor) const;

  /// The cubin of a printed source for a target such as "sm_90", PTX for one such as "compute_120";
  /// `name` says in errors which source. UserError with the compiler's log when it is refused.
  std::string compile(const std::string& source,
                      const std::string& name,
                      const std::string& architecture) const;

 private:
  struct Api;
  Nvrtc() = default;

  std::unique_ptr<Api> api_;
  std::string version_, path_;
};

/// Cubins kept from run to run, by all that they depend on: source, the headers that it may
/// include, options, architecture and the compiler's version. What cannot be read or written costs
/// time, never a run; a file that was cut off or changed is compiled anew.
class CubinCache {
 public:
  /// Files are kept in `folder`, which is made; an empty path keeps nothing. Ridge's own is
  /// cache_folder() / "cuda-kernels-1".
  CubinCache(std::shared_ptr<const Nvrtc> compiler, std::filesystem::path folder);

  /// Does what Nvrtc::compile does. Several threads and programs may call it at a time.
  std::string compile(const std::string& source,
                      const std::string& name,
                      const std::string& architecture) const;

 private:
  std::shared_ptr<const Nvrtc> compiler_;
  std::filesystem::path folder_;
};

}  // namespace ridge::cuda
