// Products of few rows with an op(B) whose columns are contiguous along depth, and which is read
// once, where it lies. The same bits for every instruction set.
#include "ridge/backend/cpu/isa/gemm/gemm_kernels.h"
#include "ridge/backend/cpu/isa/row_fetch.h"
#include "ridge/backend/cpu/isa/vectors.h"

namespace ridge::cpu {
namespace {

// More columns, if they are a power of two apart, would evict one another from the first-level
// cache.
constexpr int kColumns = GemmStream<float>::kColumns;

// The sums of kColumns columns with kRegs registers of rows.
template <class V, int kRegs, typename T>
struct Sums {
  static constexpr int kWidth = kRegs * V::kLanes;
  typename V::Reg sum[kColumns][kRegs];

  [[gnu::always_inline]] void step(const T* (&column)[kColumns], int64_t p, const T* rows) {
    typename V::Reg right[kRegs];
    for (int v = 0; v < kRegs; ++v) right[v] = V::load(rows + p * kWidth + v * V::kLanes);
    for (int j = 0; j < kColumns; ++j) {
      const typename V::Reg left = V::set(column[j][p]);
      for (int v = 0; v < kRegs; ++v) sum[j][v] = V::fma(left, right[v], sum[j][v]);
    }
  }
};

template <class V, int kRegs, typename T>
void run(const GemmStream<T>& t) {
  constexpr int kLine = 64 / sizeof(T);
  const T* column[kColumns];
  for (int j = 0; j < kColumns; ++j)
    column[j] = t.b + (j < t.columns ? j : t.columns - 1) * t.column_stride;
  Sums<V, kRegs, T> sums;
  for (auto& of_column : sums.sum)
    for (auto& x : of_column) x = V::zero();
  RowFetch<T> fetch(t.b + t.ahead, t.depth, t.column_stride);
  int64_t p = 0;
  for (; p + kLine <= t.depth; p += kLine) {
    for (int j = 0; j < kColumns; ++j) fetch.next();
    for (int q = 0; q < kLine; ++q) sums.step(column, p + q, t.rows);
  }
  for (; p < t.depth; ++p) sums.step(column, p, t.rows);
  T* to = t.sums;
  for (auto& of_column : sums.sum)
    for (auto& x : of_column) {
      V::store(to, t.add ? V::add(V::load(to), x) : x);
      to += V::kLanes;
    }
}

template <typename T>
void stream(const GemmStream<T>& t) {
  if (t.width == Half<T>::kLanes)
    run<Half<T>, 1>(t);
  else
    run<Vector<T>, 64 / sizeof(typename Vector<T>::Reg)>(t);
}

}  // namespace

namespace RIDGE_ISA {
const GemmStreams gemm_stream_kernels = {stream<float>, stream<double>};
}

}  // namespace ridge::cpu
