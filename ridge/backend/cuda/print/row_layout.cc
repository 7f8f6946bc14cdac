#include "ridge/backend/cuda/print/row_layout.h"

#include <algorithm>
#include <utility>

#include "ridge/backend/cuda/print/row_walk.h"
#include "ridge/graph/ops/gather.h"

namespace ridge::cuda {
namespace {

constexpr int64_t kMostRows = 16;  // of a block

}  // namespace

bool ends_row_pass(const FusedBody& body, const Node& node) {
  return body.role(node) == LoopRole::kRow && (is_loop_reduction(node) || node.is<Pick>());
}

RowLayout::RowLayout(const FusedBody& body,
                     Functions functions,
                     const DeviceLimits& limits,
                     RowColumnSums& sums,
                     const KeptRows& keep)
    : rows(body.domain.rows()),
      columns(body.domain.columns),
      is_long(columns > kPiece),
      is_aligned(columns % 4 == 0),
      limits_(limits),
      element_bytes_(body.graph.inputs().size()) {
  for (const Node* node : body.graph.inputs())
    element_bytes_.at(input_number(*node)) = static_cast<int64_t>(size_of(node->outputs[0].dtype));
  for (const auto& node : body.graph.nodes()) passes_ended += ends_row_pass(body, *node) ? 1 : 0;
  is_spread = is_long && (functions == Functions::kApprox || passes_ended == 0);
  is_held = (passes_ended > 0 || !sums.empty()) && can_be_held(body, functions) &&
            sums.keep_in_registers(kHeldRows, limits.shared_of_blocks(2));
  // A second block shall have room too.
  block_rows = is_long ? 1 : is_held ? kHeldRows : kMostRows;
  while (block_rows > 1 && !fits_twice(sums.shared_bytes(block_rows))) block_rows /= 2;
  sums_bytes_ = sums.shared_bytes(block_rows);
  if (sums_bytes_ > most_shared())
    throw Refused{fmt::format("sums rows of {} bytes over all rows", sums.shared_bytes(1))};
  shared_bytes = sums_bytes_;
  for (const auto& [input, elements] : keep) {
    const int64_t at = ceil_div(shared_bytes, 16) * 16;
    kept.emplace(input, Kept{elements, at});
    shared_bytes = at + kept_bytes(input, elements);
  }
}

int64_t RowLayout::threads() const {
  if (is_spread) return spread_threads();
  if (is_held) return 32 * block_rows;
  return std::max<int64_t>(32, (kGroup * pieces() * block_rows + 16) & -32);
}

// Each thread has some packs; where a row takes all of the shared memory, there are as many threads
// as a block can have.
int64_t RowLayout::spread_threads() const {
  int64_t bytes = 0;
  for (const auto& [input, each] : kept) bytes += kept_bytes(input, each.elements);
  if (bytes > most_shared() * 3 / 4) return 1024;
  return columns > 256 * 16 ? 512 : columns > 128 * 16 ? 256 : 128;
}

// Beside the dynamic memory of a block there is what the pieces of each reduction leave, of which
// there are 64 at most, of one number of f64 or two of f32.
int64_t RowLayout::most_shared() const { return limits_.shared_per_block - passes_ended * 64 * 8; }

int64_t RowLayout::kept_bytes(size_t input, int64_t elements) const {
  return ceil_div(elements * element_bytes_.at(input), 16) * 16 + (is_spread ? 0 : 16);
}

KeptRows RowLayout::worth_keeping(const std::map<size_t, int>& passes_reading) const {
  if (!is_long) return {};
  std::vector<std::pair<int, size_t>> order;  // those that most passes read first
  for (const auto& [number, passes] : passes_reading)
    if (passes > 1) order.emplace_back(-passes, number);
  std::ranges::sort(order);
  KeptRows worth;
  int64_t bytes = sums_bytes_;
  for (const auto& [passes, number] : order) {
    int64_t elements = columns;
    // A row without room for all of it is kept in part: each thread knows which packs it keeps.
    if (is_spread)
      elements = std::min(columns + 8, (most_shared() - bytes) / element_bytes_.at(number) / 8 * 8);
    if (elements <= 0 || bytes + kept_bytes(number, elements) > most_shared()) continue;
    bytes += kept_bytes(number, elements);
    worth.emplace(number, elements);
  }
  return worth;
}

}  // namespace ridge::cuda
