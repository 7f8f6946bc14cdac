// While the code of a program is written, its values are given registers as they need them, and
// places in the work area where there are too few.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "ridge/backend/cpu/jit/compile.h"
#include "ridge/backend/cpu/jit/registers.h"
#include "ridge/backend/cpu/jit/schedule.h"
#include "ridge/backend/cpu/jit/streams.h"

namespace ridge::cpu::jit {

/// A loop works on at most so many neighbouring vectors at a time.
inline constexpr int kMostCopies = 4;
inline constexpr size_t kConstantBytes = 64;

/// The bytes that a vector for each constant and the tables take.
inline size_t constants_bytes(const Program& program) {
  size_t bytes = program.tables.size() * sizeof(float);
  for (const Node& node : program.nodes)
    if (node.prim == Prim::kConstant) bytes += kConstantBytes;
  return bytes;
}

/// The part of a program that is being written: values that a loop reads, the loop, or values of
/// which there is one each.
enum class Part : uint8_t { kInvariants, kElements, kSingle };

/// Knows the register or the place in memory of each value, and writes the instructions that move
/// values to `code`. A value is named by its node; where neighbouring vectors are worked on at a
/// time, it is that of the vector that is being written.
class Values {
 public:
  using Xmm = Xbyak::Xmm;
  using Address = Xbyak::Address;

  /// Constants lie at `constants`, from where the code reads them; there must be room for those of
  /// all programs.
  Values(StreamCode& code, std::byte* constants) : code_(code), constants_end_(constants) {}

  /// Starts on another program; writes its constants.
  void use(const Program& program) {
    program_ = &program;
    reg_.assign(program.nodes.size() * kMostCopies, Registers::kNobody);
    slot_.assign(reg_.size(), kNowhere);
    home_.assign(program.nodes.size(), kNowhere);
    constant_.assign(program.nodes.size(), nullptr);
    resident_.assign(program.nodes.size(), Registers::kNobody);
    table_register_.assign(program.tables.size() / kTableEntries, Registers::kNobody);
    reserved_ = home_slots_ = next_slot_ = 0;
    write_constants();
  }

  // ---- registers that are never taken back ----

  /// Takes `count` registers from all values, and returns the first.
  int reserve_block(int count) {
    reserved_ += count;
    return code_.value_registers() - reserved_;
  }

  /// Gives registers to what all elements share, tables first and then what is read most, as long
  /// as `least` are left to values: of vectors a processor reads fewer than it computes. Returns
  /// whether there were registers for all.
  bool reserve(const Schedule& body, int least) {
    bool for_all = true;
    const auto next = [&] {
      for_all = for_all && code_.value_registers() - reserved_ > least;
      return for_all ? reserve_block(1) : Registers::kNobody;
    };
    for (int& reg : table_register_)
      if (code_.is_avx512()) reg = next();
    std::vector<size_t> shared;
    for (size_t i = 0; i < program_->nodes.size(); ++i)
      if (is_shared(static_cast<int>(i)) && !is_mask(static_cast<int>(i)) && !body.reads[i].empty())
        shared.push_back(i);
    std::stable_sort(shared.begin(), shared.end(), [&](size_t a, size_t b) {
      return body.reads[a].size() > body.reads[b].size();
    });
    for (const size_t i : shared) resident_[i] = next();
    return for_all;
  }

  /// Loads the constants and tables that were given registers.
  void fill_registers() {
    for (size_t i = 0; i < program_->nodes.size(); ++i)
      if (resident_[i] != Registers::kNobody && is_constant(static_cast<int>(i)))
        read_memory(static_cast<int>(i), resident_[i]);
    for (size_t i = 0; i < table_register_.size(); ++i)
      if (table_register_[i] != Registers::kNobody)
        code_.vmovups(Xbyak::Zmm(table_register_[i]), table(i * kTableEntries));
  }

  // ---- the step that is being written ----

  /// Starts on the steps of a schedule, each for `copies` neighbouring vectors. It must outlive
  /// them.
  void begin(const Schedule& schedule, Part part, int copies) {
    schedule_ = &schedule;
    part_ = part;
    vectors_ = Registers(code_.value_registers() - reserved_);
    masks_ = Registers(StreamCode::kMasks);
    for (size_t i = 0; i < reg_.size(); ++i)
      reg_[i] = part == Part::kElements ? resident_[i / kMostCopies] : Registers::kNobody;
    std::fill(slot_.begin(), slot_.end(), kNowhere);
    next_slot_ = home_slots_;
    last_copy_ = copies - 1;
    spills_ = 0;
  }

  /// Starts on one step for one of the copies: registers that it uses stay its own until the next.
  void begin_step(int at, int copy) {
    at_ = at;
    copy_ = copy;
    vectors_.unpin_all();
    masks_.unpin_all();
  }

  /// The number of values that were kept in memory since begin(), for want of registers.
  int spills() const { return spills_; }
  /// True while the work area had room for all of them, in all programs.
  bool fit() const { return fit_; }

  // ---- values ----

  const Node& node(int index) const { return program_->nodes[static_cast<size_t>(index)]; }
  bool has_register(int index) const { return reg_[key(index)] != Registers::kNobody; }
  bool is_read_later(int index) const {
    if (part_ == Part::kElements && resident_[static_cast<size_t>(index)] != Registers::kNobody)
      return true;
    return schedule_->next_read(index, at_ + 1) < static_cast<int>(schedule_->steps.size()) ||
           (is_shared(index) && copy_ < last_copy_);
  }

  /// A register for the value, which another may have to leave.
  int claim(int index) {
    Registers& registers = registers_of(index);
    const int reg =
        registers.choose([&](int held) { return schedule_->next_read(held / kMostCopies, at_); });
    if (const int held = registers.holder(reg); held != Registers::kNobody) evict(held, reg);
    registers.give(reg, static_cast<int>(key(index)));
    registers.pin(reg);
    reg_[key(index)] = reg;
    return reg;
  }

  /// The register of the value; reads it into one where it has none.
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
  Xmm vector_of(int index) { return code_.vector(in_register(index), node(index).lane); }

  /// Reads a value without a register, which keeps its place.
  void read_memory(int index, int reg) {
    const Lane lane = node(index).lane;
    if (is_mask(index))
      code_.kmovw(StreamCode::mask(reg), memory(index));
    else if (is_constant(index) && code_.is_avx512())
      code_.broadcast(size_of(lane), reg, code_.ptr[constant(index)]);
    else
      code_.vmovups(code_.vector(reg, lane), memory(index));
  }

  /// The value as an operand, in a register or in memory.
  Source source(int index) {
    Source s;
    s.in_memory = !has_register(index);
    if (s.in_memory)
      s.memory = memory(index);
    else
      s.reg = vector_of(index);
    return s;
  }

  /// The entries of the tables from one on, and the register that they never leave, if any.
  Address table(size_t first) const {
    const std::byte* at = tables_ + first * sizeof(float);
    return code_.ptr[code_.rip + static_cast<const void*>(at)];
  }
  int table_register(size_t first) const { return table_register_[first / kTableEntries]; }

  /// Frees the register of a value that nobody reads any more.
  void release(int index) {
    if (is_read_later(index) || !has_register(index)) return;
    registers_of(index).free(reg_[key(index)]);
    reg_[key(index)] = Registers::kNobody;
  }

  /// Gives the register of `ended`, a vector, to the value.
  void become(int ended, int index) {
    const int reg = reg_[key(ended)];
    reg_[key(ended)] = Registers::kNobody;
    vectors_.give(reg, static_cast<int>(key(index)));
    reg_[key(index)] = reg;
  }

  /// Gives a value that the loop reads, and that has just been computed, a place of its own in the
  /// work area, and copies it to its register if it was given one.
  void keep_invariant(int made) {
    int& home = home_[static_cast<size_t>(made)];
    home = WorkArea::kSlots + WorkArea::kSlotBytes * home_slots_++;
    next_slot_ = std::max(next_slot_, home_slots_);
    write_slot(made, reg_[key(made)], home);
    if (const int resident = resident_[static_cast<size_t>(made)]; resident != Registers::kNobody)
      code_.move(code_.vector(resident, node(made).lane),
                 code_.vector(reg_[key(made)], node(made).lane));
    // Spilled values above would be overwritten: there are none, as a home is a slot as well.
    slot_[key(made)] = home;
  }

 private:
  static constexpr int kNowhere = -1;

  bool is_mask(int index) const { return code_.is_avx512() && node(index).lane == Lane::kMask; }
  bool is_shared(int index) const { return node(index).invariant; }
  bool is_constant(int index) const { return node(index).prim == Prim::kConstant; }
  Registers& registers_of(int index) { return is_mask(index) ? masks_ : vectors_; }
  size_t key(int index) const {
    return static_cast<size_t>(index) * kMostCopies +
           static_cast<size_t>(is_shared(index) ? 0 : copy_);
  }

  void write_constants() {
    for (size_t i = 0; i < program_->nodes.size(); ++i) {
      const Node& node = program_->nodes[i];
      if (node.prim != Prim::kConstant) continue;
      constant_[i] = constants_end_;
      const auto size = static_cast<size_t>(size_of(node.lane));
      for (size_t at = 0; at < kConstantBytes; at += size)
        std::memcpy(constants_end_ + at, &node.detail, size);
      constants_end_ += kConstantBytes;
    }
    tables_ = constants_end_;
    const size_t bytes = program_->tables.size() * sizeof(float);
    if (bytes > 0) std::memcpy(constants_end_, program_->tables.data(), bytes);
    constants_end_ += bytes;
  }

  Xbyak::RegRip constant(int index) const {
    return code_.rip + static_cast<const void*>(constant_[static_cast<size_t>(index)]);
  }

  // The place of a value without a register.
  Address memory(int index) const {
    if (is_constant(index))
      return code_.is_avx512() ? code_.ptr_b[constant(index)] : code_.ptr[constant(index)];
    const int slot = slot_[key(index)];
    return code_.work(slot != kNowhere ? slot : home_[static_cast<size_t>(index)]);
  }

  void write_slot(int index, int reg, int offset) {
    if (is_mask(index))
      code_.kmovw(code_.work(offset), StreamCode::mask(reg));
    else
      code_.vmovups(code_.work(offset), code_.vector(reg, node(index).lane));
  }

  void evict(int held, int reg) {
    const int index = held / kMostCopies;
    const bool has_home = is_constant(index) || (part_ == Part::kElements && is_shared(index));
    int& slot = slot_[static_cast<size_t>(held)];
    if (!has_home && slot == kNowhere) {
      slot = WorkArea::kSlots + WorkArea::kSlotBytes * next_slot_++;
      fit_ = fit_ && slot + WorkArea::kSlotBytes <= static_cast<int>(kWorkBytes);
      write_slot(index, reg, slot);
      ++spills_;
    }
    reg_[static_cast<size_t>(held)] = Registers::kNobody;
  }

  StreamCode& code_;
  const Program* program_ = nullptr;
  const Schedule* schedule_ = nullptr;
  Part part_ = Part::kInvariants;
  int at_ = 0, copy_ = 0, last_copy_ = 0;  // what is being written
  Registers vectors_{0}, masks_{0};
  std::vector<int> reg_, slot_;             // by key: register, offset in the work area
  std::vector<int> home_;                   // by node: invariants in the work area
  std::vector<const std::byte*> constant_;  // by node
  std::vector<int> resident_;               // by node: the register that it never leaves
  std::vector<int> table_register_;         // by table: the register that it never leaves
  std::byte* constants_end_;                // of those written so far
  const std::byte* tables_ = nullptr;
  int reserved_ = 0;  // registers above those of values
  int home_slots_ = 0, next_slot_ = 0;
  int spills_ = 0;
  bool fit_ = true;
};

}  // namespace ridge::cpu::jit
