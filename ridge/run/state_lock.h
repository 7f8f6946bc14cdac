// A lock that many readers share, or one writer has alone.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>

namespace ridge {

/// It has the names of std::shared_mutex, but neither side starves the other: a writer that waits
/// goes before readers that come after it, and the readers that wait when it is done go before the
/// next writer. A thread takes it once at a time.
class StateLock {
 public:
  void lock() {
    std::unique_lock lock(mutex_);
    ++waiting_writers_;
    changed_.wait(lock, [&] { return readers_ == 0 && !is_written_ && due_readers_ == 0; });
    --waiting_writers_;
    is_written_ = true;
  }
  void unlock() {
    {
      const std::lock_guard lock(mutex_);
      is_written_ = false;
      due_readers_ = waiting_readers_;
    }
    changed_.notify_all();
  }
  void lock_shared() {
    std::unique_lock lock(mutex_);
    ++waiting_readers_;
    changed_.wait(lock, [&] { return may_read(); });
    --waiting_readers_;
    enter();
  }
  bool try_lock_shared() {
    const std::lock_guard lock(mutex_);
    if (!may_read()) return false;
    enter();
    return true;
  }
  void unlock_shared() {
    bool is_last = false;
    {
      const std::lock_guard lock(mutex_);
      is_last = --readers_ == 0 && waiting_writers_ > 0;
    }
    if (is_last) changed_.notify_all();
  }

 private:
  bool may_read() const { return !is_written_ && (waiting_writers_ == 0 || due_readers_ > 0); }
  void enter() {
    if (due_readers_ > 0) --due_readers_;
    ++readers_;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  size_t readers_ = 0, waiting_readers_ = 0, waiting_writers_ = 0;
  size_t due_readers_ = 0;  ///< Those that still go before the next writer.
  bool is_written_ = false;
};

}  // namespace ridge
