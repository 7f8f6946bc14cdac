// A kernel over rows while it is written, and its passes over the elements of a row.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "ridge/backend/cuda/print/kernel_text.h"
#include "ridge/backend/cuda/print/row_column_sums.h"
#include "ridge/backend/cuda/print/row_layout.h"
#include "ridge/backend/cuda/print/row_levels.h"
#include "ridge/backend/cuda/print/scalar_text.h"

namespace ridge::cuda {

struct RowKernel {
  RowKernel(const FusedBody& fused,
            Functions called,
            const DeviceLimits& limits,
            const KeptRows& kept)
      : body(fused),
        functions(called),
        sums(fused),
        layout(fused, called, limits, sums, kept),
        levels(row_levels(fused, called, layout.is_held)),
        text(fused),
        row_code([this](const Node& node) { return row_leaf(node); }, called) {}
  RowKernel(const RowKernel&) = delete;
  RowKernel& operator=(const RowKernel&) = delete;

  LoopRole role(const Node& node) const { return body.role(node); }
  const Node& node_of(size_t output) const { return *body.graph.outputs()[output].value.node; }
  /// Moves the lines of `row_code` to the end of `lines`.
  void move_row_code(std::vector<std::string>& lines);

  const FusedBody& body;
  Functions functions;
  RowColumnSums sums;
  RowLayout layout;
  RowLevels levels;
  KernelText text;
  Statements row_code;                   ///< Computes values of one row.
  std::vector<std::string> setup;        ///< Lines before the loop over rows.
  std::map<size_t, int> passes_reading;  ///< Inputs, by number: passes so far that read them.
  std::vector<size_t> held;              ///< Inputs whose rows are held in registers.
  std::set<int> declared;                ///< Broadcasts of one element a row that have a name.

 private:
  /// Reads an input with one element for each row.
  std::string row_leaf(const Node& node);
};

/// Writes the pass that finds the reductions of level + 1 from values of `level`, which are stored
/// and summed over rows where they are results. Returns its text, empty where it would do nothing.
std::string print_row_pass(RowKernel& kernel, int level);

}  // namespace ridge::cuda
