// The two error families of Ridge. The library throws them and never prints, aborts or exits.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace ridge {

/// Wrong input, configuration or environment. The message is lower case and says what is wrong,
/// where, and why; `fix()` holds the one thing to do about it (may be empty).
class UserError : public std::runtime_error {
 public:
  explicit UserError(const std::string& message, std::string fix = {})
      : std::runtime_error(fix.empty() ? message : message + "; " + fix),
        message_(message),
        fix_(std::move(fix)) {}
  /// The text of what(), without the fix.
  const std::string& message() const { return message_; }
  const std::string& fix() const { return fix_; }

 private:
  std::string message_, fix_;
};

/// A device, or the host, has less memory free than was asked for. Less may still be had.
class OutOfMemory : public UserError {
 public:
  using UserError::UserError;
};

/// A fault of Ridge itself. The message carries the printed node where there is one.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

}  // namespace ridge
