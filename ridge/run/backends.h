// The one place that names the backends.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/backend/backend.h"

namespace ridge {

/// "ref", "cpu". UserError for another name (the nearest is named), or when the machine lacks what
/// the backend needs.
std::unique_ptr<Backend> make_backend(std::string_view name);

/// All names that make_backend takes.
std::vector<std::string> backend_names();

}  // namespace ridge
