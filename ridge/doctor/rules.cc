// The table of rules.
#include "ridge/doctor/rules/rules.h"

namespace ridge::doctor {
namespace {

// By id. The third column: it says something of devices only.
constexpr Rule kRules[] = {
    {"R00", "trace not fit for a verdict", false, r00_unfit},
    {"R01", "input starved", false, r01_input_starved},
    {"R02", "loader cannot scale", false, r02_loader_limit},
    {"R24", "straggler rank", true, r24_straggler},
    {"R29", "periodic stalls", false, r29_periodic_stalls},
    {"R30", "processor contention", false, r30_cpu_contention},
};

}  // namespace

std::span<const Rule> rules() { return kRules; }

std::string_view name_of(Severity severity) {
  switch (severity) {
    case Severity::kInfo:
      return "info";
    case Severity::kWarning:
      return "warning";
    case Severity::kHigh:
      return "high";
  }
  return "info";
}

}  // namespace ridge::doctor
