#include "ridge/base/json_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ostream>

#include "ridge/base/error.h"
#include "ridge/base/utf8.h"

namespace ridge {
namespace {

constexpr size_t kPiece = 64 * 1024;

// "{}" of fmt is the shortest text that reads back to the same value.
template <typename T>
std::string float_text(T number) {
  if (!std::isfinite(number)) return "null";
  std::string text = fmt::format("{}", number);
  // "-0" and "1" would read back as integers, and lose a sign.
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

}  // namespace

JsonWriter::JsonWriter(std::string& out, int indent) : text_(out), indent_(indent) {}

JsonWriter::JsonWriter(std::ostream& out, int indent)
    : text_(own_), stream_(&out), indent_(indent) {}

void JsonWriter::break_line() {
  if (indent_ == 0) return;
  text_ += '\n';
  text_.append(levels_.size() * static_cast<size_t>(indent_), ' ');
}

void JsonWriter::separate(Level& level) {
  if (!level.empty) text_ += ',';
  level.empty = false;
  break_line();
}

void JsonWriter::before_value() {
  if (levels_.empty()) {
    check_internal(!root_written_, "[JsonWriter] a second root value");
    root_written_ = true;
    return;
  }
  Level& level = levels_.back();
  if (level.bracket == '[') return separate(level);
  check_internal(level.key_written, "[JsonWriter] a value without a key in an object");
  level.key_written = false;
}

JsonWriter& JsonWriter::open(char bracket) {
  before_value();
  text_ += bracket;
  levels_.push_back({bracket});
  return *this;
}

JsonWriter& JsonWriter::close(char bracket) {
  check_internal(!levels_.empty() && levels_.back().bracket == (bracket == '}' ? '{' : '['),
                 "[JsonWriter] '{}' closes nothing",
                 bracket);
  check_internal(!levels_.back().key_written, "[JsonWriter] a key without a value");
  const bool empty = levels_.back().empty;
  levels_.pop_back();
  if (!empty) break_line();
  text_ += bracket;
  flush();
  return *this;
}

JsonWriter& JsonWriter::key(std::string_view name) {
  check_internal(!levels_.empty() && levels_.back().bracket == '{' && !levels_.back().key_written,
                 "[JsonWriter] key '{}' where none belongs",
                 name);
  separate(levels_.back());
  levels_.back().key_written = true;
  append_string(name);
  text_ += indent_ ? ": " : ":";
  return *this;
}

JsonWriter& JsonWriter::scalar(std::string_view text) {
  before_value();
  text_ += text;
  return *this;
}

JsonWriter& JsonWriter::value(std::string_view text) {
  before_value();
  append_string(text);
  return *this;
}

JsonWriter& JsonWriter::value(double number) { return scalar(float_text(number)); }
JsonWriter& JsonWriter::value(float number) { return scalar(float_text(number)); }
JsonWriter& JsonWriter::value(std::nullptr_t) { return scalar("null"); }
JsonWriter& JsonWriter::boolean(bool b) { return scalar(b ? "true" : "false"); }
JsonWriter& JsonWriter::integer(int64_t number) { return scalar(fmt::format_int(number).c_str()); }
JsonWriter& JsonWriter::integer(uint64_t number) { return scalar(fmt::format_int(number).c_str()); }

JsonWriter& JsonWriter::decimal(int64_t scaled, int digits) {
  check_internal(digits >= 1 && digits <= 18, "[JsonWriter] {} decimal digits", digits);
  uint64_t power = 1;
  for (int i = 0; i < digits; ++i) power *= 10;
  const uint64_t magnitude =
      scaled < 0 ? ~static_cast<uint64_t>(scaled) + 1 : static_cast<uint64_t>(scaled);
  return scalar(fmt::format(
      "{}{}.{:0{}}", scaled < 0 ? "-" : "", magnitude / power, magnitude % power, digits));
}

void JsonWriter::append_string(std::string_view text) {
  text_ += '"';
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    const char c = text.front();
    if (length == 0)
      text_ += kReplacementCharacter;
    else if (c == '"' || c == '\\')
      (text_ += '\\') += c;
    else if (c == '\n')
      text_ += "\\n";
    else if (c == '\t')
      text_ += "\\t";
    else if (static_cast<unsigned char>(c) < 0x20)
      text_ += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else
      text_ += text.substr(0, length);
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  text_ += '"';
}

void JsonWriter::flush() {
  if (stream_ == nullptr || (text_.size() < kPiece && !levels_.empty())) return;
  stream_->write(text_.data(), static_cast<std::streamsize>(text_.size()));
  text_.clear();
}

void JsonWriter::finish() {
  check_internal(levels_.empty(), "[JsonWriter] {} unclosed levels", levels_.size());
  check_internal(root_written_, "[JsonWriter] nothing written");
  flush();
  if (stream_ != nullptr && !stream_->flush().good())
    throw UserError("cannot write JSON to its file", "check that the disk is not full");
}

}  // namespace ridge
