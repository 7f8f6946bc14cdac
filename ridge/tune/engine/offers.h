// The proposals of the techniques for a configuration, as changes of the loop.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ridge/tune/engine/config_target.h"
#include "ridge/tune/engine/part_meter.h"

namespace ridge {

/// One proposal of a technique, and what was measured of it.
struct Offer {
  const Technique* technique = nullptr;
  Proposal proposal;
  std::string key;
  bool is_mended = false;            ///< The guard's own proposal.
  std::optional<StepChange> step{};  ///< Measured change of a step; nothing: none.
  bool is_stale = false;             ///< Its part of the step has changed since.

  bool loads() const { return technique->affects == Affects::kLoading; }
  /// A proposal of other updates stays, whatever was kept since.
  bool stays() const { return is_mended || proposal.semantic_class == SemanticClass::kTrajectory; }
};

/// All proposals of a run, by Change::id.
class OfferList {
 public:
  /// `request` and `meter` must outlive it.
  OfferList(const OptimizeRequest& request, int cpus, PartMeter& meter)
      : request_(request), cpus_(cpus), meter_(meter) {}

  const Offer& operator[](const Change& change) const { return offers_[change.id]; }
  /// Target::changes(). `limit_text` says in words what a limit of memory led to.
  std::vector<Change> changes(std::span<const Change> kept,
                              OpenConfig& best,
                              const std::string& limit_text);
  /// Predicts the change anew, by the part of a step that it affects.
  void measure(Change& change, OpenConfig& best, OpenConfig& candidate);
  /// Why the open candidate is not worth timing; empty: it is.
  std::string refusal(const Change& change,
                      const OpenConfig& best,
                      const OpenConfig& candidate) const;
  /// Proposes the change once more with these modules in f32, with which the guard passes it.
  void mend(const Change& change, const std::vector<std::string>& f32_modules);
  /// A change of loading, or of the rest of a step, was kept: others of it are to be measured anew.
  void note_kept(bool loads);

 private:
  Situation situation_of(OpenConfig& best, const std::string& limit_text) const;
  double ceiling_of(const Offer& offer, const OpenConfig& best) const;
  SpeedRange predict(const Offer& offer, double ceiling) const;
  void foresee(Change& change, const OpenConfig& best) const;
  size_t id_of(const Technique& technique, Proposal proposal);
  Change change_of(size_t id, const Situation& situation, const OpenConfig& best) const;

  const OptimizeRequest& request_;
  int cpus_;
  PartMeter& meter_;
  std::vector<Offer> offers_;
};

}  // namespace ridge
