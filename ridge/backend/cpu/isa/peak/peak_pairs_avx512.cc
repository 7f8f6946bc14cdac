// The measuring loop of bf16 products for AVX-512 with BF16.
#include "ridge/backend/cpu/isa/peak/peak_loops.h"

namespace ridge::cpu {
namespace {

// x + a * b, which grows too slowly to overflow.
struct Pairs {
  using Elem = float;
  using Reg = __m512;
  static constexpr int kLanes = 16;
  static Reg broadcast(Elem x) { return _mm512_set1_ps(x); }
  static Reg fma(Reg x, Reg a, Reg b) {
    return _mm512_dpbf16_ps(x, __builtin_bit_cast(__m512bh, a), __builtin_bit_cast(__m512bh, b));
  }
  static void store(Elem* p, Reg x) { _mm512_store_ps(p, x); }
};

}  // namespace

namespace avx512 {
double dot_bf16(int64_t rounds, float* sink) { return 2 * run_fma<Pairs>(rounds, sink); }
}  // namespace avx512

}  // namespace ridge::cpu
