// Sorting indices, and adding rows in the order that comes of it.
#pragma once

#include "ridge/backend/cuda/device/sums.h"

namespace ridge::cuda {

inline constexpr int kSortChunk = 1024;  // indices that a block sorts at a time
inline constexpr int kDigits = 256;      // and threads of the block: each has a digit

/// The indices as they are given: keys of a first pass. One out of range counts as 0.
template <typename Index>
struct Indices {
  const Index* at;
  int64_t limit;
  Fault* fault;

  uint32_t key(int64_t i) const {
    const int64_t index = at[i];
    if (index >= 0 && index < limit) return static_cast<uint32_t>(index);
    report(fault, i, index);
    return 0;
  }
  uint32_t number(int64_t i) const { return static_cast<uint32_t>(i); }
};

/// Those that a pass has left.
struct SortedIndices {
  const uint32_t* keys;
  const uint32_t* numbers;

  uint32_t key(int64_t i) const { return keys[i]; }
  uint32_t number(int64_t i) const { return numbers[i]; }
};

inline uint32_t digit_of(uint32_t key, int shift) { return (key >> shift) & (kDigits - 1); }

/// How often each digit comes in each chunk: counts (digits, chunks).
template <class Keys>
inline void sort_count(const Keys& keys, uint32_t* counts, int64_t n, int shift) {
  __shared__ uint32_t digits[kSortChunk];
  const uint32_t own = threadIdx.x;
  const int64_t chunks = (n + kSortChunk - 1) / kSortChunk;
  for (int64_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    for (int j = static_cast<int>(threadIdx.x); j < kSortChunk; j += kDigits) {
      const int64_t i = chunk * kSortChunk + j;
      digits[j] = i < n ? digit_of(keys.key(i), shift) : kDigits;
    }
    __syncthreads();
    uint32_t count = 0;
#pragma unroll 8
    for (int j = 0; j < kSortChunk; ++j) count += digits[j] == own ? 1 : 0;
    counts[own * chunks + chunk] = count;
    __syncthreads();
  }
}

/// Replaces each of n counts by the sum of those before it. For one block of 1024 threads.
inline void sort_sum(uint32_t* counts, int64_t n) {
  constexpr int kAll = 1024;
  __shared__ uint32_t sums[kAll];
  const int own = static_cast<int>(threadIdx.x);
  const int64_t each = (n + kAll - 1) / kAll;
  const int64_t begin = own * each < n ? own * each : n;
  const int64_t end = begin + each < n ? begin + each : n;
  uint32_t sum = 0;
#pragma unroll 8
  for (int64_t i = begin; i < end; ++i) sum += counts[i];
  sums[own] = sum;
  for (int step = 1; step < kAll; step *= 2) {
    __syncthreads();
    const uint32_t before = own >= step ? sums[own - step] : 0;
    __syncthreads();
    sums[own] += before;
  }
  uint32_t before = sums[own] - sum;
  for (int64_t i = begin; i < end; ++i) {
    const uint32_t count = counts[i];
    counts[i] = before;
    before += count;
  }
}

/// Writes the keys and their numbers in the order of the digits; `counts` says where those of each
/// digit and chunk begin. A thread looks for its digit from the first key of the chunk to the last,
/// so that equal ones keep their order.
template <class Keys>
inline void sort_place(const Keys& keys,
                       const uint32_t* counts,
                       uint32_t* sorted_keys,
                       uint32_t* sorted_numbers,
                       int64_t n,
                       int shift) {
  __shared__ uint32_t digits[kSortChunk], own_keys[kSortChunk], numbers[kSortChunk];
  const uint32_t own = threadIdx.x;
  const int64_t chunks = (n + kSortChunk - 1) / kSortChunk;
  for (int64_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    for (int j = static_cast<int>(threadIdx.x); j < kSortChunk; j += kDigits) {
      const int64_t i = chunk * kSortChunk + j;
      const uint32_t key = i < n ? keys.key(i) : 0;
      digits[j] = i < n ? digit_of(key, shift) : kDigits;
      own_keys[j] = key;
      numbers[j] = i < n ? keys.number(i) : 0;
    }
    __syncthreads();
    uint32_t at = counts[own * chunks + chunk];
#pragma unroll 8
    for (int j = 0; j < kSortChunk; ++j) {
      if (digits[j] != own) continue;
      sorted_keys[at] = own_keys[j];
      sorted_numbers[at] = numbers[j];
      ++at;
    }
    __syncthreads();
  }
}

/// The first place of `sorted`, n of them, that is not below `key`; n where there is none.
inline uint32_t first_not_below(const uint32_t* sorted, int64_t n, uint32_t key) {
  int64_t begin = 0, end = n;
  while (begin < end) {
    const int64_t middle = (begin + end) / 2;
    if (sorted[middle] < key)
      begin = middle + 1;
    else
      end = middle;
  }
  return static_cast<uint32_t>(begin);
}

/// Rows with more updates are added by a whole block, which fetches so many at a time: one warp
/// would wait for memory again and again.
inline constexpr int kFetched = 32;

/// The operands of add_in_order().
template <typename T>
struct RowAddition {
  const T* updates;         // (outer, count, inner)
  const T* base;            // (outer, size, inner), or none
  T* to;                    // the same shape
  const uint32_t* starts;   // (size + 1): where the list of each row begins
  const uint32_t* numbers;  // (count): the lists, of updates
  int64_t count, size, inner;
};

/// A row's sums of some columns, from the first of `columns` on.
template <typename T, int N>
struct RowPart {
  int64_t outer, row, column;

  RowPart(const RowAddition<T>& a, int64_t item) {
    const int64_t parts = (a.inner + 32 * N - 1) / (32 * N);
    column = item % parts * (32 * N);
    row = item / parts % a.size;
    outer = item / parts / a.size;
  }
  const T* update(const RowAddition<T>& a, uint32_t place) const {
    return a.updates + (outer * a.count + a.numbers[place]) * a.inner + column;
  }
  int64_t result(const RowAddition<T>& a) const {
    return (outer * a.size + row) * a.inner + column;
  }
};

/// Adds rows with one warp.
template <typename T, int N>
inline void add_few(const RowAddition<T>& a, const RowPart<T, N>& part) {
  const int64_t own = static_cast<int64_t>(threadIdx.x % 32) * N;
  if (part.column + own >= a.inner) return;
  const int64_t place = part.result(a) + own;
  Pack<T, N> pack;
  Sum<T> sums[N];
  if (a.base != nullptr) pack = load<N>(a.base + place);
#pragma unroll
  for (int k = 0; k < N; ++k) sums[k] = a.base != nullptr ? wide_of(pack.at[k]) : Sum<T>(0);
  const uint32_t end = a.starts[part.row + 1];
#pragma unroll 4
  for (uint32_t i = a.starts[part.row]; i < end; ++i) {
    const Pack<T, N> each = load<N>(part.update(a, i) + own);
#pragma unroll
    for (int k = 0; k < N; ++k) sums[k] = sum_of(sums[k], wide_of(each.at[k]));
  }
#pragma unroll
  for (int k = 0; k < N; ++k) narrow(pack.at[k], sums[k]);
  store<N>(a.to + place, pack);
}

/// Adds rows with a block of 8 warps: all fetch, and one thread for each column adds.
template <typename T, int N>
inline void add_many(const RowAddition<T>& a, const RowPart<T, N>& part) {
  constexpr int kColumns = 32 * N;
  __shared__ Sum<T> fetched[kFetched][kColumns];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t own = static_cast<int64_t>(threadIdx.x % 32) * N, column = threadIdx.x;
  const bool adds = column < kColumns && part.column + column < a.inner;
  const int64_t place = part.result(a) + column;
  Sum<T> sum = adds && a.base != nullptr ? wide_of(a.base[place]) : Sum<T>(0);
  const uint32_t end = a.starts[part.row + 1];
  for (uint32_t first = a.starts[part.row]; first < end; first += kFetched) {
    Pack<T, N> packs[kFetched / 8] = {};
#pragma unroll
    for (int j = 0; j < kFetched / 8; ++j) {
      const uint32_t i = first + static_cast<uint32_t>(warp + 8 * j);
      if (i < end && part.column + own < a.inner) packs[j] = load<N>(part.update(a, i) + own);
    }
#pragma unroll
    for (int j = 0; j < kFetched / 8; ++j)
#pragma unroll
      for (int k = 0; k < N; ++k) fetched[warp + 8 * j][own + k] = wide_of(packs[j].at[k]);
    __syncthreads();
    const int there = end - first < kFetched ? static_cast<int>(end - first) : kFetched;
    if (adds)
      for (int j = 0; j < there; ++j) sum = sum_of(sum, fetched[j][column]);
    __syncthreads();
  }
  if (adds) narrow(a.to[place], sum);
}

/// Adds to each row its updates, one after the other. For 256 threads.
template <typename T, int N>
inline void add_in_order(const T* updates,
                         const T* base,
                         T* to,
                         const uint32_t* starts,
                         const uint32_t* numbers,
                         int64_t outer,
                         int64_t count,
                         int64_t size,
                         int64_t inner) {
  constexpr int kWarps = 8;
  __shared__ bool is_long[kWarps];
  const RowAddition<T> a = {updates, base, to, starts, numbers, count, size, inner};
  const int64_t items = outer * size * ((inner + 32 * N - 1) / (32 * N));
  const int warp = static_cast<int>(threadIdx.x) / 32;
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * kWarps; first < items;
       first += static_cast<int64_t>(gridDim.x) * kWarps) {
    const int64_t item = first + warp;
    const RowPart<T, N> part(a, item < items ? item : items - 1);
    const bool waits = starts[part.row + 1] - starts[part.row] > kFetched;
    if (threadIdx.x % 32 == 0) is_long[warp] = item < items && waits;
    if (item < items && !waits) add_few(a, part);
    __syncthreads();
    for (int each = 0; each < kWarps; ++each)
      if (is_long[each]) add_many(a, RowPart<T, N>(a, first + each));
    __syncthreads();
  }
}

}  // namespace ridge::cuda
