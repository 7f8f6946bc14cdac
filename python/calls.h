// Calls from Python into the engine, which end before the interpreter does.
#pragma once

namespace ridge::python {

/// One call, from its first look at its arguments to its result. Both ends hold the GIL, which may
/// be released between. Made while the interpreter ends it never returns: CPython would end that
/// thread, a daemon, by unwinding frames of C++, which ends the process.
class Call {
 public:
  Call();
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
};

/// To be called once: lets calls end before the interpreter does.
void watch_interpreter();

}  // namespace ridge::python
