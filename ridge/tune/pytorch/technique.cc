#include "ridge/tune/pytorch/technique.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "ridge/base/error.h"
#include "ridge/io/file.h"
#include "ridge/tune/pytorch/variables.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMallocLibrary = "libc.so.6";
constexpr std::string_view kLayout = "model.channels_last", kCompile = "model.compile",
                           kEngine = "ridge";

/// What techniques look at; ForeignProposal says what comes of it.
struct Surroundings {
  const attach::ProcessFacts& facts;
  const ForeignMachine& machine;
  const std::function<std::string(const std::string&)>& environment;
};
using Proposals = std::vector<ForeignProposal>;

ForeignProposal proposal_of(const attach::KnobOffer& offer, const Knob& knob) {
  ForeignProposal proposal{.technique = offer.key,
                           .semantic_class = offer.semantic_class,
                           .part = knob.part,
                           .work = offer.work,
                           .hypothesis = offer.text,
                           .refusal = offer.refusal};
  if (proposal.refusal.empty()) proposal.knobs.emplace_back(offer.key, offer.value);
  return proposal;
}

Proposals propose_offers(const attach::ProcessFacts& facts, const Knob& knob) {
  Proposals proposals;
  for (const attach::KnobOffer& offer : facts.offers) {
    if (offer.key != knob.key) continue;
    proposals.push_back(proposal_of(offer, knob));
    // A number of zero switches the knob off, and with it what makes sense beside it alone.
    if (!offer.refusal.empty() || offer.value == "0") continue;
    for (const attach::KnobOffer& other : facts.offers) {
      const Knob* beside = find_knob(other.key);
      if (beside != nullptr && beside->tried_with == knob.key && other.refusal.empty())
        proposals.back().knobs.emplace_back(other.key, other.value);
    }
  }
  return proposals;
}

Proposals propose_allocators(const Surroundings& given) {
  ForeignProposal proposal{.technique = "allocator",
                           .hypothesis = "memory is taken and given back at every step"};
  const ForeignMachine& machine = given.machine;
  if (!given.environment(std::string(kPreloadVariable)).empty())
    proposal.refusal = "you set LD_PRELOAD yourself";
  else if (machine.allocators.empty())
    proposal.refusal = "neither jemalloc, tcmalloc nor mimalloc is installed";
  if (!proposal.refusal.empty()) return {proposal};
  Proposals proposals;
  for (const auto& [name, path] : machine.allocators) {
    proposals.push_back(proposal);
    proposals.back().hypothesis += ": by " + name;
    proposals.back().variables = {{std::string(kPreloadVariable), path}};
  }
  return proposals;
}

/// A variable that the program reads; `refusal`: why it would not help, empty: it may.
Proposals propose_variable(const Surroundings& given,
                           ForeignProposal proposal,
                           const std::string& refusal,
                           const std::pair<std::string, std::string>& variable) {
  if (!given.environment(variable.first).empty())
    proposal.refusal = fmt::format("you set {} yourself", variable.first);
  else if (!refusal.empty())
    proposal.refusal = refusal;
  else
    proposal.variables = {variable};
  return {proposal};
}

Proposals propose_keeping(const Surroundings& given) {
  return propose_variable(
      given,
      {.technique = "allocator.keep",
       .hypothesis = "memory that a step frees is kept for the next one"},
      given.machine.has_glibc ? "" : "the system's malloc is not glibc's",
      {std::string(kMallocVariable), fmt::format("{}:{}", kNoMappings, kNoTrimming)});
}

Proposals propose_huge_pages(const Surroundings& given) {
  const bool has_both = given.machine.has_huge_pages && given.machine.has_glibc;
  return propose_variable(
      given,
      {.technique = "huge_pages",
       .hypothesis = "large tensors take fewer faults in pages of 2 MiB"},
      has_both ? "" : "this system gives transparent huge pages to all or to nobody",
      {std::string(kMallocVariable), std::string(kHugePages)});
}

Proposals propose_growing_segments(const Surroundings& given) {
  return propose_variable(
      given,
      {.technique = "cuda_allocator",
       .hypothesis = "segments that grow leave fewer holes in the GPU's memory"},
      given.facts.has_cuda ? "" : "the program does not use CUDA",
      {std::string(kCudaAllocatorVariable), std::string(kGrowingSegments)});
}

/// A technique that is no knob: it sets variables of the program's environment.
struct VariableTechnique {
  std::string_view name;
  Proposals (*propose)(const Surroundings& given);
};

constexpr VariableTechnique kVariableTechniques[] = {
    {"allocator.keep", propose_keeping},
    {"allocator", propose_allocators},
    {"huge_pages", propose_huge_pages},
    {"cuda_allocator", propose_growing_segments},
};

Proposals propose(const std::string& technique, const Surroundings& given) {
  if (const Knob* knob = find_knob(technique)) return propose_offers(given.facts, *knob);
  for (const VariableTechnique& one : kVariableTechniques)
    if (one.name == technique) return one.propose(given);
  throw InternalError(fmt::format("knobs.json: '{}' is no technique", technique));
}

bool excludes(const Knob& knob, const std::string& key) {
  return std::ranges::count(knob.excludes, key) > 0;
}

}  // namespace

ForeignMachine find_machine(const fs::path& root) {
  ForeignMachine machine;
  std::error_code error;
  for (const auto& [name, file] : kAllocatorLibraries)
    for (std::string_view folder : kLibraryFolders) {
      const fs::path path = root / folder.substr(1) / file;
      if (!fs::exists(path, error)) continue;
      machine.allocators.emplace_back(name, path.string());
      break;
    }
  // "always [madvise] never"
  const fs::path pages = root / "sys/kernel/mm/transparent_hugepage/enabled";
  try {
    machine.has_huge_pages = read_file(pages).find("[madvise]") != std::string::npos;
  } catch (const UserError&) {
    machine.has_huge_pages = false;
  }
  machine.has_glibc = std::ranges::any_of(kLibraryFolders, [&](std::string_view folder) {
    return fs::exists(root / folder.substr(1) / kMallocLibrary, error);
  });
  return machine;
}

std::vector<std::string> chosen_techniques(std::span<const std::string> only) {
  const std::span<const std::string> all = trial_order();
  for (const std::string& name : only)
    check(std::ranges::count(all, name) > 0,
          "--only names '{}', which is no technique; there are {}",
          name,
          fmt::join(all, ", "));
  std::vector<std::string> chosen(all.begin(), all.end());
  if (!only.empty())
    std::erase_if(chosen, [&](const std::string& name) { return !std::ranges::count(only, name); });
  return chosen;
}

std::vector<ForeignProposal> foreign_proposals(
    const attach::ProcessFacts& facts,
    const ForeignMachine& machine,
    const std::function<std::string(const std::string&)>& environment,
    std::span<const std::string> techniques) {
  std::vector<ForeignProposal> proposals;
  for (const std::string& technique : techniques) {
    Proposals found = propose(technique, {facts, machine, environment});
    if (found.empty())
      found.push_back(
          {.technique = technique, .refusal = "the probe of the program offered nothing"});
    std::ranges::move(found, std::back_inserter(proposals));
  }
  return proposals;
}

std::string trial_key(const ForeignProposal& proposal, size_t id, const ForeignRecipe& best) {
  std::string key = fmt::format("{} {}", proposal.technique, id);
  const Knob* knob = find_knob(proposal.technique);
  if (knob == nullptr) return key;
  for (const std::string& other : knob->again_beside)
    if (const std::string value = best.get(other); !value.empty())
      key += fmt::format(" beside {} = {}", other, value);
  return key;
}

std::string settled_beside(const ForeignProposal& proposal,
                           const ForeignRecipe& best,
                           int64_t work) {
  if (!proposal.refusal.empty()) return proposal.refusal;
  if (proposal.work > 1 && proposal.work < work) return "a larger batch was kept";
  // They leave nothing of what others would shorten.
  constexpr std::string_view kWhole[] = {"loader.cache", "model.quantize"};
  const ForeignRecipe with = with_proposal(best, proposal);
  for (const std::string_view key : kWhole)
    if (!best.get(key).empty() && with.get(key).empty())
      return fmt::format("{} was kept, and does more of the same", key);
  // PyTorch's convolutions of 16 bits may be faster than the engine's, those of f32 are not.
  if (proposal.technique == kLayout && best.get(kCompile) == kEngine &&
      best.get("model.autocast").empty())
    return "the engine lays out the images of a model that it compiles";
  return {};
}

ForeignRecipe with_proposal(const ForeignRecipe& recipe, const ForeignProposal& proposal) {
  ForeignRecipe with = recipe;
  for (const auto& [key, value] : proposal.knobs) {
    const Knob* knob = find_knob(key);
    for (const Knob& other : knobs())
      if (knob != nullptr && (excludes(*knob, other.key) || excludes(other, key)))
        with.erase(other.key);
    with.set(key, value);
    // The engine lays out images itself: it and PyTorch's layout are two ways to the same.
    if (key == kCompile && value == kEngine) with.erase(std::string(kLayout));
    if (key == kLayout && with.get(kCompile) == kEngine) with.erase(std::string(kCompile));
  }
  for (const auto& [name, value] : proposal.variables) {
    // One variable holds all settings of malloc.
    const auto had = recipe.environment().find(name);
    const bool joins = name == kMallocVariable && had != recipe.environment().end();
    with.set_environment(name, joins ? had->second + ":" + value : value);
  }
  return with;
}

}  // namespace ridge
