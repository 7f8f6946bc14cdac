// Fused elementwise bodies, block by block: the values of a block stay in the first cache, each
// input is read once and each result written once.
#include "ridge/graph/ops/fused.h"

#include <algorithm>
#include <cstring>

#include "ridge/backend/cpu/block_kernel.h"
#include "ridge/backend/cpu/cpu_isa.h"
#include "ridge/backend/cpu/cpu_kernels.h"
#include "ridge/base/parallel.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "ridge/graph/tensor.h"
#include "ridge/graph/text.h"

namespace ridge::cpu {
namespace {

constexpr int64_t kBlock = 512;    // elements of a block
constexpr int64_t kGrain = 16384;  // elements a thread takes at a time
constexpr int kMaxSlots = 64;      // blocks that a body may need
constexpr size_t kSlotBytes = kBlock * sizeof(double);

// Where a value of the body lies while a block is computed.
struct Operand {
  enum Kind : uint8_t { kInput, kOutput, kSlot };
  Kind kind = kSlot;
  int index = 0;
  size_t size = 0;  // of an element
};

// One op on a block.
struct Instruction {
  BlockKernel kernel;
  Operand operands[3];
  Operand result;
};

// How element e of the domain reads a smaller tensor: dimensions from the innermost out, the stride
// in elements.
struct BroadcastMap {
  struct Axis {
    int64_t size, stride;
  };
  std::vector<Axis> axes;
};

// A slot that is filled from an input for every block.
struct Fill {
  int input = 0;
  int slot = 0;
  size_t size = 0;
  BroadcastMap map;
};

// A slot whose elements are all the same: a constant, or an input of one element.
struct Uniform {
  int slot = 0;
  int input = -1;
  size_t size = 0;
  std::byte value[sizeof(double)] = {};
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

// Elements begin to begin + n of the broadcast tensor.
void fill_broadcast(
    std::byte* to, const std::byte* from, const Fill& fill, int64_t begin, int64_t n) {
  const auto& axes = fill.map.axes;
  int64_t place[kMaxRank] = {}, source = 0;
  for (size_t i = 0; i < axes.size(); ++i) {
    place[i] = begin % axes[i].size;
    begin /= axes[i].size;
    source += place[i] * axes[i].stride;
  }
  while (n > 0) {
    const int64_t run = std::min(n, axes[0].size - place[0]);
    const std::byte* at = from + static_cast<size_t>(source) * fill.size;
    if (axes[0].stride == 0)
      fill_uniform(to, at, fill.size, run);
    else
      std::memcpy(to, at, static_cast<size_t>(run) * fill.size);
    to += static_cast<size_t>(run) * fill.size;
    n -= run;
    source += run * axes[0].stride;
    place[0] += run;
    for (size_t i = 0; i < axes.size() && place[i] == axes[i].size; ++i) {
      source -= place[i] * axes[i].stride;
      place[i] = 0;
      if (i + 1 < axes.size()) {
        ++place[i + 1];
        source += axes[i + 1].stride;
      }
    }
  }
}

// Neighbouring axes that continue each other become one.
BroadcastMap broadcast_map(const Shape& from, const Shape& to) {
  BroadcastMap map;
  int64_t step = 1;
  for (size_t i = 0; i < to.size(); ++i) {
    const int64_t size = to[to.size() - 1 - i];
    const int64_t own = i < from.size() ? from[from.size() - 1 - i] : 1;
    const int64_t stride = own == 1 ? 0 : step;
    step *= own;
    if (size == 1) continue;
    if (!map.axes.empty()) {
      BroadcastMap::Axis& inner = map.axes.back();
      if (stride == inner.stride * inner.size) {
        inner.size *= size;
        continue;
      }
    }
    map.axes.push_back({size, stride});
  }
  if (map.axes.empty()) map.axes.push_back({1, 0});
  return map;
}

class BlockProgram {
 public:
  // Leaves is_complete() false where an op has no block kernel or the body is too large.
  explicit BlockProgram(const Node& node) {
    const Graph body = parse_graph(node.op_as<Fused>().body, "fused body");
    count_ = node.outputs[0].elements();
    last_read_.resize(body.nodes().size());
    operands_.resize(body.nodes().size());
    for (const auto& value : body.nodes())
      for (const Value& input : value->inputs)
        last_read_[static_cast<size_t>(input.node->id)] = value->id;
    find_outputs(body);
    for (const auto& value : body.nodes())
      if (complete_) add(*value);
    complete_ = complete_ && slots_ <= kMaxSlots;
  }

  bool is_complete() const { return complete_; }

  void run(const KernelArgs& args) const {
    const int isa = for_isa(0, 1);
    parallel_for(count_, kGrain, [&](int64_t begin, int64_t end) { run(args, isa, begin, end); });
  }

 private:
  static size_t id(const Node& node) { return static_cast<size_t>(node.id); }

  void find_outputs(const Graph& body) {
    output_of_.assign(body.nodes().size(), -1);
    for (size_t i = 0; i < body.outputs().size(); ++i) {
      const Node& made = *body.outputs()[i].value.node;
      // A value that is two results is copied to the second.
      if (output_of_[id(made)] >= 0)
        extra_outputs_.push_back({static_cast<int>(i), made.id});
      else
        output_of_[id(made)] = static_cast<int>(i);
      last_read_[id(made)] = static_cast<int>(body.nodes().size());
    }
    // Results may lie over inputs of domain shape: they are written where no later instruction
    // reads an input.
    for (const auto& node : body.nodes())
      for (const Value& input : node->inputs)
        if (input.node->is<Input>() && !node->is<Broadcast>()) last_input_read_ = node->id;
  }

  int new_slot() {
    if (!free_.empty()) {
      const int slot = free_.back();
      free_.pop_back();
      return slot;
    }
    return slots_++;
  }

  void add(const Node& node) {
    const size_t size = size_of(node.outputs[0].dtype);
    Operand& own = operands_[id(node)];
    if (node.is<Input>()) {
      own = {Operand::kInput, static_cast<int>(std::stoul(node.op_as<Input>().input_name)), size};
    } else if (node.is<Constant>()) {
      own = {Operand::kSlot, slots_++, size};
      Tensor one({node.outputs[0].dtype, {}});
      const auto& constant = node.op_as<Constant>();
      one.set(0,
              constant.values.empty() ? static_cast<double>(constant.ints[0]) : constant.values[0]);
      if (constant.dtype == DType::kI64) one.span<int64_t>()[0] = constant.ints[0];
      Uniform uniform{.slot = own.index, .input = -1, .size = size};
      std::memcpy(uniform.value, one.data(), size);
      uniforms_.push_back(uniform);
    } else if (node.is<Broadcast>()) {
      own = {Operand::kSlot, slots_++, size};
      const Value from = node.inputs[0];
      const int input = operands_[id(*from.node)].index;
      if (from.type().elements() == 1)
        uniforms_.push_back({.slot = own.index, .input = input, .size = size});
      else
        fills_.push_back(
            {input, own.index, size, broadcast_map(from.shape(), node.outputs[0].shape)});
    } else {
      add_instruction(node, own);
    }
    store_if_output(node, own);
  }

  void add_instruction(const Node& node, Operand& own) {
    const auto kernel = block_kernel(node);
    if (!kernel) {
      complete_ = false;
      return;
    }
    Instruction instruction{.kernel = *kernel, .operands = {}, .result = {}};
    for (size_t i = 0; i < node.inputs.size(); ++i)
      instruction.operands[i] = operands_[id(*node.inputs[i].node)];
    // Slots of operands that end here are free again, but only after this instruction.
    const int output = output_of_[id(node)];
    const size_t size = size_of(node.outputs[0].dtype);
    own = output >= 0 && node.id >= last_input_read_ ? Operand{Operand::kOutput, output, size}
                                                     : Operand{Operand::kSlot, new_slot(), size};
    instruction.result = own;
    instructions_.push_back(instruction);
    for (const Value& input : node.inputs) {
      const Operand& operand = operands_[id(*input.node)];
      const bool is_computed = is_fusible(*input.node);
      const bool is_free_now = std::find(free_.begin(), free_.end(), operand.index) != free_.end();
      if (operand.kind == Operand::kSlot && is_computed && !is_free_now &&
          last_read_[id(*input.node)] == node.id)
        free_.push_back(operand.index);
    }
  }

  void store_if_output(const Node& node, const Operand& own) {
    if (const int output = output_of_[id(node)]; output >= 0 && own.kind != Operand::kOutput)
      stored_.push_back({output, own});
    for (const auto& [output, made] : extra_outputs_)
      if (made == node.id) stored_.push_back({output, own});
  }

  struct Chunk {
    const KernelArgs& args;
    std::byte* slots;
    int64_t at = 0;  // first element of the block
  };

  static std::byte* address(const Operand& operand, const Chunk& chunk) {
    const auto offset = static_cast<size_t>(chunk.at) * operand.size;
    const auto index = static_cast<size_t>(operand.index);
    if (operand.kind == Operand::kSlot) return chunk.slots + index * kSlotBytes;
    if (operand.kind == Operand::kOutput)
      return static_cast<std::byte*>(chunk.args.outputs[index]) + offset;
    return static_cast<std::byte*>(const_cast<void*>(chunk.args.inputs[index])) + offset;
  }

  void run(const KernelArgs& args, int isa, int64_t begin, int64_t end) const {
    alignas(64) std::byte slots[kMaxSlots * kSlotBytes];
    Chunk chunk{args, slots};
    for (const Uniform& uniform : uniforms_) {
      const void* value =
          uniform.input < 0 ? uniform.value : args.inputs[static_cast<size_t>(uniform.input)];
      fill_uniform(slots + static_cast<size_t>(uniform.slot) * kSlotBytes,
                   value,
                   uniform.size,
                   std::min(kBlock, end - begin));
    }
    for (chunk.at = begin; chunk.at < end; chunk.at += kBlock)
      run_block(chunk, isa, std::min(kBlock, end - chunk.at));
  }

  void run_block(const Chunk& chunk, int isa, int64_t n) const {
    for (const Fill& fill : fills_)
      fill_broadcast(
          chunk.slots + static_cast<size_t>(fill.slot) * kSlotBytes,
          static_cast<const std::byte*>(chunk.args.inputs[static_cast<size_t>(fill.input)]),
          fill,
          chunk.at,
          n);
    for (const Instruction& i : instructions_) {
      const void* a = address(i.operands[0], chunk);
      void* y = address(i.result, chunk);
      if (i.kernel.unary[isa] != nullptr)
        i.kernel.unary[isa](a, y, n);
      else if (i.kernel.binary[isa] != nullptr)
        i.kernel.binary[isa](a, address(i.operands[1], chunk), y, n);
      else
        i.kernel.where[isa](reinterpret_cast<const Bool8*>(a),
                            address(i.operands[1], chunk),
                            address(i.operands[2], chunk),
                            y,
                            n);
    }
    for (const Stored& store : stored_)
      std::memcpy(address({Operand::kOutput, store.output, store.from.size}, chunk),
                  address(store.from, chunk),
                  static_cast<size_t>(n) * store.from.size);
  }

  struct Stored {
    int output = 0;
    Operand from;
  };
  struct ExtraOutput {
    int output = 0;
    int made = 0;
  };

  int64_t count_ = 0;
  bool complete_ = true;
  int slots_ = 0;
  int last_input_read_ = -1;
  std::vector<int> free_, last_read_, output_of_;
  std::vector<ExtraOutput> extra_outputs_;
  std::vector<Operand> operands_;  // by body node
  std::vector<Instruction> instructions_;
  std::vector<Uniform> uniforms_;
  std::vector<Fill> fills_;
  std::vector<Stored> stored_;
};

std::shared_ptr<const BlockProgram> block_program(const Node& node) {
  auto program = std::make_shared<const BlockProgram>(node);
  return program->is_complete() ? program : nullptr;
}

}  // namespace

void add_fused_kernels(KernelTable& table, const KernelTable& (*plain)()) {
  table.add(
      Fused::kTraits.name,
      {"blocks"},
      [](const Node& node) {
        return std::make_unique<HostKernel>(
            [program = block_program(node)](const KernelArgs& args) { program->run(args); });
      },
      [](const Node& node) { return block_program(node) != nullptr; });
  table.add(Fused::kTraits.name, {std::string(kExpandedChoice)}, [plain](const Node& node) {
    return make_expanded(node, plain());
  });
}

}  // namespace ridge::cpu
