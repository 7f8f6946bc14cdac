// Machine code of programs over rows: each row goes through all of them before the next.
#include "ridge/backend/cpu/jit/compile_rows.h"

#include "ridge/backend/cpu/jit/reduce_code.h"

namespace ridge::cpu::jit {
namespace {

// Registers that what all elements share leaves to values.
constexpr int kLeastRegisters = 18;

constexpr int kMostInRegisters = 4;  // reductions

size_t all_constants_bytes(const RowsProgram& rows) {
  size_t bytes = 0;
  for (const RowsProgram::Part& part : rows.parts) bytes += constants_bytes(part.program);
  return bytes;
}

class RowsWriter : public ReduceCode {
 public:
  // `copies`: by part, neighbouring vectors at a time.
  RowsWriter(const RowsProgram& rows, CodeMemory& memory, bool avx512, std::vector<int>& copies)
      : ReduceCode(memory, all_constants_bytes(rows), avx512), rows_(rows), copies_of_(copies) {}

  // False where the target lacks an instruction or the work area room.
  bool emit(bool streamed) {
    save_registers();
    mov(rbp, ptr[rdi + offsetof(RowsCall, work)]);
    mov(r9, ptr[rdi + offsetof(RowsCall, lanes)]);
    mov(rax, ptr[rdi + offsetof(RowsCall, rows)]);
    mov(work(WorkArea::kRows), rax);
    Xbyak::Label row;
    align(32);
    L(row);
    for (size_t i = 0; i < rows_.parts.size(); ++i)
      if (!emit_part(i, streamed)) return false;
    for (size_t i = 0; i < rows_.steps.size(); ++i)
      if (rows_.steps[i] != 0)
        add(qword[rbp + 8 * static_cast<int>(i)], static_cast<uint32_t>(rows_.steps[i]));
    dec(qword[rbp + WorkArea::kRows]);
    jnz(row, T_NEAR);
    if (streamed) sfence();
    leave();
    return values_.fit();
  }

  // After emit(): whether a part keeps values in memory that fewer copies would not; it has fewer
  // from now on.
  bool has_fewer_copies() const { return has_fewer_copies_; }

 private:
  bool emit_part(size_t number, bool streamed) {
    const RowsProgram::Part& part = rows_.parts[number];
    if (!use(part.program)) return false;
    place_of_ = part.inputs;
    place_of_.insert(place_of_.end(), part.results.begin(), part.results.end());
    pinned_of_.assign(place_of_.size(), kNowhere);
    if (!part.is_pass) {
      emit_single();
      return true;
    }
    pin_pointers();
    copies_ = copies_of_[number];
    choose_registers();
    values_.fill_registers();
    write_invariants();
    const int spills = emit_elements(streamed ? How::kStreamed : How::kWhole);
    if (spills > 0 && copies_ > 1) {
      copies_of_[number] /= 2;
      has_fewer_copies_ = true;
    }
    return true;
  }

  // One element of each value.
  void emit_single() { emit_steps(schedule_singles(*program_), Part::kSingle, 1, How::kWhole); }

  void pin_pointers() {
    int used = 0;
    const auto pin = [&](int pointer) {
      int& at = pinned_of_[static_cast<size_t>(pointer)];
      if (used == kPinned || at != kNowhere) return;
      at = used;
      mov(pinned(used++), work(8 * place_of_[static_cast<size_t>(pointer)]));
    };
    const std::vector<bool> needed = needed_nodes(*program_);
    for (size_t i = 0; i < program_->nodes.size(); ++i) {
      const Node& node = program_->nodes[i];
      if (needed[i] && node.prim == Prim::kInput && !node.invariant)
        pin(static_cast<int>(node.detail));
    }
    for (const Stored& each : program_->stores) pin(result_pointer(each.result));
  }

  // Returns how many values were kept in memory for want of registers.
  int emit_elements(How how) {
    const Schedule body = schedule_body(*program_);
    const auto emit = [&](int copies, How which) {
      return emit_steps(body, Part::kElements, copies, which);
    };
    int spills = 0;
    const int columns = rows_.columns, step = copies_ * lanes(), whole = columns / step;
    const int rest = columns % step / lanes(), tail = columns % lanes();
    start_reductions();
    mov(esi, columns);
    xor_(edx, edx);
    xor_(r8d, r8d);
    if (whole > 0) {
      Xbyak::Label next;
      align(32);
      L(next);
      spills += emit(copies_, how);
      if (whole > 1 || rest + tail > 0) advance(step);
      if (whole > 1) {
        cmp(edx, whole * step);
        jl(next, T_NEAR);
      }
    }
    if (rest + tail > 0) leave_registers();
    if (rest > 0) {
      spills += emit(rest, How::kWhole);
      advance(rest * lanes());
    }
    if (tail > 0) {
      set_tail(data_, data_ + kTableBytes);
      spills += emit(1, How::kTail);
    }
    finish_reductions();
    return spills;
  }

  void advance(int step) {
    add(edx, step);
    if (program_->reductions.empty() || accumulators_ != kNowhere) return;
    add(r8d, step);
    and_(r8d, 63);
  }

  // Registers for the lanes of reductions, where every copy is a turn, and for what is read by all
  // elements.
  void choose_registers() {
    if (rows_.columns < copies_ * lanes()) return;  // no loop
    const Schedule body = schedule_body(*program_);
    const int reductions = static_cast<int>(program_->reductions.size());
    const int wanted = reductions * kMostCopies;
    if (is_avx512() && lanes() == kTurnElements && copies_ == kTurns && reductions > 0 &&
        reductions <= kMostInRegisters)
      accumulators_ = values_.reserve_block(wanted);
    values_.reserve(body, kLeastRegisters);
  }

  void start_reductions() {
    for (size_t i = 0; i < program_->reductions.size(); ++i) {
      const Reduced& each = program_->reductions[i];
      if (accumulators_ != kNowhere) {
        for (int k = 0; k < kTurns; ++k)
          load_neutral(each, accumulators_ + static_cast<int>(i) * kMostCopies + k);
        continue;
      }
      load_neutral(each, scratch(0));
      const int bytes = lanes() * size_of(each.lane);
      for (int at = 0; at < kTurns * kTurnElements * size_of(each.lane); at += bytes)
        vmovups(ptr[r9 + lanes_at(i) + at], vector(scratch(0), each.lane));
    }
  }

  // The lanes go on in memory; the last elements have no register for each turn.
  void leave_registers() {
    if (accumulators_ == kNowhere) return;
    for (size_t i = 0; i < program_->reductions.size(); ++i)
      for (int k = 0; k < kTurns; ++k)
        vmovups(ptr[r9 + lanes_at(i) + k * 64],
                vector(accumulators_ + static_cast<int>(i) * kMostCopies + k, 4));
    accumulators_ = kNowhere;
  }

  void finish_reductions() {
    for (size_t i = 0; i < program_->reductions.size(); ++i) {
      const Reduced& each = program_->reductions[i];
      if (accumulators_ != kNowhere)
        combine_registers(each, accumulators_ + static_cast<int>(i) * kMostCopies);
      else
        combine_memory(each, lanes_at(i));
      store_one(each.lane == Lane::kF64 ? DType::kF64 : DType::kF32,
                0,
                pointer(result_pointer(each.result)));
    }
  }

  static int lanes_at(size_t reduction) {
    return static_cast<int>(reduction) * static_cast<int>(kLaneBytes);
  }

  const RowsProgram& rows_;
  std::vector<int>& copies_of_;
  int copies_ = 1;
  bool has_fewer_copies_ = false;
};

bool is_possible(const RowsProgram& rows) {
  return rows.steps.size() <= kMostRowPointers &&
         std::all_of(rows.parts.begin(), rows.parts.end(), [](const RowsProgram::Part& part) {
           return part.program.reductions.size() <= kMostReductions;
         });
}

}  // namespace

std::unique_ptr<RowsCode> compile_rows(const RowsProgram& rows, Target target, bool streamed) {
  auto memory = std::make_unique<CodeMemory>(kCodeBytes);
  if (memory->data() == nullptr || !is_possible(rows)) return nullptr;
  std::vector<int> copies;
  for (const RowsProgram::Part& part : rows.parts) copies.push_back(most_copies(part.program));
  try {
    for (;;) {
      RowsWriter writer(rows, *memory, target == Target::kAvx512, copies);
      if (!writer.emit(streamed)) return nullptr;
      if (writer.has_fewer_copies()) continue;
      const auto entry = static_cast<size_t>(reinterpret_cast<const std::byte*>(writer.getCode()) -
                                             memory->data());
      if (!memory->seal(entry + writer.getSize())) return nullptr;
      return std::make_unique<RowsCode>(std::move(memory), entry);
    }
  } catch (const Xbyak::Error&) {
    return nullptr;  // longer than the memory
  }
}

}  // namespace ridge::cpu::jit
