// Libraries of CUDA that are opened at run time, from wherever they were installed to.
#pragma once

#include <dlfcn.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "ridge/base/error.h"

namespace ridge::cuda {

/// A library that was opened. It is never closed: NVIDIA's have a C++ runtime of their own, whose
/// memory would be lost with them.
struct OpenedLibrary {
  void* handle = nullptr;
  std::string path;  ///< The path that was opened: a file's name alone where the loader found it.

  template <typename Function>
  bool find(Function& function, const char* name) const {
    void* found = ::dlsym(handle, name);
    std::memcpy(&function, &found, sizeof found);
    return found != nullptr;
  }
};

/// Another function of the library than those that a wrapper has calls for.
template <typename Function>
class NamedFunction {
 public:
  NamedFunction(Function& function, const char* name) : function_(function), name_(name) {}
  bool find_in(const OpenedLibrary& library) const { return library.find(function_, name_); }
  const char* name() const { return name_; }

 private:
  Function& function_;
  const char* name_;
};

/// Finds them all, calls of a wrapper and NamedFunctions: the name of the first that the library
/// lacks; empty: none.
template <typename... Functions>
std::string find_functions(const OpenedLibrary& library, Functions&&... functions) {
  std::string missing;
  ((!functions.find_in(library) && missing.empty() ? missing = functions.name() : missing), ...);
  return missing;
}

/// The version of the driver for a caller that has none: it takes any library.
inline constexpr int kAnyDriver = 1 << 30;
/// Why a driver for CUDA `driver` (1000 * major + 10 * minor) does not run what the library at
/// `path`, of CUDA `major`, makes or holds: kernels of a later major version are refused. Empty: it
/// does.
std::string newer_than_driver(const std::string& path, size_t major, int driver);
/// The one of two texts that fits a driver: for those of CUDA 13 and later, and for those of 12.
inline const char* by_driver(int driver, const char* of_13, const char* of_12) {
  return driver >= 13000 ? of_13 : of_12;
}

/// The files that a library is looked for in, and the error where none is found.
struct LibrarySearch {
  const char* variable;            ///< Environment variable that names the one file to open.
  std::vector<const char*> files;  ///< Else these, the best first.
  std::vector<const char*> folders = {"/usr/local/cuda/lib64"};  ///< Folders of a toolkit.
  std::string failed;  ///< "[nvrtc] cannot open the compiler".
  std::string fix;
};

/// None of the files is there. Where one is and cannot be used, the error is a UserError alone.
class LibraryMissing : public UserError {
 public:
  using UserError::UserError;
};

/// Opens the first that there is and that `refuse` takes, to which it returns an empty text, else
/// why not: the file that the variable names, or each file where the loader finds it, in the
/// toolkit's folders, and in the active Python environment ($VIRTUAL_ENV), where wheels put it.
/// UserError when there is none, with all places searched and the reason against the last that is
/// there.
OpenedLibrary open_library(const LibrarySearch& search,
                           const std::function<std::string(const OpenedLibrary&)>& refuse);

}  // namespace ridge::cuda
