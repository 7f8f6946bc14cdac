// The numbers of a program's first steps, as the shim kept them (shim/ridge_record.py):
// record_PID.json in its folder.
//
// A recorded run is the program as it seeds itself; where it sets no seed, torch, numpy and random
// get one at the import of torch (a note in its facts says so). With ShimOptions::reseed, from its
// first parameter on, each seed is another: weights, dropout and the order of samples are those of
// another run, the data are the same. Generators of the program's own stay as they are.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ridge/attach/shim.h"

namespace ridge::attach {

/// How the first steps move one tensor: a parameter of an optimizer, or a buffer of a module. One
/// number a step, of projections kDirections; zeros for a step that did not touch it.
struct TensorUpdates {
  static constexpr int64_t kDirections = 3;

  std::string name{};
  int64_t elements = 0;
  bool is_buffer = false;  ///< It has no gradient.
  /// Norm of the tensor before the step, norm of its update, the update's projections on fixed
  /// directions of random signs (their mean square is that of its norm, in the mean), and on the
  /// tensor before the step, whose length counts as one.
  std::vector<double> sizes{}, updates{}, update_projections{}, along{};
  /// The gradient as the optimizer sees it, and the update's projection on it: its length counts as
  /// one.
  std::vector<double> gradients{}, gradient_projections{}, along_gradients{};
};

struct RunRecord {
  int64_t steps = 0;      ///< Recorded steps.
  bool is_whole = false;  ///< True: as many steps as were asked for.
  /// "optimizer": its steps; "module": calls from outside of modules that have weights; empty:
  /// neither was seen.
  std::string source{};
  /// One a step: the mean over its calls of .backward(), and the gradients' norm, over all
  /// parameters, as the optimizer sees it, or before it was clipped. Empty where there was none to
  /// see (then `trouble` says so); NaN for a step without one. What is not finite is kept as such.
  std::vector<double> losses{}, gradient_norms{};
  /// If modules are only called, one a call: how many numbers came out, their sum and sum of
  /// squares, and their sum with fixed random signs: its square is that of the difference of two
  /// outputs, in the mean.
  std::vector<double> output_counts{}, output_sums{}, output_squares{}, output_projections{};
  /// Hash of the bits of all parameters and buffers after the last step.
  std::string parameters_hash{};
  std::string outputs_hash{};  ///< Hash of the bits of all outputs, if modules are only called.
  /// In the order in which they were first seen; of programs that train, in the first three steps.
  std::vector<TensorUpdates> updates{};
  /// One a step, where programs train: hashes of the tensors that modules were called with from
  /// outside, with blanks between them; what was computed with gradients is left out.
  std::vector<std::string> batch_hashes{};
  bool is_coarse = false;              ///< The program computes in bf16 or f16 somewhere.
  std::vector<std::string> trouble{};  ///< Sentences that say what could not be recorded.
};

/// Reads the record of the process that steps (rank 0 of several); nothing while there is none. It
/// comes when all steps are recorded, or with fewer at the program's end.
std::optional<RunRecord> read_record(const ShimFolder& folder);
/// The same of a folder that a shim's files were copied to.
std::optional<RunRecord> read_record_in(const std::string& folder);

}  // namespace ridge::attach
