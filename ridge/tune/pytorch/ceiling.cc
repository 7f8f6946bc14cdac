#include "ridge/tune/pytorch/ceiling.h"

#include <algorithm>

#include "ridge/proof/trial_record.h"

namespace ridge {
namespace {

// Nearly nothing of a step stays: a gain beyond any that is told.
constexpr double kLeastRest = 1e-9;

// Loading that is gone saves more than the wait for it: samples that were made leave cold caches
// and memory to be given back. With loader.cache four of examples/pytorch gained 0.8 to 1.25 of the
// wait (bench/README.md).
constexpr double kOfLoading = 1.3;

// The share of a step that stays; nothing: not known.
using Rest = std::optional<double>;

// A compiler takes the place of all between the data and the update.
Rest rest_of_compiler(const PartShares& parts) {
  if (!parts.update) return std::nullopt;
  return parts.wait + *parts.update;
}

// At the most, products in a 16-bit format cost nothing, and all else moves half of the bytes.
Rest rest_of_short_formats(const PartShares& parts) {
  if (!parts.operators || !parts.update) return std::nullopt;
  const double products = parts.operators->products;
  const double others = std::max(0.0, 1 - parts.wait - *parts.update - products);
  return 1 - products - others / 2;
}

Rest rest_of_layout(const PartShares& parts) {
  if (!parts.operators) return std::nullopt;
  return 1 - parts.operators->images;
}

Rest rest_of_update(const PartShares& parts) {
  if (!parts.update) return std::nullopt;
  return 1 - *parts.update;
}

// The fewest updates that are offered: one for four steps.
Rest rest_of_accumulation(const PartShares& parts) {
  if (!parts.update) return std::nullopt;
  return 1 - 0.75 * *parts.update;
}

Rest rest_of_allocator(const PartShares& parts) {
  if (!parts.operators || !parts.faults) return std::nullopt;
  return 1 - parts.operators->allocations - *parts.faults;
}

Rest rest_beside(const PartShares& parts) {
  if (!parts.operators) return std::nullopt;
  return 1 - parts.operators->beside;
}

struct OperatorCeiling {
  std::string_view technique;
  Rest (*rest)(const PartShares& parts);
};

constexpr OperatorCeiling kOperatorCeilings[] = {
    {"model.compile", rest_of_compiler},
    {"model.quantize", rest_of_compiler},
    {"model.autocast", rest_of_short_formats},
    {"model.channels_last", rest_of_layout},
    {"optimizer.fused", rest_of_update},
    {"optimizer.foreach", rest_of_update},
    {"optimizer.compile", rest_of_update},
    {"optimizer.accumulate", rest_of_accumulation},
    {"allocator.keep", rest_of_allocator},
    {"allocator", rest_of_allocator},
    {"interop_threads", rest_beside},
};

Rest rest_by_part(ForeignPart part, double wait) {
  switch (part) {
    case ForeignPart::kLoading:
      return std::max(0.0, 1 - kOfLoading * wait);
    case ForeignPart::kComputing:
      return wait;
    case ForeignPart::kAll:
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

std::optional<double> ceiling_of(const ForeignProposal& proposal, const PartShares& parts) {
  PartShares shares = parts;
  shares.wait = std::clamp(shares.wait, 0.0, 1.0);
  Rest rest = rest_by_part(proposal.part, shares.wait);
  // At the most, a step of more samples takes no longer.
  if (proposal.work > 1) rest = 1 / static_cast<double>(proposal.work);
  for (const OperatorCeiling& each : kOperatorCeilings)
    if (each.technique == proposal.technique)
      if (const Rest other = each.rest(shares)) rest = std::max(rest.value_or(0), *other);
  if (!rest) return std::nullopt;
  return std::min(kNoCeiling, 1 / std::clamp(*rest, kLeastRest, 1.0));
}

}  // namespace ridge
