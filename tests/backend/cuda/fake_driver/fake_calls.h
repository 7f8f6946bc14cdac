// The first and last part of every function of the stand-in.
#pragma once

#include <fmt/format.h>

#include <mutex>
#include <string>

#include "tests/backend/cuda/fake_driver/fake_machine.h"

namespace ridge::test {

using Address = unsigned long long;
inline void* pointer(Address address) { return reinterpret_cast<void*>(address); }

/// One call: counted, refused where it must be, written to the log. `body` gets the line to add to.
template <typename Body>
int called(const char* name, bool needs_context, bool destroys, Body body) {
  FakeMachine& fake = machine();
  const std::lock_guard lock(fake.mutex);
  std::string line = name;
  if (fake.observer != nullptr) fake.observer->begin();
  int code = fake.refusal(name, needs_context);
  if (code == kSuccess || destroys) {
    const int own = code_of([&] { return body(fake, line); });
    if (code == kSuccess) code = own;
  }
  if (code != kSuccess) line += fmt::format(" -> {}", code);
  fake.add_to_log(line);
  if (fake.observer != nullptr) fake.observer->end(line, code);
  return code;
}
template <typename Body>
int usual(const char* name, Body body) {
  return called(name, true, false, body);
}
/// Needs no context.
template <typename Body>
int bare(const char* name, Body body) {
  return called(name, false, false, body);
}
/// Does its work whatever else it returns.
template <typename Body>
int destroys(const char* name, Body body) {
  return called(name, true, true, body);
}
template <typename T>
int destroys(const char* name, Objects<T> FakeMachine::* all, const void* handle) {
  return destroys(name, [&](FakeMachine& fake, std::string& line) {
    fake.find(fake.*all, handle, line);
    (fake.*all).erase(handle);
    fake.forget_name(handle);
  });
}

}  // namespace ridge::test
