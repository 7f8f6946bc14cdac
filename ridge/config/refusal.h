// Refusals of keys and values that a configuration cannot hold.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ridge/config/keys.h"
#include "ridge/io/toml_reader.h"

namespace ridge {

/// UserError for a key that is none of `keys` and no setting, with the nearest ones.
[[noreturn]] void refuse_key(const std::vector<ConfigKey>& keys,
                             const std::string& name,
                             std::string_view place);

/// UserError unless `name` is a table of `keys`: one without keys does no harm.
void check_table(const std::vector<ConfigKey>& keys,
                 const std::string& name,
                 std::string_view place);

/// UserError for a value that its key does not allow.
[[noreturn]] void refuse_value(const ConfigKey& key,
                               std::string_view place,
                               const TomlValue& value);

}  // namespace ridge
