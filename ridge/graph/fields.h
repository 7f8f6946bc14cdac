// The fields of an op as text, and back.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ridge/graph/op.h"

namespace ridge {

/// "axes=[1], keepdims=true": the fields of `op` that differ from those of `defaults`.
std::string fields_text(const Op& op, const Op& defaults);

/// Sets the named fields of `op` from their texts. UserError for an unknown field (the nearest is
/// named) or a text that is not of the field's type.
void set_fields(Op& op, const std::vector<std::pair<std::string, std::string>>& texts);

/// `text` in double quotes, with quote, backslash and control characters escaped.
std::string quoted_text(std::string_view text);

/// The inverse of quoted_text; UserError when `text` is not a quoted string.
std::string unquoted(std::string_view text);

}  // namespace ridge
