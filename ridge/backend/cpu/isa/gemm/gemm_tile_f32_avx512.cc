// The f32 tile for AVX-512: 14 rows by 2 vectors of 16, 28 accumulators of the 32 registers.
#include "ridge/backend/cpu/isa/gemm/gemm_tile.h"

namespace ridge::cpu {
namespace {

struct Vector {
  using Elem = float;
  using Reg = __m512;
  static constexpr int kLanes = 16;
  static constexpr int kVectors = 2;
  static constexpr int kRows = 14;
  static Reg zero() { return _mm512_setzero_ps(); }
  static Reg load(const Elem* p) { return _mm512_loadu_ps(p); }
  static Reg broadcast(const Elem* p) { return _mm512_set1_ps(*p); }
  static Reg fma(Reg a, Reg b, Reg c) { return _mm512_fmadd_ps(a, b, c); }
  static Reg add(Reg a, Reg b) { return _mm512_add_ps(a, b); }
  static void store(Elem* p, Reg x) { _mm512_storeu_ps(p, x); }
  static __mmask16 first(int n) { return static_cast<__mmask16>((1u << n) - 1u); }
  static Reg load(const Elem* p, __mmask16 some) { return _mm512_maskz_loadu_ps(some, p); }
  static void store(Elem* p, Reg x, __mmask16 some) { _mm512_mask_storeu_ps(p, some, x); }
  static void prefetch(const Elem* p) {
    _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0);
  }
  static void prefetch_far(const Elem* p) {
    _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1);
  }
};

}  // namespace

namespace avx512 {
const GemmKernel<float> gemm_f32 = {Vector::kRows,
                                    Vector::kVectors* Vector::kLanes,
                                    Vector::kLanes,
                                    gemm_tile<Vector>,
                                    gemm_thin_tile<Vector>};
}

}  // namespace ridge::cpu
