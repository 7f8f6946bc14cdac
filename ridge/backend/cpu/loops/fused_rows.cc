#include "ridge/backend/cpu/loops/fused_rows.h"

#include <algorithm>
#include <cstring>

#include "ridge/backend/cpu/cpu_isa.h"
#include "ridge/backend/cpu/loops/fused_rows_code.h"
#include "ridge/base/alignment.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/base/error.h"

namespace ridge::cpu {
namespace {

constexpr int64_t kGrain = 16384;         // elements that a thread takes at a time
constexpr int64_t kMostBatch = 64;        // rows of a batch
constexpr size_t kBatchBytes = 96 << 10;  // bytes of a batch, for the second-level cache

size_t kept_row_bytes(const RowPlan& plan) {
  size_t bytes = 0;
  for (const size_t size : plan.kept) bytes += size * static_cast<size_t>(plan.columns);
  return bytes;
}

// Bytes that the passes read and write of a row; at least 1.
size_t row_bytes(const RowPlan& plan) {
  size_t bytes = kept_row_bytes(plan);
  for (const RowPass& pass : plan.passes)
    for (const auto* places : {&pass.elements.inputs, &pass.elements.results})
      for (const RowPlace& place : *places)
        if (place.kind == RowPlace::kInput || place.kind == RowPlace::kOutput)
          bytes += place.size * static_cast<size_t>(plan.columns);
  return std::max<size_t>(bytes, 1);
}

bool reduces(const RowLoop& loop) {
  return std::any_of(loop.loop.results.begin(), loop.loop.results.end(), [](const LoopResult& r) {
    return r.kind != LoopResult::kStore;
  });
}

// Calls f with so many bytes of the stack.
template <size_t kBytes, class F>
[[gnu::noinline]] void with_stack(F& f) {
  alignas(64) std::byte bytes[kBytes];
  f(bytes);
}

template <class F>
void with_scratch(size_t bytes, F f) {
  if (bytes <= 64 << 10) return with_stack<64 << 10>(f);
  if (bytes <= 512 << 10) return with_stack<512 << 10>(f);
  with_stack<RowProgram::kMostScratch>(f);
}

}  // namespace

RowProgram::~RowProgram() = default;

RowProgram::RowProgram(RowPlan plan, std::unique_ptr<const RowCode> code)
    : plan_(std::move(plan)), code_(std::move(code)) {
  const auto fitting = static_cast<int64_t>(kBatchBytes / row_bytes(plan_));
  batch_ = std::clamp<int64_t>(fitting, 1, std::min(kMostBatch, plan_.rows));
  task_rows_ = std::max<int64_t>(1, kGrain / plan_.columns);
  if (!plan_.sums.empty()) task_rows_ = plan_.sums[0].reduction.first_chunk();
  batch_ = std::min(batch_, task_rows_);
  values_bytes_ =
      aligned_bytes(plan_.value_count * static_cast<size_t>(kMostBatch) * sizeof(double));
  for (const size_t size : plan_.kept) {
    kept_offsets_.push_back(kept_bytes_);
    kept_bytes_ += aligned_bytes(size * static_cast<size_t>(batch_ * plan_.columns));
  }
  // Partial results of the pieces of a row, and what is computed at a mark.
  const int64_t pieces = (plan_.columns + kReduceChunk - 1) / kReduceChunk;
  partial_bytes_ =
      kMostRowPlaces * sizeof(double) * static_cast<size_t>(std::max<int64_t>(1, pieces));
  for (int type = 0; type < 2; ++type)
    for (int is_max = 0; is_max < 2; ++is_max) {
      Loop loop;
      loop.inputs.push_back({static_cast<DType>(type), false});
      loop.results.push_back({0, is_max == 1 ? LoopResult::kMax : LoopResult::kSum});
      combine_[type][is_max] = make_block_loop(loop);
    }
}

void RowProgram::run(const KernelArgs& args) const {
  parallel_for(plan_.rows, task_rows_, [&](int64_t begin, int64_t end) {
    const size_t bytes = code_ != nullptr ? code_->scratch_bytes() : scratch_bytes();
    with_scratch(bytes, [&](std::byte* scratch) {
      code_ != nullptr ? run_code(args, scratch, begin, end) : run_rows(args, scratch, begin, end);
    });
  });
  auto* workspace = static_cast<std::byte*>(args.workspace);
  for (const ColumnSum& sum : plan_.sums)
    sum.reduction.finish(args.outputs[sum.output], workspace + sum.workspace);
  for (const RowTotal& total : plan_.totals)
    total.reduction.run(
        workspace + total.values, args.outputs[total.output], workspace + total.workspace);
}

void RowProgram::run_rows(const KernelArgs& args,
                          std::byte* scratch,
                          int64_t begin,
                          int64_t end) const {
  for (int64_t first = begin; first < end; first += batch_) {
    const Batch batch{args, scratch, first, std::min(batch_, end - first)};
    // Before a result may be written over them.
    add_to_sums(batch, RowPlace::kInput);
    for (size_t level = 0; level < plan_.passes.size(); ++level) {
      run_values(plan_.values[level], batch);
      run_pass(plan_.passes[level], batch);
    }
    add_to_sums(batch, RowPlace::kOutput);
    add_to_sums(batch, RowPlace::kKept);
  }
}

void RowProgram::run_code(const KernelArgs& args,
                          std::byte* scratch,
                          int64_t begin,
                          int64_t end) const {
  void* partials[jit::kMostRowPointers];
  for (size_t i = 0; i < plan_.sums.size(); ++i) {
    const ColumnSum& sum = plan_.sums[i];
    partials[i] = partial(sum, args, begin);
    std::memset(partials[i], 0, static_cast<size_t>(plan_.columns) * sum.rows.size);
  }
  code_->run(args, scratch, partials, begin, end - begin);
}

// The first element of a row, or the row's own element.
std::byte* RowProgram::address(const RowPlace& place, const Batch& batch, int64_t row) const {
  const auto at = [&](const void* base, int64_t index) {
    return static_cast<std::byte*>(const_cast<void*>(base)) +
           static_cast<size_t>(index) * place.size;
  };
  const int64_t number = batch.first + row;
  switch (place.kind) {
    case RowPlace::kInput:
      return at(batch.args.inputs[place.index], number * plan_.columns);
    case RowPlace::kOutput:
      return at(batch.args.outputs[place.index], number * plan_.columns);
    case RowPlace::kMapped:
      return at(batch.args.inputs[place.index], place.map->source(number * plan_.columns));
    case RowPlace::kKept:
      return at(batch.scratch + values_bytes_ + kept_offsets_[place.index], row * plan_.columns);
    case RowPlace::kValue:
      return at(batch.scratch + place.index * static_cast<size_t>(kMostBatch) * sizeof(double),
                row);
    case RowPlace::kRowInput:
      return at(batch.args.inputs[place.index], number);
    case RowPlace::kRowOutput:
      return at(batch.args.outputs[place.index], number);
    case RowPlace::kRowTotal:
      return at(static_cast<const std::byte*>(batch.args.workspace) + place.index, number);
    case RowPlace::kScalar:
      return at(batch.args.inputs[place.index], 0);
    case RowPlace::kMark:
      break;
  }
  static const double zero = 0.0;
  return at(&zero, 0);
}

void RowProgram::run_values(const RowLoop& loop, const Batch& batch) const {
  if (loop.kernel == nullptr) return;
  const void* inputs[kMostRowPlaces];
  void* results[kMostRowPlaces];
  for (size_t i = 0; i < loop.inputs.size(); ++i) inputs[i] = address(loop.inputs[i], batch, 0);
  for (size_t i = 0; i < loop.results.size(); ++i) results[i] = address(loop.results[i], batch, 0);
  loop.kernel->run({inputs, results, batch.count});
}

int64_t RowProgram::column_of(const RowPlace& place,
                              bool is_i64,
                              const Batch& batch,
                              int64_t row) const {
  const void* from = address(place, batch, row);
  return is_i64 ? *static_cast<const int64_t*>(from) : *static_cast<const int32_t*>(from);
}

void RowProgram::pick(const RowPick& pick, const Batch& batch, int64_t row) const {
  const int64_t column = column_of(pick.index, pick.is_i64, batch, row);
  if (column < 0 || column >= pick.limit) [[unlikely]] {
    Shape position(pick.shape.size());
    int64_t number = batch.first + row;
    for (size_t i = position.size(); i-- > 0; number /= pick.shape[i])
      position[i] = number % pick.shape[i];
    throw UserError(fmt::format("[pick] index {} at {} is out of range; expected 0 to {}",
                                column,
                                to_string(position),
                                pick.limit - 1));
  }
  const std::byte* from = address({RowPlace::kInput, pick.input, pick.size}, batch, row);
  std::memcpy(address({RowPlace::kValue, pick.value, pick.size}, batch, row),
              from + static_cast<size_t>(column) * pick.size,
              pick.size);
}

void RowProgram::run_pass(const RowPass& pass, const Batch& batch) const {
  const RowLoop& loop = pass.elements;
  for (int64_t row = 0; row < batch.count; ++row)
    for (const RowPick& each : pass.picks) pick(each, batch, row);
  if (loop.kernel == nullptr) return;
  const bool is_marked = std::any_of(loop.inputs.begin(), loop.inputs.end(), [](const auto& place) {
    return place.kind == RowPlace::kMark;
  });
  const void* inputs[kMostRowPlaces];
  void* results[kMostRowPlaces];
  std::byte* partial = batch.scratch + values_bytes_ + kept_bytes_;
  for (int64_t row = 0; row < batch.count; ++row) {
    if (is_marked) {
      run_marked(loop, batch, row);
      continue;
    }
    for (size_t i = 0; i < loop.inputs.size(); ++i) inputs[i] = address(loop.inputs[i], batch, row);
    for (size_t i = 0; i < loop.results.size(); ++i)
      results[i] = address(loop.results[i], batch, row);
    run_row(loop, inputs, results, partial);
  }
}

// All columns as if none were marked, and the marked one once more, before anything is written over
// what it reads.
void RowProgram::run_marked(const RowLoop& loop, const Batch& batch, int64_t row) const {
  const void *inputs[kMostRowPlaces], *marked_inputs[kMostRowPlaces];
  void *results[kMostRowPlaces], *marked_results[kMostRowPlaces];
  double marked[kMostRowPlaces];
  const int64_t column = column_of(*plan_.mark, plan_.mark_is_i64, batch, row);
  const bool is_there = column >= 0 && column < plan_.columns;
  for (size_t i = 0; i < loop.inputs.size(); ++i) {
    const RowPlace& place = loop.inputs[i];
    const std::byte* from = address(place, batch, row);
    inputs[i] = marked_inputs[i] = from;
    if (place.kind == RowPlace::kMark)
      marked_inputs[i] = plan_.ones[place.index].data();
    else if (is_there && !loop.loop.inputs[i].uniform)
      marked_inputs[i] = from + static_cast<size_t>(column) * place.size;
  }
  for (size_t i = 0; i < loop.results.size(); ++i) {
    results[i] = address(loop.results[i], batch, row);
    marked_results[i] = marked + i;
  }
  if (is_there) loop.kernel->run({marked_inputs, marked_results, 1});
  run_row(loop, inputs, results, batch.scratch + values_bytes_ + kept_bytes_);
  for (size_t i = 0; is_there && i < loop.results.size(); ++i)
    if (loop.loop.results[i].kind == LoopResult::kStore)
      std::memcpy(
          static_cast<std::byte*>(results[i]) + static_cast<size_t>(column) * loop.results[i].size,
          marked + i,
          loop.results[i].size);
}

// Reductions of long rows go piece by piece, as those of the ops do.
void RowProgram::run_row(const RowLoop& loop,
                         const void** inputs,
                         void** results,
                         std::byte* partial) const {
  const int64_t n = plan_.columns;
  if (n <= kReduceChunk || !reduces(loop)) return loop.kernel->run({inputs, results, n});
  const int64_t pieces = (n + kReduceChunk - 1) / kReduceChunk;
  const void* piece_inputs[kMostRowPlaces];
  void* piece_results[kMostRowPlaces];
  const auto partial_of = [&](size_t result, int64_t piece) {
    return partial + (result * static_cast<size_t>(pieces)) * sizeof(double) +
           static_cast<size_t>(piece) * loop.results[result].size;
  };
  for (int64_t piece = 0; piece < pieces; ++piece) {
    const int64_t begin = piece * kReduceChunk;
    const auto moved = [&](const void* from, size_t size) {
      return static_cast<std::byte*>(const_cast<void*>(from)) + static_cast<size_t>(begin) * size;
    };
    for (size_t i = 0; i < loop.inputs.size(); ++i)
      piece_inputs[i] =
          loop.loop.inputs[i].uniform ? inputs[i] : moved(inputs[i], loop.inputs[i].size);
    for (size_t i = 0; i < loop.results.size(); ++i)
      piece_results[i] = loop.loop.results[i].kind == LoopResult::kStore
                             ? moved(results[i], loop.results[i].size)
                             : partial_of(i, piece);
    loop.kernel->run({piece_inputs, piece_results, std::min(kReduceChunk, n - begin)});
  }
  for (size_t i = 0; i < loop.results.size(); ++i) {
    const LoopResult::Kind kind = loop.loop.results[i].kind;
    if (kind == LoopResult::kStore) continue;
    const void* from = partial_of(i, 0);
    combine_[loop.results[i].size == sizeof(double) ? 0 : 1][kind == LoopResult::kMax ? 1 : 0]->run(
        {&from, results + i, pieces});
  }
}

// The address of the partial results that a row is added to.
void* RowProgram::partial(const ColumnSum& sum, const KernelArgs& args, int64_t row) const {
  void* results = sum.reduction.first_results(
      args.outputs[sum.output], static_cast<std::byte*>(args.workspace) + sum.workspace);
  return static_cast<std::byte*>(results) +
         static_cast<size_t>(row / task_rows_ * plan_.columns) * sum.rows.size;
}

void RowProgram::add_to_sums(const Batch& batch, RowPlace::Kind kind) const {
  for (const ColumnSum& sum : plan_.sums) {
    if (sum.rows.kind != kind) continue;
    void* const to = partial(sum, batch.args, batch.first);
    if (batch.first % task_rows_ == 0)
      std::memset(to, 0, static_cast<size_t>(plan_.columns) * sum.rows.size);
    const AddRowsKernel add =
        for_isa(avx2::reduce_kernels, avx512::reduce_kernels).add_rows[sum.dtype];
    add(address(sum.rows, batch, 0), batch.count, plan_.columns, to);
  }
}

}  // namespace ridge::cpu
