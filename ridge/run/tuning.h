// Kernels picked by time: a tuner with all that it needs.
#pragma once

#include <memory>
#include <string>

#include "ridge/compile/plan.h"
#include "ridge/run/tuner.h"

namespace ridge {

/// The range of kernels from which time picks for programs that only read their weights: on a GPU
/// all that are right.
KernelRange inference_range(const Backend& backend);

/// A tuner with its backends and the cache of this machine. To be made when the number of threads
/// is set, since times depend on it.
class Tuning {
 public:
  /// With `show`, also kernels without an alternative are timed.
  Tuning(const std::string& device, bool show);
  /// The use of the cache.
  enum class Keeping : uint8_t {
    kPicks,    ///< Picks are taken from it, and those of what is timed are kept there.
    kReads,    ///< Picks are taken from it, and nothing is timed.
    kNothing,  ///< All are timed, and none is kept.
  };
  /// It serves programs of `backend` that have packed weights; `backend` must outlive it.
  Tuning(Backend& backend, Keeping keeping);
  ~Tuning();

  /// PlanOptions::choose; it is null where the first candidates are to be taken: the setting `tune`
  /// is off and nothing is to be shown, or nothing is kept. This object has to outlive it.
  ChooseCandidate choose(KernelRange range);
  const Tuner& tuner() const { return *tuner_; }
  /// A message of the cache on a problem with its file; empty: none.
  const std::string& note() const { return cache_.note(); }

 private:
  bool show_ = false, packs_ = false, times_ = true;
  std::unique_ptr<Backend> own_, reference_;
  Backend& backend_;
  ChoiceCache cache_;
  std::unique_ptr<Tuner> tuner_;
};

}  // namespace ridge
