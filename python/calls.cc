#include "python/calls.h"

#include <nanobind/nanobind.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <thread>

namespace ridge::python {
namespace {

namespace nb = nanobind;

std::atomic<int> running = 0;
// Both change under the GIL.
bool is_ending = false;
std::thread::id ending_thread;

// Threads that ran calls are not in the child.
void forget_calls() { running = 0; }

// All threads but daemons are gone by now. This one may go on: what else runs at exit may call.
void let_calls_end() {
  is_ending = true;
  ending_thread = std::this_thread::get_id();
  const nb::gil_scoped_release release;
  for (int count = running; count > 0; count = running) running.wait(count);
}

}  // namespace

Call::Call() {
  if (is_ending && std::this_thread::get_id() != ending_thread) {
    const nb::gil_scoped_release release;
    for (;;) ::pause();
  }
  ++running;
}

Call::~Call() {
  --running;
  running.notify_all();
}

void watch_interpreter() {
  ::pthread_atfork(nullptr, nullptr, forget_calls);
  nb::module_::import_("atexit").attr("register")(nb::cpp_function(let_calls_end));
}

}  // namespace ridge::python
