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

inline void copy_async(unsigned char* to, const void* from, unsigned bytes, bool is_there) {
  check_shared(to, bytes);
  if (is_there && reinterpret_cast<uintptr_t>(from) % bytes != 0)
    fail("what is copied is not aligned");
  std::memset(to, 0xff, bytes);  // NaN
  copies[current].open.push_back({to, from, bytes, is_there});
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
  for (std::vector<Given>& each : given) each.assign(lanes, {});
  exchanges.assign(lanes, 0);
}

// ---- ldmatrix ----

inline void load_matrices(uint32_t (&to)[4], const unsigned char* row, bool transposed) {
  check_shared(row, 16);
  const Given* const lanes = exchange({.row = row});
  const size_t lane = current % kWarpLanes;
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
  const auto half = [](uint32_t pair, size_t i) {
    return static_cast<uint16_t>(i == 0 ? pair & 0xffffu : pair >> 16);
  };
  double a[16][16], b[16][8];
  for (size_t lane = 0; lane < kWarpLanes; ++lane) {
    const size_t group = lane >> 2, member = lane % 4;
    for (size_t i = 0; i < 8; ++i) {
      const size_t row = i < 2 || (i >= 4 && i < 6) ? group : group + 8;
      const size_t column = member * 2 + (i & 1) + (i >= 4 ? 8 : 0);
      a[row][column] = value_of(half(lanes[lane].left[i / 2], i & 1));
    }
    for (size_t i = 0; i < 4; ++i) {
      const size_t row = member * 2 + (i & 1) + (i >= 2 ? 8 : 0);
      b[row][group] = value_of(half(lanes[lane].right[i / 2], i & 1));
    }
  }
  const size_t group = current % kWarpLanes >> 2, member = current % 4;
  for (size_t i = 0; i < 4; ++i) {
    const size_t row = i < 2 ? group : group + 8, column = member * 2 + (i & 1);
    double sum = sums[i];
    for (size_t k = 0; k < 16; ++k) sum += a[row][k] * b[k][column];
    sums[i] = static_cast<float>(sum);
  }
}

}  // namespace simt

template <typename T>
T __shfl_xor_sync(unsigned, T x, int by, int /*width*/) {
  return simt::shuffled(x, static_cast<unsigned>(simt::current % 32) ^ static_cast<unsigned>(by));
}
