// `--verify`: the program as it will run, against the plainest way to run it.
#pragma once

#include <string>

#include "ridge/train/training_run.h"

namespace ridge {

inline constexpr int kVerifiedSteps = 3;
/// Most samples of the step whose nodes are compared one by one.
inline constexpr int64_t kComparedSamples = 8;

struct VerifyReport {
  bool passed = false;
  std::string text;  ///< Says what was compared, or shows the first difference.
};

/// Trains kVerifiedSteps steps twice on the same batches: as `options` say, and without passes,
/// without sharing memory, with each graph printed and parsed back. The states must have the same
/// bits after every step, where only bit-identical passes ran and no kernel has bits of its own
/// (one that was picked by time, or a library's); else the losses must agree, to 0.1 % in f32 and
/// to 2 % below. The text says which of the two was compared. Before them, every node of the plain
/// graphs of the first step, for its first kComparedSamples samples, against the reference backend
/// within the tolerance table.
VerifyReport verify_training(const Task& task,
                             const TrainConfig& config,
                             Backend& backend,
                             const ProgramOptions& options);

}  // namespace ridge
