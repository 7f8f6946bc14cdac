#include "ridge/doctor/rules/proof.h"

#include <fmt/format.h>

#include "ridge/base/shell_word.h"

namespace ridge::doctor {

std::string proof_of(const Trace& trace, std::string_view set) {
  const std::string before = shell_word(trace.source.empty() ? "BEFORE" : trace.source);
  if (trace.recorder == "ridge" && !set.empty())
    return fmt::format(
        "ridge train CONFIG --set {} --trace after.json && ridge doctor --compare {} after.json",
        shell_word(set),
        before);
  return fmt::format("ridge doctor --compare {} AFTER", before);
}

void report(RuleOutput& output, const Trace& trace, Finding finding, const Remedy& remedy) {
  finding.fix = remedy.fix;
  finding.semantic_class = remedy.semantic_class;
  finding.command = proof_of(trace);
  output.findings.push_back(std::move(finding));
}

}  // namespace ridge::doctor
