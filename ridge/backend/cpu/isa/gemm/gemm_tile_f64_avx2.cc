// The f64 tile for AVX2: 6 rows by 2 vectors of 4, 12 accumulators of the 16 registers.
#include "ridge/backend/cpu/isa/gemm/gemm_tile.h"

namespace ridge::cpu {
namespace {

struct Vector {
  using Elem = double;
  using Reg = __m256d;
  static constexpr int kLanes = 4;
  static constexpr int kVectors = 2;
  static constexpr int kRows = 6;
  static Reg zero() { return _mm256_setzero_pd(); }
  static Reg load(const Elem* p) { return _mm256_loadu_pd(p); }
  static Reg broadcast(const Elem* p) { return _mm256_set1_pd(*p); }
  static Reg fma(Reg a, Reg b, Reg c) { return _mm256_fmadd_pd(a, b, c); }
  static Reg add(Reg a, Reg b) { return _mm256_add_pd(a, b); }
  static void store(Elem* p, Reg x) { _mm256_storeu_pd(p, x); }
  static __m256i first(int n) {
    return _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), _mm256_setr_epi64x(0, 1, 2, 3));
  }
  static Reg load(const Elem* p, __m256i some) { return _mm256_maskload_pd(p, some); }
  static void store(Elem* p, Reg x, __m256i some) { _mm256_maskstore_pd(p, some, x); }
  static void prefetch(const Elem* p) {
    _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0);
  }
  static void prefetch_far(const Elem* p) {
    _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1);
  }
};

}  // namespace

namespace avx2 {
const GemmKernel<double> gemm_f64 = {Vector::kRows,
                                     Vector::kVectors* Vector::kLanes,
                                     Vector::kLanes,
                                     gemm_tile<Vector>,
                                     gemm_thin_tile<Vector>};
}

}  // namespace ridge::cpu
