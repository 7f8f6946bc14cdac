#include "tests/backend/cuda/simulation/simt.h"

#include <sys/mman.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <vector>

#include "tests/backend/cuda/simulation/simulated_gpu.h"

// Functions of AddressSanitizer, where the process has it.
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
extern "C" [[gnu::weak]] void __sanitizer_start_switch_fiber(void**, const void*, size_t);
extern "C" [[gnu::weak]] void __sanitizer_finish_switch_fiber(void*, const void**, size_t*);
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)

namespace simt {

Index thread_index, block_index, block_size, grid_size;
alignas(64) unsigned char dynamic_shared[kMostShared];
size_t dynamic_shared_bytes = 0;
size_t current = 0;

namespace {

enum class Waits : uint8_t { kForNothing, kForWarp, kForBlock };

// A thread of the block, and where it waits.
struct Fiber {
  void* registers = nullptr;  // on its stack, while it does not run
  void* stack = nullptr;
  void* fake_stack = nullptr;
  bool done = false;
  Waits waits = Waits::kForNothing;
  // To shuffles, in turn: nobody gives the next but one before all have taken this.
  unsigned long long given[2] = {};
  unsigned shuffles = 0;
};

constexpr size_t kStack = 64 << 10;
std::vector<Fiber> fibers;
void* scheduler = nullptr;  // its registers
void* scheduler_fake_stack = nullptr;
const void* scheduler_stack = nullptr;
size_t scheduler_stack_size = 0;
void (*running)(void* const*) = nullptr;
void* const* running_operands = nullptr;

// Pushes the registers that a function of x86-64 Linux has to keep, leaves the stack at `from`, and
// goes on where `to` was left. swapcontext() asks the kernel for the mask of signals each time,
// which took most of the seconds of a block. ThreadSanitizer keeps a stack of calls a thread, which
// a call that never returns makes deeper for ever: it is told of none that switches.
[[gnu::naked, gnu::noinline, gnu::no_sanitize_thread]] void switch_stack(void** /*from*/,
                                                                         void* /*to*/) {
  asm("push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
      "mov %rsp, (%rdi)\n mov %rsi, %rsp\n"
      "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n ret");
}

void start_switch(void** fake_stack, const void* stack, size_t bytes) {
  if (__sanitizer_start_switch_fiber != nullptr)
    __sanitizer_start_switch_fiber(fake_stack, stack, bytes);
}
void finish_switch(void* fake_stack, const void** stack, size_t* bytes) {
  if (__sanitizer_finish_switch_fiber != nullptr)
    __sanitizer_finish_switch_fiber(fake_stack, stack, bytes);
}

[[gnu::no_sanitize_thread]] void to_scheduler(bool for_good) {
  Fiber& own = fibers[current];
  start_switch(for_good ? nullptr : &own.fake_stack, scheduler_stack, scheduler_stack_size);
  switch_stack(&own.registers, scheduler);
  finish_switch(own.fake_stack, nullptr, nullptr);
}

[[gnu::no_sanitize_thread]] void run_fiber() {
  finish_switch(nullptr, &scheduler_stack, &scheduler_stack_size);
  running(running_operands);
  check_copies();
  fibers[current].done = true;
  to_scheduler(true);
}

[[gnu::no_sanitize_thread]] void resume(size_t index) {
  current = index;
  thread_index.x = static_cast<unsigned>(index);
  Fiber& fiber = fibers[index];
  fiber.waits = Waits::kForNothing;
  start_switch(&scheduler_fake_stack, fiber.stack, kStack);
  switch_stack(&scheduler, fiber.registers);
  finish_switch(scheduler_fake_stack, nullptr, nullptr);
}

[[gnu::no_sanitize_thread]] void wait(Waits for_what) {
  fibers[current].waits = for_what;
  to_scheduler(false);
}

[[gnu::no_sanitize_thread]] void start(size_t index) {
  Fiber& fiber = fibers[index];
  fiber.done = false;
  fiber.shuffles = 0;
  // Six registers, where to begin, and what looks like the address of a caller.
  void** const top = reinterpret_cast<void**>(static_cast<char*>(fiber.stack) + kStack);
  top[-2] = reinterpret_cast<void*>(run_fiber), top[-1] = nullptr;
  fiber.registers = top - 8;
  resume(index);
}

// Resumes threads of the warp as long as they wait for each other.
bool run_warp(size_t begin, size_t end) {
  for (bool moved = false;; moved = true) {
    size_t waiting = 0;
    for (size_t i = begin; i < end; ++i)
      waiting += !fibers[i].done && fibers[i].waits == Waits::kForWarp;
    if (waiting == 0) return moved;
    if (waiting != end - begin) fail("some threads of a warp do not come to where others wait");
    // All have given what they give before one takes.
    for (size_t i = begin; i < end; ++i) resume(i);
  }
}

// Runs the block to its end. Threads of a warp that meet must all be there, and so those of a
// block: anything else hangs a GPU, and ends the test here.
void run_block() {
  const size_t threads = block_size.x;
  for (size_t i = 0; i < threads; ++i) start(i);
  for (;;) {
    size_t done = 0, at_block = 0;
    bool moved = false;
    for (size_t warp = 0; warp < threads; warp += kWarpLanes) {
      const size_t end = std::min(warp + kWarpLanes, threads);
      moved = run_warp(warp, end) || moved;
      for (size_t i = warp; i < end; ++i) {
        done += fibers[i].done;
        at_block += !fibers[i].done && fibers[i].waits == Waits::kForBlock;
      }
    }
    if (done == threads) return;
    if (at_block == threads)
      for (size_t i = 0; i < threads; ++i) resume(i);
    else if (!moved)
      fail("some threads of a block do not come to where others wait");
  }
}

uint32_t bits_of(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}

// `exact`, rounded and moved by so many units in the last place; what is subnormal is zero.
float off_by(double exact, uint32_t units, float argument) {
  float y = static_cast<float>(exact);
  if (std::isnan(y) || std::isinf(y)) return y;
  if (std::fabs(y) < std::numeric_limits<float>::min()) return std::copysign(0.0f, y);
  const bool is_up = (bits_of(argument) * 2654435761u >> 31) != 0;
  for (uint32_t i = 0; i < units; ++i) {
    const float next = std::nextafterf(y, is_up ? INFINITY : -INFINITY);
    if (std::isinf(next) || std::fabs(next) < std::numeric_limits<float>::min()) break;
    y = next;
  }
  return y;
}

float flushed(float x) {
  return std::fabs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0f, x) : x;
}

}  // namespace

void fail(const char* why) {
  std::fprintf(stderr, "simt: %s\n", why);
  std::abort();
}

void launch(void (*kernel)(void* const*),
            void* const* operands,
            unsigned blocks,
            unsigned threads,
            size_t shared_bytes) {
  if (shared_bytes > kMostShared) fail("a block has no so much shared memory");
  while (fibers.size() < threads) {
    Fiber fiber;
    fiber.stack = mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fibers.push_back(fiber);
  }
  prepare_mma(threads);
  dynamic_shared_bytes = shared_bytes;
  running = kernel;
  running_operands = operands;
  grid_size.x = blocks;
  block_size.x = threads;
  for (unsigned block = 0; block < blocks; ++block) {
    block_index.x = block;
    // Memory that no kernel has written must not look like a result.
    std::memset(dynamic_shared, 0x5a, dynamic_shared_bytes);
    run_block();
  }
}

void meet_block() { wait(Waits::kForBlock); }
void meet_warp() { wait(Waits::kForWarp); }
unsigned lane() { return static_cast<unsigned>(current % kWarpLanes); }

unsigned long long exchange(unsigned long long x, unsigned from) {
  Fiber& own = fibers[current];
  const size_t turn = own.shuffles++ % 2, warp = current / kWarpLanes * kWarpLanes;
  own.given[turn] = x;
  meet_warp();
  return fibers[warp + from].given[turn];
}

// The device's approximations err by as much as NVIDIA's "Parallel Thread Execution ISA" lets them,
// up or down by a hash of the argument: what is near enough here is so on every GPU that keeps to
// that.

/// ex2.approx.ftz.f32: of zero it is 1.
float approx_exp2(float x) {
  x = flushed(x);
  return x == 0.0f ? 1.0f : off_by(std::exp2(static_cast<double>(x)), 2, x);
}

/// rcp.approx.ftz.f32.
float approx_reciprocal(float x) { return off_by(1.0 / static_cast<double>(flushed(x)), 1, x); }

}  // namespace simt
