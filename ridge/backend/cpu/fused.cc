// Fused elementwise bodies, block by block: the values of a block stay in the first cache, each
// input is read once and each result written once.
#include "ridge/graph/ops/fused.h"

#include <algorithm>
#include <cstring>

#include "ridge/backend/cpu/cpu_kernels.h"
#include "ridge/backend/cpu/loop.h"
#include "ridge/base/parallel.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "ridge/graph/tensor.h"
#include "ridge/graph/text.h"

namespace ridge::cpu {
namespace {

constexpr int64_t kBlock = 512;    // elements of a block
constexpr int64_t kGrain = 16384;  // elements a thread takes at a time
constexpr size_t kMostFills = 32;

// How element e of the domain reads a smaller tensor: dimensions from the innermost out, the stride
// in elements.
struct BroadcastMap {
  struct Axis {
    int64_t size, stride;
  };
  std::vector<Axis> axes;
};

// A broadcast input, read as a stream that is filled for every block.
struct Fill {
  size_t input = 0;   // of the loop
  size_t source = 0;  // of the node
  size_t size = 0;
  BroadcastMap map;
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

using MakeLoop = std::unique_ptr<LoopKernel> (*)(const Loop&);

// A body as a loop, and how its inputs are read.
class FusedProgram {
 public:
  // Leaves is_complete() false where an op has no block kernel or the body is too large.
  FusedProgram(const Node& node, MakeLoop make) {
    const Graph body = parse_graph(node.op_as<Fused>().body, "fused body");
    count_ = node.outputs[0].elements();
    std::vector<int> value_of(body.nodes().size(), -1);
    for (const auto& each : body.nodes())
      if (is_loop_input(*each) && each->outputs[0].shape == node.outputs[0].shape)
        value_of[id(*each)] = add_input(*each);
    for (const auto& each : body.nodes())
      if (!is_loop_input(*each)) value_of[id(*each)] = add_op(*each, value_of);
    for (const Output& output : body.outputs())
      loop_.results.push_back({value_of[id(*output.value.node)]});
    if (fills_.size() <= kMostFills) kernel_ = make(loop_);
  }

  bool is_complete() const { return kernel_ != nullptr; }

  void run(const KernelArgs& args) const {
    parallel_for(count_, kGrain, [&](int64_t begin, int64_t end) { run_chunk(args, begin, end); });
  }

 private:
  static constexpr size_t kMostArgs = size_t{1} << 10;

  static size_t id(const Node& node) { return static_cast<size_t>(node.id); }

  // Smaller inputs are read by broadcasts alone.
  static bool is_loop_input(const Node& node) { return node.is<Input>() || node.is<Broadcast>(); }

  int add_input(const Node& node) {
    const Node& source = node.is<Broadcast>() ? *node.inputs[0].node : node;
    const size_t index = std::stoul(source.op_as<Input>().input_name);
    const bool is_uniform = source.outputs[0].elements() == 1;
    const DType dtype = node.outputs[0].dtype;
    const size_t input = loop_.inputs.size();
    loop_.inputs.push_back({dtype, is_uniform});
    sources_.push_back({index, is_uniform ? 0 : size_of(dtype)});
    if (node.is<Broadcast>() && !is_uniform)
      fills_.push_back({input,
                        index,
                        size_of(dtype),
                        broadcast_map(source.outputs[0].shape, node.outputs[0].shape)});
    return static_cast<int>(input);
  }

  int add_op(const Node& node, const std::vector<int>& value_of) {
    LoopOp op{.op = node.op, .operands = {}, .dtype = node.outputs[0].dtype};
    for (const Value& input : node.inputs) op.operands.push_back(value_of[id(*input.node)]);
    loop_.ops.push_back(std::move(op));
    return static_cast<int>(loop_.inputs.size() + loop_.ops.size()) - 1;
  }

  void run_chunk(const KernelArgs& args, int64_t begin, int64_t end) const {
    const int64_t step = fills_.empty() ? end - begin : kBlock;
    for (int64_t at = begin; at < end; at += step) run_block(args, at, std::min(step, end - at));
  }

  void run_block(const KernelArgs& args, int64_t begin, int64_t n) const {
    alignas(64) std::byte filled[kMostFills][kBlock * sizeof(double)];
    const void* inputs[kMostArgs];
    void* results[kMostArgs];
    for (size_t i = 0; i < sources_.size(); ++i)
      inputs[i] = static_cast<const std::byte*>(args.inputs[sources_[i].index]) +
                  static_cast<size_t>(begin) * sources_[i].step;
    for (size_t i = 0; i < loop_.results.size(); ++i)
      results[i] =
          static_cast<std::byte*>(args.outputs[i]) + static_cast<size_t>(begin) * result_size(i);
    for (size_t i = 0; i < fills_.size(); ++i) {
      const Fill& fill = fills_[i];
      fill_broadcast(
          filled[i], static_cast<const std::byte*>(args.inputs[fill.source]), fill, begin, n);
      inputs[fill.input] = filled[i];
    }
    kernel_->run({inputs, results, n});
  }

  size_t result_size(size_t i) const {
    const auto value = static_cast<size_t>(loop_.results[i].value);
    const size_t inputs = loop_.inputs.size();
    return size_of(value < inputs ? loop_.inputs[value].dtype : loop_.ops[value - inputs].dtype);
  }

  struct Source {
    size_t index = 0;  // of the node's input
    size_t step = 0;   // bytes from one element to the next
  };

  int64_t count_ = 0;
  Loop loop_;
  std::vector<Source> sources_;  // by input of the loop
  std::vector<Fill> fills_;
  std::unique_ptr<LoopKernel> kernel_;
};

std::shared_ptr<const FusedProgram> fused_program(const Node& node, MakeLoop make) {
  auto program = std::make_shared<const FusedProgram>(node, make);
  return program->is_complete() ? program : nullptr;
}

void add_loops(KernelTable& table, std::string name, MakeLoop make) {
  table.add(
      Fused::kTraits.name,
      {std::move(name)},
      [make](const Node& node) {
        return std::make_unique<HostKernel>(
            [program = fused_program(node, make)](const KernelArgs& args) { program->run(args); });
      },
      [make](const Node& node) { return fused_program(node, make) != nullptr; });
}

}  // namespace

void add_fused_kernels(KernelTable& table, const KernelTable& (*plain)()) {
  add_loops(table, "jit", make_jit_loop);
  add_loops(table, "blocks", make_block_loop);
  table.add(Fused::kTraits.name, {std::string(kExpandedChoice)}, [plain](const Node& node) {
    return make_expanded(node, plain());
  });
}

}  // namespace ridge::cpu
