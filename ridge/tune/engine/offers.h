// The proposals of the techniques for a configuration, as changes of the loop.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ridge/tune/engine/open_config.h"
#include "ridge/tune/engine/techniques.h"
#include "ridge/tune/prediction.h"

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

/// The best configuration so far as techniques see it. `limit_text` says in words what a limit of
/// memory led to; a device has room for `fewest_parts` parts of a step at the fewest, 0: unknown.
Situation situation_of(const OpenConfig& best,
                       int cpus,
                       bool allow_trajectory,
                       int64_t fewest_parts,
                       const std::string& limit_text);

class PartMeter;

/// All proposals of a run, by Change::id.
class OfferList {
 public:
  /// No technique changes what `flags` set. All three must outlive it.
  OfferList(std::span<const Technique> techniques,
            const std::vector<ConfigFlag>& flags,
            PartMeter& meter)
      : techniques_(techniques), flags_(flags), meter_(meter) {}

  const Offer& operator[](const Change& change) const { return offers_[change.id]; }
  /// Target::changes(), where `situation` is that of `best`.
  std::vector<Change> changes(std::span<const Change> kept,
                              const Situation& situation,
                              const OpenConfig& best);
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
  void foresee(Change& change) const;
  size_t id_of(const Technique& technique, Proposal proposal);
  Change change_of(size_t id, const Situation& situation, const OpenConfig& best) const;

  std::span<const Technique> techniques_;
  const std::vector<ConfigFlag>& flags_;
  PartMeter& meter_;
  std::vector<Offer> offers_;
};

}  // namespace ridge
