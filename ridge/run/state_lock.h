// A lock that many readers share, or one writer has alone.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>

namespace ridge {

/// It has the names of std::shared_mutex, but a writer that waits goes before readers that come
/// after it: readers that never pause would keep it waiting for ever. A thread takes it once at a
/// time.
class StateLock {
 public:
  void lock() {
    std::unique_lock lock(mutex_);
    ++waiting_writers_;
    changed_.wait(lock, [&] { return readers_ == 0 && !is_written_; });
    --waiting_writers_;
    is_written_ = true;
  }
  void unlock() {
    {
      const std::lock_guard lock(mutex_);
      is_written_ = false;
    }
    changed_.notify_all();
  }
  void lock_shared() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_writers_ == 0 && !is_written_; });
    ++readers_;
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
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t readers_ = 0, waiting_writers_ = 0;
  bool is_written_ = false;
};

}  // namespace ridge
