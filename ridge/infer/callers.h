// Threads that call a session at the same time.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "ridge/base/function_ref.h"

namespace ridge {

class Callers {
 public:
  /// `count` callers, the thread that makes them included. UserError where the system refuses them.
  explicit Callers(size_t count);
  Callers(const Callers&) = delete;
  Callers& operator=(const Callers&) = delete;
  ~Callers();

  size_t count() const { return threads_.size() + 1; }
  /// Calls body(0) to body(count() - 1) at the same time, and returns when all are done. What the
  /// lowest of those that throw has thrown is thrown again.
  void run(FunctionRef<void(size_t)> body);

 private:
  void end_threads();
  void serve(size_t number);
  void call(size_t number);

  std::mutex mutex_;  ///< It guards what follows, but for the threads and a caller's own error.
  std::condition_variable begin_, end_;
  const FunctionRef<void(size_t)>* body_ = nullptr;
  uint64_t round_ = 0;  ///< Calls of run() so far.
  size_t busy_ = 0;     ///< Threads that are not done with this round.
  bool is_over_ = false;
  std::vector<std::exception_ptr> errors_;  ///< Each caller has its own.
  std::vector<std::thread> threads_;
};

}  // namespace ridge
