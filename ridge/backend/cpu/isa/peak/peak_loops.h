// The measuring loops of peak_*.cc over a vector type V. Internal linkage, as in gemm_tile.h.
#pragma once

#include <immintrin.h>

#include <utility>

#include "ridge/backend/cpu/isa/peak/peak_kernels.h"

namespace ridge::cpu {
namespace {

// 12 chains cover a latency of 4 to 6 cycles on two units, and fit 16 registers with the operands.
constexpr int kChains = 12;

// One step of every chain; unrolled by expansion, as a loop might keep the chains in memory.
template <class V, int... kChain>
void step(typename V::Reg (&x)[kChains],
          typename V::Reg a,
          typename V::Reg b,
          std::integer_sequence<int, kChain...>) {
  ((x[kChain] = V::fma(x[kChain], a, b)), ...);
}

template <class V>
double run_fma(int64_t rounds, typename V::Elem* sink) {
  using T = typename V::Elem;
  using Reg = typename V::Reg;
  // x = x / 2 + 1/4 converges: no overflow and no subnormal number slows it down.
  const Reg a = V::broadcast(T(0.5));
  const Reg b = V::broadcast(T(0.25));
  Reg x[kChains];
  for (int i = 0; i < kChains; ++i) x[i] = V::broadcast(static_cast<T>(i));
  for (int64_t round = 0; round < rounds; ++round)
    step<V>(x, a, b, std::make_integer_sequence<int, kChains>{});
  Reg sum = x[0];
  for (int i = 1; i < kChains; ++i) sum = V::fma(x[i], a, sum);
  alignas(64) T lanes[V::kLanes];
  V::store(lanes, sum);
  *sink = lanes[0];
  return 2.0 * kChains * V::kLanes * static_cast<double>(rounds);
}

template <class V>
void copy_past_caches(const void* from, void* to, int64_t bytes) {
  using T = typename V::Elem;
  const T* in = static_cast<const T*>(from);
  T* out = static_cast<T*>(to);
  for (int64_t i = 0; i < bytes / static_cast<int64_t>(sizeof(T)); i += 4 * V::kLanes) {
    typename V::Reg x[4];
    for (int j = 0; j < 4; ++j) x[j] = V::load(in + i + j * V::kLanes);
    for (int j = 0; j < 4; ++j) V::stream(out + i + j * V::kLanes, x[j]);
  }
  _mm_sfence();
}

}  // namespace
}  // namespace ridge::cpu
