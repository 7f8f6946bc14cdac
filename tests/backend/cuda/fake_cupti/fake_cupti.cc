// A stand-in for CUPTI: the functions that Ridge calls, as their published reference describes
// them. Times of calls are those of the registered clock; a device's work begins when its call has
// returned and what is before it on its stream has ended, and takes kWorkNs. Tests steer it by
// fake_cupti.h; other processes by their environment: FAKE_CUPTI_DRIVER, the driver to hear.
#include "tests/backend/cuda/fake_cupti/fake_cupti.h"

#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include "ridge/backend/cuda/trace/cupti_api.h"
#include "tests/backend/cuda/fake_library.h"

// NOLINTBEGIN(readability-identifier-naming): the names are those of CUPTI.
namespace ridge::test {
namespace {

using namespace ridge::cuda;

constexpr uint64_t kWorkNs = 500;
constexpr uint32_t kContext = 7;
// Real records are longer than the part that all versions share.
constexpr size_t kGrowth = 24;

struct Buffer {
  uint8_t* bytes = nullptr;
  size_t size = 0, filled = 0, records = 0;
};

thread_local std::vector<uint64_t> external_ids;
thread_local uint64_t call_began = 0;

/// Number at the end of "stream2".
uint32_t number_in(const std::string& name) {
  const size_t at = name.find_first_of("0123456789");
  return at == std::string::npos ? 0 : static_cast<uint32_t>(std::stoul(name.substr(at)));
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream text(line);
  std::vector<std::string> words;
  for (std::string word; text >> word;) words.push_back(word);
  return words;
}

/// The work that a call put on a stream.
struct Work {
  ActivityKind kind;
  std::string kernel{};
  int32_t grid[3] = {1, 1, 1}, block[3] = {1, 1, 1};
  int32_t shared_bytes = 0;
  CopyKind copy{};
  ActivityMemory from{}, to{};
  uint64_t bytes = 0;
};

class Recorder final : public FakeCupti, public FakeCallObserver {
 public:
  Recorder() { reset(); }

  // --- the test's side
  void reset() override {
    // The driver calls end() under its own lock, which set_observer() takes as well: it comes
    // before ours.
    if (FakeCuda* const observed = std::exchange(observed_, nullptr))
      observed->set_observer(nullptr);
    clear();
    if (const char* const path = std::getenv("FAKE_CUPTI_DRIVER")) observe(path);
  }
  void clear() {
    const std::lock_guard lock(mutex);
    version = 130202, is_taken = false, subscribers = 0, clock = nullptr, thread_ids = 0;
    requested = nullptr, completed = nullptr;
    enabled.clear(), failures_.clear(), calls_.clear(), open_.reset(), full_.clear();
    captured_.clear(), graphs_.clear(), ended_.clear();
    records_per_buffer = strange_every = records_ = dropped_ = 0;
    is_late_and_reversed = is_capturing_ = false;
    correlation_ = 100, handed_out_ = 0;
  }
  void observe(const char* path) override {
    void* const library = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
    observed_ = reinterpret_cast<FakeCudaEntry*>(::dlsym(library, kFakeCudaEntry))();
    observed_->set_observer(this);
  }
  void fail(const std::string& call, int64_t nth, int code) override {
    failures_.add(call, nth, code);
  }
  std::vector<std::string> calls() const override { return calls_; }
  std::vector<std::string> live() const override {
    std::vector<std::string> all;
    if (subscribers > 0) all.emplace_back("subscriber");
    for (const ActivityKind kind : enabled)
      all.push_back("kind " + std::to_string(static_cast<uint32_t>(kind)));
    for (size_t i = 0; i < handed_out_; ++i) all.emplace_back("buffer");
    return all;
  }

  // --- CUPTI's side
  /// Of a call, what it returns in place of its own code.
  int refusal(const char* call) {
    calls_.emplace_back(call);
    return failures_.of(call);
  }
  void flush() {
    if (open_.has_value()) full_.push_back(*std::exchange(open_, std::nullopt));
    if (is_late_and_reversed) std::reverse(full_.begin(), full_.end());
    deliver();
  }
  size_t take_dropped() { return std::exchange(dropped_, 0); }

  // --- the driver's side
  void begin() override { call_began = now(); }
  void end(const std::string& line, int code) override {
    const std::lock_guard lock(mutex);
    const std::vector<std::string> words = words_of(line);
    const uint32_t correlation = ++correlation_;
    follow_graphs(words);
    if (enabled.empty()) return;
    write_call(words[0], correlation, code);
    if (code == 0) write_work(words, correlation);
  }

  std::recursive_mutex mutex;
  int subscribers = 0;
  uint32_t thread_ids = 0;
  CuptiClock* clock = nullptr;
  BufferRequested* requested = nullptr;
  BufferCompleted* completed = nullptr;
  std::set<ActivityKind> enabled;
  std::map<uint32_t, std::string> names;  // names of calls
  std::map<std::string, uint32_t> numbers;
  /// Lengths of whole records, by address: as with the real ones, nobody but CUPTI can tell.
  std::map<const uint8_t*, size_t> lengths;

 private:
  uint64_t now() const { return clock == nullptr ? 1 : clock(); }

  template <typename Record>
  void write(const Record& record) {
    if (!enabled.contains(record.kind)) return;
    if (strange_every > 0 && ++records_ % strange_every == 0) {
      CallActivity strange{};
      strange.kind = ActivityKind{4242};
      append(&strange, sizeof strange);
    }
    append(&record, sizeof record);
  }
  // A buffer at a time, as CUPTI fills them.
  void append(const void* record, size_t bytes) {
    const size_t whole = (bytes + kGrowth + 7) / 8 * 8;
    const bool is_full = open_.has_value() && (open_->filled + whole > open_->size ||
                                               open_->records == records_per_buffer);
    if (is_full) {
      full_.push_back(*std::exchange(open_, std::nullopt));
      if (!is_late_and_reversed) deliver();
    }
    if (!open_.has_value()) {
      Buffer fresh{};
      size_t most = 0;
      requested(&fresh.bytes, &fresh.size, &most);
      if (fresh.bytes == nullptr || fresh.size < whole) {
        ++dropped_;
        return;
      }
      ++handed_out_;
      open_ = fresh;
    }
    std::memcpy(open_->bytes + open_->filled, record, bytes);
    lengths[open_->bytes + open_->filled] = whole;
    open_->filled += whole;
    ++open_->records;
  }
  void deliver() {
    for (const Buffer& buffer : std::exchange(full_, {})) {
      --handed_out_;
      completed(nullptr, 0, buffer.bytes, buffer.size, buffer.filled);
    }
  }

  void write_call(const std::string& name, uint32_t correlation, int code) {
    if (!external_ids.empty())
      write(ExternalCorrelationActivity{.kind = ActivityKind::kExternalCorrelation,
                                        .external = ExternalKind::kCustom0,
                                        .id = external_ids.back(),
                                        .correlation = correlation});
    const auto [number, is_new] = numbers.try_emplace(name, 300 + numbers.size());
    if (is_new) names[number->second] = name;
    write(CallActivity{.kind = ActivityKind::kDriverCall,
                       .call = number->second,
                       .start = call_began,
                       .end = now(),
                       .process = static_cast<uint32_t>(::getpid()),
                       .thread = thread_ids == 1 ? static_cast<uint32_t>(::syscall(SYS_gettid)) : 1,
                       .correlation = correlation,
                       .result = static_cast<uint32_t>(code)});
  }

  // "[kernel] <<<1,2,3; 4,5,6; 7>>>(...) stream1", "memory1+0 from pinned1+0, 64 bytes, stream1"
  static Work work_of(const std::vector<std::string>& words) {
    const std::string& call = words[0];
    if (call == "cuLaunchKernel") {
      Work work{.kind = ActivityKind::kConcurrentKernel, .kernel = words[1]};
      std::sscanf((words[2] + words[3] + words[4]).c_str(),
                  "<<<%d,%d,%d;%d,%d,%d;%d>>>",
                  &work.grid[0],
                  &work.grid[1],
                  &work.grid[2],
                  &work.block[0],
                  &work.block[1],
                  &work.block[2],
                  &work.shared_bytes);
      return work;
    }
    const auto memory = [](const std::string& place) {
      return place.starts_with("memory")   ? ActivityMemory::kDevice
             : place.starts_with("pinned") ? ActivityMemory::kPinned
                                           : ActivityMemory::kPageable;
    };
    Work work{.kind = call.starts_with("cuMemset") ? ActivityKind::kSet : ActivityKind::kCopy,
              .to = memory(words[1]),
              .bytes = std::stoull(words[4])};
    if (work.kind == ActivityKind::kSet) return work;
    work.from = memory(words[3]);
    work.copy = call.find("HtoD") != std::string::npos   ? CopyKind::kHostToDevice
                : call.find("DtoH") != std::string::npos ? CopyKind::kDeviceToHost
                                                         : CopyKind::kDeviceToDevice;
    return work;
  }
  static bool is_work(const std::string& call) {
    return call == "cuLaunchKernel" || call.starts_with("cuMemcpy") || call.starts_with("cuMemset");
  }

  // Captured work runs with its graph: "cuGraphInstantiateWithFlags graph1 = exec1".
  void follow_graphs(const std::vector<std::string>& words) {
    if (words[0] == "cuStreamBeginCapture_v2") {
      is_capturing_ = true;
      captured_.clear();
    } else if (words[0] == "cuStreamEndCapture") {
      is_capturing_ = false;
      if (words.size() > 3) graphs_[words[3]] = captured_;
    } else if (words[0] == "cuGraphInstantiateWithFlags" && words.size() > 3) {
      graphs_[words[3]] = graphs_[words[1]];
    } else if (is_capturing_ && is_work(words[0])) {
      captured_.push_back(work_of(words));
    }
  }

  void write_work(const std::vector<std::string>& words, uint32_t correlation) {
    const std::string& call = words[0];
    const uint32_t stream =
        number_in(words.back().starts_with("pageable") ? words[words.size() - 2] : words.back());
    if (call == "cuEventRecord")
      write(
          EventActivity{ActivityKind::kEvent, correlation, kContext, stream, number_in(words[1])});
    if (call == "cuStreamWaitEvent")
      write_wait(SynchronizationKind::kStreamWaitsEvent,
                 number_in(words[1]),
                 number_in(words[2]),
                 correlation);
    if (call == "cuStreamSynchronize")
      write_wait(SynchronizationKind::kStream, stream, kNoActivityId, correlation);
    if (call == "cuGraphLaunch") {
      uint64_t node = 0;
      for (const Work& work : graphs_[words[1]])
        write_one(work, stream, correlation, ++node, number_in(words[1]));
    }
    if (is_work(call) && !is_capturing_) write_one(work_of(words), stream, correlation, 0, 0);
  }
  void write_wait(SynchronizationKind kind, uint32_t stream, uint32_t event, uint32_t correlation) {
    write(SynchronizationActivity{.kind = ActivityKind::kSynchronization,
                                  .synchronization = kind,
                                  .start = call_began,
                                  .end = now(),
                                  .correlation = correlation,
                                  .context = kContext,
                                  .stream = stream,
                                  .event = event});
  }
  void write_one(
      const Work& work, uint32_t stream, uint32_t correlation, uint64_t node, uint32_t graph) {
    uint64_t& ended = ended_[stream];
    const uint64_t start = std::max(ended, now());
    ended = start + kWorkNs;
    const auto fill = [&](auto record) {
      record.kind = work.kind;
      record.start = start;
      record.end = ended;
      record.device = 0, record.context = kContext, record.stream = stream;
      record.correlation = correlation;
      record.graph_node = node, record.graph = graph;
      return record;
    };
    if (work.kind == ActivityKind::kConcurrentKernel) {
      auto record = fill(KernelActivity{});
      record.registers = 32;
      std::copy_n(work.grid, 3, record.grid);
      std::copy_n(work.block, 3, record.block);
      record.dynamic_shared_bytes = work.shared_bytes;
      record.name = kernel_names_.insert(work.kernel).first->c_str();
      write(record);
    } else if (work.kind == ActivityKind::kSet) {
      auto record = fill(SetActivity{});
      record.bytes = work.bytes;
      record.memory = static_cast<uint16_t>(work.to);
      write(record);
    } else {
      auto record = fill(CopyActivity{});
      record.bytes = work.bytes;
      record.copy = work.copy, record.from = work.from, record.to = work.to;
      write(record);
    }
  }

  FakeCuda* observed_ = nullptr;
  Failures failures_;
  std::vector<std::string> calls_;
  std::optional<Buffer> open_;
  std::vector<Buffer> full_;  ///< Not yet handed back.
  std::vector<Work> captured_;
  std::map<std::string, std::vector<Work>> graphs_;
  std::map<uint32_t, uint64_t> ended_;
  std::set<std::string> kernel_names_;  // for ever, as CUPTI keeps them
  size_t records_ = 0, dropped_ = 0, handed_out_ = 0;
  bool is_capturing_ = false;
  uint32_t correlation_ = 0;
};

Recorder& recorder() {
  static Recorder* const made = new Recorder;
  return *made;
}

template <typename Body>
CuptiResult called(const char* name, Body body) {
  Recorder& fake = recorder();
  const std::lock_guard lock(fake.mutex);
  const int refused = fake.refusal(name);
  return CuptiResult{refused != 0 ? refused : code_of([&] { body(fake); })};
}
void refuse(CuptiResult code) { throw Refused{static_cast<int>(code)}; }

}  // namespace
}  // namespace ridge::test

using namespace ridge::cuda;
using ridge::test::called;
using ridge::test::Recorder;
using ridge::test::refuse;
using ridge::test::require;

extern "C" {

ridge::test::FakeCupti* fake_cupti() { return &ridge::test::recorder(); }

CuptiResult cuptiGetVersion(uint32_t* version) {
  return called(__func__, [&](Recorder& fake) { *version = fake.version; });
}

// Neither counted nor refused: nothing depends on them.
CuptiResult cuptiGetResultString(CuptiResult result, const char** text) {
  *text = result == CuptiResult::kMultipleSubscribers
              ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"
              : "CUPTI_ERROR_OF_THE_FAKE";
  return CuptiResult::kSuccess;
}
CuptiResult cuptiGetCallbackName(CallDomain domain, uint32_t call, const char** name) {
  const auto& names = ridge::test::recorder().names;
  const auto found = names.find(call);
  if (domain != CallDomain::kDriver || found == names.end()) return CuptiResult{1};
  *name = found->second.c_str();
  return CuptiResult::kSuccess;
}

CuptiResult cuptiSubscribe(SubscriberHandle* handle, CuptiCallback* callback, void*) {
  return called(__func__, [&](Recorder& fake) {
    require(callback != nullptr, 1);
    if (fake.is_taken || fake.subscribers > 0) refuse(CuptiResult::kMultipleSubscribers);
    ++fake.subscribers;
    *handle = reinterpret_cast<SubscriberHandle>(&fake.subscribers);
  });
}

CuptiResult cuptiUnsubscribe(SubscriberHandle handle) {
  return called(__func__, [&](Recorder& fake) {
    require(handle != nullptr && fake.subscribers > 0, 1);
    --fake.subscribers;
  });
}

CuptiResult cuptiSetThreadIdType(ThreadIdType type) {
  return called(__func__, [&](Recorder& fake) { fake.thread_ids = static_cast<uint32_t>(type); });
}

CuptiResult cuptiActivityRegisterTimestampCallback(CuptiClock* clock) {
  return called(__func__, [&](Recorder& fake) {
    require(fake.enabled.empty(), 7);  // too late
    fake.clock = clock;
  });
}

CuptiResult cuptiActivityRegisterCallbacks(BufferRequested* requested, BufferCompleted* completed) {
  return called(__func__, [&](Recorder& fake) {
    fake.requested = requested;
    fake.completed = completed;
  });
}

CuptiResult cuptiActivitySetAttribute(ActivityAttribute attribute, size_t* bytes, void* value) {
  return called(__func__, [&](Recorder&) {
    require(attribute == ActivityAttribute::kZeroedBuffers && *bytes == 1 && value != nullptr, 1);
  });
}

CuptiResult cuptiActivityEnable(ActivityKind kind) {
  return called(__func__, [&](Recorder& fake) {
    require(fake.requested != nullptr, 7);
    fake.enabled.insert(kind);
  });
}

CuptiResult cuptiActivityDisable(ActivityKind kind) {
  return called(__func__, [&](Recorder& fake) { fake.enabled.erase(kind); });
}

CuptiResult cuptiActivityFlushAll(uint32_t) {
  return called(__func__, [](Recorder& fake) { fake.flush(); });
}

CuptiResult cuptiActivityGetNextRecord(uint8_t* buffer, size_t valid, uint8_t** record) {
  Recorder& fake = ridge::test::recorder();
  const std::lock_guard lock(fake.mutex);
  uint8_t* const next =
      *record == nullptr ? buffer : *record + fake.lengths[static_cast<const uint8_t*>(*record)];
  if (next >= buffer + valid) return CuptiResult::kMaxLimitReached;
  if (fake.lengths[next] == 0) return CuptiResult::kInvalidKind;
  *record = next;
  return CuptiResult::kSuccess;
}

CuptiResult cuptiActivityGetNumDroppedRecords(void*, uint32_t, size_t* dropped) {
  return called(__func__, [&](Recorder& fake) { *dropped = fake.take_dropped(); });
}

CuptiResult cuptiActivityPushExternalCorrelationId(ExternalKind kind, uint64_t id) {
  if (kind != ExternalKind::kCustom0) return CuptiResult{1};
  ridge::test::external_ids.push_back(id);
  return CuptiResult::kSuccess;
}

CuptiResult cuptiActivityPopExternalCorrelationId(ExternalKind, uint64_t* last) {
  if (ridge::test::external_ids.empty()) return CuptiResult{18};
  if (last != nullptr) *last = ridge::test::external_ids.back();
  ridge::test::external_ids.pop_back();
  return CuptiResult::kSuccess;
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
