// The events of a program, from any recorder: one table with a column for each field.
//
// Times are nanoseconds from Trace::base_ns, so that doubles and JSON numbers hold them exactly.
// Rows are in an order that does not depend on the file's: sort() gives every reader the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ridge::doctor {

enum class EventKind : uint8_t {
  kOperator,         ///< An operator on a host thread, such as aten::mm or a node of Ridge.
  kPython,           ///< A frame of the interpreter.
  kRange,            ///< A range that a program marked: steps, phases, loaders.
  kRuntime,          ///< A call of the CUDA or HIP runtime or driver.
  kHostWait,         ///< Host time that an operating system or a recorder says was spent waiting.
  kKernel,           ///< On a stream of a device, as are all below but the last two.
  kCopy,             ///< Memory to memory.
  kSet,              ///< Memory to a value.
  kSynchronization,  ///< A stream waits for an event, or a host for a stream: Sync says which.
  kDeviceRange,      ///< A range drawn over what it launched.
  kOverhead,         ///< Time that the recorder took.
  kOther,
};
std::string_view name_of(EventKind kind);

/// A host thread, or a stream of a device.
struct Lane {
  int64_t process = 0;
  int64_t thread = 0;     ///< The system's thread id; on a device the stream.
  int32_t device = -1;    ///< -1: a host thread.
  std::string name = {};  ///< The recorder's name for it; may be empty.
  bool is_device() const { return device >= 0; }
  bool operator==(const Lane&) const = default;
};

enum class MemoryKind : uint8_t { kUnknown, kPageable, kPinned, kDevice, kManaged, kArray };

/// Details of a copy or a set. -1: not known.
struct Transfer {
  int64_t bytes = -1;
  MemoryKind from = MemoryKind::kUnknown, to = MemoryKind::kUnknown;
  bool is_async = true;
};

/// Details of a kernel's launch. 0: not known.
struct Launch {
  int32_t grid[3] = {0, 0, 0}, block[3] = {0, 0, 0};
  int32_t registers = 0;     ///< A thread.
  int64_t shared_bytes = 0;  ///< A block.
  int64_t graph = 0;         ///< Number of the captured graph that launched it.
  int64_t blocks() const { return int64_t{grid[0]} * grid[1] * grid[2]; }
  int64_t threads() const { return int64_t{block[0]} * block[1] * block[2]; }
};

/// Details of a kSynchronization.
struct Sync {
  enum class What : uint8_t { kUnknown, kStreamWaitsEvent, kEvent, kStream, kContext } what{};
  int64_t waits_on_stream = -1;       ///< The stream that recorded the event.
  int64_t waits_on_correlation = -1;  ///< Correlation of the call that recorded it.
  int64_t event = -1;                 ///< Number of the event; numbers are used again.
};

/// Details of an operator or a frame. Texts are in Trace::names; 0: not known.
struct Details {
  uint32_t shapes = 0;   ///< Shapes of the inputs: "[[64, 3], [3]]".
  uint32_t types = 0;    ///< "[\"float\", \"float\"]".
  uint32_t strides = 0;  ///< Strides of the inputs, as shapes: "[[3, 1], [1]]".
  /// Frames, the innermost first, one a line: "file.py(12): f". Of a frame where it was called
  /// from: "file.py:12".
  uint32_t stack = 0;
  int64_t collective = 0;  ///< Bytes that a collective moves.
  int64_t flops = -1, bytes = -1;
};

/// Facts that a recorder gives about a device; 0: not known.
struct Device {
  int32_t number = 0;  ///< The device's number in Lane::device.
  std::string name = {};
  int32_t multiprocessors = 0;
  int32_t major = 0, minor = 0;  ///< Compute capability, or AMD's like.
  int64_t memory_bytes = 0;
  bool operator==(const Device&) const = default;
};

/// Trouble that a reader had and went on from.
struct Warning {
  std::string text;
  int64_t count = 1;
};

struct Trace {
  static constexpr uint32_t kNone = 0xffffffff;

  // ---- columns, all of size() ----
  std::vector<EventKind> kind;
  std::vector<uint32_t> name;        ///< In `names`.
  std::vector<uint32_t> lane;        ///< In `lanes`.
  std::vector<int64_t> start_ns;     ///< From base_ns.
  std::vector<int64_t> duration_ns;  ///< At least 0.
  std::vector<int64_t> correlation;  ///< Joins a call with what it launched; -1: none.
  std::vector<uint32_t> detail;      ///< In the table of its kind below, or kNone.

  // ---- tables that few rows have a row in ----
  std::vector<Transfer> transfers;  ///< Rows of kCopy and kSet.
  std::vector<Launch> launches;     ///< Rows of kKernel.
  std::vector<Sync> syncs;          ///< Rows of kSynchronization.
  std::vector<Details> details;     ///< Rows of kOperator and kPython.

  std::vector<std::string> names;  ///< names[0] is empty.
  std::vector<Lane> lanes;
  std::vector<Device> devices;  ///< By number; those that the recorder describes.

  int64_t base_ns = 0;           ///< Nanoseconds since 1970 at time 0, where the recorder says so.
  int32_t rank = -1, world = 0;  ///< The place in a distributed run; -1 and 0: not known.
  int64_t dropped = 0;           ///< Events that the recorder lost.
  std::string recorder;          ///< "kineto", "nsys", "ridge"
  std::string source;            ///< The file, as it was given.
  bool is_truncated = false;     ///< The file ended early.
  std::vector<Warning> warnings;

  size_t size() const { return kind.size(); }
  int64_t end_ns(size_t row) const { return start_ns[row] + duration_ns[row]; }
  std::string_view name_text(size_t row) const { return names[name[row]]; }
  const Lane& lane_of(size_t row) const { return lanes[lane[row]]; }
  bool has_device_work() const;

  /// Rows by (start, longest first, lane, kind, name, correlation): lanes and names are numbered
  /// by their texts first, so that files which differ in the order of events give equal traces.
  void sort();
};

/// True for kernels, copies and sets of a device, by EventKind and not by name.
inline bool is_device_work(EventKind kind) {
  return kind == EventKind::kKernel || kind == EventKind::kCopy || kind == EventKind::kSet;
}

/// Fills a trace row by row.
class TraceBuilder {
 public:
  explicit TraceBuilder(Trace& trace) : trace_(trace) {}

  /// The number of a text; the same for equal ones.
  uint32_t text(std::string_view text);
  uint32_t lane(const Lane& lane);
  /// Returns the row. A negative duration becomes 0, with a warning.
  size_t add(EventKind kind, uint32_t name, uint32_t lane, int64_t start_ns, int64_t duration_ns);
  void set_correlation(size_t row, int64_t correlation) { trace_.correlation[row] = correlation; }
  void set(size_t row, const Transfer& transfer);
  void set(size_t row, const Launch& launch);
  void set(size_t row, const Sync& sync);
  void set(size_t row, const Details& details);
  /// Counts warnings of the same text.
  void warn(std::string_view text);

 private:
  struct TextHash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  Trace& trace_;
  std::unordered_map<std::string, uint32_t, TextHash, std::equal_to<>> texts_;
  std::unordered_map<std::string, uint32_t> lanes_;
};

}  // namespace ridge::doctor
