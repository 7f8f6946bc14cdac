#include "tests/support/lazy_backend.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "ridge/backend/cpu/cpu_backend.h"

namespace ridge::test {

class LazyEvent final : public Event {
 public:
  LazyEvent(LazyBackend& backend, size_t number) : backend_(backend), number_(number) {}
  void synchronize() override {
    backend_.note(fmt::format("host waits for event {}", number_));
    if (!backend_.options_.host_ignores_events) backend_.reach(*this, recorded);
  }
  size_t number() const { return number_; }

  uint64_t recorded = 0, reached = 0;
  LazyBackend::LazyStream* stream = nullptr;  ///< Stream of the last recording.

 private:
  LazyBackend& backend_;
  size_t number_;
};

class LazyBackend::LazyStream final : public Stream {
 public:
  LazyStream(LazyBackend& backend, size_t number) : backend_(backend), number_(number) {}
  ~LazyStream() override {
    backend_.drain(*this);
    backend_.streams_[number_] = nullptr;
  }
  size_t number() const { return number_; }

  std::unique_ptr<Event> make_event() override {
    return std::make_unique<LazyEvent>(backend_, backend_.events_++);
  }
  void record(Event& event) override {
    auto& point = dynamic_cast<LazyEvent&>(event);
    check_internal(recording == nullptr, "an event in a recording");
    backend_.note(fmt::format("{}: record event {}", number_, point.number()));
    point.stream = this;
    work.push_back({nullptr, nullptr, &point, ++point.recorded});
    backend_.make_progress();
  }
  void wait(Event& event) override {
    auto& point = dynamic_cast<LazyEvent&>(event);
    check_internal(recording == nullptr, "a wait in a recording");
    backend_.note(fmt::format("{}: wait for event {}", number_, point.number()));
    if (backend_.options_.ignored_event != point.number())
      work.push_back({nullptr, &point, nullptr, point.recorded});
    backend_.make_progress();
  }
  void synchronize() override {
    check_internal(recording == nullptr, "the host waits in a recording");
    backend_.note(fmt::format("host waits for stream {}", number_));
    backend_.drain(*this);
    if (error != nullptr) std::rethrow_exception(std::exchange(error, nullptr));
  }

  std::deque<Work> work;
  std::exception_ptr error;
  std::vector<std::function<void()>>* recording = nullptr;

 private:
  LazyBackend& backend_;
  size_t number_;
};

namespace {

class LazyKernel final : public NodeKernel {
 public:
  LazyKernel(LazyBackend& backend, std::unique_ptr<NodeKernel> inner, Stream& runs)
      : backend_(backend), inner_(std::move(inner)), runs_(runs) {}
  size_t workspace_bytes() const override { return inner_->workspace_bytes(); }
  void launch(Stream& stream, const KernelArgs& args) const override {
    std::string line = "launch (";
    const auto add = [&](const void* address) { line += " " + backend_.place(address); };
    for (const void* each : args.inputs) add(each);
    line += " ) -> (";
    for (const void* each : args.outputs) add(each);
    line += " )";
    if (args.workspace != nullptr) add(args.workspace);
    backend_.queue(
        dynamic_cast<LazyBackend::LazyStream&>(stream),
        [this, args] { inner_->launch(runs_, args); },
        line);
  }

 private:
  LazyBackend& backend_;
  std::unique_ptr<NodeKernel> inner_;
  Stream& runs_;
};

class LazyRecording final : public Recording {
 public:
  LazyRecording(LazyBackend& backend, std::vector<std::function<void()>> tasks)
      : backend_(backend), tasks_(std::move(tasks)) {}
  void launch(Stream& stream) const override {
    auto& queued = dynamic_cast<LazyBackend::LazyStream&>(stream);
    backend_.queue(
        queued,
        [this] {
          for (const auto& task : tasks_) task();
        },
        fmt::format("replay {} launches", tasks_.size()));
  }

 private:
  LazyBackend& backend_;
  std::vector<std::function<void()>> tasks_;
};

constexpr size_t kPage = 4096;

}  // namespace

LazyBackend::LazyBackend(LazyOptions options)
    : options_(options),
      inner_(make_cpu_backend()),
      inline_(inner_->make_stream()),
      random_(options.seed) {}

LazyBackend::~LazyBackend() = default;

std::unique_ptr<NodeKernel> LazyBackend::instantiate(const Node& node, size_t choice) const {
  return std::make_unique<LazyKernel>(
      const_cast<LazyBackend&>(*this), inner_->instantiate(node, choice), *inline_);
}

std::unique_ptr<NodeKernel> LazyBackend::instantiate_packed(const Node& node, size_t choice) const {
  return std::make_unique<LazyKernel>(
      const_cast<LazyBackend&>(*this), inner_->instantiate_packed(node, choice), *inline_);
}

void* LazyBackend::allocate(size_t bytes) {
  note(fmt::format("allocate {}", bytes));
  const size_t mapped = (std::max<size_t>(bytes, 1) + kPage - 1) / kPage * kPage;
  void* const memory = mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  check(memory != MAP_FAILED, "no memory for {} bytes", bytes);
  regions_[next_region_++] = {static_cast<std::byte*>(memory), bytes, mapped};
  return memory;
}

void LazyBackend::deallocate(void* memory) noexcept {
  for (const auto& [number, region] : regions_) {
    if (region.begin != memory) continue;
    munmap(memory, region.mapped);
    regions_.erase(number);
    return;
  }
}

void* LazyBackend::allocate_host(size_t bytes) {
  note(fmt::format("allocate {} on the host", bytes));
  return Backend::allocate_host(bytes);
}

std::string LazyBackend::place(const void* address) const {
  const auto* const at = static_cast<const std::byte*>(address);
  for (const auto& [number, region] : regions_)
    if (at >= region.begin && at < region.begin + region.mapped)
      return fmt::format("{}+{}", number, at - region.begin);
  return "elsewhere";
}

void LazyBackend::copy_to_device(Stream& stream, void* device, const void* host, size_t bytes) {
  queue(
      dynamic_cast<LazyStream&>(stream),
      [=] { std::memcpy(device, host, bytes); },
      fmt::format("{} bytes to {}", bytes, place(device)));
}

void LazyBackend::copy_to_host(Stream& stream, void* host, const void* device, size_t bytes) {
  queue(
      dynamic_cast<LazyStream&>(stream),
      [=] { std::memcpy(host, device, bytes); },
      fmt::format("{} bytes from {}", bytes, place(device)));
}

void LazyBackend::copy_on_device(Stream& stream, void* to, const void* from, size_t bytes) {
  queue(
      dynamic_cast<LazyStream&>(stream),
      [=] { std::memcpy(to, from, bytes); },
      fmt::format("{} bytes from {} to {}", bytes, place(from), place(to)));
}

std::unique_ptr<Stream> LazyBackend::make_stream() {
  auto stream = std::make_unique<LazyStream>(*this, streams_.size());
  streams_.push_back(stream.get());
  return stream;
}

RecordingResult LazyBackend::record(Stream& stream, FunctionRef<void()> queue) {
  check_internal(options_.records, "this device cannot record");
  auto& recorded = dynamic_cast<LazyStream&>(stream);
  std::vector<std::function<void()>> tasks;
  recorded.recording = &tasks;
  try {
    queue();
  } catch (...) {
    recorded.recording = nullptr;
    throw;
  }
  recorded.recording = nullptr;
  if (options_.refuses_recordings) return {nullptr, "it was asked to refuse"};
  return {std::make_unique<LazyRecording>(*this, std::move(tasks)), {}};
}

void LazyBackend::queue(LazyStream& stream, std::function<void()> task, const std::string& line) {
  if (stream.recording != nullptr) {
    check_internal(line.starts_with("launch"), "no launch in a recording: {}", line);
    note("recorded: " + line);
    stream.recording->push_back(std::move(task));
    return;
  }
  note(fmt::format("{}: {}", stream.number(), line));
  stream.work.push_back({std::move(task)});
  make_progress();
}

void LazyBackend::make_progress() {
  using Schedule = LazyOptions::Schedule;
  if (options_.schedule == Schedule::kFavored && options_.favored < streams_.size() &&
      streams_[options_.favored] != nullptr) {
    while (step(*streams_[options_.favored])) {
    }
  }
  if (options_.schedule != Schedule::kRandom) return;
  for (uint64_t left = random_() % 4; left > 0; --left)
    if (LazyStream* const stream = streams_[random_() % streams_.size()]; stream != nullptr)
      step(*stream);
}

// The first piece of the stream, unless it has to wait; whether there was one.
bool LazyBackend::step(LazyStream& stream) {
  if (stream.work.empty()) return false;
  Work& first = stream.work.front();
  if (first.wait != nullptr && first.wait->reached < first.ticket) return false;
  const Work work = std::move(first);
  stream.work.pop_front();
  if (work.record != nullptr) work.record->reached = std::max(work.record->reached, work.ticket);
  if (work.task == nullptr || stream.error != nullptr) return true;
  try {
    run(work.task);
  } catch (...) {
    stream.error = std::current_exception();
  }
  return true;
}

void LazyBackend::reach(LazyEvent& event, uint64_t ticket) {
  while (event.reached < ticket) {
    const Work& first = event.stream->work.front();
    if (first.wait != nullptr) reach(*first.wait, first.ticket);
    step(*event.stream);
  }
}

void LazyBackend::drain(LazyStream& stream) {
  while (!stream.work.empty()) {
    const Work& first = stream.work.front();
    if (first.wait != nullptr) reach(*first.wait, first.ticket);
    step(stream);
  }
}

void LazyBackend::run(const std::function<void()>& task) {
  set_access(true);
  try {
    task();
  } catch (...) {
    set_access(false);
    throw;
  }
  set_access(false);
}

void LazyBackend::set_access(bool is_open) {
  for (const auto& [number, region] : regions_)
    mprotect(region.begin, region.mapped, is_open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

}  // namespace ridge::test
