// The table of rules.
#include "ridge/doctor/rules/rules.h"

namespace ridge::doctor {
namespace {

// By id. The third column: it says something of devices only.
constexpr Rule kRules[] = {
    {"R00", "trace not fit for a verdict", false, r00_unfit},
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
