#include "ridge/infer/callers.h"

#include <algorithm>
#include <system_error>

#include "ridge/base/error.h"

namespace ridge {

Callers::Callers(size_t count) : errors_(std::max<size_t>(count, 1)) {
  try {
    for (size_t number = 1; number < errors_.size(); ++number)
      threads_.emplace_back([this, number] { serve(number); });
  } catch (const std::system_error& error) {
    const size_t started = threads_.size();
    end_threads();
    throw UserError(
        fmt::format(
            "the system started {} of {} threads: {}", started, errors_.size() - 1, error.what()),
        "run fewer instances");
  }
}

Callers::~Callers() { end_threads(); }

void Callers::end_threads() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  begin_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void Callers::call(size_t number) {
  try {
    (*body_)(number);
  } catch (...) {
    errors_[number] = std::current_exception();
  }
}

void Callers::serve(size_t number) {
  for (uint64_t seen = 0;;) {
    {
      std::unique_lock lock(mutex_);
      begin_.wait(lock, [&] { return is_over_ || round_ != seen; });
      if (is_over_) return;
      seen = round_;
    }
    call(number);
    const std::lock_guard lock(mutex_);
    if (--busy_ == 0) end_.notify_one();
  }
}

void Callers::run(FunctionRef<void(size_t)> body) {
  {
    const std::lock_guard lock(mutex_);
    body_ = &body;
    busy_ = threads_.size();
    std::ranges::fill(errors_, nullptr);
    ++round_;
  }
  begin_.notify_all();
  call(0);
  std::unique_lock lock(mutex_);
  end_.wait(lock, [&] { return busy_ == 0; });
  for (const std::exception_ptr& error : errors_)
    if (error != nullptr) std::rethrow_exception(error);
}

}  // namespace ridge
