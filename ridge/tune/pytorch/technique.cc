#include "ridge/tune/pytorch/technique.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "ridge/io/file.h"
#include "ridge/tune/prediction.h"
#include "ridge/tune/pytorch/variables.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

struct Place {
  std::string_view technique;
  ForeignPart part;
};

// In the order of trials: what gains most where it applies comes first, as trials by hand showed,
// so that a small budget is well spent. What makes the loader cheap comes before what hides it.
constexpr std::array kPlaces = {
    Place{"loader.cache", ForeignPart::kLoading},
    Place{"model.channels_last", ForeignPart::kComputing},
    Place{"loader.workers", ForeignPart::kLoading},
    Place{"model.autocast", ForeignPart::kComputing},
    Place{"threads", ForeignPart::kAll},
    Place{"optimizer.fused", ForeignPart::kComputing},
    Place{"matmul.tf32", ForeignPart::kComputing},
    Place{"model.compile", ForeignPart::kComputing},
    Place{"allocator.keep", ForeignPart::kAll},
    Place{"allocator", ForeignPart::kAll},
    Place{"cuda_allocator", ForeignPart::kAll},
    Place{"cudnn.benchmark", ForeignPart::kComputing},
    Place{"loader.pin", ForeignPart::kAll},
    Place{"optimizer.foreach", ForeignPart::kComputing},
    Place{"huge_pages", ForeignPart::kAll},
    Place{"cpus", ForeignPart::kAll},
    Place{"loader.prefetch", ForeignPart::kLoading},
    Place{"interop_threads", ForeignPart::kAll},
};

// Of loader.workers: what only makes sense beside them.
constexpr std::string_view kWithWorkers = "loader.persistent";

// Of two of a row the later one takes the other's place.
constexpr std::pair<std::string_view, std::string_view> kExcluding[] = {
    {"optimizer.fused", "optimizer.foreach"},
    {"loader.cache", "loader.workers"},
    {"loader.cache", "loader.prefetch"},
    {"loader.cache", "loader.persistent"},
};

constexpr const char* kMallocLibrary = "libc.so.6";

ForeignProposal proposal_of(const attach::KnobOffer& offer, const Place& place) {
  ForeignProposal proposal{.technique = offer.key,
                           .semantic_class = offer.semantic_class,
                           .part = place.part,
                           .hypothesis = offer.text,
                           .refusal = offer.refusal};
  if (proposal.refusal.empty()) proposal.knobs.emplace_back(offer.key, offer.value);
  return proposal;
}

void propose_offers(std::vector<ForeignProposal>& proposals,
                    const attach::ProcessFacts& facts,
                    const Place& place) {
  const bool keeps_workers = std::ranges::any_of(facts.offers, [](const attach::KnobOffer& offer) {
    return offer.key == kWithWorkers && offer.refusal.empty();
  });
  for (const attach::KnobOffer& offer : facts.offers) {
    if (offer.key != place.technique) continue;
    proposals.push_back(proposal_of(offer, place));
    if (offer.key == "loader.workers" && offer.refusal.empty() && offer.value != "0" &&
        keeps_workers)
      proposals.back().knobs.emplace_back(kWithWorkers, "true");
  }
}

void propose_allocators(std::vector<ForeignProposal>& proposals,
                        const ForeignMachine& machine,
                        const std::string& preload) {
  ForeignProposal proposal{.technique = "allocator",
                           .hypothesis = "memory is taken and given back at every step"};
  if (!preload.empty()) {
    proposal.refusal = "you set LD_PRELOAD yourself";
  } else if (machine.allocators.empty()) {
    proposal.refusal = "neither jemalloc, tcmalloc nor mimalloc is installed";
  } else {
    for (const auto& [name, path] : machine.allocators) {
      proposals.push_back(proposal);
      proposals.back().hypothesis += ": by " + name;
      proposals.back().variables = {{std::string(kPreloadVariable), path}};
    }
    return;
  }
  proposals.push_back(proposal);
}

/// A variable that the program reads; `refusal`: why it would not help, empty: it may.
void propose_variable(std::vector<ForeignProposal>& proposals,
                      ForeignProposal proposal,
                      const std::string& refusal,
                      const std::pair<std::string, std::string>& variable,
                      const std::string& had) {
  if (!had.empty())
    proposal.refusal = fmt::format("you set {} yourself", variable.first);
  else if (!refusal.empty())
    proposal.refusal = refusal;
  else
    proposal.variables = {variable};
  proposals.push_back(std::move(proposal));
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

std::vector<ForeignProposal> foreign_proposals(
    const attach::ProcessFacts& facts,
    const ForeignMachine& machine,
    const std::function<std::string(const std::string&)>& environment) {
  std::vector<ForeignProposal> proposals;
  for (const Place& place : kPlaces) {
    const size_t before = proposals.size();
    if (place.technique == "allocator")
      propose_allocators(proposals, machine, environment(std::string(kPreloadVariable)));
    else if (place.technique == "allocator.keep")
      propose_variable(
          proposals,
          {.technique = std::string(place.technique),
           .hypothesis = "memory that a step frees is kept for the next one"},
          machine.has_glibc ? "" : "the system's malloc is not glibc's",
          {std::string(kMallocVariable), fmt::format("{}:{}", kNoMappings, kNoTrimming)},
          environment(std::string(kMallocVariable)));
    else if (place.technique == "huge_pages")
      propose_variable(proposals,
                       {.technique = std::string(place.technique),
                        .hypothesis = "large tensors take fewer faults in pages of 2 MiB"},
                       machine.has_huge_pages && machine.has_glibc
                           ? ""
                           : "this system gives transparent huge pages to all or to nobody",
                       {std::string(kMallocVariable), std::string(kHugePages)},
                       environment(std::string(kMallocVariable)));
    else if (place.technique == "cuda_allocator")
      propose_variable(proposals,
                       {.technique = std::string(place.technique),
                        .hypothesis = "segments that grow leave fewer holes in the GPU's memory"},
                       facts.has_cuda ? "" : "the program does not use CUDA",
                       {std::string(kCudaAllocatorVariable), std::string(kGrowingSegments)},
                       environment(std::string(kCudaAllocatorVariable)));
    else
      propose_offers(proposals, facts, place);
    if (proposals.size() == before)
      proposals.push_back({.technique = std::string(place.technique),
                           .refusal = "the probe of the program offered nothing"});
  }
  return proposals;
}

ForeignRecipe with_proposal(const ForeignRecipe& recipe, const ForeignProposal& proposal) {
  ForeignRecipe with = recipe;
  for (const auto& [key, value] : proposal.knobs) {
    for (const auto& [one, other] : kExcluding) {
      if (key == one) with.erase(std::string(other));
      if (key == other) with.erase(std::string(one));
    }
    with.set(key, value);
  }
  for (const auto& [name, value] : proposal.variables) {
    // One variable holds all settings of malloc.
    const auto had = recipe.environment().find(name);
    const bool joins = name == kMallocVariable && had != recipe.environment().end();
    with.set_environment(name, joins ? had->second + ":" + value : value);
  }
  return with;
}

std::optional<double> ceiling_of(const ForeignProposal& proposal, double wait_share) {
  const double share = std::clamp(wait_share, 0.0, 1.0);
  const double rest = proposal.part == ForeignPart::kLoading     ? 1 - share
                      : proposal.part == ForeignPart::kComputing ? share
                                                                 : 0;
  if (proposal.part == ForeignPart::kAll) return std::nullopt;
  return std::min(kNoCeiling, 1 / std::max(rest, 1e-9));
}

}  // namespace ridge
