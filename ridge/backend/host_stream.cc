// Streams of the host: inline, or a thread with a bounded queue.
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "ridge/backend/host.h"

namespace ridge {
namespace {

class HostEvent final : public Event {
 public:
  void synchronize() override { wait(recorded()); }
  /// A new recording: waits from now on are for the `set` that belongs to the ticket.
  uint64_t begin() {
    const std::lock_guard lock(mutex_);
    return ++recorded_;
  }
  void set(uint64_t ticket) {
    {
      const std::lock_guard lock(mutex_);
      reached_ = std::max(reached_, ticket);
    }
    changed_.notify_all();
  }
  uint64_t recorded() {
    const std::lock_guard lock(mutex_);
    return recorded_;
  }
  void wait(uint64_t ticket) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return reached_ >= ticket; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t recorded_ = 0, reached_ = 0;
};

HostEvent& host_event(Event& event) {
  auto* typed = dynamic_cast<HostEvent*>(&event);
  check_internal(typed != nullptr, "an event of another backend");
  return *typed;
}

class HostStream : public Stream {
 public:
  virtual bool is_inline() const { return false; }
  virtual void enqueue(std::function<void()> work) = 0;

  std::unique_ptr<Event> make_event() override { return std::make_unique<HostEvent>(); }
  void record(Event& event) override {
    HostEvent& point = host_event(event);
    enqueue_always([&point, ticket = point.begin()] { point.set(ticket); });
  }
  void wait(Event& event) override {
    HostEvent& point = host_event(event);
    enqueue_always([&point, ticket = point.recorded()] { point.wait(ticket); });
  }

 protected:
  // Runs even after earlier work failed: another stream may be waiting for it.
  virtual void enqueue_always(std::function<void()> work) = 0;
};

class InlineStream final : public HostStream {
 public:
  bool is_inline() const override { return true; }
  void enqueue(std::function<void()> work) override { work(); }
  void synchronize() override {}

 protected:
  void enqueue_always(std::function<void()> work) override { work(); }
};

class ThreadStream final : public HostStream {
 public:
  ThreadStream() : thread_([this] { run(); }) {}

  ~ThreadStream() override {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void enqueue(std::function<void()> work) override { push({std::move(work), false}); }

  void synchronize() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return queue_.empty() && !running_; });
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 protected:
  void enqueue_always(std::function<void()> work) override { push({std::move(work), true}); }

 private:
  struct Work {
    std::function<void()> run;
    bool always = false;
  };
  static constexpr size_t kCapacity = 4096;

  void push(Work work) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return queue_.size() < kCapacity; });
    queue_.push_back(std::move(work));
    lock.unlock();
    changed_.notify_all();
  }

  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return closing_ || !queue_.empty(); });
      if (queue_.empty()) return;
      Work work = std::move(queue_.front());
      queue_.pop_front();
      running_ = true;
      const bool skip = error_ != nullptr && !work.always;
      lock.unlock();
      std::exception_ptr error;
      if (!skip) {
        try {
          work.run();
        } catch (...) {
          error = std::current_exception();
        }
      }
      lock.lock();
      if (error && !error_) error_ = error;
      running_ = false;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> queue_;
  std::exception_ptr error_;
  bool running_ = false, closing_ = false;
  std::thread thread_;  ///< Last: it reads the others from its first moment.
};

}  // namespace

std::unique_ptr<Stream> make_host_stream(StreamMode mode) {
  if (mode == StreamMode::kInline) return std::make_unique<InlineStream>();
  return std::make_unique<ThreadStream>();
}

bool runs_inline(Stream& stream) {
  auto* host = dynamic_cast<HostStream*>(&stream);
  check_internal(host != nullptr, "a stream of another backend");
  return host->is_inline();
}

void enqueue_host_function(Stream& stream, std::function<void()> work) {
  static_cast<HostStream&>(stream).enqueue(std::move(work));
}

}  // namespace ridge
