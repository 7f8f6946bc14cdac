// Straight-line code of programs: the instructions of each step, between values that values.h gives
// places to. Loops over elements stand in compile.cc, and those over rows in compile_rows.cc.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "ridge/backend/cpu/jit/compile.h"
#include "ridge/backend/cpu/jit/schedule.h"
#include "ridge/backend/cpu/jit/streams.h"
#include "ridge/backend/cpu/jit/values.h"

namespace ridge::cpu::jit {

inline constexpr size_t kCodeBytes = size_t{1} << 20;
inline constexpr size_t kTableBytes = 64;  // of each of two tables that tail masks are read from

/// Elements of a vector: as many as the largest lanes allow.
inline int lanes_of(const Program& program, bool avx512) {
  int size = 4;
  for (const Node& node : program.nodes) size = std::max(size, size_of(node.lane));
  return (avx512 ? 64 : 32) / size;
}

/// Neighbouring vectors that a loop works on at a time, at most. Of long programs the processor
/// sees no more than a copy or two at a time anyway.
inline int most_copies(const Program& program) {
  const size_t nodes = program.nodes.size();
  return nodes > 300 ? 1 : nodes > 120 ? 2 : kMostCopies;
}

class ProgramCode : public StreamCode {
 public:
  /// Code stands behind two tables and `constants` bytes for constants.
  ProgramCode(CodeMemory& memory, size_t constants, bool avx512)
      : StreamCode(memory.bytes() - 2 * kTableBytes - constants,
                   memory.data() + 2 * kTableBytes + constants,
                   avx512,
                   1),
        values_(*this, memory.data() + 2 * kTableBytes),
        data_(memory.data()) {
    std::memset(data_, 0, 2 * kTableBytes);
    std::memset(data_, 0xff, kTableBytes / 2);
    std::memset(data_ + kTableBytes, 0xff, kTableBytes / 2);
  }

 protected:
  static constexpr int kNowhere = -1;

  /// Starts on another program; writes its constants. False where the target lacks an instruction.
  bool use(const Program& program) {
    program_ = &program;
    ahead_ = program.ahead;
    set_lanes(lanes_of(program, is_avx512()));
    values_.use(program);
    accumulators_ = kNowhere;
    return is_possible();
  }

  bool is_possible() const {
    const std::vector<bool> needed = needed_nodes(*program_);
    for (size_t i = 0; i < program_->nodes.size(); ++i) {
      const Node& node = program_->nodes[i];
      if (!needed[i]) continue;
      if (!has(node.prim, node.lane)) return false;
      if (node.prim == Prim::kConvert && !has_convert(node.lane, node.source())) return false;
    }
    return true;
  }

  void write_invariants() {
    emit_steps(schedule_invariants(*program_), Part::kInvariants, 1, How::kWhole);
  }

  // ---- pointers ----

  static constexpr int kPinned = 7;
  static Reg64 pinned(int which) {
    constexpr int kRegisters[kPinned] = {Operand::RBX,
                                         Operand::R10,
                                         Operand::R11,
                                         Operand::R12,
                                         Operand::R13,
                                         Operand::R14,
                                         Operand::R15};
    return Reg64(kRegisters[which]);
  }
  static constexpr int kSaved[] = {
      Operand::RBX, Operand::RBP, Operand::R12, Operand::R13, Operand::R14, Operand::R15};

  int result_pointer(int result) const {
    return static_cast<int>(program_->inputs.size()) + result;
  }

  void save_registers() {
    for (const int saved : kSaved) push(Reg64(saved));
  }

  void leave() {
    vzeroupper();
    for (size_t i = std::size(kSaved); i-- > 0;) pop(Reg64(kSaved[i]));
    ret();
  }

  // The register that holds a pointer; rax where none does for good.
  Reg64 pointer(int which) {
    const int at = pinned_of_[static_cast<size_t>(which)];
    if (at != kNowhere) return pinned(at);
    mov(rax, work(8 * place_of_[static_cast<size_t>(which)]));
    return rax;
  }

  /// Writes every step of the schedule for each of `copies` neighbouring vectors. Returns how many
  /// values were kept in memory for want of registers.
  int emit_steps(const Schedule& schedule, Part part, int copies, How how) {
    part_ = part;
    how_ = how;
    values_.begin(schedule, part, copies);
    for (int at = 0; at < static_cast<int>(schedule.steps.size()); ++at) {
      for (copy_ = 0; copy_ < copies; ++copy_) {
        values_.begin_step(at, copy_);
        emit_step(schedule.steps[static_cast<size_t>(at)]);
      }
    }
    return values_.spills();
  }

 private:
  void emit_step(const Step& step) {
    const auto index = static_cast<size_t>(step.index);
    const bool tail = how_ == How::kTail;
    if (step.kind == Step::kStore) {
      const Stored& each = program_->stores[index];
      const int s = values_.in_register(each.node);
      const How how = how_ == How::kStreamed && !each.streamed ? How::kWhole : how_;
      const Reg64 to = pointer(result_pointer(each.result));
      part_ == Part::kSingle ? store_one(each.dtype, s, to) : store(each.dtype, s, to, copy_, how);
      values_.release(each.node);
    } else if (step.kind == Step::kReduce) {
      const Reduced& each = program_->reductions[index];
      const int s = values_.in_register(each.node);
      if (accumulators_ != kNowhere)
        reduce(each, s, accumulators_ + step.index * kMostCopies + copy_);
      else
        reduce(each, s, step.index * static_cast<int>(kLaneBytes), copy_, tail);
      values_.release(each.node);
    } else {
      emit_node(step.index);
      if (part_ == Part::kInvariants) values_.keep_invariant(step.index);
    }
  }

  void release_operands(const Node& n) {
    for (const int operand : n.operands)
      if (operand >= 0) values_.release(operand);
  }

  // The register of a node's result, once its operands are in place.
  Xmm result(int index) {
    const Node& n = values_.node(index);
    release_operands(n);
    return vector(values_.claim(index), n.lane);
  }

  void emit_node(int index) {
    const Node& n = values_.node(index);
    switch (n.prim) {
      case Prim::kInput:
        return emit_input(index);
      case Prim::kFma:
        return emit_fma(index);
      case Prim::kCompare:
        return emit_compare(index);
      case Prim::kSelect:
        return emit_select(index);
      case Prim::kSqrt: {
        const Xmm a = values_.vector_of(n.operands[0]);
        return root(n.lane, result(index), a);
      }
      case Prim::kNearest: {
        const Xmm a = values_.vector_of(n.operands[0]);
        return vcvtps2dq(result(index), a);
      }
      case Prim::kShiftLeft:
      case Prim::kShiftRight: {
        const Xmm a = values_.vector_of(n.operands[0]);
        const auto by = static_cast<int>(n.detail);
        return n.prim == Prim::kShiftLeft ? shift_left(result(index), a, by)
                                          : shift_right(result(index), a, by);
      }
      case Prim::kConvert:
      case Prim::kRoundF16: {
        const int a = values_.in_register(n.operands[0]);
        release_operands(n);
        const int d = values_.claim(index);
        return n.prim == Prim::kConvert ? convert(n.lane, n.source(), d, a) : round_f16(d, a);
      }
      case Prim::kLookUp: {
        const int a = values_.in_register(n.operands[0]);
        release_operands(n);
        const auto first = static_cast<size_t>(n.detail);
        const int resident = values_.table_register(first);
        if (resident != Registers::kNobody)
          return look_up(values_.claim(index), a, Xbyak::Zmm(resident));
        return look_up(values_.claim(index), a, values_.table(first));
      }
      default:
        return n.lane == Lane::kMask ? emit_mask(index) : emit_binary(index);
    }
  }

  void emit_input(int index) {
    const Node& n = values_.node(index);
    const auto input = static_cast<int>(n.detail);
    const DType dtype = program_->inputs[static_cast<size_t>(input)];
    const int d = values_.claim(index);
    if (n.invariant)
      load_uniform(dtype, d, pointer(input));
    else
      load(dtype, d, pointer(input), copy_, how_ == How::kTail);
    if (const int ahead = ahead_[static_cast<size_t>(input)]; how_ != How::kTail && ahead != 0)
      prefetch(dtype, pointer(input), copy_, ahead);
  }

  void emit_binary(int index) {
    const Node& n = values_.node(index);
    int a = n.operands[0], b = n.operands[1];
    const bool commutes = n.prim == Prim::kAdd || n.prim == Prim::kMul || n.prim == Prim::kAnd ||
                          n.prim == Prim::kOr || n.prim == Prim::kXor;
    if (commutes && !values_.has_register(a) && values_.has_register(b)) std::swap(a, b);
    const Xmm left = values_.vector_of(a);
    const Source right = values_.source(b);
    arithmetic(n.prim, n.lane, result(index), left, right.operand());
  }

  void emit_mask(int index) {
    const Node& n = values_.node(index);
    const int a = values_.in_register(n.operands[0]);
    const int b = n.operands[1] >= 0 ? values_.in_register(n.operands[1]) : a;
    release_operands(n);
    const int d = values_.claim(index);
    if (is_avx512()) {
      if (n.prim == Prim::kNot)
        knotw(mask(d), mask(a));
      else
        n.prim == Prim::kAnd ? kandw(mask(d), mask(a), mask(b)) : korw(mask(d), mask(a), mask(b));
    } else if (n.prim == Prim::kNot) {
      const Xmm ones = vector(scratch(0), 4);
      vpcmpeqd(ones, ones, ones);
      vxorps(vector(d, 4), vector(a, 4), ones);
    } else {
      arithmetic(n.prim, n.lane, vector(d, 4), vector(a, 4), vector(b, 4));
    }
  }

  void emit_compare(int index) {
    const Node& n = values_.node(index);
    const Xmm a = values_.vector_of(n.operands[0]);
    const Source b = values_.source(n.operands[1]);
    release_operands(n);
    const int d = values_.claim(index);
    if (is_avx512())
      compare_avx512(n.compare(), n.compared(), mask(d), a, b.operand());
    else
      compare_avx2(n.compare(), n.compared(), d, a, b.operand());
  }

  void emit_select(int index) {
    const Node& n = values_.node(index);
    const int chosen = values_.in_register(n.operands[0]);
    const Xmm otherwise = values_.vector_of(n.operands[2]);
    const Source yes = values_.source(n.operands[1]);
    select(n.lane, result(index), chosen, yes.operand(), otherwise);
  }

  // a * b + c, over the register of an operand that is not read again where there is one.
  void emit_fma(int index) {
    const Node& n = values_.node(index);
    int a = n.operands[0], b = n.operands[1];
    const int c = n.operands[2];
    const auto ends = [&](int x) { return values_.has_register(x) && !values_.is_read_later(x); };
    if (!ends(a) && ends(b)) std::swap(a, b);
    if (ends(a) && a != c && (values_.has_register(b) || !values_.has_register(c))) {
      const Xmm d = values_.vector_of(a), factor = values_.vector_of(b);
      const Source addend = values_.source(c);
      values_.become(a, index);
      fma213(n.lane, d, factor, addend.operand());
    } else if (ends(c) && c != a && c != b) {
      if (!values_.has_register(a)) std::swap(a, b);
      const Xmm d = values_.vector_of(c), factor = values_.vector_of(a);
      const Source other = values_.source(b);
      values_.become(c, index);
      fma231(n.lane, d, factor, other.operand());
    } else {
      if (!values_.has_register(a)) std::swap(a, b);
      const Xmm factor = values_.vector_of(a);
      const Source other = values_.source(b);
      if (values_.has_register(c)) values_.in_register(c);
      const int d = values_.claim(index);
      if (values_.has_register(c))
        move(vector(d, n.lane), values_.vector_of(c));
      else
        values_.read_memory(c, d);
      fma231(n.lane, vector(d, n.lane), factor, other.operand());
    }
    release_operands(n);
  }

 protected:
  Values values_;
  const Program* program_ = nullptr;
  std::byte* data_;
  std::vector<int> pinned_of_;   // by pointer: the inputs, then the results
  std::vector<int> place_of_;    // by pointer: its number in the work area
  std::vector<int> ahead_;       // by input: bytes that are fetched before they are read, or none
  int accumulators_ = kNowhere;  // the first register of the lanes of reductions

 private:
  Part part_ = Part::kInvariants;
  How how_ = How::kWhole;
  int copy_ = 0;  // the vector that is being written
};

}  // namespace ridge::cpu::jit
