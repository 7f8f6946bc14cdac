// The measuring loops for AVX-512.
#include "ridge/backend/cpu/isa/peak/peak_loops.h"

namespace ridge::cpu {
namespace {

struct F32 {
  using Elem = float;
  using Reg = __m512;
  static constexpr int kLanes = 16;
  static Reg broadcast(Elem x) { return _mm512_set1_ps(x); }
  static Reg fma(Reg a, Reg b, Reg c) { return _mm512_fmadd_ps(a, b, c); }
  static Reg load(const Elem* p) { return _mm512_load_ps(p); }
  static void store(Elem* p, Reg x) { _mm512_store_ps(p, x); }
  static void stream(Elem* p, Reg x) { _mm512_stream_ps(p, x); }
};

struct F64 {
  using Elem = double;
  using Reg = __m512d;
  static constexpr int kLanes = 8;
  static Reg broadcast(Elem x) { return _mm512_set1_pd(x); }
  static Reg fma(Reg a, Reg b, Reg c) { return _mm512_fmadd_pd(a, b, c); }
  static void store(Elem* p, Reg x) { _mm512_store_pd(p, x); }
};

}  // namespace

namespace avx512 {
const PeakKernels peak_kernels = {run_fma<F32>, run_fma<F64>, copy_past_caches<F32>};
}

}  // namespace ridge::cpu
