#include "ridge/doctor/read/json_scanner.h"

namespace ridge::doctor {
namespace {

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

bool ends_bare_value(char c) {
  return is_space(c) || c == ',' || c == '}' || c == ']' || c == ':' || c == '"' || c == '{' ||
         c == '[';
}

}  // namespace

bool JsonScanner::fail() {
  state_ = State::kBroken;
  return false;
}

bool JsonScanner::ends() {
  state_ = State::kEnds;
  return false;
}

bool JsonScanner::peek(char& next) {
  while (at_ < text_.size() && is_space(text_[at_])) ++at_;
  if (at_ == text_.size()) return ends();
  next = text_[at_];
  return true;
}

bool JsonScanner::take(char wanted) {
  char next;
  if (!peek(next)) return false;
  if (next != wanted) return fail();
  ++at_;
  return true;
}

bool JsonScanner::value(JsonSpan& value) {
  char next;
  if (!peek(next)) return false;
  if (next == '"') return text_value(value);
  if (next == '{' || next == '[') return nested_value(value);
  return bare_value(value);
}

/// A quote ends a text only where JSON can go on behind it: names with bare quotes stay whole.
bool JsonScanner::text_value(JsonSpan& value) {
  const size_t begin = at_ + 1;
  value.is_escaped = false;
  for (size_t i = begin; i < text_.size(); ++i) {
    if (text_[i] == '\\') {
      value.is_escaped = true;
      ++i;
    } else if (text_[i] == '"') {
      size_t after = i + 1;
      while (after < text_.size() && is_space(text_[after])) ++after;
      if (after == text_.size()) return ends();
      const char next = text_[after];
      if (next != ',' && next != ':' && next != '}' && next != ']') continue;
      value.kind = JsonSpan::Kind::kText;
      value.text = text_.substr(begin, i - begin);
      at_ = i + 1;
      return true;
    }
  }
  return ends();
}

bool JsonScanner::bare_value(JsonSpan& value) {
  const size_t begin = at_;
  size_t i = at_;
  while (i < text_.size() && !ends_bare_value(text_[i])) ++i;
  if (i == text_.size()) return ends();
  if (i == begin) return fail();
  value = {.kind = JsonSpan::Kind::kBare, .text = text_.substr(begin, i - begin)};
  at_ = i;
  return true;
}

bool JsonScanner::nested_value(JsonSpan& value) {
  constexpr int kDeepest = 64;
  const size_t begin = at_;
  uint64_t is_object = 0;  // a bit for each level, the innermost lowest
  int depth = 0;
  do {
    char next;
    JsonSpan inner;
    if (!peek(next)) return false;
    if (next == '{' || next == '[') {
      if (++depth > kDeepest) return fail();
      is_object = (is_object << 1) | (next == '{' ? 1u : 0u);
      ++at_;
    } else if (next == '}' || next == ']') {
      if ((is_object & 1) != (next == '}' ? 1u : 0u)) return fail();
      is_object >>= 1;
      --depth;
      ++at_;
    } else if (next == ',' || next == ':') {
      ++at_;
    } else if (next == '"') {
      if (!text_value(inner)) return false;
    } else if (!bare_value(inner)) {
      return false;
    }
  } while (depth > 0);
  value = {.kind = text_[begin] == '{' ? JsonSpan::Kind::kObject : JsonSpan::Kind::kArray,
           .text = text_.substr(begin, at_ - begin)};
  return true;
}

}  // namespace ridge::doctor
