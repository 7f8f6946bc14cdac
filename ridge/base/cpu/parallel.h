// One pool of std::thread workers for the whole process, and parallel_for over it.
#pragma once

#include <cstdint>

#include "ridge/base/function_ref.h"

namespace ridge {

/// Calls body(begin, end) for the chunks [0, grain), [grain, 2*grain), ... of [0, n), on the
/// caller and the pool's workers, and returns when all are done. The chunks depend on n and grain
/// alone, never on the number of threads; which thread runs which chunk is open. A call from
/// inside a body runs inline, and so does one that finds the pool busy for another thread. The
/// first chunk (by position) that throws has its exception rethrown here once every running chunk
/// has ended; n <= 0 does nothing. Allocates only where it starts threads: at the first call, and
/// after the number grew (UserError when the system refuses them).
void parallel_for(int64_t n, int64_t grain, FunctionRef<void(int64_t, int64_t)> body);

inline constexpr int kMaxThreads = 1024;

/// Threads that parallel_for uses, the caller included. At first the setting "threads", and where
/// that is 0 the CPUs that this process may use (usable_cpus in cpu_info.h).
int num_threads();

/// Sets that number (1 to kMaxThreads, else UserError); waits for running work. Not from inside a
/// body.
void set_num_threads(int count);

/// Whether each of these threads, the workers and the one that calls this, stays on a CPU of its
/// own, on physical cores before hyper-threads. Where the process may use fewer CPUs than there are
/// threads none does. Not from inside a body.
void set_thread_pinning(bool pins);

/// Calls task(context) on so many threads, the caller one of them, and returns when all have ended.
using ThreadTeam = void (*)(void (*task)(void* context), void* context, unsigned threads);

/// Calls `body` on this thread; meanwhile the workers of its parallel_for are num_threads() - 1
/// threads of the team, and none of the pool's. Threads of OpenMP look around for some 10 ms when
/// their work has ended: a program that has them leaves no CPU for other workers. An exception of
/// the body is rethrown when the team has ended.
void with_team(ThreadTeam team, FunctionRef<void()> body);

/// Sets number and pinning as the settings "threads" and "cpu.pin" say, for the CPUs that
/// there are now.
void apply_threads();

}  // namespace ridge
