// What a printed kernel needs of CUDA, on a CPU: the threads of a block are fibers that run one
// after another to the next place where they have to meet. Included before the source of a kernel,
// in a translation unit of its own that is compiled while the test runs.
#pragma once

#include <sys/mman.h>
#include <ucontext.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

#define __global__
#define __shared__ static
#define __constant__
#define __grid_constant__
#define __launch_bounds__(...)
#define RIDGE_DYNAMIC_SHARED(name) unsigned char* const name = simt::dynamic_shared

namespace simt {

struct Index {
  unsigned x = 0, y = 0, z = 0;
};

inline Index thread_index, block_index, block_size, grid_size;
alignas(64) inline unsigned char dynamic_shared[160 << 10];
inline size_t dynamic_shared_bytes = sizeof dynamic_shared;  // of them the block's

// A thread of the block, and where it waits.
struct Fiber {
  ucontext_t context;
  void* stack = nullptr;
  void* fake_stack = nullptr;
  bool done = false;
  int waits = 0;                 // 0: for nothing; 1: its warp; 2: its block
  unsigned long long given = 0;  // to a shuffle
};

inline constexpr size_t kStack = 64 << 10;
inline std::vector<Fiber> fibers;
inline size_t current = 0;
inline ucontext_t scheduler;
inline void* scheduler_fake_stack = nullptr;
inline const void* scheduler_stack = nullptr;
inline size_t scheduler_stack_size = 0;
inline void (*kernel)(void* const*) = nullptr;
inline void* const* kernel_operands = nullptr;

[[noreturn]] inline void fail(const char* why) {
  std::fprintf(stderr, "simt: %s\n", why);
  std::abort();
}

inline void to_scheduler(bool for_good) {
  Fiber& own = fibers[current];
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(
      for_good ? nullptr : &own.fake_stack, scheduler_stack, scheduler_stack_size);
#endif
  swapcontext(&own.context, &scheduler);
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(own.fake_stack, nullptr, nullptr);
#endif
  (void)for_good;
}

inline void check_copies();
inline void prepare_mma(size_t threads);

inline void run_fiber() {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack, &scheduler_stack_size);
#endif
  kernel(kernel_operands);
  check_copies();
  fibers[current].done = true;
  to_scheduler(true);
}

inline void wait(int for_what) {
  fibers[current].waits = for_what;
  to_scheduler(false);
}

inline void resume(size_t index) {
  current = index;
  thread_index.x = static_cast<unsigned>(index);
  Fiber& fiber = fibers[index];
  fiber.waits = 0;
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(&scheduler_fake_stack, fiber.stack, kStack);
#endif
  swapcontext(&scheduler, &fiber.context);
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(scheduler_fake_stack, nullptr, nullptr);
#endif
}

// Runs the block to its end. Threads of a warp that meet must all be there, and so those of a
// block: anything else hangs a GPU, and ends the test here.
inline void run_block() {
  const size_t threads = block_size.x;
  for (size_t i = 0; i < threads; ++i) {
    Fiber& fiber = fibers[i];
    fiber.done = false;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack;
    fiber.context.uc_stack.ss_size = kStack;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, run_fiber, 0);
    resume(i);
  }
  for (;;) {
    size_t done = 0, at_block = 0;
    bool moved = false;
    for (size_t warp = 0; warp < threads; warp += 32) {
      const size_t end = warp + 32 < threads ? warp + 32 : threads;
      for (;;) {
        size_t waiting = 0, ended = 0;
        for (size_t i = warp; i < end; ++i) {
          waiting += !fibers[i].done && fibers[i].waits == 1;
          ended += fibers[i].done;
        }
        if (waiting == 0) break;
        if (waiting != end - warp) fail("some threads of a warp do not come to where others wait");
        // All have given what they give before one takes.
        for (size_t i = warp; i < end; ++i) resume(i);
        moved = true;
        (void)ended;
      }
      for (size_t i = warp; i < end; ++i) {
        done += fibers[i].done;
        at_block += !fibers[i].done && fibers[i].waits == 2;
      }
    }
    if (done == threads) return;
    if (at_block == threads) {
      for (size_t i = 0; i < threads; ++i) resume(i);
      moved = true;
    }
    if (!moved) fail("some threads of a block do not come to where others wait");
  }
}

inline void launch(void (*function)(void* const*),
                   void* const* operands,
                   unsigned blocks,
                   unsigned threads) {
  while (fibers.size() < threads) {
    Fiber fiber;
    fiber.stack = mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fibers.push_back(fiber);
  }
  prepare_mma(threads);
  kernel = function;
  kernel_operands = operands;
  grid_size.x = blocks;
  block_size.x = threads;
  for (unsigned block = 0; block < blocks; ++block) {
    block_index.x = block;
    // What no kernel has written must not look like something.
    std::memset(dynamic_shared, 0x5a, sizeof dynamic_shared);
    run_block();
  }
}

// A parameter that is no pointer lies where the operand says.
template <class A>
A parameter(void* operand) {
  if constexpr (std::is_pointer_v<A>)
    return static_cast<A>(operand);
  else
    return *static_cast<const A*>(operand);
}

// Calls a kernel with the pointers of `operands`.
template <class... A, size_t... kAt>
void call(void (*function)(A...), void* const* operands, std::index_sequence<kAt...>) {
  function(parameter<A>(operands[kAt])...);
}
template <class... A>
void call(void (*function)(A...), void* const* operands) {
  call(function, operands, std::index_sequence_for<A...>());
}

template <typename T>
T shuffled(T x, unsigned from) {
  static_assert(sizeof(T) <= sizeof(unsigned long long));
  const size_t own = current, warp = own / 32 * 32;
  std::memcpy(&fibers[own].given, &x, sizeof x);
  wait(1);
  T y;
  std::memcpy(&y, &fibers[warp + from].given, sizeof y);
  // Nobody gives the next value before all have taken this.
  wait(1);
  return y;
}

}  // namespace simt

#define threadIdx simt::thread_index
#define blockIdx simt::block_index
#define blockDim simt::block_size
#define gridDim simt::grid_size

inline void __syncthreads() { simt::wait(2); }
inline void __syncwarp(unsigned = ~0u) { simt::wait(1); }
template <typename T>
T __shfl_down_sync(unsigned, T x, unsigned by, int width) {
  const unsigned lane = static_cast<unsigned>(simt::current % 32);
  const unsigned group = lane / static_cast<unsigned>(width) * static_cast<unsigned>(width);
  const unsigned from = lane + by;
  return simt::shuffled(x, from < group + static_cast<unsigned>(width) ? from : lane);
}
template <typename T>
T __shfl_sync(unsigned, T x, int from, int width) {
  const unsigned lane = static_cast<unsigned>(simt::current % 32);
  const unsigned group = lane / static_cast<unsigned>(width) * static_cast<unsigned>(width);
  return simt::shuffled(x, group + static_cast<unsigned>(from));
}
#include "simt_approx.h"
#include "simt_mma.h"

inline unsigned long long atomicCAS(unsigned long long* at,
                                    unsigned long long expected,
                                    unsigned long long desired) {
  const unsigned long long old = *at;
  if (old == expected) *at = desired;
  return old;
}
