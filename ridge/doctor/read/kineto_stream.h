// Takes a Kineto trace apart into its events, in the order of the file and in little memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/base/function_ref.h"
#include "ridge/doctor/read/json_scanner.h"
#include "ridge/io/file.h"

namespace ridge::doctor {

/// Fills some of the bytes and says how many; 0 at the end.
using ByteSource = FunctionRef<size_t(std::span<std::byte>)>;

/// An entry of "traceEvents"; the values are those of the file, or not given.
struct KinetoEvent {
  char phase = 0;  ///< 0: none, or longer than a character.
  JsonSpan category, name, process, thread, start, duration, args;
};

/// Takes what the stream finds; the views are good until the call returns.
class KinetoSink {
 public:
  virtual ~KinetoSink() = default;
  virtual void add_event(const KinetoEvent& event) = 0;
  /// A member of the outermost object, but for the events.
  virtual void add_member(std::string_view key, const JsonSpan& value) = 0;
  virtual void warn(std::string_view text) = 0;
};

class KinetoStream {
 public:
  KinetoStream(ByteSource source, KinetoSink& sink) : source_(source), sink_(sink) {}

  /// Reads to the end, over what is broken. UserError, which names `path`, where no event could be
  /// read and the text is not a whole trace without events either.
  void run(const std::string& path);
  /// The text ended before its outermost array or object did.
  bool is_truncated() const { return !is_closed_; }

 private:
  enum class Place : uint8_t { kMembers, kEvents };

  std::string_view window() const { return {buffer_.data() + at_, filled_ - at_}; }
  bool read_more();
  bool peek(char& next);
  void begin(const std::string& path);
  bool step();
  bool step_in_events(char next);
  bool step_in_members(char next);
  template <typename Parse>
  bool attempt(Parse parse);
  bool member();
  bool event();
  bool recover(size_t failed_at, bool is_cut);
  bool read_as_much_again();
  bool find_event();

  ByteSource source_;
  KinetoSink& sink_;
  std::vector<char> buffer_;
  size_t at_ = 0, filled_ = 0;  // what is not read yet is [at_, filled_) of buffer_
  bool is_ended_ = false;       // the source has no more
  bool is_array_ = false, is_closed_ = false, has_events_ = false;
  Place place_ = Place::kMembers;
  int64_t events_ = 0;
  uint64_t consumed_ = 0;  // bytes before at_
  uint64_t rescanned_ = 0;
};

}  // namespace ridge::doctor
