#include "ridge/run/tuning.h"

#include "ridge/base/machine/machine.h"
#include "ridge/base/settings.h"
#include "ridge/run/backends.h"

namespace ridge {

KernelRange inference_range(const Backend& backend) {
  return backend.is_host() ? KernelRange::kSameBits : KernelRange::kAnyBits;
}

Tuning::Tuning(const std::string& device, bool show)
    : show_(show),
      own_(make_backend(device)),
      reference_(make_backend("ref")),
      backend_(*own_),
      cache_(cache_folder(), device_fingerprint(device, backend_)),
      tuner_(
          std::make_unique<Tuner>(backend_, *reference_, cache_, TunerOptions{.time_all = show})) {}

Tuning::Tuning(Backend& backend, Keeping keeping)
    : packs_(true),
      times_(keeping != Keeping::kReads),
      reference_(make_backend("ref")),
      backend_(backend),
      cache_(keeping == Keeping::kNothing ? std::filesystem::path() : cache_folder(),
             device_fingerprint(backend.name(), backend),
             keeping == Keeping::kPicks ? CacheAccess::kReadAndWrite : CacheAccess::kRead),
      tuner_(
          std::make_unique<Tuner>(backend_, *reference_, cache_, TunerOptions{.times = times_})) {}

Tuning::~Tuning() = default;

ChooseCandidate Tuning::choose(KernelRange range) {
  if (!show_ && !settings().get_bool("tune")) return nullptr;
  if (!times_ && !cache_.is_open()) return nullptr;
  return [this, range](const Node& node, const std::vector<Choice>& choices) {
    // A kernel is timed with operands as they are: one that is to have them packed would lose.
    const size_t first = untimed_choice(choices, range);
    if (packs_ && choices.size() > 1 && !backend_.packed_operands(node, first).empty())
      return first;
    return tuner_->choose(node, choices, range);
  };
}

}  // namespace ridge
