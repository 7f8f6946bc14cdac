// Decodes texts and numbers of a scanned JSON.
#include <algorithm>
#include <charconv>

#include "ridge/base/utf8.h"
#include "ridge/doctor/read/json_scanner.h"

namespace ridge::doctor {
namespace {

constexpr uint64_t kLargest = uint64_t{1} << 62;

/// The four hexadecimal digits of `text` at `at`.
std::optional<uint32_t> hex4(std::string_view text, size_t at) {
  if (at + 4 > text.size()) return std::nullopt;
  uint32_t code = 0;
  const char* end = text.data() + at + 4;
  const auto [stop, error] = std::from_chars(text.data() + at, end, code, 16);
  if (error != std::errc() || stop != end) return std::nullopt;
  return code;
}

void append_utf8(std::string& out, uint32_t code) {
  const auto tail = [&](int shift) { out += static_cast<char>(0x80 | ((code >> shift) & 0x3f)); };
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xc0 | (code >> 6));
    tail(0);
  } else if (code < 0x10000) {
    out += static_cast<char>(0xe0 | (code >> 12));
    tail(6), tail(0);
  } else {
    out += static_cast<char>(0xf0 | (code >> 18));
    tail(12), tail(6), tail(0);
  }
}

/// A \u at `at` of `text`, or two that are a pair of surrogates; returns where it ends.
size_t append_unicode(std::string& out, std::string_view text, size_t at) {
  const auto code = hex4(text, at + 2);
  if (!code) {
    out += "\\u";
    return at + 2;
  }
  const bool is_high = *code >= 0xd800 && *code < 0xdc00;
  if (is_high && text.substr(at + 6, 2) == "\\u") {
    const auto low = hex4(text, at + 8);
    if (low && *low >= 0xdc00 && *low < 0xe000) {
      append_utf8(out, 0x10000 + ((*code - 0xd800) << 10) + (*low - 0xdc00));
      return at + 12;
    }
  }
  append_utf8(out, *code);  // half of a pair becomes U+FFFD with all that is not UTF-8
  return at + 6;
}

std::string unescaped(std::string_view text) {
  constexpr std::string_view kCodes = "nrtbf", kMeanings = "\n\r\t\b\f";
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    if (text[at] != '\\' || at + 1 == text.size()) {
      out += text[at++];
    } else if (text[at + 1] == 'u') {
      at = append_unicode(out, text, at);
    } else {
      const size_t code = kCodes.find(text[at + 1]);
      out += code == std::string_view::npos ? text[at + 1] : kMeanings[code];
      at += 2;
    }
  }
  return out;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// The digits of a decimal number as a whole one, and the power of ten that it is to be given.
struct Decimal {
  uint64_t digits = 0;
  int64_t power = 0;
  bool round_up = false;  ///< The first digit that did not fit is 5 or more.
  bool has_more = false;  ///< Digits did not fit.
  bool is_any = false;

  void add(char c, bool is_fraction) {
    is_any = true;
    const bool fits = !has_more && digits < 1'000'000'000'000'000'000u;
    if (fits) {
      digits = digits * 10 + static_cast<uint64_t>(c - '0');
    } else if (!has_more) {
      has_more = true;
      round_up = c >= '5';
    }
    if (fits && is_fraction) --power;
    if (!fits && !is_fraction) ++power;
  }
};

/// digits * 10^power, or nothing from 2^62 on.
std::optional<uint64_t> whole(const Decimal& decimal) {
  uint64_t value = decimal.digits;
  int64_t power = decimal.power;
  if (value == 0) return 0;
  if (power == 0 && decimal.round_up) ++value;
  for (; power > 0; --power) {
    if (value > kLargest / 10) return std::nullopt;
    value *= 10;
  }
  if (power < -19) return 0;
  if (power < 0) {
    for (; power < -1; ++power) value /= 10;
    value = value / 10 + (value % 10 >= 5 ? 1 : 0);
  }
  if (value >= kLargest) return std::nullopt;
  return value;
}

/// "e+12" as far as it matters; false where it is none.
bool add_exponent(std::string_view text, Decimal& decimal) {
  if (text.size() > 1 && text[1] == '+') text.remove_prefix(1);
  int64_t exponent = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + 1, end, exponent);
  if (error != std::errc() || stop != end) return false;
  decimal.power += std::clamp<int64_t>(exponent, -1000, 1000);
  return true;
}

std::optional<uint64_t> parse_decimal(std::string_view text, int scale) {
  Decimal decimal;
  decimal.power = scale;
  size_t at = 0;
  for (; at < text.size() && is_digit(text[at]); ++at) decimal.add(text[at], false);
  if (at < text.size() && text[at] == '.')
    for (++at; at < text.size() && is_digit(text[at]); ++at) decimal.add(text[at], true);
  if (!decimal.is_any) return std::nullopt;
  if (at == text.size()) return whole(decimal);
  if (text[at] != 'e' && text[at] != 'E') return std::nullopt;
  if (!add_exponent(text.substr(at), decimal)) return std::nullopt;
  return whole(decimal);
}

std::optional<uint64_t> parse_hex(std::string_view digits) {
  uint64_t value = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value, 16);
  if (error != std::errc() || stop != end || value >= kLargest) return std::nullopt;
  return value;
}

}  // namespace

bool is_plain(const JsonSpan& value) {
  if (value.is_escaped || value.text.size() > kLongestText) return false;
  unsigned char all = 0;
  for (char c : value.text) all = static_cast<unsigned char>(all | static_cast<unsigned char>(c));
  return all < 0x80;
}

std::string plain_text(const JsonSpan& value) {
  const std::string_view text = value.text.substr(0, kLongestText);
  return valid_utf8(value.is_escaped ? unescaped(text) : std::string(text));
}

std::optional<int64_t> scaled_number(const JsonSpan& value, int scale) {
  if (value.kind != JsonSpan::Kind::kBare && value.kind != JsonSpan::Kind::kText)
    return std::nullopt;
  std::string_view text = value.text;
  const bool is_negative = !text.empty() && text[0] == '-';
  if (is_negative) text.remove_prefix(1);
  const bool is_hex = text.size() > 2 && text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
  const auto number = is_hex && scale == 0 ? parse_hex(text.substr(2)) : parse_decimal(text, scale);
  if (!number) return std::nullopt;
  const auto magnitude = static_cast<int64_t>(*number);
  return is_negative ? -magnitude : magnitude;
}

}  // namespace ridge::doctor
