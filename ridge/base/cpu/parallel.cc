// The pool. One job runs on it at a time; its caller is one of its threads and never depends on a
// worker waking up: workers join an open job when they get there, and only those that joined are
// waited for. Two words carry it all: `state_` says whether a job is open and how many workers
// are in it, `wake_` counts the reasons for a sleeping worker to look again.
//
// A thread begins with a part of the chunks that is its own, the same part of each job, and then
// takes those that others have left: what one kernel wrote, the next one mostly reads on the same
// CPU, from its own caches. Between two threads that took chunks in turn half of it would cross.
#include "ridge/base/cpu/parallel.h"

#include <immintrin.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "ridge/base/cpu/cpu_affinity.h"
#include "ridge/base/cpu/cpu_info.h"
#include "ridge/base/error.h"
#include "ridge/base/settings.h"
#include "ridge/base/trace/trace.h"

namespace ridge {
namespace {

// True on a thread that runs a chunk of a job, where further calls run inline.
thread_local bool inside_body = false;

class InsideBody {
 public:
  InsideBody() : before_(inside_body) { inside_body = true; }
  ~InsideBody() { inside_body = before_; }

 private:
  bool before_;
};

void futex_wait(std::atomic<uint32_t>& word, uint32_t expected) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}

void futex_wake(std::atomic<uint32_t>& word, int count) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

// How long a thread looks for a change before it sleeps, in nanoseconds: first for itself, then, up
// to `yielding`, offering its CPU to others between the looks.
struct Patience {
  int64_t spinning = 0;
  int64_t yielding = 0;
};

// Looks at `done` for so long; true once it holds.
template <typename Done>
bool look_for(const Patience& patience, Done done) {
  using std::chrono::nanoseconds, std::chrono::steady_clock;
  const auto start = steady_clock::now();
  auto passed = nanoseconds(0);
  do {
    for (int i = 0; i < 16; ++i) {
      if (done()) return true;
      _mm_pause();
    }
    if (passed.count() >= patience.spinning) sched_yield();
    passed = steady_clock::now() - start;
  } while (passed.count() < std::max(patience.spinning, patience.yielding));
  return false;
}

// Neighbouring chunks that one thread begins with, and the next of them that nobody has taken.
struct alignas(64) Part {
  std::atomic<int64_t> next{0};
  int64_t end = 0;
};

// The chunks of one call, and what came of them.
struct Job {
  int64_t n, grain;
  size_t parts;
  const FunctionRef<void(int64_t, int64_t)>* body;
  unsigned float_mode;  // the caller's MXCSR: the bits must not depend on who runs a chunk
  std::exception_ptr error;
  int64_t error_chunk;
};

void run_chunk(int64_t n,
               int64_t grain,
               int64_t chunk,
               const FunctionRef<void(int64_t, int64_t)>& body) {
  const int64_t begin = chunk * grain;
  body(begin, n - begin > grain ? begin + grain : n);
}

class Pool {
 public:
  Pool() { choose_patience(); }
  // False, having run nothing, when the pool is busy with another thread's job.
  bool try_run(int64_t n,
               int64_t grain,
               int64_t chunks,
               const FunctionRef<void(int64_t, int64_t)>& body);
  // Makes ready for a new num_threads() and ends surplus workers, once no job runs.
  void resize();
  // The same for whether threads are pinned.
  void set_pinning(bool pins);
  // Ends the workers unless a job runs (exit called within a body, say).
  void stop_at_exit();
  // A pool whose workers are `threads - 1` threads that call work().
  explicit Pool(int threads);
  // Runs jobs until that worker is to end.
  void work(int index);
  // Has workers end from this index on; no job runs.
  void end_work(int keep);

 private:
  // state_: job number (16 bits) | open | caller sleeps | workers inside (14 bits).
  static constexpr uint32_t kJobStep = 1u << 16;
  static constexpr uint32_t kOpen = 1u << 15;
  static constexpr uint32_t kCallerSleeps = 1u << 14;
  static constexpr uint32_t kInside = kCallerSleeps - 1;

  void choose_patience();
  Patience patience() const;
  void grow(int threads);
  void stop_workers(size_t keep);
  void place_threads();
  void open(int64_t chunks);
  void hand_out(int64_t chunks, int threads);
  void close();
  void start_worker(int index);
  void wait_for_wake(uint32_t seen);
  bool enter(uint32_t& last_job);
  void leave();
  void run_chunks(size_t own_part);
  bool run_next(Part& part);

  std::mutex owner_;  // held by the one caller whose job runs, or by a resize
  std::vector<std::thread> workers_;
  const bool is_lent_ = false;  // others start and join the workers
  bool pins_ = false;
  // The CPUs that the thread which asked for pinning and the workers stay on; empty: they are not
  // pinned. The list changes only while there are no workers.
  std::vector<int> cpus_;
  std::mutex error_mutex_;
  Job job_{};
  std::vector<Part> parts_;   // one for each thread that there ever was
  std::atomic<int> keep_{0};  // workers whose index is not below this end
  std::atomic<bool> is_patient_{false};
  std::atomic<int64_t> stop_{0};  // chunks from here on need not run: an earlier one threw
  alignas(64) std::atomic<uint32_t> state_{0};
  alignas(64) std::atomic<uint32_t> wake_{0};
  std::atomic<int> sleepers_{0};
};

Pool::Pool(int threads) : is_lent_(true), parts_(static_cast<size_t>(threads)), keep_(threads - 1) {
  choose_patience();
}

bool Pool::try_run(int64_t n,
                   int64_t grain,
                   int64_t chunks,
                   const FunctionRef<void(int64_t, int64_t)>& body) {
  std::unique_lock<std::mutex> owner(owner_, std::try_to_lock);
  if (!owner.owns_lock()) return false;
  int threads = num_threads();  // once: others may set it meanwhile
  grow(threads);
  if (is_lent_) threads = static_cast<int>(parts_.size());
  job_ = {n, grain, 0, &body, _mm_getcsr(), nullptr, chunks};
  stop_.store(chunks, std::memory_order_relaxed);
  hand_out(chunks, threads);
  open(chunks);
  run_chunks(0);
  close();
  if (job_.error) std::rethrow_exception(std::exchange(job_.error, nullptr));
  return true;
}

// Cuts the chunks into parts of nearly equal size.
void Pool::hand_out(int64_t chunks, int threads) {
  job_.parts = static_cast<size_t>(std::min<int64_t>(chunks, threads));
  const auto parts = static_cast<int64_t>(job_.parts);
  const int64_t size = chunks / parts, longer = chunks % parts;
  int64_t begin = 0;
  for (int64_t i = 0; i < parts; ++i) {
    Part& part = parts_[static_cast<size_t>(i)];
    part.next.store(begin, std::memory_order_relaxed);
    begin += size + (i < longer ? 1 : 0);
    part.end = begin;
  }
}

// Publishes job_ and wakes as many sleepers as there is work for.
void Pool::open(int64_t chunks) {
  state_.store(((state_.load(std::memory_order_relaxed) & ~(kJobStep - 1)) + kJobStep) | kOpen,
               std::memory_order_release);
  // Sequentially consistent with wait_for_wake: either the sleeper is counted here, or it sees
  // the new wake_ and does not sleep.
  wake_.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) > 0)
    futex_wake(wake_, static_cast<int>(std::min<int64_t>(chunks - 1, INT_MAX)));
}

// Lets no further worker in and waits for those inside.
void Pool::close() {
  uint32_t state = state_.fetch_and(~kOpen, std::memory_order_acq_rel) & ~kOpen;
  const auto left = [&] {
    state = state_.load(std::memory_order_acquire);
    return (state & kInside) == 0;
  };
  if ((state & kInside) == 0 || look_for(patience(), left)) return;
  state = state_.fetch_or(kCallerSleeps, std::memory_order_acq_rel) | kCallerSleeps;
  while ((state & kInside) != 0) {
    futex_wait(state_, state);
    state = state_.load(std::memory_order_acquire);
  }
}

// Joins the open job, if there is one that this worker has not been in yet.
bool Pool::enter(uint32_t& last_job) {
  uint32_t state = state_.load(std::memory_order_acquire);
  do {
    if ((state & kOpen) == 0 || state / kJobStep == last_job) return false;
  } while (!state_.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel));
  last_job = state / kJobStep;
  return true;
}

void Pool::leave() {
  const uint32_t before = state_.fetch_sub(1, std::memory_order_acq_rel);
  if ((before & kInside) == 1 && (before & kCallerSleeps) != 0) futex_wake(state_, 1);
}

void Pool::run_chunks(size_t own_part) {
  const InsideBody inside;
  for (size_t i = 0; i < job_.parts; ++i)
    while (run_next(parts_[(own_part + i) % job_.parts])) {
    }
}

// False where nothing of it is left that has to run.
bool Pool::run_next(Part& part) {
  if (part.next.load(std::memory_order_relaxed) >= part.end) return false;
  const int64_t chunk = part.next.fetch_add(1, std::memory_order_relaxed);
  // Every chunk before one that throws runs: the lowest that throws is the same whoever runs it.
  if (chunk >= part.end || chunk >= stop_.load(std::memory_order_relaxed)) return false;
  try {
    run_chunk(job_.n, job_.grain, chunk, *job_.body);
  } catch (...) {
    const std::lock_guard<std::mutex> lock(error_mutex_);
    if (chunk < job_.error_chunk) {
      job_.error = std::current_exception();
      job_.error_chunk = chunk;
      stop_.store(chunk, std::memory_order_relaxed);
    }
  }
  return true;
}

void Pool::start_worker(int index) {
  const std::string name = fmt::format("ridge-{}", index);
  pthread_setname_np(pthread_self(), name.c_str());
  name_this_thread(name);
  if (const auto place = static_cast<size_t>(index) + 1; place < cpus_.size())
    pin_this_thread(cpus_[place]);
  work(index);
}

void Pool::work(int index) {
  uint32_t last_job = UINT32_MAX;  // no job number has more than 16 bits
  for (;;) {
    const uint32_t seen = wake_.load(std::memory_order_acquire);
    if (index >= keep_.load(std::memory_order_acquire)) return;
    if (!enter(last_job)) {
      wait_for_wake(seen);
      continue;
    }
    _mm_setcsr(job_.float_mode);
    run_chunks(static_cast<size_t>(index) + 1);
    leave();
  }
}

void Pool::wait_for_wake(uint32_t seen) {
  if (look_for(patience(), [&] { return wake_.load(std::memory_order_acquire) != seen; })) return;
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  futex_wait(wake_, seen);
  sleepers_.fetch_sub(1, std::memory_order_seq_cst);
}

// Looking around costs others their CPU where there are more threads than CPUs.
void Pool::choose_patience() { is_patient_ = num_threads() <= cpu_info().usable_cpus; }

// To wake a sleeper takes some 50 us on a virtual machine, as long as many a kernel: the workers
// stay awake over one that runs on a single thread.
Patience Pool::patience() const {
  return is_patient_ ? Patience{.spinning = 20000, .yielding = 200000} : Patience{.spinning = 1000};
}

void Pool::grow(int threads) {
  const size_t wanted = static_cast<size_t>(threads - 1);
  if (is_lent_) return;
  if (parts_.size() <= wanted) parts_ = std::vector<Part>(wanted + 1);
  if (workers_.size() >= wanted) return;
  workers_.reserve(wanted);
  keep_.store(threads - 1, std::memory_order_release);
  const UnpinnedScope unpinned;
  // Signals belong to the program's own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::string problem;
  try {
    while (workers_.size() < wanted) {
      const int index = static_cast<int>(workers_.size());
      workers_.emplace_back([this, index] { start_worker(index); });
    }
  } catch (const std::system_error& error) {
    problem = error.what();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!problem.empty())
    throw UserError(
        fmt::format(
            "cannot start worker thread {} of {}: {}", workers_.size() + 1, wanted, problem),
        "use fewer threads or raise the process limit");
}

void Pool::end_work(int keep) {
  keep_.store(keep, std::memory_order_release);
  wake_.fetch_add(1, std::memory_order_seq_cst);
  futex_wake(wake_, INT_MAX);
}

void Pool::stop_workers(size_t keep) {
  if (workers_.size() <= keep) return;
  end_work(static_cast<int>(keep));
  while (workers_.size() > keep) {
    workers_.back().join();
    workers_.pop_back();
  }
}

void Pool::resize() {
  const std::lock_guard<std::mutex> owner(owner_);
  choose_patience();
  stop_workers(static_cast<size_t>(num_threads() - 1));
  place_threads();
}

void Pool::set_pinning(bool pins) {
  const std::lock_guard<std::mutex> owner(owner_);
  pins_ = pins;
  place_threads();
}

// Threads without a CPU each would wait for one another where others might be free.
void Pool::place_threads() {
  std::vector<int> cpus;
  if (pins_) cpus = cores_first(allowed_cpus());
  if (cpus.size() < static_cast<size_t>(num_threads())) cpus.clear();
  if (cpus != cpus_) {
    stop_workers(0);  // they take their places when they start
    cpus_ = std::move(cpus);
  }
  if (cpus_.empty() || !pin_this_thread(cpus_[0])) unpin_this_thread();
}

void Pool::stop_at_exit() {
  if (inside_body) return;
  const std::unique_lock<std::mutex> owner(owner_, std::try_to_lock);
  if (owner.owns_lock()) stop_workers(0);
}

// The pool lives in memory that is never freed: a body may still run while the program exits.
std::atomic<Pool*> the_pool{nullptr};
std::atomic<int> thread_count{0};  // 0: not asked for yet

// At exit later calls run inline.
void stop_pool_at_exit() {
  thread_count = 1;
  if (Pool* pool = the_pool.load()) pool->stop_at_exit();
}

// A forked child has none of the workers, and perhaps a locked mutex: it starts afresh. It cannot
// delete its parent's pool, which stays reachable so that leak checkers do not count it.
std::atomic<Pool*> parents_pool = nullptr;
void forget_pool_in_child() { parents_pool = the_pool.exchange(nullptr); }

Pool& pool() {
  if (Pool* made = the_pool.load(std::memory_order_acquire)) return *made;
  static const bool registered = [] {
    std::atexit(stop_pool_at_exit);
    return pthread_atfork(nullptr, nullptr, forget_pool_in_child) == 0;
  }();
  static_cast<void>(registered);
  Pool* const fresh = new Pool;
  Pool* expected = nullptr;
  if (the_pool.compare_exchange_strong(expected, fresh)) return *fresh;
  delete fresh;
  return *expected;
}

// Threads of a team share it while one of them runs the body.
struct TeamWork {
  FunctionRef<void()> body;
  std::thread::id caller;
  Pool pool;
  std::atomic<int> workers{0};
  std::exception_ptr error = nullptr;
};

// The pool of the team that this thread has called, if any.
thread_local Pool* team_pool = nullptr;

void run_in_team(void* context) {
  TeamWork& work = *static_cast<TeamWork*>(context);
  if (std::this_thread::get_id() != work.caller) {
    const unsigned float_mode = _mm_getcsr();
    work.pool.work(work.workers.fetch_add(1, std::memory_order_relaxed));
    _mm_setcsr(float_mode);
    return;
  }
  team_pool = &work.pool;
  try {
    work.body();
  } catch (...) {
    work.error = std::current_exception();
  }
  team_pool = nullptr;
  work.pool.end_work(0);
}

}  // namespace

void with_team(ThreadTeam team, FunctionRef<void()> body) {
  const int threads = num_threads();
  if (threads == 1 || inside_body || team_pool != nullptr) return body();
  TeamWork work{body, std::this_thread::get_id(), Pool(threads)};
  team(run_in_team, &work, static_cast<unsigned>(threads));
  if (work.error) std::rethrow_exception(work.error);
}

void parallel_for(int64_t n, int64_t grain, FunctionRef<void(int64_t, int64_t)> body) {
  check_internal(grain > 0, "[parallel_for] grain must be positive; got {}", grain);
  if (n <= 0) return;
  if (n <= grain) return body(0, n);
  const int64_t chunks = (n - 1) / grain + 1;
  if (!inside_body && num_threads() > 1) {
    Pool& used = team_pool != nullptr ? *team_pool : pool();
    if (used.try_run(n, grain, chunks, body)) return;
  }
  const InsideBody inside;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) run_chunk(n, grain, chunk, body);
}

int num_threads() {
  const int count = thread_count.load(std::memory_order_relaxed);
  if (count > 0) return count;
  int none = 0, wanted = static_cast<int>(settings().get_int("threads"));
  if (wanted == 0) wanted = std::min(cpu_info().usable_cpus, kMaxThreads);
  thread_count.compare_exchange_strong(none, wanted);
  return thread_count.load(std::memory_order_relaxed);
}

void set_num_threads(int count) {
  check(count >= 1 && count <= kMaxThreads,
        "number of threads must lie between 1 and {}; got {}",
        kMaxThreads,
        count);
  check_internal(!inside_body, "[set_num_threads] called from inside a parallel_for body");
  thread_count = count;
  pool().resize();
}

void set_thread_pinning(bool pins) {
  check_internal(!inside_body, "[set_thread_pinning] called from inside a parallel_for body");
  pool().set_pinning(pins);
}

void apply_threads() {
  const auto wanted = static_cast<int>(settings().get_int("threads"));
  set_num_threads(wanted != 0 ? wanted : std::min(usable_cpus(), kMaxThreads));
  set_thread_pinning(settings().get_bool("cpu.pin"));
}

}  // namespace ridge
