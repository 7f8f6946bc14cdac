#include "ridge/base/stop.h"

#include <atomic>

namespace ridge {
namespace {

std::atomic<int> g_signal{0};
static_assert(std::atomic<int>::is_always_lock_free);  // or a signal handler could not use it

}  // namespace

bool stop_requested() { return stop_signal() != 0; }
int stop_signal() { return g_signal.load(std::memory_order_relaxed); }

void request_stop(int signal) {
  int none = 0;
  g_signal.compare_exchange_strong(none, signal, std::memory_order_relaxed);
}

void clear_stop() { g_signal.store(0, std::memory_order_relaxed); }

}  // namespace ridge
