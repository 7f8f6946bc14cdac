#include "ridge/backend/cpu/loops/fused_flat.h"

#include <algorithm>
#include <numeric>

#include "ridge/base/cpu/parallel.h"
#include "ridge/graph/ops/random.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"

namespace ridge::cpu {
namespace {

constexpr int64_t kGrain = 16384;  // elements a thread takes at a time: whole chunks of reductions
constexpr int64_t kFilled = 512;   // elements of a broadcast input that are written out at a time
constexpr int64_t kVector = 16;    // elements of the longest vector
constexpr int64_t kShortestRun = 256;  // elements of a broadcast input that is read where it lies
constexpr size_t kFilledBytes = 128 << 10;
constexpr size_t kMostValues = 128;

static_assert(kGrain % kReduceChunk == 0);

size_t id(const Node& node) { return static_cast<size_t>(node.id); }

std::vector<int64_t> axes_of(const Node& node) {
  if (node.is<ReduceSum>()) return node.op_as<ReduceSum>().axes;
  if (node.is<ReduceMean>()) return node.op_as<ReduceMean>().axes;
  return node.op_as<ReduceMax>().axes;
}

// After so many elements of the larger tensor the smaller one is read from its beginning again.
int64_t period_of(const BroadcastMap& map) {
  size_t outer = map.axes.size();
  while (outer > 0 && map.axes[outer - 1].stride == 0) --outer;
  int64_t period = 1;
  for (size_t i = 0; i < outer; ++i) period *= map.axes[i].size;
  return period;
}

// The most elements up to kFilled after which all of them begin again, in whole vectors if that
// can be; 0 where that takes more.
int64_t repeating_step(int64_t period) {
  for (const int64_t unit : {std::lcm(period, kVector), period})
    if (unit <= kFilled) return kFilled / unit * unit;
  return 0;
}

// A body reads smaller inputs by broadcasts alone.
bool is_loop_input(const Node& node, int64_t count) {
  return node.is<Broadcast>() || (node.is<Input>() && node.outputs[0].elements() == count);
}

}  // namespace

FlatProgram::FlatProgram(const FusedBody& body, MakeLoop make_loop)
    : count_(body.domain.elements), value_of_(body.graph.nodes().size(), -1) {
  for (const auto& node : body.graph.nodes())
    if (is_loop_input(*node, count_)) value_of_[id(*node)] = add_input(*node);
  for (const auto& node : body.graph.nodes())
    if (node->is<Dropout>()) add_random_state(*node->inputs[1].node);
  loop_.elements = count_;
  for (const auto& node : body.graph.nodes())
    if (body.role(*node) == LoopRole::kUniform ||
        (is_domain(body.role(*node)) && !node->is<Broadcast>()))
      value_of_[id(*node)] = add_op(*node);
  for (const Output& output : body.graph.outputs()) add_result(body, *output.value.node);
  choose_step();
  const size_t filled = static_cast<size_t>(fills_) * static_cast<size_t>(step_) * sizeof(double);
  if (filled <= kFilledBytes && loop_.inputs.size() <= kMostValues &&
      loop_.results.size() <= kMostValues)
    kernel_ = make_loop(loop_);
}

int FlatProgram::add_input(const Node& node) {
  const Node& source = node.is<Broadcast>() ? *node.inputs[0].node : node;
  const DType dtype = node.outputs[0].dtype;
  BroadcastMap map(source.outputs[0].shape, node.outputs[0].shape);
  const size_t size = size_of(dtype);
  const bool is_uniform = map.is_uniform();
  loop_.inputs.push_back({dtype, is_uniform});
  sources_.push_back({input_number(source), size, is_uniform ? 0 : size, -1, std::move(map)});
  return static_cast<int>(loop_.inputs.size()) - 1;
}

// {seed, step, first sample} of dropouts.
void FlatProgram::add_random_state(const Node& node) {
  const auto [at, is_new] =
      random_states_.try_emplace(input_number(node), static_cast<int>(loop_.inputs.size()));
  if (!is_new) return;
  loop_.inputs.push_back({DType::kI64, true});
  sources_.push_back({at->first, sizeof(int64_t), 0, -1, BroadcastMap({}, {count_})});
}

int FlatProgram::add_op(const Node& node) {
  if (node.is<Reshape>()) return value_of_[id(*node.inputs[0].node)];
  LoopOp op{.op = node.op, .operands = {}, .dtype = node.outputs[0].dtype};
  for (const Value& input : node.inputs) op.operands.push_back(value_of_[id(*input.node)]);
  if (node.is<Dropout>()) op.operands[1] = random_states_.at(input_number(*node.inputs[1].node));
  loop_.ops.push_back(std::move(op));
  return static_cast<int>(loop_.inputs.size() + loop_.ops.size()) - 1;
}

void FlatProgram::add_result(const FusedBody& body, const Node& node) {
  if (body.role(node) != LoopRole::kTotal) {
    loop_.results.push_back({value_of_[id(node)]});
    result_sizes_.push_back(size_of(node.outputs[0].dtype));
    return;
  }
  const bool is_max = node.is<ReduceMax>();
  const double divisor = node.is<ReduceMean>() ? static_cast<double>(count_) : 1.0;
  totals_.push_back({loop_.results.size(),
                     size_of(node.outputs[0].dtype),
                     StagedReduction(node.inputs[0].type(),
                                     axes_of(node),
                                     is_max ? StagedReduction::kMax : StagedReduction::kSum,
                                     divisor),
                     workspace_bytes_});
  workspace_bytes_ += totals_.back().reduction.workspace_bytes();
  const int value = value_of_[id(*node.inputs[0].node)];
  loop_.results.push_back({value, is_max ? LoopResult::kMax : LoopResult::kSum});
  result_sizes_.push_back(0);
}

// Broadcast inputs whose runs are long are read where they lie, run by run; others are written out.
void FlatProgram::choose_step() {
  int64_t run = 0, period = 1;
  for (Source& source : sources_) {
    const BroadcastMap& map = source.map;
    if (map.is_uniform() || (map.axes.size() == 1 && map.axes[0].stride == 1)) continue;
    source.fill = fills_++;
    run = run == 0 ? map.run() : std::min(run, map.run());
    if (period <= kFilled) period = std::lcm(period, std::min(period_of(map), kFilled + 1));
  }
  if (!totals_.empty()) step_ = kReduceChunk;
  if (fills_ == 0) return;
  const bool nests = std::all_of(sources_.begin(), sources_.end(), [&](const Source& source) {
    return source.fill < 0 || source.map.run() % run == 0;
  });
  if (!totals_.empty() || run < kShortestRun || !nests) {
    if (totals_.empty()) step_ = repeating_step(period);
    if (step_ == 0) step_ = kFilled;
    repeats_ = step_ % period == 0;
    return;
  }
  step_ = run;
  fills_ = 0;
  for (size_t i = 0; i < sources_.size(); ++i) {
    if (sources_[i].fill >= 0) loop_.inputs[i].uniform = sources_[i].map.axes[0].stride == 0;
    sources_[i].fill = -1;
  }
}

void* FlatProgram::workspace(const KernelArgs& args, const Total& total) const {
  return static_cast<std::byte*>(args.workspace) + total.workspace;
}

void FlatProgram::run(const KernelArgs& args) const {
  // A thread's share ends where a run does.
  const int64_t grain = step_ == 0 ? kGrain : std::max<int64_t>(1, kGrain / step_) * step_;
  parallel_for(count_, grain, [&](int64_t begin, int64_t end) { run_range(args, begin, end); });
  for (const Total& total : totals_)
    total.reduction.finish(args.outputs[total.result], workspace(args, total));
}

void FlatProgram::run_range(const KernelArgs& args, int64_t begin, int64_t end) const {
  alignas(64) std::byte filled[kFilledBytes];
  for (int64_t at = begin; at < end;) {
    // A piece ends where a run does.
    int64_t n = end - at;
    if (step_ != 0) n = std::min(n, repeats_ ? step_ : step_ - at % step_);
    if (at == begin || !repeats_) fill(args, at, n, filled);
    run_piece(args, at, n, filled);
    at += n;
  }
}

void FlatProgram::fill(const KernelArgs& args, int64_t begin, int64_t n, std::byte* filled) const {
  for (const Source& source : sources_)
    if (source.fill >= 0)
      fill_broadcast(filled + static_cast<size_t>(source.fill * step_) * sizeof(double),
                     args.inputs[source.index],
                     source.map,
                     source.size,
                     begin,
                     n);
}

void FlatProgram::run_piece(const KernelArgs& args,
                            int64_t begin,
                            int64_t n,
                            std::byte* filled) const {
  const void* inputs[kMostValues];
  void* results[kMostValues];
  for (size_t i = 0; i < sources_.size(); ++i) {
    const Source& source = sources_[i];
    const auto* from = static_cast<const std::byte*>(args.inputs[source.index]);
    inputs[i] = from;
    if (source.fill >= 0) {
      inputs[i] = filled + static_cast<size_t>(source.fill * step_) * sizeof(double);
    } else if (source.step != 0) {
      inputs[i] = from + static_cast<size_t>(source.map.source(begin)) * source.size;
    }
  }
  for (size_t i = 0; i < loop_.results.size(); ++i)
    results[i] =
        static_cast<std::byte*>(args.outputs[i]) + static_cast<size_t>(begin) * result_sizes_[i];
  for (const Total& total : totals_)
    results[total.result] = static_cast<std::byte*>(total.reduction.first_results(
                                args.outputs[total.result], workspace(args, total))) +
                            static_cast<size_t>(begin / kReduceChunk) * total.size;
  kernel_->run({inputs, results, n, begin});
}

}  // namespace ridge::cpu
