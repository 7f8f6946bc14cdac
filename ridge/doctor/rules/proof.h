// Remedies of findings, and the commands that show whether they help.
#pragma once

#include <string>

#include "ridge/doctor/findings/finding.h"

namespace ridge::doctor {

/// To be run after the change: records again where Ridge can, and compares. `set` is a change of
/// Ridge's configuration, such as "loader.workers=4"; empty if the program itself is to be changed.
std::string proof_of(const Trace& trace, std::string_view set = {});

/// The advice of a rule.
struct Remedy {
  std::string_view fix;  ///< Becomes Finding::fix.
  SemanticClass semantic_class = SemanticClass::kBitIdentical;
};

/// How most rules that fire end: the finding goes to `output`, with what to do about it and the
/// command that proves it.
void report(RuleOutput& output, const Trace& trace, Finding finding, const Remedy& remedy);

}  // namespace ridge::doctor
