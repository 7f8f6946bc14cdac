// One value of a configuration: from TOML or a flag, checked, into its field, and back as text.
#pragma once

#include <string>
#include <string_view>

#include "ridge/config/keys.h"
#include "ridge/io/toml_reader.h"

namespace ridge {

/// "integer", "number", "list of strings", ...
std::string type_name(const ConfigField& field);

/// Describes the values that the key allows: "an integer from 1 to 64", "one of adamw, sgd".
std::string expectation(const ConfigKey& key);

/// Stores `value` in the key's field; false, with the field unchanged, when the key does not allow
/// it. An integer will do for a number.
bool assign(const ConfigKey& key, const TomlValue& value);

/// The value that the text of a flag stands for: TOML, where strings need no quotes and lists no
/// brackets. What cannot be read stays a string.
TomlValue parse_flag(const ConfigField& field, const std::string& text);

/// The value in TOML: `[32, 64]`, `"adamw"`, `0.001`.
std::string value_text(const ConfigField& field);
std::string value_text(const TomlValue& value);

/// Whether `name` is that of a setting of Ridge.
bool is_setting(std::string_view name);

/// A setting's value as Settings takes it: strings without their quotes.
std::string setting_text(const TomlValue& value);
/// Converts a flag's text, which may have quotes or not.
std::string setting_text(const std::string& flag);

}  // namespace ridge
