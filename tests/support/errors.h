// The messages of calls that refuse.
#pragma once

#include <string>

#include "ridge/base/error.h"

namespace ridge::test {

/// The message of the UserError that `body` throws; "no error" when it throws none.
template <typename F>
std::string user_error(F&& body) {
  try {
    body();
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace ridge::test
