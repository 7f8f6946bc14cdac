#include "ridge/io/toml_reader.h"

#include <toml++/toml.h>

#include <algorithm>
#include <tuple>

#include "ridge/base/error.h"
#include "ridge/base/utf8.h"

namespace ridge {
namespace {

// Each dot may open a table inside a table, and the parser's tree is freed by recursion.
constexpr int64_t kMostDots = 4096;

std::string place(std::string_view name, const toml::source_position& position) {
  return fmt::format("{}:{}:{}", name, position.line, position.column);
}

bool is_bare(std::string_view key) {
  return !key.empty() && std::all_of(key.begin(), key.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  });
}

class Flattener {
 public:
  explicit Flattener(std::string_view name) : name_(name) {}

  void add_table(const toml::table& table, const std::string& prefix) {
    for (auto&& [key, node] : table) {
      const std::string part = is_bare(key.str()) ? std::string(key.str()) : toml_quoted(key.str());
      const std::string path = prefix.empty() ? part : prefix + "." + part;
      const toml::table* inner = node.as_table();
      if (inner != nullptr && !inner->empty())
        add_table(*inner, path);
      else
        add_entry(path, key, node);
    }
  }

  std::vector<TomlEntry> finish() {
    std::sort(found_.begin(), found_.end(), [](const Found& a, const Found& b) {
      return std::tie(a.at.line, a.at.column) < std::tie(b.at.line, b.at.column);
    });
    std::vector<TomlEntry> entries;
    for (Found& found : found_) entries.push_back(std::move(found.entry));
    return entries;
  }

 private:
  struct Found {
    toml::source_position at;
    TomlEntry entry;
  };

  void add_entry(const std::string& path, const toml::key& key, const toml::node& node) {
    TomlEntry entry;
    entry.key = path;
    entry.key_place = place(name_, key.source().begin);
    entry.value_place = place(name_, node.source().begin);
    entry.is_table = node.is_table();
    if (const toml::array* array = node.as_array()) {
      std::vector<TomlScalar> items;
      for (const toml::node& item : *array) items.push_back(scalar(path, item));
      entry.value = std::move(items);
    } else if (!entry.is_table) {
      std::visit([&](auto&& value) { entry.value = std::move(value); }, scalar(path, node));
    }
    found_.push_back({key.source().begin, std::move(entry)});
  }

  TomlScalar scalar(const std::string& path, const toml::node& node) const {
    if (const auto* value = node.as_integer()) return value->get();
    if (const auto* value = node.as_floating_point()) return value->get();
    if (const auto* value = node.as_boolean()) return value->get();
    if (const auto* value = node.as_string()) return value->get();
    throw UserError(fmt::format("{}: '{}' holds a {}",
                                place(name_, node.source().begin),
                                path.substr(0, 60),
                                node.is_table()   ? "table in a list"
                                : node.is_array() ? "list in a list"
                                                  : "date or time"),
                    "give a number, true or false, a string, or a list of these");
  }

  std::string_view name_;
  std::vector<Found> found_;
};

// toml++ opens its messages with "Error while parsing ...: ".
std::string message_of(const toml::parse_error& error) {
  constexpr std::string_view kOpening = "Error while parsing ";
  std::string_view text = error.description();
  if (text.starts_with(kOpening)) text.remove_prefix(kOpening.size());
  return valid_utf8(text.substr(0, 300));
}

}  // namespace

std::vector<TomlEntry> read_toml(std::string_view text, std::string_view name) {
  if (text.size() > kLongestToml)
    throw UserError(fmt::format("{}: {} bytes are too many for TOML settings", name, text.size()),
                    fmt::format("keep the file below {} bytes", kLongestToml));
  if (std::count(text.begin(), text.end(), '.') > kMostDots)
    throw UserError(
        fmt::format("{}: more than {} dots: keys may be nested too deep", name, kMostDots),
        "shorten the file");
  try {
    const toml::table table = toml::parse(text, name);
    Flattener flattener(name);
    flattener.add_table(table, "");
    return flattener.finish();
  } catch (const toml::parse_error& error) {
    throw UserError(
        fmt::format(
            "{}: this is not TOML: {}", place(name, error.source().begin), message_of(error)),
        "see docs/config.md for the form of the file");
  }
}

std::string toml_quoted(std::string_view text) {
  std::string result = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\')
      result += {'\\', c};
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      result += fmt::format("\\u{:04X}", static_cast<unsigned char>(c));
    else
      result += c;
  }
  return result + "\"";
}

}  // namespace ridge
