// The device inside the stand-in: streams, events, memory, captures, and when their work runs.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "tests/backend/cuda/fake_library.h"
#include "tests/backend/cuda/simulation/simulated_image.h"

namespace ridge::test {

// Codes of the driver, as its reference numbers them.
inline constexpr int kSuccess{0}, kInvalidValue{1}, kOutOfMemory{2}, kNotInitialized{3},
    kNoDevice{100}, kInvalidDevice{101}, kInvalidContext{201}, kInvalidPtx{218},
    kInvalidHandle{400}, kNotFound{500}, kNotReady{600}, kIllegalAddress{700},
    kCaptureUnsupported{900}, kCaptureInvalidated{901}, kCaptureUnmatched{903},
    kCaptureUnjoined{904}, kCaptureIsolation{905}, kCapturedEvent{907};

using Task = std::function<int()>;  // returns a code

struct FakeStream;

/// One recording of an event: a point that work reaches.
struct Recording {
  FakeStream* stream;
  bool is_done = false;
  double milliseconds = 0;
};
using RecordingRef = std::shared_ptr<Recording>;

/// A piece of a stream: a task, a wait, or a point.
struct Work {
  Task task;
  RecordingRef wait, record;
};

/// A piece of a captured graph, and those that must have run before.
struct Node {
  Task task;
  std::set<size_t> after;
};

struct Capture {
  FakeStream* origin;
  std::thread::id thread;
  std::vector<Node> nodes;
  std::vector<FakeStream*> joined;
  bool is_invalid = false;
};

struct FakeStream {
  std::deque<Work> queue;
  std::shared_ptr<Capture> capture;
  std::set<size_t> after;  // in a capture: the pieces that the next one follows
};

struct FakeEvent {
  bool keeps_time = true;
  RecordingRef last;
  std::shared_ptr<Capture> capture;
  std::set<size_t> after;
};

struct FakeFunction {
  std::string name;
  const SimulatedKernel* simulated = nullptr;  // its code, where the module has it
  std::vector<size_t> sizes;
  unsigned most_dynamic_shared = 48 << 10;
};

struct FakeModule {
  bool is_for_gpus = false;                            // NVIDIA's compiler made it: it never runs
  std::map<std::string, std::vector<size_t>> entries;  // name -> sizes of parameters
  std::map<std::string, const SimulatedKernel*> simulated;
  std::map<std::string, std::unique_ptr<FakeFunction>> functions;
};

using FakeGraph = std::vector<Node>;

/// Bytes of the device's memory that modules and captured graphs take: made-up and odd, so that a
/// count which leaves them out shows.
inline constexpr size_t kModuleBytes = (8 << 10) + 256;
inline size_t exec_bytes(const FakeGraph& graph) { return (4 << 10) + 256 + 512 * graph.size(); }

/// Memory of the device (of this process's heap) or page-locked.
struct Block {
  size_t bytes;
  bool is_pinned;
};

class FakeMachine final : public FakeCuda {
 public:
  FakeMachine() { reset(); }
  ~FakeMachine() override;

  void set_observer(FakeCallObserver* heard_by) override {
    const std::lock_guard lock(mutex);
    observer = heard_by;
  }
  void reset() override;
  void set_schedule(Schedule schedule, uint64_t seed) override;
  void set_new_memory(unsigned char byte) override { new_memory_ = byte; }
  void fail(const std::string& call, int64_t nth, int code) override {
    failures_.add(call, nth, code);
  }
  void on_kernel(const std::string& name, Body body) override { kernels[name] = std::move(body); }
  std::vector<std::string> log() const override { return log_; }
  void clear_log() override { log_.clear(); }
  int64_t calls() const override { return calls_; }
  std::vector<std::string> live() const override;
  std::vector<std::string> faults() const override { return faults_; }

  // The start of each call: a code that it must return, and its line in the log.
  int refusal(const std::string& call, bool needs_context);
  void add_to_log(const std::string& line);
  void add_fault(const std::string& text) { faults_.push_back(text); }

  /// Those by handle add their names to the line; a fault where it is none of that kind that lives.
  template <typename T>
  T& find(Objects<T>& all, const void* handle, std::string& line) {
    line += " " + name_of(handle);
    const auto found = all.find(handle);
    if (found != all.end()) return *found->second;
    add_fault(std::string("no such ") + all.kind);
    throw Refused{kInvalidHandle};
  }
  template <typename T>
  T* make(Objects<T>& all, std::string& line, T made = {}) {
    T* const handle = all.make(std::move(made));
    give_name(handle, all.kind);
    line += " = " + name_of(handle);
    return handle;
  }
  void give_name(const void* handle, const std::string& what);
  std::string name_of(const void* handle) const;
  void forget_name(const void* handle) { names_.erase(handle); }

  void* allocate(size_t bytes, bool is_pinned, std::string& line);
  void release(void* memory, bool is_pinned, std::string& line);
  /// The block that holds all of the bytes, or null.
  const Block* block_of(const void* address, size_t bytes) const;
  /// "memory1+64", "pinned2+0", or "host".
  std::string place(const void* address) const;
  /// Whether so many more bytes than are in use fit into the device's memory.
  bool has_room(size_t bytes) const {
    return bytes <= memory_bytes - std::min(used_bytes(), memory_bytes);
  }
  size_t used_bytes() const;

  // Work. Each may be refused at once; what fails later makes `lost`.
  void enqueue(FakeStream& stream, Task task);
  /// `body`: a task that may be refused, and need return nothing.
  template <typename Body>
  void queue(FakeStream& stream, Body body) {
    enqueue(stream, [body = std::move(body)] { return code_of(body); });
  }
  void record(FakeEvent& event, FakeStream& stream);
  void wait(FakeStream& stream, FakeEvent& event);
  void finish(const RecordingRef& point);
  void drain(FakeStream& stream);
  void drain_all();
  /// When this thread captures, which what waits or allocates may not do then.
  void refuse_in_capture();
  void begin_capture(FakeStream& stream);
  FakeGraph end_capture(FakeStream& stream);
  int run_graph(const FakeGraph& graph);

  std::mutex mutex;
  FakeCallObserver* observer = nullptr;
  size_t others_bytes = 0;  // bytes that other processes hold
  bool is_started = false;
  int lost = 0;  // the code that every call returns from now on
  std::map<int, int> retained;
  Objects<FakeStream> streams{"stream"};
  Objects<FakeEvent> events{"event"};
  Objects<FakeModule> modules{"module"};
  Objects<FakeGraph> graphs{"graph"}, execs{"exec"};
  std::map<std::string, Body> kernels;

 private:
  bool step(FakeStream& stream);
  void progress();
  void drop_all();

  Schedule schedule_ = Schedule::kAtLast;
  std::mt19937_64 random_;
  double clock_ = 0;
  unsigned char new_memory_ = 0;
  Failures failures_;
  std::vector<std::string> log_, faults_;
  std::string log_file_;
  int64_t calls_ = 0;
  std::map<std::string, int> named_;
  std::map<const void*, std::string> names_;
  std::map<const void*, Block> blocks_;
  std::vector<std::weak_ptr<Capture>> captures_;
};

FakeMachine& machine();

/// Whether the real driver keeps returning the code.
bool loses_device(int code);
/// Whether the calling thread has a context.
bool& has_context();

}  // namespace ridge::test
