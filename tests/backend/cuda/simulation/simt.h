// The part of CUDA that a printed kernel needs, on a CPU: CUDA's names over the simulated GPU of
// simt.cc and simt_mma.cc. It stands before the source of each kernel that is compiled while tests
// run, so it includes nothing that takes long to compile.
#pragma once

#include <cstddef>
#include <cstdint>

// Names of CUDA.
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
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
extern Index thread_index, block_index, block_size, grid_size;
extern unsigned char dynamic_shared[];

/// Waits for all threads of the block, or of the own warp.
void meet_block();
void meet_warp();
/// The number of this thread in its warp.
unsigned lane();
/// Gives `x` to the own warp, and takes what its lane `from` gives.
unsigned long long exchange(unsigned long long x, unsigned from);

// Functions that device/approx.h and device/mma.h call.
float approx_exp2(float x);
float approx_reciprocal(float x);
void copy_async(unsigned char* to, const void* from, unsigned bytes, bool is_there);
void copy_commit();
void copy_wait(size_t groups);
void load_matrices(uint32_t (&to)[4], const unsigned char* row, bool transposed);
/// `value_of`: the number that 16 bits stand for.
void multiply_16(float (&sums)[4],
                 const uint32_t (&left)[4],
                 const uint32_t (&right)[2],
                 float (*value_of)(uint16_t));

template <typename T>
T shuffled(T x, unsigned from) {
  static_assert(sizeof(T) <= sizeof(unsigned long long));
  unsigned long long bits = 0;
  __builtin_memcpy(&bits, &x, sizeof x);
  bits = exchange(bits, from);
  __builtin_memcpy(&x, &bits, sizeof x);
  return x;
}

/// A parameter as a kernel takes it: a pointer is handed over as it is, another by its address.
template <class A>
struct Parameter {
  static A of(void* operand) { return *static_cast<const A*>(operand); }
};
template <class A>
struct Parameter<A*> {
  static A* of(void* operand) { return static_cast<A*>(operand); }
};

/// Calls a kernel with `operands`. Members of braces are evaluated in their order.
template <class... A>
struct Call {
  Call(void (*function)(A...), A... operands) { function(operands...); }
};
template <class... A>
void call(void (*function)(A...), void* const* operands) {
  Call<A...>{function, Parameter<A>::of(*operands++)...};
}

/// Runs `kernel` by so many threads on its operands.
void launch(void (*kernel)(void* const* operands),
            void* const* operands,
            unsigned blocks,
            unsigned threads,
            size_t shared_bytes);

/// The function that a table of kernels (simulated_image.h) holds for a kernel.
template <auto kKernel>
void run(void* const* operands, unsigned blocks, unsigned threads, size_t shared_bytes) {
  launch([](void* const* each) { call(kKernel, each); }, operands, blocks, threads, shared_bytes);
}
template <class... A>
constexpr size_t kSizes[] = {sizeof(A)..., 0};
template <class... A>
constexpr const size_t* sizes_of(void (*)(A...)) {
  return kSizes<A...>;
}
template <class... A>
constexpr size_t count_parameters(void (*)(A...)) {
  return sizeof...(A);
}

}  // namespace simt

#define threadIdx simt::thread_index
#define blockIdx simt::block_index
#define blockDim simt::block_size
#define gridDim simt::grid_size

inline void __syncthreads() { simt::meet_block(); }
inline void __syncwarp(unsigned = ~0u) { simt::meet_warp(); }
template <typename T>
T __shfl_down_sync(unsigned, T x, unsigned by, int width) {
  const unsigned from = simt::lane() + by, group = simt::lane() / static_cast<unsigned>(width);
  return simt::shuffled(x, from / static_cast<unsigned>(width) == group ? from : simt::lane());
}
template <typename T>
T __shfl_sync(unsigned, T x, int from, int width) {
  const unsigned group = simt::lane() / static_cast<unsigned>(width) * static_cast<unsigned>(width);
  return simt::shuffled(x, group + static_cast<unsigned>(from));
}
template <typename T>
T __shfl_xor_sync(unsigned, T x, int by, int /*width*/) {
  return simt::shuffled(x, simt::lane() ^ static_cast<unsigned>(by));
}

inline unsigned long long atomicCAS(unsigned long long* at,
                                    unsigned long long expected,
                                    unsigned long long desired) {
  const unsigned long long old = *at;
  if (old == expected) *at = desired;
  return old;
}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)
