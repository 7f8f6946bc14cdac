// What the stand-ins for NVIDIA's libraries have in common: calls are written down, any may fail,
// and what no program may do is told.
#pragma once

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace ridge::test {

/// What a test asks of any of them.
class FakeLibrary {
 public:
  virtual ~FakeLibrary() = default;

  /// All as at the start of the process. `driver`: the file of the stand-in driver.
  virtual void reset(const std::string& driver) = 0;
  /// The `nth` call of that name from now on (an empty name: of any) returns `status`; what
  /// destroys does so all the same.
  virtual void fail(const std::string& call, int64_t nth, int status) = 0;

  /// A line a call.
  virtual std::vector<std::string> log() const = 0;
  virtual void clear_log() = 0;
  /// Names of what was made and not destroyed.
  virtual std::vector<std::string> live() const = 0;
  /// What no program may do.
  virtual std::vector<std::string> faults() const = 0;
};

/// That for a stand-in whose tests ask a `Control`, which is a FakeLibrary. 0 is success.
template <typename Control>
class RecordedLibrary : public Control {
 public:
  void fail(const std::string& call, int64_t nth, int status) override {
    failures_.push_back({call, nth, status});
  }
  std::vector<std::string> log() const override { return log_; }
  void clear_log() override { log_.clear(); }
  std::vector<std::string> faults() const override { return faults_; }

  /// One call: counted, refused where a test wants it, written to the log. `body` adds to the line.
  template <typename Body>
  int called(const char* name, bool destroys, Body body) {
    const std::lock_guard lock(mutex_);
    std::string line = name;
    int status = 0;
    for (Failure& each : failures_)
      if ((each.call.empty() || each.call == name) && --each.nth == 0) status = each.status;
    const bool is_done = status == 0 || destroys;
    begin_call(is_done);
    if (is_done) {
      const int own = body(line);
      if (status == 0) status = own;
    }
    if (status != 0) line += fmt::format(" -> {}", status);
    log_.push_back(line);
    return status;
  }

  template <typename Function>
  Function* driver_call(const char* name) const {
    return reinterpret_cast<Function*>(::dlsym(driver_, name));
  }
  void add_fault(std::string text) { faults_.push_back(std::move(text)); }

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
  struct Failure {
    std::string call;
    int64_t nth;
    int status;
  };
  void* driver_ = nullptr;
  std::vector<Failure> failures_;
  std::vector<std::string> log_, faults_;
};

}  // namespace ridge::test
