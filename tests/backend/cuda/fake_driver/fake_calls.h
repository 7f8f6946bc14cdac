// What every function of the stand-in does first and last.
#pragma once

#include <fmt/format.h>

#include <mutex>
#include <string>

#include "tests/backend/cuda/fake_driver/fake_machine.h"

namespace ridge::test {

enum class CallKind {
  kBare,      ///< Needs no context.
  kUsual,     ///< Needs one.
  kDestroys,  ///< Needs one, and does its work whatever else it returns.
  kReleases,  ///< Likewise, of the context itself.
};

/// One call: counted, refused where it must be, written to the log. `body` gets the line to add to,
/// and returns a code.
template <typename Body>
int called(const char* name, CallKind kind, Body body) {
  FakeMachine& fake = machine();
  const std::lock_guard lock(fake.mutex);
  std::string line = name;
  if (fake.observer != nullptr) fake.observer->begin();
  int code = fake.refusal(name, kind == CallKind::kUsual || kind == CallKind::kDestroys);
  if (code == kSuccess || kind == CallKind::kDestroys || kind == CallKind::kReleases) {
    const int own = body(fake, line);
    if (code == kSuccess) code = own;
  }
  if (code != kSuccess) line += fmt::format(" -> {}", code);
  fake.add_to_log(line);
  if (fake.observer != nullptr) fake.observer->end(line, code);
  return code;
}

}  // namespace ridge::test
