// A loop in terms of what vector instructions do: single assignment, one element at a time.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "ridge/base/dtype.h"

namespace ridge::cpu::jit {

/// What a value is while it lies in a register. 16-bit floats are f32 of as many bits.
enum class Lane : uint8_t { kF32, kF64, kI32, kI64, kMask };

/// 4 or 8; a mask is as wide as an f32.
constexpr int size_of(Lane lane) { return lane == Lane::kF64 || lane == Lane::kI64 ? 8 : 4; }

enum class Prim : uint8_t {
  kInput,     ///< detail: which input.
  kConstant,  ///< detail: the bits.
  kAdd,
  kSub,
  kMul,
  kDiv,
  kFma,  ///< a * b + c.
  kMin,  ///< The machine's: b where the two are equal or either is NaN.
  kMax,
  kSqrt,
  kScale,  ///< a 2^b, b a whole number: AVX-512 only.
  kAnd,    ///< Of bits.
  kOr,
  kXor,
  kNot,         ///< Of a mask.
  kShiftLeft,   ///< detail: by how much.
  kShiftRight,  ///< Signed.
  kCompare,     ///< detail: packed_compare.
  kSelect,      ///< a, a mask, ? b : c.
  kConvert,     ///< detail: the Lane it comes from; floats to integers are truncated.
  kRoundF16,    ///< f32 to the nearest f16.
  kNearest,     ///< f32 to the nearest i32, of two the even one.
  kLookUp,      ///< The entry of a table; detail: the table's first entry among all.
};

/// Comparisons, numbered as VCMPPS numbers the quiet ones.
enum class Compare : uint8_t {
  kEq = 0x00,
  kLt = 0x11,
  kLe = 0x12,
  kUnordered = 0x03,
  kNe = 0x04,  ///< True for NaN.
  kOrdered = 0x07,
  kGe = 0x1d,
  kGt = 0x1e,
};

constexpr int64_t packed_compare(Compare how, Lane lane) {
  return static_cast<int64_t>(how) | static_cast<int64_t>(lane) << 8;
}

struct Node {
  Prim prim{};
  Lane lane{};
  std::array<int, 3> operands{-1, -1, -1};
  int64_t detail = 0;
  bool invariant = false;  ///< The same for all elements.

  Compare compare() const { return static_cast<Compare>(detail & 0xff); }
  Lane compared() const { return static_cast<Lane>(detail >> 8); }
  Lane source() const { return static_cast<Lane>(detail); }
};

struct Stored {
  int node = 0;
  int result = 0;
  DType dtype{};
  bool streamed = false;
};

struct Reduced {
  int node = 0;
  int result = 0;
  bool is_max = false;
  Lane lane{};  ///< kF32 or kF64; the node may be made as a whole number of the same bits.
};

/// Tables that the widest vectors hold: AVX2 takes the entry of 8 that an index's last three bits
/// say, AVX-512 of 16 and four.
inline constexpr int kTableEntries = 16;

struct Program {
  std::vector<Node> nodes;  ///< In an order in which they can be computed.
  std::vector<DType> inputs;
  std::vector<int> ahead;  ///< By input, as LoopInput::ahead.
  std::vector<Stored> stores;
  std::vector<Reduced> reductions;
  std::vector<float> tables;  ///< kTableEntries of each.
  int results = 0;
};

struct Bounds;

/// Appends nodes; what is there already is not repeated, and where the numbers of operands allow it
/// (bounds.h), cheaper nodes of the same bits stand for what was asked.
class Recorder {
 public:
  /// `scales`: the code is for AVX-512, which has kScale and tables of 16 entries.
  Recorder(Program& program, bool scales);
  ~Recorder();

  bool scales() const { return scales_; }
  const Bounds& bounds(int node) const;
  const Node& node(int node) const { return program_.nodes[static_cast<size_t>(node)]; }

  int add(Node node);
  int input(int index, Lane lane, bool invariant);
  /// A constant by its bits.
  int constant(Lane lane, uint64_t bits);
  int number(Lane lane, double value);
  int unary(Prim prim, Lane lane, int a, int64_t detail = 0);
  int binary(Prim prim, Lane lane, int a, int b);
  int compare(Compare how, Lane lane, int a, int b);
  int select(Lane lane, int mask, int a, int b);
  int convert(Lane to, Lane from, int a);
  /// The f32 of kTableEntries that the last four bits of the index say.
  int look_up(const float* table, int index);

 private:
  bool is_constant(int node, Lane lane) const;
  bool is_number(int node, Lane lane) const;
  int quotient(int x, float divisor);
  int64_t table_at(const float* table);
  using Key = std::tuple<Prim, Lane, int, int, int, int64_t>;
  Program& program_;
  bool scales_;
  std::map<Key, int> known_;
  std::vector<Bounds> bounds_;  // by node
};

}  // namespace ridge::cpu::jit
