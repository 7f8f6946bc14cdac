// The numbers of a program's first steps, as the shim kept them (shim/ridge_record.py):
// record_PID.json in its folder.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ridge/attach/shim.h"

namespace ridge::attach {

struct RunRecord {
  int64_t steps = 0;      ///< That were recorded.
  bool is_whole = false;  ///< As many as were asked for.
  std::string source{};   ///< "optimizer" or "module": whose steps.
  /// One a step; empty where there was none to see (then `trouble` says so). A loss that is not
  /// finite is kept as such.
  std::vector<double> losses{}, gradient_norms{};
  /// Where modules are only called: sums over the outputs of each call, of values and of squares.
  std::vector<double> output_sums{}, output_squares{};
  std::string parameters_hash{};  ///< Of all parameters' and buffers' bits behind the last step.
  std::string outputs_hash{};     ///< Of all outputs' bits, where modules are only called.
  std::vector<std::string> trouble{};  ///< What could not be recorded, in sentences.
};

/// Of the process that steps (rank 0 of several); nothing while there is none.
std::optional<RunRecord> read_record(const ShimFolder& folder);

}  // namespace ridge::attach
