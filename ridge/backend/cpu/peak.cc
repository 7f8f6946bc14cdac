#include "ridge/backend/cpu/peak.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>

#include "ridge/backend/cpu/cpu_isa.h"
#include "ridge/backend/cpu/isa/gemm/gemm_amx_kernels.h"
#include "ridge/backend/cpu/isa/peak/peak_kernels.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/base/error.h"

namespace ridge::cpu {
namespace {

const PeakKernels& kernels() { return for_isa(avx2::peak_kernels, avx512::peak_kernels); }

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// FLOPs per second of `fma` on every thread at once.
template <typename T>
double best_rate(double (*fma)(int64_t, T*), int runs, int64_t rounds = 150'000) {
  const int64_t threads = num_threads();
  double best = 0;
  for (int run = 0; run < runs; ++run) {
    const auto start = std::chrono::steady_clock::now();
    parallel_for(threads, 1, [&](int64_t, int64_t) {
      T sink;
      fma(rounds, &sink);
    });
    const double seconds = seconds_since(start);
    best = std::max(best, static_cast<double>(threads) / seconds);
  }
  T sink;
  return best * fma(1, &sink) * static_cast<double>(rounds);
}

struct Pages {
  explicit Pages(size_t bytes) : data(static_cast<char*>(::operator new(bytes, kAlign))) {
    std::memset(data, 1, bytes);  // maps every page before the clock runs
  }
  ~Pages() { ::operator delete(data, kAlign); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  static constexpr std::align_val_t kAlign{4096};
  char* data;
};

}  // namespace

double measure_fma_peak(DType dtype, int runs) {
  if (dtype == DType::kF32 || dtype == DType::kBF16) {
    const double of_f32 = best_rate(kernels().fma_f32, runs);
    if (dtype == DType::kF32 || !has_bf16_pairs()) return of_f32;
    // vdpbf16ps has half the rate of f32 on some processors (Emerald Rapids), twice on others.
    const double of_pairs = std::max(of_f32, best_rate(avx512::dot_bf16, runs));
    constexpr int64_t kRoundsOfTiles = 15'000;  // of sixteen cycles an instruction
    return has_amx()
               ? std::max(of_pairs,
                          best_rate(
                              avx512::gemm_amx_kernels.multiply_in_registers, runs, kRoundsOfTiles))
               : of_pairs;
  }
  check_internal(dtype == DType::kF64, "[peak] no fma loop for dtype {}", name_of(dtype));
  return best_rate(kernels().fma_f64, runs);
}

double measure_copy_bandwidth(size_t bytes) {
  constexpr int64_t kChunk = 4096;
  const int64_t chunks = static_cast<int64_t>((bytes + kChunk - 1) / kChunk);
  const Pages from(static_cast<size_t>(chunks * kChunk));
  const Pages to(static_cast<size_t>(chunks * kChunk));
  const auto copy = kernels().copy;
  double best = 0;
  for (int run = 0; run < 3; ++run) {
    const auto start = std::chrono::steady_clock::now();
    // 64 chunks a piece: long enough for the hardware's prefetching to settle.
    parallel_for(chunks, 64, [&](int64_t begin, int64_t end) {
      copy(from.data + begin * kChunk, to.data + begin * kChunk, (end - begin) * kChunk);
    });
    best = std::max(best, 2.0 * static_cast<double>(chunks * kChunk) / seconds_since(start));
  }
  return best;
}

}  // namespace ridge::cpu
