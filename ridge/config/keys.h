// The keys of a configuration: the one table that parsing, checks, printing and the reference page
// are made from.
#pragma once

#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "ridge/base/named_enum.h"
#include "ridge/config/config.h"

namespace ridge {

/// A field that is an enum with names.
class NamedField {
 public:
  template <NamedEnum E>
  NamedField(E* field) : value_(reinterpret_cast<uint8_t*>(field)), names_(names_of(E{})) {}

  std::string_view names() const { return names_; }  ///< "a|b|c"
  std::string_view name() const { return name_at(names_, *value_); }
  /// Sets the field to the value of that name; false, with the field unchanged, if there is none.
  bool set(std::string_view name) const {
    const std::optional<uint8_t> place = place_of(names_, name);
    if (place) *value_ = *place;
    return place.has_value();
  }
  const void* address() const { return value_; }

 private:
  uint8_t* value_;  // the enum's own bytes
  std::string_view names_;
};

/// Pointer to the field that keeps a key's value.
using ConfigField = std::variant<int64_t*,
                                 uint64_t*,
                                 double*,
                                 bool*,
                                 std::string*,
                                 DType*,
                                 NamedField,
                                 std::vector<int64_t>*,
                                 std::vector<double>*,
                                 std::vector<std::string>*>;

/// One row. Names may repeat with other `kinds`: `model.dropout` is a value of each model of its
/// own. Defaults are those of the structs.
struct ConfigKey {
  std::string_view name;  ///< "model.widths": the table and the key in it.
  ConfigField field;
  std::string_view kinds;  ///< Values of the table's `kind` that have this key: "idx|images";
                           ///< empty: all.
  /// "low..high" (inclusive) or "low..<high" for numbers and each item of a list, "a|b|c" for
  /// names, or empty. Of a field with names it is filled in from them.
  std::string_view allowed;
  std::string_view help;
  size_t min_items = 0;  ///< Least number of items of a list.

  std::string_view table() const { return name.substr(0, name.find('.')); }
  std::string_view leaf() const { return name.substr(name.find('.') + 1); }
};

/// Most items of any list.
inline constexpr size_t kMostItems = 64;

/// The rows, pointing into `config`, in the order of the documentation.
std::vector<ConfigKey> config_keys(TrainConfig& config);

/// Whether `choices` ("a|b|c") holds `name`.
bool has_choice(std::string_view choices, std::string_view name);

/// Whether `key` belongs to its table's kind as it is in the keys' config. Tables without a kind
/// have all their keys.
bool is_active(const ConfigKey& key, const std::vector<ConfigKey>& keys);

}  // namespace ridge
