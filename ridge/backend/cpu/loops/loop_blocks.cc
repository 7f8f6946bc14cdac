// Loops block by block: the values of a block stay in the first cache, each stream is read once and
// each result written once.
#include <algorithm>
#include <cstring>
#include <optional>

#include "ridge/backend/cpu/block_kernel.h"
#include "ridge/backend/cpu/cpu_isa.h"
#include "ridge/backend/cpu/isa/loop_kernels.h"
#include "ridge/backend/cpu/loop.h"
#include "ridge/backend/cpu/loops/loop_random.h"
#include "ridge/base/tensor.h"
#include "ridge/graph/ops/source.h"

namespace ridge::cpu {
namespace {

constexpr int64_t kBlock = 512;  // elements; eight turns of reductions
constexpr size_t kMostSlotBytes = 64 * kBlock * sizeof(float);  // on the stack
constexpr size_t kMostReductions = 16;

// The place of a value while a block is computed.
struct Operand {
  enum Kind : uint8_t { kInput, kResult, kSlot };
  Kind kind = kSlot;
  int index = 0;
  size_t size = 0;  // bytes of an element
};

// One op, or a reduction, on a block.
struct Instruction {
  BlockKernel kernel;
  Operand operands[3];
  Operand result;
  int reduction = -1;  // number of the reduction of the first operand
};

// A slot whose elements are all the same: a constant, or a uniform input.
struct Uniform {
  Operand slot;
  int input = -1;
  std::byte value[sizeof(double)] = {};
};

struct Copied {
  Operand from, to;
};

struct Reduction {
  int result = 0;
  bool is_max = false;
  int dtype = 0;
};

template <typename T>
void fill_pattern(void* to, const void* value, int64_t n) {
  T element;
  std::memcpy(&element, value, sizeof element);
  std::fill_n(static_cast<T*>(to), n, element);
}

void fill_uniform(void* to, const void* value, size_t size, int64_t n) {
  if (size == 4)
    fill_pattern<uint32_t>(to, value, n);
  else if (size == 8)
    fill_pattern<uint64_t>(to, value, n);
  else if (size == 2)
    fill_pattern<uint16_t>(to, value, n);
  else
    fill_pattern<uint8_t>(to, value, n);
}

class BlockLoop final : public LoopKernel {
 public:
  // Leaves is_complete() false where an op has no block kernel or the loop is too large.
  explicit BlockLoop(const Loop& loop) : loop_(loop) {
    for (const LoopInput& each : loop.inputs)
      slot_bytes_ = std::max(slot_bytes_, kBlock * size_of(each.dtype));
    for (const LoopOp& each : loop.ops)
      slot_bytes_ = std::max(slot_bytes_, kBlock * size_of(each.dtype));
    find_uses();
    for (size_t i = 0; i < loop.inputs.size(); ++i) add_input(i);
    for (size_t i = 0; i < loop.ops.size() && complete_; ++i) add_op(i);
    complete_ = complete_ && static_cast<size_t>(slots_) * slot_bytes_ <= kMostSlotBytes &&
                reductions_.size() <= kMostReductions;
  }

  bool is_complete() const { return complete_; }

  void run(const LoopArgs& args) const override {
    alignas(64) std::byte slots[kMostSlotBytes];
    alignas(64) double states[kMostReductions][kTurnLanes];
    Chunk chunk{args, slots, states, for_isa(0, 1)};
    for (const Uniform& uniform : uniforms_)
      fill_uniform(
          address(uniform.slot, chunk),
          uniform.input < 0 ? uniform.value : args.inputs[static_cast<size_t>(uniform.input)],
          uniform.slot.size,
          std::min(kBlock, args.n));
    for (size_t r = 0; r < reductions_.size(); ++r)
      kernels(reductions_[r]).start[reductions_[r].dtype](states[r]);
    for (; chunk.at < args.n; chunk.at += kBlock)
      run_block(chunk, std::min(kBlock, args.n - chunk.at));
    for (size_t r = 0; r < reductions_.size(); ++r)
      kernels(reductions_[r])
          .finish[reductions_[r].dtype](states[r],
                                        args.results[static_cast<size_t>(reductions_[r].result)]);
  }

 private:
  struct Chunk {
    const LoopArgs& args;
    std::byte* slots;
    double (*states)[kTurnLanes];
    int isa;
    int64_t at = 0;  // first element of the block
  };

  static const LoopReduction& kernels(const Reduction& reduction) {
    const LoopReductions& all = for_isa(avx2::loop_kernels, avx512::loop_kernels);
    return reduction.is_max ? all.max : all.sum;
  }

  size_t inputs() const { return loop_.inputs.size(); }
  bool is_stream(int value) const {
    const auto index = static_cast<size_t>(value);
    return index < inputs() && !loop_.inputs[index].uniform;
  }
  DType dtype(size_t value) const {
    return value < inputs() ? loop_.inputs[value].dtype : loop_.ops[value - inputs()].dtype;
  }

  void find_uses() {
    const size_t values = inputs() + loop_.ops.size();
    operands_.resize(values);
    last_read_.assign(values, -1);
    for (size_t i = 0; i < loop_.ops.size(); ++i)
      for (int operand : loop_.ops[i].operands) {
        last_read_[static_cast<size_t>(operand)] = static_cast<int>(inputs() + i);
        // Results may lie over streams: they are written where no later op reads a stream.
        if (is_stream(operand)) last_stream_read_ = static_cast<int>(inputs() + i);
      }
    for (const LoopResult& result : loop_.results)
      last_read_[static_cast<size_t>(result.value)] = static_cast<int>(values);
  }

  int new_slot() {
    if (!free_.empty()) {
      const int slot = free_.back();
      free_.pop_back();
      return slot;
    }
    return slots_++;
  }

  void add_input(size_t i) {
    const size_t size = size_of(dtype(i));
    operands_[i] = {Operand::kInput, static_cast<int>(i), size};
    if (loop_.inputs[i].uniform) {
      operands_[i] = {Operand::kSlot, slots_++, size};
      uniforms_.push_back({.slot = operands_[i], .input = static_cast<int>(i)});
    } else if (is_stored(i)) {
      // Another result may be written over the stream before this one is stored.
      const Operand slot{Operand::kSlot, slots_++, size};
      loads_.push_back({operands_[i], slot});
      operands_[i] = slot;
    }
    add_results(i);
  }

  bool is_stored(size_t value) const {
    return std::any_of(loop_.results.begin(), loop_.results.end(), [&](const LoopResult& result) {
      return result.kind == LoopResult::kStore && static_cast<size_t>(result.value) == value;
    });
  }

  // Stores of a value that no kernel has written in place, and its reductions.
  void add_results(size_t value) {
    const Operand& own = operands_[value];
    for (size_t i = 0; i < loop_.results.size(); ++i) {
      const LoopResult& result = loop_.results[i];
      const int index = static_cast<int>(i);
      if (static_cast<size_t>(result.value) != value) continue;
      if (result.kind == LoopResult::kStore) {
        if (own.kind != Operand::kResult || own.index != index)
          stores_.push_back({own, {Operand::kResult, index, own.size}});
        continue;
      }
      const int type = static_cast<int>(dtype(value));
      complete_ = complete_ && type <= 1;
      instructions_.push_back({.kernel = {},
                               .operands = {own},
                               .result = {},
                               .reduction = static_cast<int>(reductions_.size())});
      reductions_.push_back({index, result.kind == LoopResult::kMax, type});
    }
  }

  void add_constant(const Constant& constant, Operand& own) {
    complete_ = complete_ && constant.is_splat();
    if (!complete_) return;
    own.index = slots_++;
    Tensor one({constant.dtype, {}});
    if (constant.values.empty())
      one.set(0, static_cast<double>(constant.ints[0]));
    else
      one.set(0, constant.values[0]);
    if (constant.dtype == DType::kI64) one.span<int64_t>()[0] = constant.ints[0];
    Uniform uniform{.slot = own, .input = -1};
    std::memcpy(uniform.value, one.data(), own.size);
    uniforms_.push_back(uniform);
  }

  void add_op(size_t i) {
    const LoopOp& op = loop_.ops[i];
    const size_t value = inputs() + i;
    Operand& own = operands_[value];
    own.size = size_of(op.dtype);
    if (const auto* constant = dynamic_cast<const Constant*>(op.op.get()))
      add_constant(*constant, own);
    else
      add_instruction(op, static_cast<int>(value), own);
    if (complete_) add_results(value);
  }

  // The result that the value may be written to at once.
  std::optional<int> direct_result(int value) const {
    if (value < last_stream_read_) return std::nullopt;
    for (size_t i = 0; i < loop_.results.size(); ++i)
      if (loop_.results[i].kind == LoopResult::kStore && loop_.results[i].value == value)
        return static_cast<int>(i);
    return std::nullopt;
  }

  void add_instruction(const LoopOp& op, int value, Operand& own) {
    const auto kernel =
        op.operands.empty()
            ? std::nullopt
            : block_kernel(*op.op, dtype(static_cast<size_t>(op.operands[0])), op.dtype);
    if (!kernel || op.operands.size() > 3) {
      complete_ = false;
      return;
    }
    Instruction instruction{.kernel = *kernel, .operands = {}, .result = {}};
    for (size_t i = 0; i < op.operands.size(); ++i)
      instruction.operands[i] = operands_[static_cast<size_t>(op.operands[i])];
    // Slots of operands that end here are free again, but only after this instruction.
    if (const auto result = direct_result(value)) {
      own.kind = Operand::kResult;
      own.index = *result;
    } else {
      own.index = new_slot();
    }
    instruction.result = own;
    instructions_.push_back(instruction);
    for (int operand : op.operands) free_after(operand, value);
  }

  // The slot of an op's value is free after its last reader.
  void free_after(int value, int reader) {
    const auto at = static_cast<size_t>(value);
    const Operand& operand = operands_[at];
    const bool is_computed = at >= inputs() && !loop_.ops[at - inputs()].operands.empty();
    if (is_computed && operand.kind == Operand::kSlot && last_read_[at] == reader &&
        std::find(free_.begin(), free_.end(), operand.index) == free_.end())
      free_.push_back(operand.index);
  }

  std::byte* address(const Operand& operand, const Chunk& chunk) const {
    const auto offset = static_cast<size_t>(chunk.at) * operand.size;
    const auto index = static_cast<size_t>(operand.index);
    if (operand.kind == Operand::kSlot) return chunk.slots + index * slot_bytes_;
    if (operand.kind == Operand::kResult)
      return static_cast<std::byte*>(chunk.args.results[index]) + offset;
    return static_cast<std::byte*>(const_cast<void*>(chunk.args.inputs[index])) + offset;
  }

  void copy(const std::vector<Copied>& copies, const Chunk& chunk, int64_t n) const {
    for (const Copied& each : copies)
      std::memcpy(address(each.to, chunk),
                  address(each.from, chunk),
                  static_cast<size_t>(n) * each.from.size);
  }

  void run_block(const Chunk& chunk, int64_t n) const {
    copy(loads_, chunk, n);
    for (const Instruction& i : instructions_) {
      const void* a = address(i.operands[0], chunk);
      if (i.reduction >= 0) {
        const Reduction& reduction = reductions_[static_cast<size_t>(i.reduction)];
        kernels(reduction).add[reduction.dtype](chunk.states[i.reduction], a, n);
        continue;
      }
      void* y = address(i.result, chunk);
      if (i.kernel.unary[chunk.isa] != nullptr)
        i.kernel.unary[chunk.isa](a, y, n);
      else if (i.kernel.binary[chunk.isa] != nullptr)
        i.kernel.binary[chunk.isa](a, address(i.operands[1], chunk), y, n);
      else
        i.kernel.where[chunk.isa](reinterpret_cast<const Bool8*>(a),
                                  address(i.operands[1], chunk),
                                  address(i.operands[2], chunk),
                                  y,
                                  n);
    }
    copy(stores_, chunk, n);
  }

  const Loop loop_;
  bool complete_ = true;
  size_t slot_bytes_ = 0;
  int slots_ = 0;
  int last_stream_read_ = -1;
  std::vector<int> free_, last_read_;  // slots; the last op that reads each value
  std::vector<Operand> operands_;      // by value
  std::vector<Instruction> instructions_;
  std::vector<Uniform> uniforms_;
  std::vector<Copied> loads_, stores_;
  std::vector<Reduction> reductions_;
};

}  // namespace

std::unique_ptr<LoopKernel> make_block_loop(const Loop& loop) {
  if (has_dropout(loop)) return make_random_loop(loop, make_block_loop);
  auto made = std::make_unique<BlockLoop>(loop);
  if (!made->is_complete()) return nullptr;
  return made;
}

}  // namespace ridge::cpu
