#include "ridge/tune/engine/technique_lengths.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ridge/tune/engine/technique_batch.h"

namespace ridge {
namespace {

constexpr const char* kAllAlike = "all samples have the same length";

Proposals nothing(std::string reason) { return {.tries = {}, .reason = std::move(reason)}; }

ConfigFlag set(std::string key, std::string value) {
  return {std::move(key), std::move(value), "ridge optimize"};
}

Proposals one(std::vector<ConfigFlag> changes, std::string hypothesis, SemanticClass of_class) {
  Proposals proposals;
  proposals.tries.push_back({.changes = std::move(changes),
                             .semantic_class = of_class,
                             .hypothesis = std::move(hypothesis)});
  return proposals;
}

/// Batches of like length are short for those who cut them.
std::vector<ConfigFlag> cut(const Situation& s) {
  if (s.config.loader.pad == data::Padding::kLongest) return {};
  return {set("loader.pad", "longest")};
}

}  // namespace

Proposals propose_padding(const Situation& s) {
  if (!s.config.data.is_ragged()) return nothing(kAllAlike);
  if (s.config.loader.pad == data::Padding::kLongest)
    return nothing("batches are as long as their longest sample already");
  if (s.config.model.gpt.dropout > 0)
    return nothing("dropout draws by the place in a padded batch: other lengths draw other masks");
  return one(cut(s),
             "what stands behind the longest sample of a batch is padding",
             SemanticClass::kReassociation);
}

Proposals propose_buckets(const Situation& s) {
  if (!s.config.data.is_ragged()) return nothing(kAllAlike);
  if (s.config.loader.buckets || s.config.loader.tokens > 0)
    return nothing("samples of like length meet already");
  if (!s.config.train.shuffle) return nothing("samples come in their order");
  std::vector<ConfigFlag> changes = cut(s);
  changes.push_back(set("loader.buckets", "true"));
  return one(
      std::move(changes), "samples of like length leave little to pad", SemanticClass::kTrajectory);
}

Proposals propose_tokens(const Situation& s) {
  if (!s.config.data.is_ragged()) return nothing(kAllAlike);
  if (s.config.loader.tokens > 0) return nothing("batches are filled with tokens already");
  if (!s.config.train.shuffle) return nothing("samples come in their order");
  if (s.config.train.memory_limit > 0)
    return nothing("a limit of memory is for batches of samples");
  const double growth = std::min(s.token_growth, static_cast<double>(kMostGrowth));
  if (growth < kWorthwhileGrowth)
    return nothing(fmt::format("padded batches are {:.0f} % full", 100 / s.token_growth));
  if (std::string reason = too_few_steps(s, growth); !reason.empty()) return nothing(reason);
  const auto padded = static_cast<double>(s.config.train.batch * s.config.data.context);
  const auto tokens = std::llround(padded * growth / s.token_growth);
  std::vector<ConfigFlag> changes = cut(s);
  changes.push_back(
      set("loader.tokens", fmt::format("{}", std::max<int64_t>(tokens, s.config.data.context))));
  for (ConfigFlag& change : grown_steps(s.config, growth)) changes.push_back(std::move(change));
  return one(std::move(changes),
             "samples of like length fill a batch, and there are fewer",
             SemanticClass::kTrajectory);
}

}  // namespace ridge
