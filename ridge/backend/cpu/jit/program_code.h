// Straight-line code of programs: registers are given out while it is written. What runs over
// elements, or over rows of them, stands in compile.cc and compile_rows.cc.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "ridge/backend/cpu/jit/compile.h"
#include "ridge/backend/cpu/jit/registers.h"
#include "ridge/backend/cpu/jit/schedule.h"
#include "ridge/backend/cpu/jit/streams.h"

namespace ridge::cpu::jit {

inline constexpr size_t kCodeBytes = size_t{1} << 20;
inline constexpr int kMostCopies = 4;
inline constexpr size_t kTableBytes = 64;  // of each of two tables that tail masks are read from
inline constexpr size_t kConstantBytes = 64;

/// Bytes for a vector for each constant, and for the tables.
inline size_t constants_bytes(const Program& program) {
  size_t bytes = program.tables.size() * sizeof(float);
  for (const Node& node : program.nodes)
    if (node.prim == Prim::kConstant) bytes += kConstantBytes;
  return bytes;
}

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
        data_(memory.data()),
        constants_end_(2 * kTableBytes) {
    std::memset(data_, 0, 2 * kTableBytes);
    std::memset(data_, 0xff, kTableBytes / 2);
    std::memset(data_ + kTableBytes, 0xff, kTableBytes / 2);
  }

 protected:
  static constexpr int kNowhere = -1;

  /// What is being written: values that a loop reads, the loop, or values of which there is one
  /// each.
  enum class Part : uint8_t { kInvariants, kElements, kSingle };

  /// Starts on another program; writes its constants. False where the target lacks an instruction
  /// or the work area room.
  bool use(const Program& program) {
    program_ = &program;
    ahead_ = program.ahead;
    set_lanes(lanes_of(program, is_avx512()));
    reg_.assign(program.nodes.size() * kMostCopies, Registers::kNobody);
    slot_.assign(reg_.size(), kNowhere);
    home_.assign(program.nodes.size(), kNowhere);
    resident_.assign(program.nodes.size(), Registers::kNobody);
    table_register_.assign(program.tables.size() / kTableEntries, Registers::kNobody);
    reserved_ = home_slots_ = next_slot_ = spills_ = 0;
    accumulators_ = kNowhere;
    write_constants();
    return is_possible();
  }

  void write_constants() {
    for (size_t i = 0; i < program_->nodes.size(); ++i) {
      const Node& node = program_->nodes[i];
      if (node.prim != Prim::kConstant) continue;
      home_[i] = static_cast<int>(constants_end_);
      const auto size = static_cast<size_t>(size_of(node.lane));
      for (size_t at = 0; at < kConstantBytes; at += size)
        std::memcpy(data_ + constants_end_ + at, &node.detail, size);
      constants_end_ += kConstantBytes;
    }
    tables_at_ = constants_end_;
    const size_t bytes = program_->tables.size() * sizeof(float);
    if (bytes > 0) std::memcpy(data_ + tables_at_, program_->tables.data(), bytes);
    constants_end_ += bytes;
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
    schedule_ = schedule_invariants(*program_);
    part_ = Part::kInvariants;
    emit_steps(1, How::kWhole);
  }

  // Gives registers to what all elements share, tables first and then what is read most, as long as
  // `least` are left to values: of vectors a processor reads fewer than it computes. Whether there
  // were registers for all.
  bool reserve_registers(const Schedule& body, int least) {
    bool for_all = true;
    const auto reserve = [&] {
      for_all = for_all && value_registers() - reserved_ > least;
      return for_all ? value_registers() - ++reserved_ : Registers::kNobody;
    };
    for (int& reg : table_register_)
      if (is_avx512()) reg = reserve();
    std::vector<size_t> shared;
    for (size_t i = 0; i < program_->nodes.size(); ++i)
      if (is_shared(static_cast<int>(i)) && !is_mask(static_cast<int>(i)) && !body.reads[i].empty())
        shared.push_back(i);
    std::stable_sort(shared.begin(), shared.end(), [&](size_t a, size_t b) {
      return body.reads[a].size() > body.reads[b].size();
    });
    for (const size_t i : shared) resident_[i] = reserve();
    return for_all;
  }

  // What lies in memory goes to the registers that it was given.
  void fill_registers() {
    for (size_t i = 0; i < program_->nodes.size(); ++i)
      if (resident_[i] != Registers::kNobody && is_constant(static_cast<int>(i)))
        read_memory(static_cast<int>(i), resident_[i]);
    for (size_t i = 0; i < table_register_.size(); ++i)
      if (table_register_[i] != Registers::kNobody)
        vmovups(Xbyak::Zmm(table_register_[i]), table(i * kTableEntries));
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

  // Every step of the schedule for each of `copies` neighbouring vectors.
  void emit_steps(int copies, How how) {
    how_ = how;
    vectors_ = Registers(value_registers() - reserved_);
    masks_ = Registers(kMasks);
    for (size_t i = 0; i < reg_.size(); ++i)
      reg_[i] = part_ == Part::kElements ? resident_[i / kMostCopies] : Registers::kNobody;
    std::fill(slot_.begin(), slot_.end(), kNowhere);
    next_slot_ = home_slots_;
    last_copy_ = copies - 1;
    for (at_ = 0; at_ < static_cast<int>(schedule_.steps.size()); ++at_) {
      for (copy_ = 0; copy_ < copies; ++copy_) {
        emit_step(schedule_.steps[static_cast<size_t>(at_)]);
        vectors_.unpin_all();
        masks_.unpin_all();
      }
    }
  }

  void emit_step(const Step& step) {
    const auto index = static_cast<size_t>(step.index);
    const bool tail = how_ == How::kTail;
    if (step.kind == Step::kStore) {
      const Stored& each = program_->stores[index];
      const int s = in_register(each.node);
      const How how = how_ == How::kStreamed && !each.streamed ? How::kWhole : how_;
      const Reg64 to = pointer(result_pointer(each.result));
      part_ == Part::kSingle ? store_one(each.dtype, s, to) : store(each.dtype, s, to, copy_, how);
      release(each.node);
    } else if (step.kind == Step::kReduce) {
      const Reduced& each = program_->reductions[index];
      const int s = in_register(each.node);
      if (accumulators_ != kNowhere)
        reduce(each, s, accumulators_ + step.index * kMostCopies + copy_);
      else
        reduce(each, s, step.index * static_cast<int>(kLaneBytes), copy_, tail);
      release(each.node);
    } else {
      emit_node(step.index);
      if (part_ == Part::kInvariants) keep_invariant(step.index);
    }
  }

  // Invariants that the loop reads get a place of their own, and maybe a register.
  void keep_invariant(int made) {
    int& home = home_[static_cast<size_t>(made)];
    home = WorkArea::kSlots + WorkArea::kSlotBytes * home_slots_++;
    next_slot_ = std::max(next_slot_, home_slots_);
    write_slot(made, reg_[key(made)], home);
    if (const int resident = resident_[static_cast<size_t>(made)]; resident != Registers::kNobody)
      move(vector(resident, node(made).lane), vector(reg_[key(made)], node(made).lane));
    // Spilled values above would be overwritten: there are none, as a home is a slot as well.
    slot_[key(made)] = home;
  }

  // ---- values and registers ----

  const Node& node(int index) const { return program_->nodes[static_cast<size_t>(index)]; }
  bool is_mask(int index) const { return is_avx512() && node(index).lane == Lane::kMask; }
  Registers& registers_of(int index) { return is_mask(index) ? masks_ : vectors_; }
  bool is_shared(int index) const { return node(index).invariant; }
  size_t key(int index) const {
    return static_cast<size_t>(index) * kMostCopies +
           static_cast<size_t>(is_shared(index) ? 0 : copy_);
  }
  bool is_constant(int index) const { return node(index).prim == Prim::kConstant; }
  bool is_read_later(int index) const {
    if (part_ == Part::kElements && resident_[static_cast<size_t>(index)] != Registers::kNobody)
      return true;
    return schedule_.next_read(index, at_ + 1) < static_cast<int>(schedule_.steps.size()) ||
           (is_shared(index) && copy_ < last_copy_);
  }

  void write_slot(int index, int reg, int offset) {
    if (is_mask(index))
      kmovw(work(offset), mask(reg));
    else
      vmovups(work(offset), vector(reg, node(index).lane));
  }

  // Where a value without a register lies.
  Address memory(int index) const {
    if (is_constant(index)) {
      const std::byte* at = data_ + home_[static_cast<size_t>(index)];
      const auto address = rip + static_cast<const void*>(at);
      return is_avx512() ? ptr_b[address] : ptr[address];
    }
    const int slot = slot_[key(index)];
    return work(slot != kNowhere ? slot : home_[static_cast<size_t>(index)]);
  }

  void read_memory(int index, int reg) {
    const Lane lane = node(index).lane;
    if (is_mask(index)) {
      kmovw(mask(reg), memory(index));
    } else if (is_constant(index) && is_avx512()) {
      const std::byte* at = data_ + home_[static_cast<size_t>(index)];
      broadcast(size_of(lane), reg, ptr[rip + static_cast<const void*>(at)]);
    } else {
      vmovups(vector(reg, lane), memory(index));
    }
  }

  // A register for the value, which another may have to leave.
  int claim(int index) {
    Registers& registers = registers_of(index);
    const int reg =
        registers.choose([&](int held) { return schedule_.next_read(held / kMostCopies, at_); });
    if (const int held = registers.holder(reg); held != Registers::kNobody) evict(held, reg);
    registers.give(reg, static_cast<int>(key(index)));
    registers.pin(reg);
    reg_[key(index)] = reg;
    return reg;
  }

  void evict(int held, int reg) {
    const int index = held / kMostCopies;
    const bool has_home = is_constant(index) || (part_ == Part::kElements && is_shared(index));
    int& slot = slot_[static_cast<size_t>(held)];
    if (!has_home && slot == kNowhere) {
      slot = WorkArea::kSlots + WorkArea::kSlotBytes * next_slot_++;
      fits_ = fits_ && slot + WorkArea::kSlotBytes <= static_cast<int>(kWorkBytes);
      write_slot(index, reg, slot);
      ++spills_;
    }
    reg_[static_cast<size_t>(held)] = Registers::kNobody;
  }

  int in_register(int index) {
    const int known = reg_[key(index)];
    if (known != Registers::kNobody) {
      registers_of(index).pin(known);
      return known;
    }
    const int reg = claim(index);
    read_memory(index, reg);
    return reg;
  }

  bool has_register(int index) const { return reg_[key(index)] != Registers::kNobody; }

  Source source(int index) {
    Source s;
    s.in_memory = !has_register(index);
    if (s.in_memory)
      s.memory = memory(index);
    else
      s.reg = vector(in_register(index), node(index).lane);
    return s;
  }

  // Frees the register of a value that nobody reads any more.
  void release(int index) {
    if (is_read_later(index) || !has_register(index)) return;
    registers_of(index).free(reg_[key(index)]);
    reg_[key(index)] = Registers::kNobody;
  }

  void release_operands(const Node& n) {
    for (const int operand : n.operands)
      if (operand >= 0) release(operand);
  }

  // ---- nodes ----

  Xmm vector_of(int index) { return vector(in_register(index), node(index).lane); }

  // The register of a node's result, once its operands are in place.
  Xmm result(int index) {
    release_operands(node(index));
    return vector(claim(index), node(index).lane);
  }

  void emit_node(int index) {
    const Node& n = node(index);
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
        const Xmm a = vector_of(n.operands[0]);
        return root(n.lane, result(index), a);
      }
      case Prim::kShiftLeft:
      case Prim::kShiftRight: {
        const Xmm a = vector_of(n.operands[0]);
        const auto by = static_cast<int>(n.detail);
        return n.prim == Prim::kShiftLeft ? shift_left(result(index), a, by)
                                          : shift_right(result(index), a, by);
      }
      case Prim::kConvert:
      case Prim::kRoundF16: {
        const int a = in_register(n.operands[0]);
        release_operands(n);
        const int d = claim(index);
        return n.prim == Prim::kConvert ? convert(n.lane, n.source(), d, a) : round_f16(d, a);
      }
      case Prim::kLookUp: {
        const int a = in_register(n.operands[0]);
        release_operands(n);
        const auto first = static_cast<size_t>(n.detail);
        const int resident = table_register_[first / kTableEntries];
        if (resident != Registers::kNobody) return look_up(claim(index), a, Xbyak::Zmm(resident));
        return look_up(claim(index), a, table(first));
      }
      default:
        return n.lane == Lane::kMask ? emit_mask(index) : emit_binary(index);
    }
  }

  // The entries of the tables from one on.
  Address table(size_t first) const {
    const std::byte* at = data_ + tables_at_ + first * sizeof(float);
    return ptr[rip + static_cast<const void*>(at)];
  }

  void emit_input(int index) {
    const Node& n = node(index);
    const auto input = static_cast<int>(n.detail);
    const DType dtype = program_->inputs[static_cast<size_t>(input)];
    const int d = claim(index);
    if (n.invariant)
      load_uniform(dtype, d, pointer(input));
    else
      load(dtype, d, pointer(input), copy_, how_ == How::kTail);
    if (const int ahead = ahead_[static_cast<size_t>(input)]; how_ != How::kTail && ahead != 0)
      prefetch(dtype, pointer(input), copy_, ahead);
  }

  void emit_binary(int index) {
    const Node& n = node(index);
    int a = n.operands[0], b = n.operands[1];
    const bool commutes = n.prim == Prim::kAdd || n.prim == Prim::kMul || n.prim == Prim::kAnd ||
                          n.prim == Prim::kOr || n.prim == Prim::kXor;
    if (commutes && !has_register(a) && has_register(b)) std::swap(a, b);
    const Xmm left = vector_of(a);
    const Source right = source(b);
    arithmetic(n.prim, n.lane, result(index), left, right.operand());
  }

  void emit_mask(int index) {
    const Node& n = node(index);
    const int a = in_register(n.operands[0]);
    const int b = n.operands[1] >= 0 ? in_register(n.operands[1]) : a;
    release_operands(n);
    const int d = claim(index);
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
    const Node& n = node(index);
    const Xmm a = vector_of(n.operands[0]);
    const Source b = source(n.operands[1]);
    release_operands(n);
    const int d = claim(index);
    if (is_avx512())
      compare_avx512(n.compare(), n.compared(), mask(d), a, b.operand());
    else
      compare_avx2(n.compare(), n.compared(), d, a, b.operand());
  }

  void emit_select(int index) {
    const Node& n = node(index);
    const int chosen = in_register(n.operands[0]);
    const Xmm otherwise = vector_of(n.operands[2]);
    const Source yes = source(n.operands[1]);
    select(n.lane, result(index), chosen, yes.operand(), otherwise);
  }

  // a * b + c, over the register of an operand that is not read again where there is one.
  void emit_fma(int index) {
    const Node& n = node(index);
    int a = n.operands[0], b = n.operands[1];
    const int c = n.operands[2];
    const auto ends = [&](int x) { return has_register(x) && !is_read_later(x); };
    if (!ends(a) && ends(b)) std::swap(a, b);
    if (ends(a) && a != c && (has_register(b) || !has_register(c))) {
      const Xmm d = vector_of(a), factor = vector_of(b);
      const Source addend = source(c);
      become(a, index);
      fma213(n.lane, d, factor, addend.operand());
    } else if (ends(c) && c != a && c != b) {
      if (!has_register(a)) std::swap(a, b);
      const Xmm d = vector_of(c), factor = vector_of(a);
      const Source other = source(b);
      become(c, index);
      fma231(n.lane, d, factor, other.operand());
    } else {
      if (!has_register(a)) std::swap(a, b);
      const Xmm factor = vector_of(a);
      const Source other = source(b);
      if (has_register(c)) in_register(c);
      const int d = claim(index);
      if (has_register(c))
        move(vector(d, n.lane), vector_of(c));
      else
        read_memory(c, d);
      fma231(n.lane, vector(d, n.lane), factor, other.operand());
    }
    release_operands(n);
  }

  // The register of `ended` is the node's from now on.
  void become(int ended, int index) {
    const int reg = reg_[key(ended)];
    reg_[key(ended)] = Registers::kNobody;
    vectors_.give(reg, static_cast<int>(key(index)));
    reg_[key(index)] = reg;
  }

  const Program* program_ = nullptr;
  std::byte* data_;
  size_t constants_end_;  // of those written so far
  size_t tables_at_ = 0;  // the program's, below data_
  Schedule schedule_;
  Part part_ = Part::kInvariants;
  How how_ = How::kWhole;
  int at_ = 0, copy_ = 0, last_copy_ = 0;  // what is being written
  Registers vectors_{0}, masks_{0};
  std::vector<int> reg_, slot_;      // by key: register, offset in the work area
  std::vector<int> home_;            // by node: constants below data_, invariants in the work area
  std::vector<int> resident_;        // by node: the register that it never leaves
  std::vector<int> table_register_;  // by table: the register that it never leaves
  std::vector<int> pinned_of_;       // by pointer: the inputs, then the results
  std::vector<int> place_of_;        // by pointer: its number in the work area
  std::vector<int> ahead_;       // by input: bytes that are fetched before they are read, or none
  int reserved_ = 0;             // registers above those of values
  int accumulators_ = kNowhere;  // the first register of the lanes of reductions
  int home_slots_ = 0, next_slot_ = 0;
  int spills_ = 0;  // values that were kept in memory for want of registers
  bool fits_ = true;
};

}  // namespace ridge::cpu::jit
