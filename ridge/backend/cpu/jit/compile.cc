// Machine code of loops over elements.
#include "ridge/backend/cpu/jit/compile.h"

#include <numeric>

#include "ridge/backend/cpu/jit/program_code.h"

namespace ridge::cpu::jit {
namespace {

class LoopCode : public ProgramCode {
 public:
  // A loop over `copies` vectors at a time.
  LoopCode(const Program& program, CodeMemory& memory, bool avx512, int copies)
      : ProgramCode(memory, constants_bytes(program), avx512), copies_(copies) {
    is_possible_ = use(program);
  }

  // Gives registers to what all elements share; whether there were enough.
  bool reserve() {
    constexpr int kSpare = 1;  // for a number that has no register of its own
    const Schedule body = schedule_body(*program_);
    return values_.reserve(body, copies_ * most_alive(*program_, body) + kSpare);
  }

  // False where the target lacks an instruction or the work area room.
  bool emit(bool streamed) {
    constexpr int kAhead = 2048;  // bytes; measured: 512 is too near, 4096 no better
    const size_t pointers = program_->inputs.size() + static_cast<size_t>(program_->results);
    if (!is_possible_ || pointers > static_cast<size_t>(WorkArea::kMostPointers)) return false;
    // Long computations leave the hardware's own prefetching too little lead.
    for (int& ahead : ahead_)
      if (streamed && ahead == 0) ahead = kAhead;
    enter(pointers);
    values_.fill_registers();
    write_invariants();
    emit_loops(streamed);
    if (streamed) sfence();
    leave();
    return values_.fit();
  }

  // Values that the loop keeps in memory for want of registers.
  int spills() const { return spills_; }

 private:
  void enter(size_t pointers) {
    save_registers();
    mov(rbp, ptr[rdi + offsetof(Call, work)]);
    mov(rsi, ptr[rdi + offsetof(Call, n)]);
    mov(r9, ptr[rdi + offsetof(Call, lanes)]);
    mov(rax, ptr[rdi + offsetof(Call, inputs)]);
    mov(rcx, ptr[rdi + offsetof(Call, results)]);
    pinned_of_.assign(pointers, kNowhere);
    place_of_.resize(pointers);
    std::iota(place_of_.begin(), place_of_.end(), 0);
    int used = 0;
    const auto keep = [&](int pointer, const Address& from, bool is_stream) {
      if (is_stream && used < kPinned) {
        pinned_of_[static_cast<size_t>(pointer)] = used;
        mov(pinned(used++), from);
      } else {
        mov(rdi, from);
        mov(work(8 * pointer), rdi);
      }
    };
    const std::vector<bool> needed = needed_nodes(*program_);
    for (size_t i = 0; i < program_->nodes.size(); ++i) {
      const Node& node = program_->nodes[i];
      if (needed[i] && node.prim == Prim::kInput) {
        const auto input = static_cast<int>(node.detail);
        keep(input, ptr[rax + 8 * input], !node.invariant);
      }
    }
    for (const Stored& each : program_->stores)
      keep(result_pointer(each.result), ptr[rcx + 8 * each.result], true);
  }

  void emit_loops(bool streamed) {
    const Schedule body = schedule_body(*program_);
    Xbyak::Label whole, rest, tail, done;
    const int step = copies_ * lanes();
    xor_(edx, edx);
    xor_(r8d, r8d);
    cmp(rsi, step);
    jl(rest, T_NEAR);
    align(32);
    L(whole);
    const How how = streamed ? How::kStreamed : How::kWhole;
    spills_ = emit_steps(body, Part::kElements, copies_, how);
    advance(step);
    lea(rax, ptr[rdx + step]);
    cmp(rax, rsi);
    jle(whole, T_NEAR);
    L(rest);
    cmp(rdx, rsi);
    jge(done, T_NEAR);
    L(tail);
    set_tail(data_, data_ + kTableBytes);
    emit_steps(body, Part::kElements, 1, How::kTail);
    advance(lanes());
    cmp(rdx, rsi);
    jl(tail, T_NEAR);
    L(done);
  }

  void advance(int step) {
    add(rdx, step);
    if (program_->reductions.empty()) return;
    add(r8d, step);
    and_(r8d, 63);
  }

  int copies_;
  int spills_ = 0;
  bool is_possible_ = false;
};

}  // namespace

std::unique_ptr<Code> compile(const Program& program, Target target, bool streamed) {
  auto memory = std::make_unique<CodeMemory>(kCodeBytes);
  if (memory->data() == nullptr || program.reductions.size() > kMostReductions) return nullptr;
  const bool avx512 = target == Target::kAvx512;
  try {
    for (int copies = most_copies(program); copies >= 1; copies /= 2) {
      LoopCode code(program, *memory, avx512, copies);
      const bool reserved = code.reserve();
      // Measured: two hide the latencies of long programs as well as four.
      if (!reserved && avx512 && copies > 2) continue;
      if (!code.emit(streamed)) return nullptr;
      if (code.spills() > 0 && copies > 1) continue;
      const auto entry =
          static_cast<size_t>(reinterpret_cast<const std::byte*>(code.getCode()) - memory->data());
      if (!memory->seal(entry + code.getSize())) return nullptr;
      return std::make_unique<Code>(std::move(memory), entry, lanes_of(program, avx512));
    }
  } catch (const Xbyak::Error&) {
    return nullptr;  // longer than the memory
  }
  return nullptr;
}

}  // namespace ridge::cpu::jit
