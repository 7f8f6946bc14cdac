// Sockets of ours in a folder of ours, for processes of a program to connect to.
#pragma once

#include <string>

#include "ridge/base/descriptor.h"

namespace ridge::attach {

/// Listens at `folder`/`name` for connections that keep the bounds of messages; accepting does not
/// wait. UserError where it cannot.
Descriptor listen_in(const std::string& folder, const std::string& name);

}  // namespace ridge::attach
