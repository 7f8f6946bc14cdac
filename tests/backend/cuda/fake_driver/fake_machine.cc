#include "tests/backend/cuda/fake_driver/fake_machine.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>

namespace ridge::test {
namespace {

int from_environment(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

constexpr unsigned char kNewMemory = 0xcd;  // memory that was never written is no zero

}  // namespace

bool loses_device(int code) {
  constexpr int kLosing[] = {
      214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911};
  return std::find(std::begin(kLosing), std::end(kLosing), code) != std::end(kLosing);
}

bool& has_context() {
  thread_local bool has = false;
  return has;
}

FakeMachine& machine() {
  static FakeMachine made;
  return made;
}

void FakeMachine::reset() {
  drop_all();
  version = from_environment("FAKE_CUDA_VERSION", 13020);
  devices = from_environment("FAKE_CUDA_DEVICES", 1);
  major = from_environment("FAKE_CUDA_MAJOR", 9), minor = 0;
  memory_bytes = static_cast<size_t>(from_environment("FAKE_CUDA_MIB", 1024)) << 20;
  others_bytes = static_cast<size_t>(from_environment("FAKE_CUDA_OTHERS_MIB", 0)) << 20;
  device_name = "NVIDIA Fake 9000";
  is_started = false;
  lost = 0;
  kernels.clear();
  schedule_ = Schedule::kAtLast;
  clock_ = 0;
  new_memory_ = kNewMemory;
  failures_.clear(), log_.clear(), faults_.clear(), named_.clear();
  calls_ = 0;
  const char* const file = std::getenv("FAKE_CUDA_LOG");
  log_file_ = file == nullptr ? "" : file;
  // "cuInit=803": the first call of that name; "cuLaunchKernel@30=719": the 30th.
  const char* const failing = std::getenv("FAKE_CUDA_FAIL");
  const std::string text = failing == nullptr ? "" : failing;
  if (const size_t at = text.find('='); at != std::string::npos) {
    const size_t nth = std::min(text.find('@'), at);
    fail(text.substr(0, nth),
         nth == at ? 1 : std::atoll(text.c_str() + nth + 1),
         std::atoi(text.c_str() + at + 1));
  }
  if (const int seed = from_environment("FAKE_CUDA_RANDOM", 0); seed > 0)
    set_schedule(Schedule::kRandom, static_cast<uint64_t>(seed));
}

// Faults of a process, and objects that it left, stand at the end of its log.
FakeMachine::~FakeMachine() {
  if (!log_file_.empty()) {
    std::ofstream log(log_file_, std::ios::app);
    for (const std::string& each : faults_) log << "FAULT: " << each << '\n';
    for (const std::string& each : live()) log << "LEFT: " << each << '\n';
  }
  drop_all();
}

void FakeMachine::drop_all() {
  for (const auto& [memory, block] : blocks_) std::free(const_cast<void*>(memory));
  blocks_.clear(), names_.clear(), retained.clear();
  streams.clear(), events.clear(), modules.clear(), graphs.clear(), execs.clear();
  captures_.clear();
}

void FakeMachine::set_schedule(Schedule schedule, uint64_t seed) {
  schedule_ = schedule;
  random_.seed(seed);
}

int FakeMachine::refusal(const std::string& call, bool needs_context) {
  ++calls_;
  if (const int code = failures_.of(call); code != kSuccess) {
    if (loses_device(code)) lost = code;
    return code;
  }
  if (!needs_context) return kSuccess;
  if (lost != 0) return lost;
  if (!is_started) return kNotInitialized;
  if (!has_context() || retained.empty()) {
    add_fault(call + " without a context");
    return kInvalidContext;
  }
  return kSuccess;
}

void FakeMachine::add_to_log(const std::string& line) {
  log_.push_back(line);
  if (!log_file_.empty()) std::ofstream(log_file_, std::ios::app) << line << '\n';
}

std::vector<std::string> FakeMachine::live() const {
  std::vector<std::string> all;
  for (const auto& [handle, name] : names_) all.push_back(name);
  for (const auto& [device, count] : retained)
    if (count > 0) all.push_back("context of device " + std::to_string(device));
  std::sort(all.begin(), all.end());
  return all;
}

void FakeMachine::give_name(const void* handle, const std::string& what) {
  names_[handle] = what + std::to_string(++named_[what]);
}

std::string FakeMachine::name_of(const void* handle) const {
  const auto found = names_.find(handle);
  return found == names_.end() ? "nothing" : found->second;
}

void* FakeMachine::allocate(size_t bytes, bool is_pinned, std::string& line) {
  line += fmt::format(" {} bytes", bytes);
  refuse_in_capture();
  require(bytes > 0, kInvalidValue);
  require(is_pinned || has_room(bytes), kOutOfMemory);
  void* memory = nullptr;
  // The memory is as aligned as the driver's, and not rounded up: a sanitizer sees the first byte
  // beyond.
  require(::posix_memalign(&memory, 256, bytes) == 0, kOutOfMemory);
  std::memset(memory, new_memory_, bytes);
  blocks_[memory] = {bytes, is_pinned};
  give_name(memory, is_pinned ? "pinned" : "memory");
  line += " = " + name_of(memory);
  return memory;
}

void FakeMachine::release(void* memory, bool is_pinned, std::string& line) {
  line += " " + name_of(memory);
  const auto found = blocks_.find(memory);
  if (found == blocks_.end() || found->second.is_pinned != is_pinned) {
    add_fault("freed what is no such memory");
    throw Refused{kInvalidValue};
  }
  blocks_.erase(found);
  forget_name(memory);
  std::free(memory);
}

const Block* FakeMachine::block_of(const void* address, size_t bytes) const {
  auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin()) return nullptr;
  const auto& [start, block] = *--after;
  const size_t offset =
      static_cast<size_t>(static_cast<const char*>(address) - static_cast<const char*>(start));
  return offset <= block.bytes && bytes <= block.bytes - offset ? &block : nullptr;
}

std::string FakeMachine::place(const void* address) const {
  auto after = blocks_.upper_bound(address);
  if (block_of(address, 0) == nullptr) return "host";
  const void* const start = (--after)->first;
  const auto offset = static_cast<const char*>(address) - static_cast<const char*>(start);
  return name_of(start) + "+" + std::to_string(offset);
}

size_t FakeMachine::used_bytes() const {
  size_t used = others_bytes + modules.size() * kModuleBytes;
  for (const auto& [memory, block] : blocks_)
    if (!block.is_pinned) used += block.bytes;
  for (const auto& [handle, exec] : execs) used += exec_bytes(*exec);
  return used;
}

// True when the first piece of the stream could go, and has.
bool FakeMachine::step(FakeStream& stream) {
  if (stream.queue.empty()) return false;
  if (const RecordingRef& wait = stream.queue.front().wait; wait && !wait->is_done) return false;
  const Work work = std::move(stream.queue.front());
  stream.queue.pop_front();
  clock_ += work.task ? 1 : 0.001;
  if (work.task && lost == 0) lost = work.task();
  if (work.record) {
    work.record->is_done = true;
    work.record->milliseconds = clock_;
  }
  return true;
}

void FakeMachine::progress() {
  if (schedule_ == Schedule::kAtOnce) {
    for (bool moved = true; moved;) {
      moved = false;
      for (const auto& [handle, stream] : streams)
        while (step(*stream)) moved = true;
    }
  }
  if (schedule_ != Schedule::kRandom || streams.empty()) return;
  for (uint64_t steps = random_() % 4; steps > 0; --steps)
    step(*std::next(streams.begin(), static_cast<int64_t>(random_() % streams.size()))->second);
}

void FakeMachine::finish(const RecordingRef& point) {
  while (!point->is_done)
    if (!step(*point->stream)) finish(point->stream->queue.front().wait);
}

void FakeMachine::drain(FakeStream& stream) {
  while (!stream.queue.empty())
    if (!step(stream)) finish(stream.queue.front().wait);
}

void FakeMachine::drain_all() {
  for (const auto& [handle, stream] : streams) drain(*stream);
}

void FakeMachine::enqueue(FakeStream& stream, Task task) {
  if (stream.capture != nullptr) {
    Capture& capture = *stream.capture;
    require(!capture.is_invalid, kCaptureInvalidated);
    capture.nodes.push_back({std::move(task), stream.after});
    stream.after = {capture.nodes.size() - 1};
    return;
  }
  stream.queue.push_back({std::move(task), nullptr, nullptr});
  progress();
}

void FakeMachine::record(FakeEvent& event, FakeStream& stream) {
  event.capture = stream.capture;
  event.after = stream.after;
  event.last = nullptr;
  if (stream.capture != nullptr) return;
  event.last = std::make_shared<Recording>(Recording{.stream = &stream});
  stream.queue.push_back({nullptr, nullptr, event.last});
  progress();
}

void FakeMachine::wait(FakeStream& stream, FakeEvent& event) {
  if (event.capture != nullptr) {
    require(stream.capture == nullptr || stream.capture == event.capture, kCaptureIsolation);
    if (stream.capture == nullptr) {
      stream.capture = event.capture;
      event.capture->joined.push_back(&stream);
    }
    stream.after.insert(event.after.begin(), event.after.end());
    return;
  }
  if (stream.capture != nullptr) {
    stream.capture->is_invalid = true;
    throw Refused{kCaptureIsolation};
  }
  if (event.last == nullptr || event.last->is_done) return;
  stream.queue.push_back({nullptr, event.last, nullptr});
  progress();
}

void FakeMachine::refuse_in_capture() {
  for (const std::weak_ptr<Capture>& each : captures_) {
    const std::shared_ptr<Capture> capture = each.lock();
    if (capture == nullptr || capture->thread != std::this_thread::get_id()) continue;
    capture->is_invalid = true;
    throw Refused{kCaptureUnsupported};
  }
}

void FakeMachine::begin_capture(FakeStream& stream) {
  require(stream.capture == nullptr, kInvalidValue);
  stream.capture = std::make_shared<Capture>();
  stream.capture->origin = &stream;
  stream.capture->thread = std::this_thread::get_id();
  stream.after.clear();
  captures_.push_back(stream.capture);
}

FakeGraph FakeMachine::end_capture(FakeStream& stream) {
  const std::shared_ptr<Capture> capture = stream.capture;
  require(capture != nullptr && capture->origin == &stream, kCaptureUnmatched);
  // All that was captured must stand before the end, also what other streams did.
  std::set<size_t> reached, waiting = stream.after;
  while (!waiting.empty()) {
    const size_t node = *waiting.begin();
    waiting.erase(waiting.begin());
    if (!reached.insert(node).second) continue;
    waiting.insert(capture->nodes[node].after.begin(), capture->nodes[node].after.end());
  }
  for (FakeStream* joined : capture->joined) joined->capture = nullptr, joined->after.clear();
  stream.capture = nullptr;
  stream.after.clear();
  for (const auto& [handle, event] : events)
    if (event->capture == capture) event->capture = nullptr, event->after.clear();
  std::erase_if(captures_, [&](const auto& each) { return each.lock() == capture; });
  require(!capture->is_invalid, kCaptureInvalidated);
  require(reached.size() == capture->nodes.size(), kCaptureUnjoined);
  return std::move(capture->nodes);
}

// In any order that the nodes allow; a missing edge shows in one that is not the order of capture.
int FakeMachine::run_graph(const FakeGraph& graph) {
  std::set<size_t> done;
  while (done.size() < graph.size()) {
    std::vector<size_t> ready;
    for (size_t i = 0; i < graph.size(); ++i)
      if (!done.contains(i) &&
          std::includes(done.begin(), done.end(), graph[i].after.begin(), graph[i].after.end()))
        ready.push_back(i);
    const size_t pick = schedule_ == Schedule::kAtOnce   ? 0
                        : schedule_ == Schedule::kAtLast ? ready.size() - 1
                                                         : random_() % ready.size();
    if (const int code = graph[ready[pick]].task(); code != kSuccess) return code;
    done.insert(ready[pick]);
  }
  return kSuccess;
}

}  // namespace ridge::test
