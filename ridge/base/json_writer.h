// Writes one JSON text as it comes, with no tree in memory.
#pragma once

#include <concepts>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

namespace ridge {

/// Writes valid JSON only: misuse (a value where a key belongs, two roots, a wrong or missing end)
/// is an InternalError. Strings may hold any bytes; what is not UTF-8 becomes U+FFFD. Floats are
/// written with the fewest digits that read back to the same value, and always with a point or
/// exponent; NaN and infinities as null; integers exactly, whatever their size.
class JsonWriter {
 public:
  /// Appends to `out`. `indent` spaces a level; 0 puts everything on one line.
  explicit JsonWriter(std::string& out, int indent = 0);
  /// Writes to `out` in pieces of about 64 KiB; the last of them at finish().
  explicit JsonWriter(std::ostream& out, int indent = 0);
  JsonWriter(const JsonWriter&) = delete;
  JsonWriter& operator=(const JsonWriter&) = delete;

  JsonWriter& begin_object() { return open('{'); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& begin_array() { return open('['); }
  JsonWriter& end_array() { return close(']'); }
  JsonWriter& key(std::string_view name);

  JsonWriter& value(std::string_view text);
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  JsonWriter& value(const std::string& text) { return value(std::string_view(text)); }
  JsonWriter& value(double number);
  JsonWriter& value(float number);
  JsonWriter& value(std::nullptr_t);
  template <std::integral T>
  JsonWriter& value(T number) {
    if constexpr (std::is_same_v<T, bool>)
      return boolean(number);
    else if constexpr (std::is_signed_v<T>)
      return integer(static_cast<int64_t>(number));
    else
      return integer(static_cast<uint64_t>(number));
  }
  /// `scaled` / 10^digits, exactly: decimal(1234567, 3) is 1234.567.
  JsonWriter& decimal(int64_t scaled, int digits);

  /// key(name) and value(v) in one.
  template <typename T>
  JsonWriter& field(std::string_view name, const T& v) {
    return key(name).value(v);
  }

  /// Checks that the one root is complete, and writes what is left to the stream (UserError when
  /// the stream has failed, a full disk say).
  void finish();

 private:
  struct Level {
    char bracket;
    bool empty = true;
    bool key_written = false;
  };

  JsonWriter& open(char bracket);
  JsonWriter& close(char bracket);
  JsonWriter& boolean(bool b);
  JsonWriter& integer(int64_t number);
  JsonWriter& integer(uint64_t number);
  JsonWriter& scalar(std::string_view text);
  void before_value();
  void separate(Level& level);
  void break_line();
  void append_string(std::string_view text);
  void flush();

  std::string own_;
  std::string& text_;
  std::ostream* stream_ = nullptr;
  int indent_;
  bool root_written_ = false;
  std::vector<Level> levels_;
};

}  // namespace ridge
