// Kernels picked by time: a tuner with all that it needs.
#pragma once

#include <memory>
#include <string>

#include "ridge/compile/plan.h"
#include "ridge/run/tuner.h"

namespace ridge {

/// A tuner with its backends and the cache of this machine. To be made when the number of threads
/// is set, since times depend on it.
class Tuning {
 public:
  /// With `show`, also kernels without an alternative are timed.
  Tuning(const std::string& device, bool show);
  ~Tuning();

  /// For PlanOptions; null where the setting `tune` is off and nothing is to be shown. This object
  /// has to outlive it.
  ChooseCandidate choose(KernelRange range);
  const Tuner& tuner() const { return *tuner_; }
  /// A message of the cache on a problem with its file; empty: none.
  const std::string& note() const { return cache_.note(); }

 private:
  bool show_;
  std::unique_ptr<Backend> backend_, reference_;
  ChoiceCache cache_;
  std::unique_ptr<Tuner> tuner_;
};

}  // namespace ridge
