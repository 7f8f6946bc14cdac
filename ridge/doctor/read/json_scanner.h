// Reads JSON that recorders got wrong: control characters in texts, quotes that nobody escaped,
// words that are no values, a file that ends anywhere. It copies nothing and builds no tree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ridge::doctor {

/// A value where it stands in the text that was scanned.
struct JsonSpan {
  enum class Kind : uint8_t { kNone, kText, kBare, kArray, kObject } kind = Kind::kNone;
  bool is_escaped = false;     ///< A kText with backslashes in it.
  std::string_view text = {};  ///< A kText without its quotes; of all others the whole.

  bool is_given() const { return kind != Kind::kNone; }
};

/// Goes over a piece of JSON. After a call that returned false, state() tells why.
class JsonScanner {
 public:
  enum class State : uint8_t { kGood, kEnds, kBroken };  ///< kEnds: with more text it may go on.

  explicit JsonScanner(std::string_view text) : text_(text) {}

  State state() const { return state_; }
  size_t at() const { return at_; }

  /// The next character that is no white space, which stays where it is.
  bool peek(char& next);
  /// Steps over `wanted`; another character is kBroken.
  bool take(char wanted);
  /// A value and all that is in it. Deeper than 64 levels is kBroken.
  bool value(JsonSpan& value);

  /// Calls `use` with the key and the value of each member of an object.
  template <typename Use>
  bool object(Use use) {
    if (!take('{')) return false;
    JsonSpan key, member;
    for (char next; peek(next); use(key.text, member)) {
      while (next == ',') {
        ++at_;
        if (!peek(next)) return false;
      }
      if (next == '}') return take('}');
      if (next != '"') return fail();
      if (!value(key) || !take(':') || !value(member)) return false;
    }
    return false;
  }

 private:
  bool fail();
  bool ends();
  bool text_value(JsonSpan& value);
  bool bare_value(JsonSpan& value);
  bool nested_value(JsonSpan& value);

  std::string_view text_;
  size_t at_ = 0;
  State state_ = State::kGood;
};

/// The members of a `value` that is an object; false where it is another or is broken.
template <typename Use>
bool for_members(const JsonSpan& value, Use use) {
  return value.kind == JsonSpan::Kind::kObject && JsonScanner(value.text).object(use);
}

inline constexpr size_t kLongestText = 65536;

/// Returns the first kLongestText bytes of the value as well-formed UTF-8, with the escapes of a
/// kText decoded.
std::string plain_text(const JsonSpan& value);

/// Whether plain_text() would give value.text itself.
bool is_plain(const JsonSpan& value);

/// The decimal number of a kText or kBare times 10^`scale`, rounded half away from zero from its
/// digits. Also "0x1f". Empty where it is no number, or beyond 2^62.
std::optional<int64_t> scaled_number(const JsonSpan& value, int scale);
inline std::optional<int64_t> whole_number(const JsonSpan& value) {
  return scaled_number(value, 0);
}

}  // namespace ridge::doctor
