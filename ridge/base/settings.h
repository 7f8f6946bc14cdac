// Every setting of Ridge: one table, layered by where a value comes from. None changes a result;
// what does belongs into a configuration.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ridge {

enum class SettingType { kInt, kDouble, kBool, kString };

/// The origin of a value; a later one wins over an earlier one.
enum class Source { kDefault, kFile, kRecipe, kEnvironment, kFlag };

/// "default", "file", "recipe", "environment", "flag".
std::string_view name_of(Source source);

/// One row of the table. `allowed` is "low..high" for numbers (inclusive), "a|b|c" for strings,
/// or empty.
struct SettingRow {
  std::string_view name;
  SettingType type;
  std::string_view default_value;
  std::string_view allowed;
  std::string_view environment;
  std::string_view help;
};

/// The table, in the order of the documentation.
std::span<const SettingRow> setting_rows();

/// The table as Markdown, for the documentation.
std::string settings_markdown();

/// Values of all settings. Safe to use from several threads.
class Settings {
 public:
  /// Every row of `rows`, which must outlive this, at its default.
  explicit Settings(std::span<const SettingRow> rows = setting_rows());

  /// Sets `name` at the layer of `source`. `where` says more about the source: "ridge.toml:3",
  /// "--threads". An unknown name or a value that the row does not allow is a UserError.
  void set(std::string_view name,
           std::string_view value,
           Source source,
           std::string_view where = {});

  /// Sets each row whose environment variable is present and not empty.
  void read_environment();

  /// The value in force; another type than the row's, or an unknown name, is an InternalError.
  int64_t get_int(std::string_view name) const;
  double get_double(std::string_view name) const;
  bool get_bool(std::string_view name) const;
  std::string get_string(std::string_view name) const;

  /// The value in force as text, where it comes from, and the note that set() was given on it.
  struct Origin {
    std::string value;
    Source source;
    std::string where;
  };
  Origin origin(std::string_view name) const;

 private:
  struct Layer {
    bool present = false;
    std::string value;
    std::string where;
  };
  using Layers = std::array<Layer, 5>;  // by Source

  size_t index_of(std::string_view name) const;
  Origin typed(std::string_view name, SettingType type) const;

  std::span<const SettingRow> rows_;
  mutable std::mutex mutex_;
  std::vector<Layers> values_;
};

/// The settings of this process; the environment is read at the first call.
Settings& settings();

}  // namespace ridge
