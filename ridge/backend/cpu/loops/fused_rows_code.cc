#include "ridge/backend/cpu/loops/fused_rows_code.h"

#include <algorithm>
#include <optional>
#include <set>

#include "ridge/backend/cpu/cache_size.h"
#include "ridge/backend/cpu/cpu_isa.h"
#include "ridge/backend/cpu/jit/lower.h"
#include "ridge/base/alignment.h"
#include "ridge/graph/ops/elementwise.h"

namespace ridge::cpu {
namespace {

constexpr int64_t kMostColumns = kReduceChunk;  // one chunk: its lanes are the whole reduction
constexpr size_t kLanesBytes = jit::kMostReductions * jit::kLaneBytes;

// Elements of the source from one row to the next; nothing where rows are not evenly spaced.
std::optional<int64_t> row_step(const BroadcastMap& map, int64_t columns) {
  const auto& axes = map.axes;
  if (axes.size() == 1) return axes[0].stride * columns;
  if (axes.size() == 2 && axes[0].size == columns) return axes[1].stride;
  return std::nullopt;
}

bool is_read(const RowPlan& plan, const RowPlace& place) {
  return std::any_of(plan.passes.begin(), plan.passes.end(), [&](const RowPass& pass) {
    const auto& inputs = pass.elements.inputs;
    return std::find(inputs.begin(), inputs.end(), place) != inputs.end();
  });
}

// A sum over rows as a part of a pass: the partial results are read and written as one row more.
struct Added {
  int sum;
  int value;  // number of the value in the pass's loop
  DType dtype;
};

}  // namespace

// Turns a plan into programs and pointers.
class RowCode::Builder {
 public:
  Builder(const RowPlan& plan, RowCode& made) : plan_(plan), made_(made) {}

  bool build(jit::Target target) {
    target_ = target;
    rows_.columns = static_cast<int>(plan_.columns);
    for (size_t level = 0; level < plan_.passes.size(); ++level)
      if (!add_values(plan_.values[level]) || !add_pass(level)) return false;
    if (made_.pointers_.size() > jit::kMostRowPointers) return false;
    for (const Pointer& pointer : made_.pointers_)
      rows_.steps.push_back(static_cast<int32_t>(pointer.step));
    lay_out();
    made_.code_ = jit::compile_rows(rows_, target, false);
    if (!made_.streamed_.empty()) made_.streaming_ = jit::compile_rows(rows_, target, true);
    return made_.code_ != nullptr && (made_.streamed_.empty() || made_.streaming_ != nullptr);
  }

 private:
  // False where rows are not evenly spaced.
  bool add_pointer(const RowPlace& place, std::vector<int>& to) {
    auto& all = made_.pointers_;
    const auto known = std::find_if(
        all.begin(), all.end(), [&](const Pointer& p) { return p.sum < 0 && p.place == place; });
    to.push_back(static_cast<int>(known - all.begin()));
    if (known != all.end()) return true;
    const auto size = static_cast<int64_t>(place.size);
    int64_t step = 0;
    switch (place.kind) {
      case RowPlace::kInput:
      case RowPlace::kOutput:
        step = plan_.columns * size;
        break;
      case RowPlace::kRowInput:
      case RowPlace::kRowOutput:
      case RowPlace::kRowTotal:
        step = size;
        break;
      case RowPlace::kMapped:
        if (!row_step(*place.map, plan_.columns)) return false;
        step = *row_step(*place.map, plan_.columns) * size;
        break;
      case RowPlace::kMark:
        return false;
      default:
        break;
    }
    all.push_back({place, -1, step});
    return true;
  }

  bool add_values(const RowLoop& values) {
    if (values.kernel == nullptr) return true;
    Loop loop = values.loop;
    for (LoopInput& input : loop.inputs) input.uniform = true;
    jit::RowsProgram::Part part;
    for (const RowPlace& place : values.inputs)
      if (!add_pointer(place, part.inputs)) return false;
    for (const RowPlace& place : values.results)
      if (!add_pointer(place, part.results)) return false;
    return add_part(loop, std::move(part));
  }

  bool add_part(const Loop& loop, jit::RowsProgram::Part part) {
    auto program = jit::lower(loop, target_ == jit::Target::kAvx512);
    if (!program) return false;
    part.program = std::move(*program);
    rows_.parts.push_back(std::move(part));
    return true;
  }

  bool add_pass(size_t level) {
    const RowLoop& pass = plan_.passes[level].elements;
    if (!plan_.passes[level].picks.empty()) return false;
    Loop loop = pass.loop;
    loop.results.clear();
    jit::RowsProgram::Part part;
    part.is_pass = true;
    std::vector<Added> added;
    for (const RowPlace& place : pass.inputs)
      if (!add_pointer(place, part.inputs)) return false;
    for (size_t i = 0; i < pass.results.size(); ++i) {
      const RowPlace& place = pass.results[i];
      add_sums_of(place, pass.loop.results[i].value, added);
      // A row that is kept for its sum alone is added where it is made.
      if (place.kind == RowPlace::kKept && !is_read(plan_, place)) continue;
      if (!add_pointer(place, part.results)) return false;
      loop.results.push_back(pass.loop.results[i]);
      loop.results.back().streamed = is_streamed(place, part.results.back());
    }
    add_sums_of_inputs(level, loop, part, added);
    add_sums(loop, part, added);
    return loop.results.empty() || add_part(loop, std::move(part));
  }

  bool is_streamed(const RowPlace& place, int pointer) {
    const size_t row = place.size * static_cast<size_t>(plan_.columns);
    if (place.kind != RowPlace::kOutput || row % 64 != 0 || is_read(plan_, place) ||
        !outgrows_caches(row * static_cast<size_t>(plan_.rows)))
      return false;
    made_.streamed_.push_back(static_cast<size_t>(pointer));
    return true;
  }

  void add_sums_of(const RowPlace& place, int value, std::vector<Added>& added) const {
    for (size_t i = 0; i < plan_.sums.size(); ++i)
      if (plan_.sums[i].rows == place)
        added.push_back({static_cast<int>(i), value, static_cast<DType>(plan_.sums[i].dtype)});
  }

  // Sums of inputs belong to the first pass that reads them, before a result is written over them.
  void add_sums_of_inputs(size_t level,
                          Loop& loop,
                          jit::RowsProgram::Part& part,
                          std::vector<Added>& added) {
    for (const ColumnSum& sum : plan_.sums) {
      if (sum.rows.kind != RowPlace::kInput) continue;
      const bool is_new = summed_.insert(sum.rows.index).second;
      if (!is_new) continue;
      const auto& inputs = plan_.passes[level].elements.inputs;
      const auto at = std::find(inputs.begin(), inputs.end(), sum.rows);
      if (at != inputs.end()) {
        add_sums_of(sum.rows, static_cast<int>(at - inputs.begin()), added);
      } else if (level == 0 && !is_read(plan_, sum.rows)) {
        add_sums_of(sum.rows, add_input(loop, static_cast<DType>(sum.dtype)), added);
        add_pointer(sum.rows, part.inputs);
      } else {
        summed_.erase(sum.rows.index);
      }
    }
  }

  // Ops are numbered behind the inputs: one more of these moves them on.
  static int add_input(Loop& loop, DType dtype) {
    const auto number = static_cast<int>(loop.inputs.size());
    const auto move = [&](int& value) { value += value >= number ? 1 : 0; };
    for (LoopOp& op : loop.ops) std::for_each(op.operands.begin(), op.operands.end(), move);
    for (LoopResult& result : loop.results) move(result.value);
    loop.inputs.push_back({dtype, false});
    return number;
  }

  void add_sums(Loop& loop, jit::RowsProgram::Part& part, std::vector<Added>& added) {
    std::vector<int> partial;
    for (const Added& each : added) {
      const int number = add_input(loop, each.dtype);
      for (Added& other : added) other.value += other.value >= number ? 1 : 0;
      partial.push_back(number);
      part.inputs.push_back(static_cast<int>(made_.pointers_.size()));
      made_.pointers_.push_back({{}, each.sum, 0});
    }
    for (size_t i = 0; i < added.size(); ++i) {
      loop.ops.push_back({std::make_shared<Add>(), {partial[i], added[i].value}, added[i].dtype});
      loop.results.push_back({.value = static_cast<int>(loop.inputs.size() + loop.ops.size()) - 1});
      part.results.push_back(part.inputs[static_cast<size_t>(partial[i])]);
    }
  }

  void lay_out() {
    made_.values_bytes_ = aligned_bytes(plan_.value_count * sizeof(double));
    for (const size_t size : plan_.kept) {
      made_.kept_offsets_.push_back(made_.kept_bytes_);
      made_.kept_bytes_ += aligned_bytes(size * static_cast<size_t>(plan_.columns));
    }
  }

  const RowPlan& plan_;
  RowCode& made_;
  jit::Target target_{};
  jit::RowsProgram rows_;
  std::set<size_t> summed_;  // inputs
};

std::unique_ptr<const RowCode> RowCode::make(const RowPlan& plan) {
  if (plan.columns > kMostColumns || plan.mark) return nullptr;
  std::unique_ptr<RowCode> made(new RowCode);
  const bool avx512 = has_avx512();
  if (!Builder(plan, *made).build(avx512 ? jit::Target::kAvx512 : jit::Target::kAvx2))
    return nullptr;
  return made;
}

size_t RowCode::scratch_bytes() const {
  return jit::kWorkBytes + kLanesBytes + values_bytes_ + kept_bytes_;
}

std::byte* RowCode::address(const Pointer& pointer,
                            const KernelArgs& args,
                            std::byte* scratch,
                            void* const* partial,
                            int64_t first) const {
  if (pointer.sum >= 0) return static_cast<std::byte*>(partial[pointer.sum]);
  const RowPlace& place = pointer.place;
  std::byte* const own = scratch + jit::kWorkBytes + kLanesBytes;
  const auto moved = [&](const void* base) {
    return static_cast<std::byte*>(const_cast<void*>(base)) + first * pointer.step;
  };
  switch (place.kind) {
    case RowPlace::kOutput:
    case RowPlace::kRowOutput:
      return moved(args.outputs[place.index]);
    case RowPlace::kRowTotal:
      return moved(static_cast<const std::byte*>(args.workspace) + place.index);
    case RowPlace::kValue:
      return own + place.index * sizeof(double);
    case RowPlace::kKept:
      return own + values_bytes_ + kept_offsets_[place.index];
    default:
      return moved(args.inputs[place.index]);
  }
}

// Whether the results that should be stored past the caches can be: aligned, and not over inputs,
// which lie in the caches already.
bool RowCode::streams(const KernelArgs& args, const std::byte* const* pointers) const {
  if (streaming_ == nullptr) return false;
  return std::all_of(streamed_.begin(), streamed_.end(), [&](size_t result) {
    const void* const to = args.outputs[pointers_[result].place.index];
    const bool is_over = std::any_of(pointers_.begin(), pointers_.end(), [&](const Pointer& p) {
      return p.sum < 0 && p.place.kind == RowPlace::kInput && args.inputs[p.place.index] == to;
    });
    return !is_over && reinterpret_cast<uintptr_t>(pointers[result]) % 64 == 0;
  });
}

void RowCode::run(const KernelArgs& args,
                  std::byte* scratch,
                  void* const* partial,
                  int64_t first,
                  int64_t count) const {
  auto** const pointers = reinterpret_cast<std::byte**>(scratch);
  for (size_t i = 0; i < pointers_.size(); ++i)
    pointers[i] = address(pointers_[i], args, scratch, partial, first);
  const jit::RowsCode& code = streams(args, pointers) ? *streaming_ : *code_;
  code.run({scratch, scratch + jit::kWorkBytes, count});
}

}  // namespace ridge::cpu
