#include "ridge/graph/fields.h"

#include <fmt/ranges.h>

#include <charconv>

namespace ridge {
namespace {

using Texts = std::vector<std::pair<std::string, std::string>>;

template <typename T>
std::string list_text(const std::vector<T>& values) {
  return fmt::format("[{}]", fmt::join(values, ","));
}

class FieldPrinter final : public FieldVisitor {
 public:
  void visit(std::string_view name, bool& v) override { put(name, v ? "true" : "false"); }
  void visit(std::string_view name, int64_t& v) override { put(name, fmt::format("{}", v)); }
  void visit(std::string_view name, double& v) override { put(name, fmt::format("{}", v)); }
  void visit(std::string_view name, DType& v) override { put(name, std::string(name_of(v))); }
  void visit(std::string_view name, std::string& v) override { put(name, quoted_text(v)); }
  void visit(std::string_view name, std::vector<int64_t>& v) override { put(name, list_text(v)); }
  void visit(std::string_view name, std::vector<double>& v) override { put(name, list_text(v)); }

  Texts texts;

 private:
  void put(std::string_view name, std::string text) { texts.emplace_back(name, std::move(text)); }
};

Texts all_fields(const Op& op) {
  FieldPrinter printer;
  const_cast<Op&>(op).fields(printer);  // this visitor only reads
  return std::move(printer.texts);
}

template <typename T>
bool parse_number(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

template <typename T>
bool parse_list(std::string_view text, std::vector<T>& values) {
  if (text.size() < 2 || text.front() != '[' || text.back() != ']') return false;
  text = text.substr(1, text.size() - 2);
  values.clear();
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    T value{};
    if (!parse_number(text.substr(0, comma), value)) return false;
    values.push_back(value);
    if (comma == text.size()) return true;
    text.remove_prefix(comma + 1);
    if (text.empty()) return false;  // a trailing comma
  }
  return true;
}

// Sets the one field `wanted`, and notes every name on the way for the error message.
class FieldSetter final : public FieldVisitor {
 public:
  FieldSetter(std::string_view op, std::string_view wanted, std::string_view text)
      : op_(op), wanted_(wanted), text_(text) {}

  void visit(std::string_view name, bool& v) override {
    if (!is_wanted(name)) return;
    v = text_ == "true";
    expect(v || text_ == "false", "true or false");
  }
  void visit(std::string_view name, int64_t& v) override {
    if (!is_wanted(name)) return;
    expect(parse_number(text_, v), "an integer");
    expect_in_range(v);
  }
  void visit(std::string_view name, double& v) override {
    if (is_wanted(name)) expect(parse_number(text_, v), "a number");
  }
  void visit(std::string_view name, DType& v) override {
    if (!is_wanted(name)) return;
    const auto dtype = parse_dtype(text_);
    expect(dtype.has_value(), "a dtype such as f32");
    v = *dtype;
  }
  void visit(std::string_view name, std::string& v) override {
    if (is_wanted(name)) v = unquoted(text_);
  }
  void visit(std::string_view name, std::vector<int64_t>& v) override {
    if (!is_wanted(name)) return;
    expect(parse_list(text_, v), "a list of integers such as [1,2]");
    if (name != "ints")  // the elements of a constant may be any integer
      for (int64_t item : v) expect_in_range(item);
  }
  void visit(std::string_view name, std::vector<double>& v) override {
    if (is_wanted(name)) expect(parse_list(text_, v), "a list of numbers such as [1.5,2]");
  }

  bool found = false;
  std::vector<std::string> names;

 private:
  bool is_wanted(std::string_view name) {
    names.emplace_back(name);
    if (name != wanted_) return false;
    found = true;
    return true;
  }
  void expect(bool ok, std::string_view what) const {
    check(ok, "[{}] field '{}': got {}, expected {}", op_, wanted_, shortened(), what);
  }
  // Shape rules may then add and multiply two fields without overflow.
  void expect_in_range(int64_t v) const {
    constexpr int64_t kLimit = int64_t{1} << 48;
    expect(v > -kLimit && v < kLimit, "less than 2^48 in magnitude");
  }
  std::string shortened() const {
    return text_.size() <= 40 ? std::string(text_) : fmt::format("{}...", text_.substr(0, 40));
  }

  std::string_view op_, wanted_, text_;
};

}  // namespace

std::string fields_text(const Op& op, const Op& defaults) {
  const Texts fields = all_fields(op), standard = all_fields(defaults);
  std::string text;
  for (size_t i = 0; i < fields.size(); ++i) {
    if (fields[i].second == standard[i].second) continue;
    text += fmt::format("{}{}={}", text.empty() ? "" : ", ", fields[i].first, fields[i].second);
  }
  return text;
}

void set_fields(Op& op, const Texts& texts) {
  for (const auto& [name, text] : texts) {
    FieldSetter setter(op.name(), name, text);
    op.fields(setter);
    if (!setter.found)
      throw UserError(fmt::format("[{}] unknown field '{}'", op.name(), name),
                      did_you_mean(name, setter.names));
  }
}

std::string quoted_text(std::string_view text) {
  std::string result = "\"";
  result.reserve(text.size() + text.size() / 4);
  for (char c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      result += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
      continue;
    }
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + "\"";
}

std::string unquoted(std::string_view text) {
  const bool framed = text.size() >= 2 && text.front() == '"' && text.back() == '"';
  check(framed, "a quoted string was expected; got {}", text.substr(0, 40));
  text = text.substr(1, text.size() - 2);
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      result += text[i];
      continue;
    }
    const std::string_view rest = text.substr(i + 1);
    unsigned value = 0;
    if (rest.starts_with("x") && rest.size() >= 3 &&
        std::from_chars(rest.data() + 1, rest.data() + 3, value, 16).ptr == rest.data() + 3) {
      result += static_cast<char>(value);
      i += 3;
    } else {
      check(rest.starts_with('"') || rest.starts_with('\\'),
            "bad escape in \"{}\"",
            text.substr(0, 40));
      result += rest.front();
      ++i;
    }
  }
  return result;
}

}  // namespace ridge
