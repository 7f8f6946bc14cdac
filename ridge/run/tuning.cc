#include "ridge/run/tuning.h"

#include "ridge/base/machine/machine.h"
#include "ridge/base/settings.h"
#include "ridge/run/backends.h"

namespace ridge {

Tuning::Tuning(const std::string& device, bool show)
    : show_(show),
      backend_(make_backend(device)),
      reference_(make_backend("ref")),
      cache_(cache_folder(), device_fingerprint(device, *backend_)),
      tuner_(std::make_unique<Tuner>(
          *backend_, *reference_, cache_, TunerOptions{.time_all = show})) {}

Tuning::~Tuning() = default;

ChooseCandidate Tuning::choose(KernelRange range) {
  if (!show_ && !settings().get_bool("tune")) return nullptr;
  return [tuner = tuner_.get(), range](const Node& node, const std::vector<Choice>& choices) {
    return tuner->choose(node, choices, range);
  };
}

}  // namespace ridge
