// Tensor cores and asynchronous copies for simt.h, which includes this: what device/mma.h asks for
// on a CPU.
//
// Fragments are as NVIDIA's "Parallel Thread Execution ISA" says: "Matrix Fragments for
// mma.m16n8k16 with floating point type", "ldmatrix". Each lane gives what it holds, and takes what
// the matrices that all have given make: a kernel that holds other elements than it should gets
// other numbers. Products are summed in double and rounded once; a GPU sums in an order of its own.
//
// A copy writes what looks like nothing at once, and the data as late as it may: when its thread
// waits for it. So both a wait that is missing and a tile that is still read show.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

namespace simt {

// ---- copies ----

struct Copy {
  unsigned char* to;
  const void* from;
  unsigned bytes;
  bool is_there;
};

/// Of a thread: groups that were ended, oldest first, and the open one.
struct Copies {
  std::vector<std::vector<Copy>> groups;
  std::vector<Copy> open;
};

inline std::vector<Copies> copies;  // by thread of the block

inline void check_shared(const unsigned char* at, size_t bytes) {
  if (at < dynamic_shared || at + bytes > dynamic_shared + dynamic_shared_bytes)
    fail("an address is outside of the block's shared memory");
  if (reinterpret_cast<uintptr_t>(at) % bytes != 0) fail("an address is not aligned");
}

// ---- banks ----

/// Times that eight lanes, of which each has 16 bytes of shared memory, share banks: a GPU makes
/// them take turns.
inline size_t bank_conflicts = 0;

inline unsigned banks_of(const unsigned char* at) {
  return 1u << static_cast<size_t>(at - dynamic_shared) / 16 % 8;
}

/// What eight threads that follow each other copy at a time: the n-th copies of each.
struct Together {
  unsigned banks = 0, threads = 0;
};
inline std::vector<std::map<size_t, Together>> together;  // by eight threads
inline std::vector<size_t> copied;                        // by thread

inline void count_copy(const unsigned char* to) {
  auto& open = together[current / 8];
  const auto found = open.try_emplace(copied[current]++).first;
  found->second.banks |= banks_of(to);
  if (++found->second.threads < 8) return;
  bank_conflicts += found->second.banks != 0xffu;
  open.erase(found);
}

inline void copy_async(unsigned char* to, const void* from, unsigned bytes, bool is_there) {
  check_shared(to, bytes);
  if (is_there && reinterpret_cast<uintptr_t>(from) % bytes != 0)
    fail("what is copied is not aligned");
  if (bytes == 16) count_copy(to);
  std::memset(to, 0xff, bytes);  // NaN
  copies[current].open.push_back({to, from, bytes, is_there});
}

inline void store_chunk(unsigned char* to, const uint32_t (&x)[4]) {
  check_shared(to, sizeof x);
  std::memcpy(to, x, sizeof x);
}

inline void store_floats(unsigned char* to, float a, float b) {
  const float both[2] = {a, b};
  check_shared(to, sizeof both);
  std::memcpy(to, both, sizeof both);
}

inline void copy_commit() {
  Copies& own = copies[current];
  own.groups.push_back(std::move(own.open));
  own.open.clear();
}

inline void copy_wait(size_t groups) {
  Copies& own = copies[current];
  while (own.groups.size() > groups) {
    for (const Copy& each : own.groups.front()) {
      if (each.is_there)
        std::memcpy(each.to, each.from, each.bytes);
      else
        std::memset(each.to, 0, each.bytes);
    }
    own.groups.erase(own.groups.begin());
  }
}

/// At the end of a thread.
inline void check_copies() {
  if (!copies[current].open.empty()) fail("a thread ends before it waits for its copies");
  for (const auto& group : copies[current].groups)
    if (!group.empty()) fail("a thread ends before it waits for its copies");
}

// ---- what the lanes of a warp give each other ----

struct Given {
  const unsigned char* row;
  uint32_t left[4], right[2];
};

inline constexpr size_t kWarpLanes = 32;
// Two for each thread, in turn: nobody gives the next but one before all have taken this.
inline std::vector<Given> given[2];
inline std::vector<unsigned> exchanges;

/// Gives, and takes what the own warp's lanes have given.
inline const Given* exchange(const Given& own) {
  std::vector<Given>& all = given[exchanges[current]++ % 2];
  all[current] = own;
  wait(1);
  return &all[current / kWarpLanes * kWarpLanes];
}

/// Room for a block of so many threads.
inline void prepare_mma(size_t threads) {
  const size_t lanes = (threads + kWarpLanes - 1) / kWarpLanes * kWarpLanes;
  copies.assign(lanes, {});
  together.assign(lanes / 8, {});
  copied.assign(lanes, 0);
  for (std::vector<Given>& each : given) each.assign(lanes, {});
  exchanges.assign(lanes, 0);
}

// ---- ldmatrix ----

inline void load_matrices(uint32_t (&to)[4], const unsigned char* row, bool transposed) {
  check_shared(row, 16);
  const Given* const lanes = exchange({.row = row});
  const size_t lane = current % kWarpLanes;
  if (lane == 0)
    for (size_t first = 0; first < kWarpLanes; first += 8) {
      unsigned banks = 0;
      for (size_t r = first; r < first + 8; ++r) banks |= banks_of(lanes[r].row);
      bank_conflicts += banks != 0xffu;
    }
  for (size_t matrix = 0; matrix < 4; ++matrix) {
    uint16_t elements[8][8];
    for (size_t r = 0; r < 8; ++r)
      std::memcpy(elements[r], lanes[matrix * 8 + r].row, sizeof elements[r]);
    const size_t r = lane / 4, c = lane % 4 * 2;
    const uint16_t low = transposed ? elements[c][r] : elements[r][c];
    const uint16_t high = transposed ? elements[c + 1][r] : elements[r][c + 1];
    to[matrix] = static_cast<uint32_t>(high) << 16 | low;
  }
}

// ---- mma.m16n8k16 ----

template <class ValueOf>
void multiply_16(float (&sums)[4],
                 const uint32_t (&left)[4],
                 const uint32_t (&right)[2],
                 ValueOf value_of) {
  Given own{};
  std::memcpy(own.left, left, sizeof left);
  std::memcpy(own.right, right, sizeof right);
  const Given* const lanes = exchange(own);
  // Rows group and group + 8 of the left factor, columns 2 member and 2 member + 1 of the right
  // one: what a lane's sums need.
  const auto half = [&](uint32_t pair, size_t i) {
    return static_cast<double>(value_of(static_cast<uint16_t>(i == 0 ? pair : pair >> 16)));
  };
  const size_t group = current % kWarpLanes >> 2, member = current % 4;
  double a[2][16], b[2][16];
  for (size_t k = 0; k < 16; ++k) {
    // Lane of the depth's column or row, and the register that has its second half.
    const size_t holder = k % 8 / 2, high = k / 8;
    for (size_t i = 0; i < 2; ++i) {
      a[i][k] = half(lanes[group * 4 + holder].left[high * 2 + i], k % 2);
      b[i][k] = half(lanes[(member * 2 + i) * 4 + holder].right[high], k % 2);
    }
  }
  for (size_t i = 0; i < 4; ++i) {
    double sum = sums[i];
    for (size_t k = 0; k < 16; ++k) sum += a[i / 2][k] * b[i % 2][k];
    sums[i] = static_cast<float>(sum);
  }
}

}  // namespace simt

template <typename T>
T __shfl_xor_sync(unsigned, T x, int by, int /*width*/) {
  return simt::shuffled(x, static_cast<unsigned>(simt::current % 32) ^ static_cast<unsigned>(by));
}
