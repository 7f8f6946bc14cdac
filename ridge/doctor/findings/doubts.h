// Reasons why a trace shows less than it seems to.
#pragma once

#include <string>
#include <vector>

#include "ridge/doctor/findings/finding.h"

namespace ridge::doctor {

/// One reason to trust what is said of a trace less.
struct Doubt {
  std::string text;     ///< "3 steady steps, fewer than 5"
  double trust = 1;     ///< Factor of all confidence: 0 to 1.
  bool serious = true;  ///< False: worth a remark only.
  std::string fix;
};

/// All there are, the worst first.
std::vector<Doubt> doubts_of(const Trace& trace, const Analysis& analysis);

/// The product of their trust, at least 0.1.
double trust_in(const std::vector<Doubt>& doubts);

}  // namespace ridge::doctor
