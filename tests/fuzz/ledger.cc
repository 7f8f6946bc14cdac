// Ledgers: what is read must print, and read back to the same text.
#include "ridge/proof/ledger/ledger.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "ridge/base/error.h"
#include "ridge/proof/ledger/ledger_text.h"
#include "ridge/tune/pytorch/recipe.h"

namespace {

std::string printed(const ridge::Ledger& ledger) {
  std::string text = to_json(ledger.run);
  for (const ridge::TrialRecord& trial : ledger.trials) text += to_json(trial);
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto ledger = ridge::parse_ledger({reinterpret_cast<const char*>(data), size}, "fuzz");
    const std::string text = printed(ledger);
    if (printed(ridge::parse_ledger(text, "printed")) != text) std::abort();
    ridge::ledger_table(ledger);
    for (const ridge::TrialRecord& trial : ledger.trials)
      ridge::explain_trial(trial, ridge::contradictions(trial, ridge::hash_of_recipe_text));
  } catch (const ridge::UserError&) {
    // A clear refusal is the other right answer. InternalError is not caught: it is a finding.
  }
  return 0;
}
