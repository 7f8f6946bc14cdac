#include "ridge/graph/ops/loop_role.h"

#include <algorithm>

#include "ridge/graph/ops/fused.h"
#include "ridge/graph/ops/gather.h"
#include "ridge/graph/ops/random.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"

namespace ridge {

bool is_fusible(const Node& node) {
  if (node.is<Dropout>()) return true;
  return node.op->traits().elementwise && node.outputs.size() == 1 && !node.is<Fused>();
}

bool is_loop_reduction(const Node& node) {
  const bool is_known = node.is<ReduceSum>() || node.is<ReduceMean>() || node.is<ReduceMax>();
  return is_known && (node.outputs[0].dtype == DType::kF32 || node.outputs[0].dtype == DType::kF64);
}

namespace {

const std::vector<int64_t>& axes_of(const Node& node) {
  if (node.is<ReduceSum>()) return node.op_as<ReduceSum>().axes;
  if (node.is<ReduceMean>()) return node.op_as<ReduceMean>().axes;
  return node.op_as<ReduceMax>().axes;
}

}  // namespace

ReducedAxes reduced_axes(const Node& node) {
  const Shape& shape = node.inputs[0].shape();
  const std::vector<int64_t>& axes = axes_of(node);
  ReducedAxes found;
  int changes = 0, last = -1;
  bool first_is_reduced = false;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1) continue;
    const bool reduced = std::find(axes.begin(), axes.end(), static_cast<int64_t>(i)) != axes.end();
    (reduced ? found.reduced : found.kept) *= shape[i];
    if (last < 0) first_is_reduced = reduced;
    changes += last >= 0 && last != static_cast<int>(reduced);
    last = static_cast<int>(reduced);
  }
  if (found.kept == 1)
    found.kind = ReducedAxes::kAll;
  else if (changes == 1)
    found.kind = first_is_reduced ? ReducedAxes::kFirst : ReducedAxes::kLast;
  return found;
}

namespace {

struct Asked {
  const Node& node;
  std::span<const LoopRole> inputs;
  const LoopDomain& domain;
  std::string_view why = {};

  LoopRole refuse(std::string_view reason) {
    why = reason;
    return LoopRole::kNone;
  }

  int64_t size(size_t i) const { return node.inputs[i].type().elements(); }
  int64_t result_size() const { return node.outputs[0].elements(); }
  bool is_row_size(int64_t elements) const {
    return domain.columns != 0 && elements == domain.rows();
  }
  // One value a row: made in the loop, or outside.
  bool is_row(size_t i) const {
    return inputs[i] == LoopRole::kRow || (inputs[i] == LoopRole::kOuter && is_row_size(size(i)));
  }

  LoopRole of_broadcast() {
    const bool is_outer = inputs[0] == LoopRole::kOuter;
    if (result_size() == domain.elements) {
      if (is_outer && (domain.columns == 0 || keeps_rows())) return LoopRole::kDomain;
      if (inputs[0] == LoopRole::kRow && repeats_rows()) return LoopRole::kDomain;
    } else if (is_outer && size(0) == 1 && is_row_size(result_size())) {
      return LoopRole::kRow;
    }
    return refuse("broadcasts what is neither an input nor a value of each row");
  }

  // Every row reads neighbouring elements, or one.
  bool keeps_rows() const {
    const Shape &from = node.inputs[0].shape(), &to = node.outputs[0].shape;
    int64_t covered = 1;
    int kinds = 0;
    for (size_t i = 0; i < to.size() && covered < domain.columns; ++i) {
      const int64_t size = to[to.size() - 1 - i];
      if (size == 1) continue;
      const bool is_there = i < from.size() && from[from.size() - 1 - i] != 1;
      kinds |= is_there ? 1 : 2;
      covered *= size;
    }
    return covered == domain.columns && kinds != 3;
  }

  // Each element is repeated over the columns of its row, and nowhere else.
  bool repeats_rows() const {
    const Shape &from = node.inputs[0].shape(), &to = node.outputs[0].shape;
    int64_t repeated = 1;
    size_t i = 0;
    for (; i < to.size() && repeated < domain.columns; ++i) {
      const bool is_there = i < from.size() && from[from.size() - 1 - i] != 1;
      if (is_there) return false;
      repeated *= to[to.size() - 1 - i];
    }
    if (repeated != domain.columns) return false;
    for (; i < to.size(); ++i) {
      const int64_t own = i < from.size() ? from[from.size() - 1 - i] : 1;
      if (own != to[to.size() - 1 - i]) return false;
    }
    return true;
  }

  LoopRole of_reshape() {
    if (is_domain(inputs[0]) || inputs[0] == LoopRole::kRow) return inputs[0];
    return refuse("reshapes what the loop does not make");
  }

  LoopRole of_one_hot() {
    if (domain.columns != 0 && node.op_as<OneHot>().depth == domain.columns && is_row(0))
      return LoopRole::kSpotted;
    return refuse("marks no column of each row");
  }

  LoopRole of_pick() {
    const bool is_input = inputs[0] == LoopRole::kOuter && size(0) == domain.elements;
    if (domain.columns != 0 && is_input && node.inputs[0].dim(-1) == domain.columns && is_row(1))
      return LoopRole::kRow;
    return refuse("picks no column of each row of an input");
  }

  LoopRole of_mask() {
    const bool is_whole =
        result_size() == domain.elements && (is_domain(inputs[0]) || inputs[0] == LoopRole::kOuter);
    if (domain.columns != 0 && is_whole && node.outputs[0].shape.back() == domain.columns)
      return inputs[0] == LoopRole::kSpotted ? LoopRole::kSpotted : LoopRole::kDomain;
    return refuse("masks no columns of each row");
  }

  LoopRole of_elementwise() {
    const bool is_whole = result_size() == domain.elements;
    if (!is_whole && !is_row_size(result_size()))
      return refuse("is not of the shape of the results");
    LoopRole role = is_whole ? LoopRole::kDomain : LoopRole::kRow;
    for (const LoopRole input : inputs) {
      if (input == LoopRole::kOuter || input == LoopRole::kUniform) continue;
      if (is_whole ? !is_domain(input) : input != LoopRole::kRow)
        return refuse("reads a value that is not of the shape of the results");
      if (input == LoopRole::kSpotted) role = input;
    }
    return role;
  }

  // The mask counts the elements of the domain; the random state comes from outside. Machine code
  // for whole rows draws no numbers, and rows pass by pass would lose more than dropout gains.
  LoopRole of_dropout() {
    if (domain.columns != 0) return refuse("is dropout in a loop over rows");
    if (inputs[1] != LoopRole::kOuter) return refuse("reads a random state that is not an input");
    if (result_size() != domain.elements) return refuse("is not of the shape of the results");
    if (inputs[0] != LoopRole::kOuter && inputs[0] != LoopRole::kUniform && !is_domain(inputs[0]))
      return refuse("reads a value that is not of the shape of the results");
    return LoopRole::kDomain;
  }

  LoopRole of_reduction() {
    const ReducedAxes axes = reduced_axes(node);
    const bool is_whole =
        is_domain(inputs[0]) || (inputs[0] == LoopRole::kOuter && size(0) == domain.elements);
    const bool is_spotted = inputs[0] == LoopRole::kSpotted;
    if (inputs[0] == LoopRole::kRow && axes.kind == ReducedAxes::kAll) return LoopRole::kTotal;
    if (!is_whole) return refuse("reduces what is not of the shape of the results");
    if (domain.columns == 0) {
      if (axes.kind == ReducedAxes::kAll) return LoopRole::kTotal;
    } else if (axes.kind == ReducedAxes::kLast && axes.reduced == domain.columns && !is_spotted) {
      return LoopRole::kRow;
    } else if (axes.kind == ReducedAxes::kFirst && axes.kept == domain.columns &&
               domain.columns <= kMostSummedColumns && !node.is<ReduceMax>()) {
      return LoopRole::kColumns;
    }
    return refuse("reduces neither rows nor columns");
  }
};

}  // namespace

LoopRole loop_role(const Node& node,
                   std::span<const LoopRole> inputs,
                   const LoopDomain& domain,
                   std::string_view* why) {
  Asked asked{node, inputs, domain};
  const auto answer = [&] {
    if (node.is<Constant>())
      return node.op_as<Constant>().is_splat() ? LoopRole::kUniform
                                               : asked.refuse("is a constant of several values");
    for (const LoopRole input : inputs)
      if (input == LoopRole::kColumns || input == LoopRole::kTotal || input == LoopRole::kNone)
        return asked.refuse("reads a reduction over all rows");
    if (node.is<Broadcast>()) return asked.of_broadcast();
    if (node.is<Reshape>()) return asked.of_reshape();
    if (node.is<OneHot>()) return asked.of_one_hot();
    if (node.is<Pick>()) return asked.of_pick();
    if (node.is<MaskColumns>()) return asked.of_mask();
    if (is_loop_reduction(node)) return asked.of_reduction();
    if (node.is<Dropout>()) return asked.of_dropout();
    if (is_fusible(node)) return asked.of_elementwise();
    return asked.refuse("is not elementwise");
  };
  const LoopRole role = answer();
  if (why != nullptr) *why = asked.why;
  return role;
}

}  // namespace ridge
