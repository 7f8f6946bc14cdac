// Tensor cores and asynchronous copies of the simulated GPU: what device/mma.h asks for.
//
// Fragments are as NVIDIA's "Parallel Thread Execution ISA" says: "Matrix Fragments for
// mma.m16n8k16 with floating point type", "ldmatrix". Each lane gives what it holds, and takes what
// the matrices that all have given make: a kernel that holds other elements than it should gets
// other numbers. Products are summed in double and rounded once; a GPU sums in an order of its own.
//
// A copy writes what looks like nothing at once, and the data as late as it may: when its thread
// waits for it. So both a wait that is missing and a tile that is still read show.
#include <cstring>
#include <vector>

#include "tests/backend/cuda/simulation/simt.h"
#include "tests/backend/cuda/simulation/simulated_gpu.h"

namespace simt {
namespace {

// ---- copies ----

struct Copy {
  unsigned char* to;
  const void* from;
  unsigned bytes;
  bool is_there;
};

/// Copies of one thread: groups that were ended, oldest first, and the open one.
struct Copies {
  std::vector<std::vector<Copy>> groups;
  std::vector<Copy> open;
};

std::vector<Copies> copies;  // by thread of the block

void check_shared(const unsigned char* at, size_t bytes) {
  if (at < dynamic_shared || at + bytes > dynamic_shared + dynamic_shared_bytes)
    fail("an address is outside of the block's shared memory");
  if (reinterpret_cast<uintptr_t>(at) % bytes != 0) fail("an address is not aligned");
}

}  // namespace

void copy_async(unsigned char* to, const void* from, unsigned bytes, bool is_there) {
  check_shared(to, bytes);
  if (is_there && reinterpret_cast<uintptr_t>(from) % bytes != 0)
    fail("what is copied is not aligned");
  std::memset(to, 0xff, bytes);  // NaN
  copies[current].open.push_back({to, from, bytes, is_there});
}

void copy_commit() {
  Copies& own = copies[current];
  own.groups.push_back(std::move(own.open));
  own.open.clear();
}

void copy_wait(size_t groups) {
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
void check_copies() {
  if (!copies[current].open.empty()) fail("a thread ends before it waits for its copies");
  for (const auto& group : copies[current].groups)
    if (!group.empty()) fail("a thread ends before it waits for its copies");
}

// ---- what the lanes of a warp give each other ----

namespace {

struct Given {
  const unsigned char* row;
  float left[8], right[4];
};

// Two for each thread, in turn: nobody gives the next but one before all have taken this.
std::vector<Given> given[2];
std::vector<unsigned> exchanges;

// Gives, and takes what the own warp's lanes have given.
const Given* exchange(const Given& own) {
  std::vector<Given>& all = given[exchanges[current]++ % 2];
  all[current] = own;
  meet_warp();
  return &all[current / kWarpLanes * kWarpLanes];
}

}  // namespace

void prepare_mma(size_t threads) {
  const size_t lanes = (threads + kWarpLanes - 1) / kWarpLanes * kWarpLanes;
  copies.assign(lanes, {});
  for (std::vector<Given>& each : given) each.assign(lanes, {});
  exchanges.assign(lanes, 0);
}

// ---- ldmatrix ----

void load_matrices(uint32_t (&to)[4], const unsigned char* row, bool transposed) {
  check_shared(row, 16);
  const Given* const lanes = exchange({.row = row, .left = {}, .right = {}});
  const size_t r = lane() / 4, c = lane() % 4 * 2;
  for (size_t matrix = 0; matrix < 4; ++matrix) {
    const auto element = [&](size_t i, size_t j) {
      uint16_t bits;
      std::memcpy(&bits, lanes[matrix * 8 + i].row + 2 * j, sizeof bits);
      return uint32_t{bits};
    };
    to[matrix] = transposed ? element(c + 1, r) << 16 | element(c, r)
                            : element(r, c + 1) << 16 | element(r, c);
  }
}

// ---- mma.m16n8k16 ----

void multiply_16(float (&sums)[4],
                 const uint32_t (&left)[4],
                 const uint32_t (&right)[2],
                 float (*value_of)(uint16_t)) {
  Given own{};
  const auto split = [&](uint32_t pair, float* to) {
    to[0] = value_of(static_cast<uint16_t>(pair)),
    to[1] = value_of(static_cast<uint16_t>(pair >> 16));
  };
  for (size_t i = 0; i < 4; ++i) split(left[i], own.left + 2 * i);
  for (size_t i = 0; i < 2; ++i) split(right[i], own.right + 2 * i);
  const Given* const lanes = exchange(own);
  // Rows group and group + 8 of the left factor, columns 2 member and 2 member + 1 of the right
  // one: what a lane's sums need.
  const size_t group = lane() / 4, member = lane() % 4;
  for (size_t i = 0; i < 4; ++i) {
    double sum = sums[i];
    for (size_t k = 0; k < 16; ++k) {
      // Lane of the depth's column or row, and the register that has its second half.
      const size_t holder = k % 8 / 2, high = k / 8;
      sum += double{lanes[group * 4 + holder].left[high * 4 + i / 2 * 2 + k % 2]} *
             double{lanes[(member * 2 + i % 2) * 4 + holder].right[high * 2 + k % 2]};
    }
    sums[i] = static_cast<float>(sum);
  }
}

}  // namespace simt
