#include "ridge/backend/cpu/loops/loop_random.h"

#include <algorithm>

#include "ridge/backend/cpu/cpu_isa.h"
#include "ridge/backend/cpu/dropout_mask.h"
#include "ridge/backend/cpu/staged_reduction.h"
#include "ridge/base/error.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/source.h"

namespace ridge::cpu {
namespace {

constexpr size_t kMostMasks = 4;
constexpr size_t kMostPlaces = 128;  // inputs, or results

const Dropout* dropout_of(const LoopOp& op) { return dynamic_cast<const Dropout*>(op.op.get()); }

// A dropout of the loop and the input with its {seed, step, first sample}.
struct Mask {
  DropoutMask mask;
  size_t rng = 0;
};

// Writes dropout as select(number < threshold, 0, x * scale), a number being an i32 of a stream.
class WithoutDropout {
 public:
  explicit WithoutDropout(const Loop& loop) : inputs_(loop.inputs.size()) {
    made_.inputs = loop.inputs;
    for (const LoopOp& op : loop.ops)
      if (const Dropout* dropout = dropout_of(op)) {
        masks_.push_back(
            {DropoutMask(*dropout, loop.elements), static_cast<size_t>(op.operands[1])});
        made_.inputs.push_back({DType::kI32, false});
      }
    for (const LoopOp& op : loop.ops)
      value_of_.push_back(dropout_of(op) != nullptr ? add_dropout(op) : add_op(op));
    for (LoopResult result : loop.results) {
      result.value = mapped(result.value);
      made_.results.push_back(result);
    }
  }

  const Loop& loop() const { return made_; }
  std::vector<Mask>& masks() { return masks_; }

 private:
  int mapped(int value) const {
    const auto at = static_cast<size_t>(value);
    return at < inputs_ ? value : value_of_[at - inputs_];
  }

  int add(std::shared_ptr<const Op> op, std::vector<int> operands, DType dtype) {
    made_.ops.push_back({std::move(op), std::move(operands), dtype});
    return static_cast<int>(made_.inputs.size() + made_.ops.size()) - 1;
  }

  int add_op(const LoopOp& op) {
    std::vector<int> operands;
    for (const int operand : op.operands) operands.push_back(mapped(operand));
    return add(op.op, std::move(operands), op.dtype);
  }

  int number(DType dtype, double value) {
    auto constant = std::make_shared<Constant>();
    constant->dtype = dtype;
    if (is_float(dtype))
      constant->values = {value};
    else
      constant->ints = {static_cast<int64_t>(value)};
    return add(std::move(constant), {}, dtype);
  }

  int cast(int value, DType to) {
    auto op = std::make_shared<Cast>();
    op->to = to;
    return add(std::move(op), {value}, to);
  }

  int add_dropout(const LoopOp& op) {
    const DropoutMask& mask = masks_[next_].mask;
    const int numbers = static_cast<int>(inputs_ + next_++);
    const int is_dropped = add(
        std::make_shared<Less>(), {numbers, number(DType::kI32, mask.threshold())}, DType::kBool);
    const bool is_half = op.dtype == DType::kF16 || op.dtype == DType::kBF16;
    const DType wide = is_half ? DType::kF32 : op.dtype;
    int x = mapped(op.operands[0]);
    if (is_half) x = cast(x, wide);
    const double scale =
        wide == DType::kF32 ? static_cast<double>(static_cast<float>(mask.scale())) : mask.scale();
    x = add(std::make_shared<Mul>(), {x, number(wide, scale)}, wide);
    if (is_half) x = cast(x, op.dtype);
    return add(std::make_shared<Where>(), {is_dropped, number(op.dtype, 0), x}, op.dtype);
  }

  size_t inputs_;
  size_t next_ = 0;
  Loop made_;
  std::vector<Mask> masks_;
  std::vector<int> value_of_;  // by op of the loop
};

class RandomLoop final : public LoopKernel {
 public:
  RandomLoop(const Loop& loop, std::vector<Mask> masks, std::unique_ptr<LoopKernel> inner)
      : masks_(std::move(masks)), inner_(std::move(inner)) {
    for (const LoopInput& each : loop.inputs)
      input_steps_.push_back(each.uniform ? 0 : size_of(each.dtype));
    for (const LoopResult& each : loop.results) {
      const bool is_stored = each.kind == LoopResult::kStore;
      reduces_ = reduces_ || !is_stored;
      result_steps_.push_back(is_stored ? size_of(loop.dtype_of(each.value)) : 0);
    }
  }

  void run(const LoopArgs& args) const override {
    check_internal(!reduces_ || args.n <= kReduceChunk, "a reduction over dropout is too long");
    alignas(64) int32_t numbers[kMostMasks][kReduceChunk];
    DropoutStream streams[kMostMasks];
    // Results may lie over inputs.
    for (size_t i = 0; i < masks_.size(); ++i)
      streams[i] = masks_[i].mask.stream(static_cast<const int64_t*>(args.inputs[masks_[i].rng]));
    const void* inputs[kMostPlaces + kMostMasks];
    void* results[kMostPlaces];
    for (size_t i = 0; i < masks_.size(); ++i) inputs[input_steps_.size() + i] = numbers[i];
    const RandomKernels& kernels = for_isa(avx2::random_kernels, avx512::random_kernels);
    for (int64_t at = 0; at < args.n; at += kReduceChunk) {
      const int64_t n = std::min(kReduceChunk, args.n - at);
      for (size_t i = 0; i < masks_.size(); ++i)
        kernels.numbers(streams[i], static_cast<uint64_t>(args.first + at), numbers[i], n);
      const auto offset = static_cast<size_t>(at);
      for (size_t i = 0; i < input_steps_.size(); ++i)
        inputs[i] = static_cast<const std::byte*>(args.inputs[i]) + offset * input_steps_[i];
      for (size_t i = 0; i < result_steps_.size(); ++i)
        results[i] = static_cast<std::byte*>(args.results[i]) + offset * result_steps_[i];
      inner_->run({inputs, results, n});
    }
  }

 private:
  std::vector<Mask> masks_;
  std::unique_ptr<LoopKernel> inner_;
  std::vector<size_t> input_steps_, result_steps_;  // bytes from element to element
  bool reduces_ = false;
};

}  // namespace

bool has_dropout(const Loop& loop) {
  return std::any_of(
      loop.ops.begin(), loop.ops.end(), [](const LoopOp& op) { return dropout_of(op) != nullptr; });
}

std::unique_ptr<LoopKernel> make_random_loop(const Loop& loop,
                                             std::unique_ptr<LoopKernel> (*make)(const Loop&)) {
  WithoutDropout plain(loop);
  if (plain.masks().size() > kMostMasks || loop.inputs.size() > kMostPlaces ||
      loop.results.size() > kMostPlaces)
    return nullptr;
  auto inner = make(plain.loop());
  if (inner == nullptr) return nullptr;
  return std::make_unique<RandomLoop>(loop, std::move(plain.masks()), std::move(inner));
}

}  // namespace ridge::cpu
