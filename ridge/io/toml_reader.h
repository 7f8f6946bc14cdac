// TOML texts as a flat list of keys and values with their places; the one wrapper of toml++.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace ridge {

using TomlScalar = std::variant<int64_t, double, bool, std::string>;
using TomlValue = std::variant<int64_t, double, bool, std::string, std::vector<TomlScalar>>;

struct TomlEntry {
  std::string key;  ///< "model.widths"; parts that are no bare keys stand in quotes.
  TomlValue value;
  bool is_table = false;    ///< A table without entries; `value` says nothing.
  std::string key_place;    ///< "run.toml:3:1"
  std::string value_place;  ///< "run.toml:3:10"
};

inline constexpr size_t kLongestToml = size_t{1} << 20;

/// The entries of `text`, in its order; `name` is what places begin with. UserError for what is no
/// TOML, for dates, for lists that hold other than scalars, and for texts beyond kLongestToml.
std::vector<TomlEntry> read_toml(std::string_view text, std::string_view name);

/// `text` as a TOML string, in double quotes. It must be UTF-8.
std::string toml_quoted(std::string_view text);

}  // namespace ridge
