// The base of the stand-ins for NVIDIA's libraries: calls are written down, any may fail, and
// faults that no program may make are reported.
#pragma once

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/backend/cuda/fake_driver/fake_cuda.h"

namespace ridge::test {

/// Thrown within a call, which returns its code. 0 is success.
struct Refused {
  int code;
};
inline void require(bool is_met, int code) {
  if (!is_met) throw Refused{code};
}

/// The code of a body, which returns one or nothing.
template <typename Body>
int code_of(Body body) {
  try {
    if constexpr (!std::is_void_v<decltype(body())>)
      return body();
    else
      body();
  } catch (const Refused& refused) {
    return refused.code;
  }
  return 0;
}

/// Calls that a test wants to fail.
class Failures {
 public:
  /// The `nth` call of that name from now on (an empty name: of any) returns `code`.
  void add(const std::string& call, int64_t nth, int code) { all_.push_back({call, nth, code}); }
  void clear() { all_.clear(); }
  /// The code that this call returns in place of its own; 0: none.
  int of(const std::string& call) {
    int code = 0;
    for (Failure& each : all_)
      if ((each.call.empty() || each.call == call) && --each.nth == 0) code = each.code;
    return code;
  }

 private:
  struct Failure {
    std::string call;
    int64_t nth;
    int code;
  };
  std::vector<Failure> all_;
};

/// Objects of a kind by their handles.
template <typename T>
struct Objects : std::map<const void*, std::unique_ptr<T>> {
  explicit Objects(const char* name) : kind(name) {}
  T* make(T made = {}) {
    auto owned = std::make_unique<T>(std::move(made));
    T* const handle = owned.get();
    this->emplace(handle, std::move(owned));
    return handle;
  }
  const char* kind;
};

/// The controls of a library's stand-in.
class FakeLibrary : public FakeCalls {
 public:
  /// All as at the start of the process. `driver`: the file of the stand-in driver.
  virtual void reset(const std::string& driver) = 0;
};

/// A handle of a library that computes: its work is a kernel of the stand-in driver, so that it
/// runs when the driver's streams do.
struct LibraryHandle {
  void *module = nullptr, *function = nullptr, *stream = nullptr;
  std::map<std::string, void*> loaded = {};  // modules that are loaded at the first run
};

/// The base of a stand-in whose tests ask a `Control`, which is a FakeLibrary.
template <typename Control>
class RecordedLibrary : public Control {
 public:
  /// `kernel`: the name of its kernel; the parameters of which are so many addresses.
  RecordedLibrary(std::string kernel, int parameters) : kernel_(std::move(kernel)) {
    for (int i = 0; i < parameters; ++i)
      ptx_ += fmt::format("{}.param .u64 p{}", i > 0 ? ", " : "", i);
    ptx_ = fmt::format(
        ".version 8.0\n.target sm_80\n.visible .entry {}({}) {{ ret; }}\n", kernel_, ptx_);
  }
  void fail(const std::string& call, int64_t nth, int status) override {
    failures_.add(call, nth, status);
  }
  std::vector<std::string> log() const override { return log_; }
  void clear_log() override { log_.clear(); }
  std::vector<std::string> faults() const override { return faults_; }

  /// One call: counted, refused where a test wants it, written to the log. `body` adds to the line.
  template <typename Body>
  int called(const char* name, Body body, bool destroys = false) {
    const std::lock_guard lock(mutex_);
    std::string line = name;
    int status = failures_.of(name);
    const bool is_done = status == 0 || destroys;
    begin_call(is_done);
    if (is_done) {
      const int own = code_of([&] { return body(line); });
      if (status == 0) status = own;
    }
    if (status != 0) line += fmt::format(" -> {}", status);
    log_.push_back(line);
    return status;
  }
  template <typename Body>
  int destroys(const char* name, Body body) {
    return called(name, body, true);
  }
  void add_fault(std::string text) { faults_.push_back(std::move(text)); }

  /// Gives `made` the kernel, which does `body`; false where the driver refuses.
  bool load(FakeCuda::Body body, LibraryHandle& made) {
    auto* const entry = driver_call<FakeCudaEntry>(kFakeCudaEntry);
    if (entry == nullptr) return false;
    entry()->on_kernel(kernel_, std::move(body));
    if (!load_module(made.module)) return false;
    const auto get = driver_call<int(void**, void*, const char*)>("cuModuleGetFunction");
    if (get(&made.function, made.module, kernel_.c_str()) == 0) return true;
    unload(made);
    return false;
  }
  /// Loads a module when it is first used, as the library does where CUDA_MODULE_LOADING is LAZY,
  /// the default.
  bool load_late(LibraryHandle& handle, const std::string& what) {
    void*& module = handle.loaded[what];
    return module != nullptr || load_module(module);
  }
  void unload(const LibraryHandle& handle) const {
    const auto unload_module = driver_call<int(void*)>("cuModuleUnload");
    for (const auto& [what, module] : handle.loaded) unload_module(module);
    unload_module(handle.module);
  }
  /// On the handle's stream.
  bool launch(const LibraryHandle& handle, void** parameters) const {
    using Size = unsigned;  // sizes of the grid, of a block, and of shared memory
    using Launch = int(void*, Size, Size, Size, Size, Size, Size, Size, void*, void**, void**);
    return driver_call<Launch>("cuLaunchKernel")(
               handle.function, 1, 1, 1, 1, 1, 1, 0, handle.stream, parameters, nullptr) == 0;
  }

 protected:
  /// Before the body of a call, or instead of it.
  virtual void begin_call(bool /*is_done*/) {}
  /// Nothing was called yet; the driver is that of the file.
  void forget(const std::string& driver) {
    driver_ = ::dlopen(driver.c_str(), RTLD_NOW | RTLD_LOCAL);
    failures_.clear(), log_.clear(), faults_.clear();
  }

  std::mutex mutex_;

 private:
  template <typename Function>
  Function* driver_call(const char* name) const {
    return reinterpret_cast<Function*>(::dlsym(driver_, name));
  }
  bool load_module(void*& module) const {
    return driver_call<int(void**, const void*, unsigned, int*, void**)>("cuModuleLoadDataEx")(
               &module, ptx_.c_str(), 0, nullptr, nullptr) == 0;
  }

  std::string kernel_, ptx_;
  void* driver_ = nullptr;
  Failures failures_;
  std::vector<std::string> log_, faults_;
};

}  // namespace ridge::test
