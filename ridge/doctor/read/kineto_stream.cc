#include "ridge/doctor/read/kineto_stream.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "ridge/base/error.h"

namespace ridge::doctor {
namespace {

constexpr size_t kBlock = size_t{1} << 18;
constexpr size_t kLargestItem = size_t{64} << 20;
constexpr size_t kSecondLook = 4096;
constexpr size_t kEventHead = 128;  // as many bytes tell whether an event begins

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
constexpr std::string_view kFix =
    "give a trace that torch.profiler, Ridge or nsys (exported as SQLite) wrote";

void set_field(KinetoEvent& event, std::string_view key, const JsonSpan& value) {
  if (key == "ph")
    event.phase = value.text.size() == 1 ? value.text[0] : '\0';
  else if (key == "cat")
    event.category = value;
  else if (key == "name")
    event.name = value;
  else if (key == "pid")
    event.process = value;
  else if (key == "tid")
    event.thread = value;
  else if (key == "ts")
    event.start = value;
  else if (key == "dur")
    event.duration = value;
  else if (key == "args")
    event.args = value;
}

/// Whether `text`, which begins with a brace, opens with a field that events have.
bool begins_event(std::string_view text) {
  constexpr std::array<std::string_view, 8> kKeys = {
      "ph", "cat", "name", "pid", "tid", "ts", "dur", "id"};
  JsonScanner scanner(text.substr(0, kEventHead));
  char next;
  JsonSpan key;
  if (!scanner.take('{') || !scanner.peek(next) || next != '"') return false;
  return scanner.value(key) && scanner.take(':') &&
         std::find(kKeys.begin(), kKeys.end(), key.text) != kKeys.end();
}

}  // namespace

/// Moves what is not read yet to the front and reads behind it. False at the end, and when an item
/// is too large.
bool KinetoStream::read_more() {
  if (is_ended_) return false;
  const size_t left = filled_ - at_;
  if (left >= kLargestItem) return false;
  if (at_ > 0) std::memmove(buffer_.data(), buffer_.data() + at_, left);
  at_ = 0;
  filled_ = left;
  const size_t wanted = left + std::max(kBlock, left);
  if (buffer_.size() < wanted) buffer_.resize(wanted);
  const size_t got =
      source_(std::as_writable_bytes(std::span(buffer_).subspan(left, wanted - left)));
  filled_ += got;
  is_ended_ = got == 0;
  return !is_ended_;
}

/// So that what is read anew from its beginning each time costs no more than its size.
bool KinetoStream::read_as_much_again() {
  const size_t before = window().size();
  while (window().size() < 2 * before && read_more()) {
  }
  return window().size() > before;
}

bool KinetoStream::peek(char& next) {
  do {
    JsonScanner scanner(window());
    const bool found = scanner.peek(next);
    at_ += scanner.at();
    consumed_ += scanner.at();
    if (found) return true;
  } while (read_more());
  return false;
}

void KinetoStream::begin(const std::string& path) {
  while (window().size() < kByteOrderMark.size() && read_more()) {
  }
  if (window().starts_with(kByteOrderMark)) at_ += kByteOrderMark.size();
  char next = 0;
  const bool has_text = peek(next);
  if (!has_text) throw UserError(fmt::format("'{}' is empty", path), std::string(kFix));
  if (next != '{' && next != '[')
    throw UserError(fmt::format("'{}' is not a trace: neither JSON nor SQLite", path),
                    std::string(kFix));
  ++at_;
  is_array_ = next == '[';
  if (is_array_) place_ = Place::kEvents;
  has_events_ = is_array_;
}

void KinetoStream::run(const std::string& path) {
  begin(path);
  while (step()) {
  }
  if (char next; is_closed_ && peek(next))
    sink_.warn("text after the end of the trace was not read");
  if (events_ > 0) return;
  if (!is_closed_)
    throw UserError(fmt::format("'{}' ends, or breaks, before its first event", path),
                    "record or copy it again");
  if (!has_events_)
    throw UserError(fmt::format("'{}' is not a trace: it has no \"traceEvents\"", path),
                    std::string(kFix));
}

/// Goes on by an item; false at the end.
bool KinetoStream::step() {
  char next;
  if (!peek(next)) return false;
  if (next == ',') {
    ++at_;
    return true;
  }
  return place_ == Place::kEvents ? step_in_events(next) : step_in_members(next);
}

bool KinetoStream::step_in_events(char next) {
  if (next == '{') return event();
  if (next != ']') return recover(1, false);
  ++at_;
  is_closed_ = is_array_;
  place_ = Place::kMembers;
  return !is_array_;
}

bool KinetoStream::step_in_members(char next) {
  if (next == '"') return member();
  if (next != '}') return recover(1, false);
  ++at_;
  is_closed_ = true;
  return false;
}

/// Parses at the front of the window, with more and more text while it ends too early. `parse`
/// is called anew each time and returns whether it got what it wanted.
template <typename Parse>
bool KinetoStream::attempt(Parse parse) {
  while (true) {
    JsonScanner scanner(window());
    const bool is_good = parse(scanner);
    if (is_good) {
      at_ += scanner.at();
      consumed_ += scanner.at();
      return true;
    }
    if (scanner.state() == JsonScanner::State::kBroken)
      return recover(std::max<size_t>(1, scanner.at()), false);
    if (!read_as_much_again()) return recover(std::min(window().size(), kLargestItem), is_ended_);
  }
}

bool KinetoStream::member() {
  JsonSpan key, value;
  bool are_events = false;
  return attempt([&](JsonScanner& scanner) {
    char next;
    if (!scanner.value(key) || !scanner.take(':') || !scanner.peek(next)) return false;
    are_events = key.text == "traceEvents" && next == '[';
    if (are_events) {
      has_events_ = true;
      place_ = Place::kEvents;
      return scanner.take('[');
    }
    if (!scanner.value(value)) return false;
    sink_.add_member(key.text, value);
    return true;
  });
}

bool KinetoStream::event() {
  return attempt([&](JsonScanner& scanner) {
    KinetoEvent event;
    const bool is_whole = scanner.object(
        [&](std::string_view key, const JsonSpan& value) { set_field(event, key, value); });
    if (!is_whole) return false;
    ++events_;
    sink_.add_event(event);
    return true;
  });
}

/// Goes on to what looks like the next event behind something broken; false where there is none.
/// An event may begin before the place of the failure, but a hostile file must not be read again
/// and again: second readings are in all no longer than the file, and then only at its end.
bool KinetoStream::recover(size_t failed_at, bool is_cut) {
  const bool is_large = !is_cut && window().size() >= kLargestItem;
  if (is_large)
    sink_.warn("an item of more than 64 MiB was skipped");
  else if (!is_cut)
    sink_.warn("text that is not JSON was skipped");
  const bool may_look_again = rescanned_ + failed_at <= consumed_ + kBlock;
  if (may_look_again) rescanned_ += failed_at;
  const size_t behind = failed_at > 2 * kSecondLook ? failed_at - kSecondLook : failed_at;
  const size_t skipped = may_look_again && !is_large ? 1 : behind;
  at_ += skipped;
  consumed_ += skipped;
  return find_event();
}

bool KinetoStream::find_event() {
  while (true) {
    const std::string_view text = window();
    const size_t brace = std::min(text.find('{'), text.size());
    at_ += brace;
    consumed_ += brace;
    // Enough to tell, or all there is. read_more() moves the window, so it is asked for anew.
    while (window().size() < kEventHead && read_more()) {
    }
    if (window().empty()) return false;
    if (window()[0] == '{' && begins_event(window())) break;
    if (window()[0] != '{') continue;
    ++at_;
    ++consumed_;
  }
  place_ = Place::kEvents;
  return true;
}

}  // namespace ridge::doctor
