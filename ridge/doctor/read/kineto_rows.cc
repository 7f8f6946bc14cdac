#include "ridge/doctor/read/kineto_rows.h"

#include <algorithm>
#include <limits>

#include "ridge/base/hash.h"
#include "ridge/base/utf8.h"
#include "ridge/doctor/read/kineto_args.h"
#include "ridge/doctor/read/kineto_kinds.h"

namespace ridge::doctor {
namespace {

constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();
constexpr int64_t kMaxInt64 = std::numeric_limits<int64_t>::max();
// Far beyond any recording: a small file may inflate to more than memory holds.
constexpr size_t kMostRows = size_t{1} << 27;
constexpr size_t kMostTextBytes = size_t{1} << 30;
constexpr size_t kMostLaneNames = 65536;
constexpr int kNanosecondsOfMicroseconds = 3;  // as a power of ten

/// The number of a process or thread; of those that are texts one that is made of the text.
int64_t id_of(const JsonSpan& value) {
  if (!value.is_given()) return 0;
  if (const auto number = whole_number(value)) return *number;
  return -2 - static_cast<int64_t>(hash64(value.text) & 0x7fffffff);
}

/// The stream of an event of a device: "stream 7" in old traces.
int64_t stream_of(const JsonSpan& thread, const KinetoArgs& args) {
  if (const auto stream = whole_number(args.stream)) return *stream;
  const size_t last = thread.text.find_last_not_of("0123456789");
  if (thread.kind != JsonSpan::Kind::kText || last == std::string_view::npos) return id_of(thread);
  const JsonSpan digits{.kind = JsonSpan::Kind::kText, .text = thread.text.substr(last + 1)};
  const auto stream = whole_number(digits);
  return stream && thread.text[last] != '-' ? *stream : id_of(thread);
}

int32_t device_of(const JsonSpan& process, const KinetoArgs& args) {
  constexpr int64_t kMostDevices = 65536;
  const int64_t by_process = number_in(process, 0, kMostDevices, 0);
  return static_cast<int32_t>(number_in(args.device, 0, kMostDevices, by_process));
}

bool is_of_device(EventKind kind) {
  return kind >= EventKind::kKernel && kind <= EventKind::kDeviceRange;
}

/// Whether a call returns only when what it asked for is done.
bool is_blocking_call(std::string_view name) {
  const auto says = [&](std::string_view part) { return name.find(part) != name.npos; };
  return (says("Memcpy") || says("Memset")) && !says("Async");
}

}  // namespace

KinetoRows::KinetoRows(Trace& trace) : trace_(trace), builder_(trace) {
  trace_.recorder = "kineto";
}

void KinetoRows::add_event(const KinetoEvent& event) {
  switch (event.phase) {
    case 'X':
    case 'B':
      return add_stretch(event);
    case 'E':
      return add_end(event);
    case 'M':
      return add_metadata(event);
    case '\0':
      return builder_.warn("entries without a phase are no events and were left out");
    default:
      return;  // arrows, instants and counters: nothing is made of them
  }
}

void KinetoRows::add_stretch(const KinetoEvent& event) {
  if (is_idle_category(event.category.text)) return;
  const KinetoArgs args = parse_args(event.args);
  const KindHints hints{.has_launch = args.has_launch(),
                        .has_stream = args.stream.is_given() && args.device.is_given()};
  add_row(event, kineto_kind(event.category.text, event.name.text, hints), args);
}

void KinetoRows::add_row(const KinetoEvent& event, EventKind kind, const KinetoArgs& args) {
  const auto start = scaled_number(event.start, kNanosecondsOfMicroseconds);
  if (!start) return builder_.warn("events without a time were left out");
  if (trace_.size() >= kMostRows)
    return builder_.warn("events beyond the hundred-millionth were left out");
  const auto duration = scaled_number(event.duration, kNanosecondsOfMicroseconds);
  if (event.duration.is_given() && !duration)
    builder_.warn("durations that are no numbers count as 0");
  const size_t row =
      builder_.add(kind, text(event.name), lane(event, kind, args), *start, duration.value_or(0));
  builder_.set_correlation(row, number_in(args.correlation, 0, kMaxInt64, -1));
  add_details(row, args);
  if (event.phase == 'B')
    marks_.push_back({.process = id_of(event.process),
                      .thread = id_of(event.thread),
                      .time_ns = *start,
                      .row = static_cast<uint32_t>(row),
                      .name = trace_.name[row]});
}

void KinetoRows::add_details(size_t row, const KinetoArgs& args) {
  switch (trace_.kind[row]) {
    case EventKind::kKernel:
      if (args.has_launch()) builder_.set(row, launch_of(args));
      return;
    case EventKind::kCopy:
    case EventKind::kSet: {
      Transfer transfer{.bytes = number_in(args.bytes, 0, kMaxInt64, -1)};
      set_memory_kinds(trace_.name_text(row), transfer);
      return builder_.set(row, transfer);
    }
    case EventKind::kSynchronization:
      return builder_.set(row, sync_of(args));
    case EventKind::kOperator:
      return add_operator_details(row, args);
    case EventKind::kPython:
      if (!args.caller.text.empty())
        builder_.set(row, Details{.stack = text(plain_text(args.caller))});
      return;
    case EventKind::kRuntime:
      return note_call(row, args);
    default:
      return;
  }
}

void KinetoRows::add_operator_details(size_t row, const KinetoArgs& args) {
  Details details{.shapes = list_text(args.shapes),
                  .types = list_text(args.types),
                  .strides = list_text(args.strides),
                  .collective = collective_bytes(args),
                  .flops = number_in(args.flops, 0, kMaxInt64, -1),
                  .bytes = number_in(args.bytes, 0, kMaxInt64, -1)};
  if (!args.stack.text.empty()) {
    std::string stack = plain_text(args.stack);
    std::replace(stack.begin(), stack.end(), ';', '\n');
    details.stack = text(stack);
  }
  const bool is_any = details.shapes != 0 || details.types != 0 || details.strides != 0 ||
                      details.stack != 0 || details.collective != 0 || details.flops >= 0 ||
                      details.bytes >= 0;
  if (is_any) builder_.set(row, details);
}

/// AMD's recorder says of the call what NVIDIA's says of the work.
void KinetoRows::note_call(size_t row, const KinetoArgs& args) {
  const bool is_blocking = is_blocking_call(trace_.name_text(row));
  if (trace_.correlation[row] < 0) return;
  if (!is_blocking && !args.has_launch() && !args.size.is_given()) return;
  Call& call = calls_[trace_.correlation[row]];
  call.is_blocking = call.is_blocking || is_blocking;
  call.bytes = std::max(call.bytes, number_in(args.size, 0, kMaxInt64, -1));
  if (!args.has_launch() || call.launch != Trace::kNone) return;
  call.launch = static_cast<uint32_t>(call_launches_.size());
  call_launches_.push_back(launch_of(args));
}

void KinetoRows::add_end(const KinetoEvent& event) {
  const auto time = scaled_number(event.start, kNanosecondsOfMicroseconds);
  if (!time) return builder_.warn("events without a time were left out");
  if (marks_.size() >= 2 * kMostRows) return;
  marks_.push_back({.process = id_of(event.process),
                    .thread = id_of(event.thread),
                    .time_ns = *time,
                    .name = text(event.name)});
}

void KinetoRows::add_metadata(const KinetoEvent& event) {
  if (event.name.text != "thread_name") return;
  std::string name = plain_text(parse_args(event.args).name);
  while (name.ends_with(' ')) name.pop_back();
  if (name.empty() || lane_names_.size() >= kMostLaneNames) return;
  // A thread that changed its name has several entries: take one whatever their order is.
  const auto [entry, is_new] =
      lane_names_.try_emplace({id_of(event.process), id_of(event.thread)}, name);
  if (!is_new) entry->second = std::min(entry->second, name);
}

void KinetoRows::add_member(std::string_view key, const JsonSpan& value) {
  if (key == "baseTimeNanoseconds") {
    const auto base = whole_number(value);
    if (!base) return builder_.warn("baseTimeNanoseconds is no number");
    has_base_ = true;
    base_ns_ = *base;
  } else if (key == "droppedEvents") {
    trace_.recorder = "ridge";
    trace_.dropped = number_in(value, 0, kMaxInt64, 0);
  } else if (key == "distributedInfo") {
    for_members(value, [&](std::string_view field, const JsonSpan& number) {
      if (field == "rank") trace_.rank = static_cast<int32_t>(number_in(number, 0, kMaxInt32, -1));
      if (field == "world_size")
        trace_.world = static_cast<int32_t>(number_in(number, 0, kMaxInt32, 0));
    });
  } else if (key == "deviceProperties" && value.kind == JsonSpan::Kind::kArray) {
    JsonScanner scanner(value.text);
    JsonSpan device;
    if (!scanner.take('[')) return;
    for (char next; scanner.peek(next) && next != ']';) {
      if (next == ',' ? !scanner.take(',') : !scanner.value(device)) return;
      if (next != ',') add_device(device);
    }
  }
}

void KinetoRows::add_device(const JsonSpan& value) {
  constexpr size_t kMostDevices = 4096;
  if (trace_.devices.size() >= kMostDevices) return;
  Device device;
  const auto small = [](const JsonSpan& number) {
    return static_cast<int32_t>(number_in(number, 0, kMaxInt32, 0));
  };
  const bool is_whole = for_members(value, [&](std::string_view key, const JsonSpan& field) {
    if (key == "id") device.number = small(field);
    if (key == "name") device.name = plain_text(field);
    if (key == "numSms") device.multiprocessors = small(field);
    if (key == "computeMajor") device.major = small(field);
    if (key == "computeMinor") device.minor = small(field);
    if (key == "totalGlobalMem") device.memory_bytes = number_in(field, 0, kMaxInt64, 0);
  });
  if (is_whole) trace_.devices.push_back(device);
}

uint32_t KinetoRows::text(std::string_view plain) {
  if (text_bytes_ >= kMostTextBytes) {
    builder_.warn("texts beyond 1 GiB were left out");
    return 0;
  }
  const size_t before = trace_.names.size();
  const uint32_t number = builder_.text(plain);
  if (trace_.names.size() > before) text_bytes_ += plain.size();
  return number;
}

uint32_t KinetoRows::text(const JsonSpan& value) {
  if (is_plain(value)) return text(value.text);
  if (value.text.size() > kLongestText) builder_.warn("texts of more than 64 KiB were cut");
  return text(plain_text(value));
}

/// 0 for an empty list.
uint32_t KinetoRows::list_text(const JsonSpan& value) {
  if (!value.is_given()) return 0;
  std::string list = tidy_list(value);
  if (list.size() > kLongestText) {
    builder_.warn("texts of more than 64 KiB were cut");
    list.resize(kLongestText);
  }
  list = valid_utf8(list);
  return list == "[]" ? 0 : text(list);
}

uint32_t KinetoRows::lane(const KinetoEvent& event, EventKind kind, const KinetoArgs& args) {
  Lane lane{.process = id_of(event.process), .thread = id_of(event.thread)};
  if (is_of_device(kind)) {
    lane.device = device_of(event.process, args);
    lane.thread = stream_of(event.thread, args);
  }
  const auto key = std::tuple(lane.process, lane.thread, lane.device);
  const auto found = lanes_.find(key);
  if (found != lanes_.end()) return found->second;
  const bool is_text = event.thread.kind == JsonSpan::Kind::kText && !whole_number(event.thread);
  if (is_text) lane.name = plain_text(event.thread);
  return lanes_.emplace(key, builder_.lane(lane)).first->second;
}

}  // namespace ridge::doctor
