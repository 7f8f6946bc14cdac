#include "ridge/tune/onnx/model_techniques.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "ridge/base/cpu/cpu_affinity.h"
#include "ridge/base/cpu/cpu_info.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/base/error.h"
#include "ridge/base/settings.h"
#include "ridge/base/sysfs.h"
#include "ridge/compile/pipeline.h"

namespace ridge {
namespace {

using Proposals = std::vector<ModelProposal>;
using Situation = ModelSituation;

// A run of a larger batch may take so many seconds: a trial has ten of them at least.
constexpr double kMostRunSeconds = 1;

Proposals nothing(std::string reason) {
  return {{.technique = {}, .hypothesis = std::move(reason)}};
}

int64_t threads_of(const Situation& s) { return s.recipe.threads.value_or(s.threads); }

Proposals propose_batch(const Situation& s) {
  if (!s.is_throughput) return nothing("the goal is the time of a run: --goal throughput tries it");
  if (!s.has_rows) return nothing("the model has no dimension of samples that do not mix");
  const int64_t now = s.recipe.batch.value_or(1);
  Proposals proposals;
  for (const int64_t batch : {int64_t{4}, int64_t{16}, int64_t{64}}) {
    const double seconds = s.step_seconds * static_cast<double>(batch) / static_cast<double>(now);
    if (batch <= now || seconds > kMostRunSeconds) continue;
    proposals.push_back({.technique = {},
                         .text = fmt::format("batch {} -> {}", now, batch),
                         .hypothesis = "weights are read once for all rows of a run",
                         .apply = [batch](ModelRecipe& recipe) { recipe.batch = batch; }});
  }
  return proposals.empty() ? nothing(fmt::format("runs of {} rows are long enough", now))
                           : proposals;
}

Proposals propose_instances(const Situation& s) {
  if (!s.is_throughput) return nothing("the goal is the time of a run: --goal throughput tries it");
  if (s.cpus < 2) return nothing("there is one CPU");
  if (s.recipe.instances > 1)
    return nothing(fmt::format("{} runs go on at once already", s.recipe.instances));
  if (!s.may_set_threads) return nothing("the environment sets the threads");
  const int64_t instances = s.cpus;
  return {{.technique = {},
           .text = fmt::format("instances 1 -> {}, each with one thread", instances),
           .hypothesis = "threads that have a run each wait for nobody",
           .apply = [instances](ModelRecipe& recipe) {
             recipe.instances = instances;
             recipe.threads = 1;
           }}};
}

Proposals propose_threads(const Situation& s) {
  if (!s.may_set_threads) return nothing("the environment sets them");
  if (s.recipe.instances > 1) return nothing("each instance has one");
  const int64_t now = threads_of(s);
  Proposals proposals;
  std::set<int64_t> tried{now, s.threads};
  for (const int64_t threads :
       {int64_t{s.cpus}, int64_t{s.cores}, int64_t{s.cores / 2}, int64_t{1}})
    if (threads >= 1 && tried.insert(threads).second)
      proposals.push_back({.technique = {},
                           .text = fmt::format("threads {} -> {}", now, threads),
                           .hypothesis = threads > now
                                             ? "every CPU computes"
                                             : "small kernels wait for each other longer than they "
                                               "compute",
                           .apply = [threads](ModelRecipe& recipe) { recipe.threads = threads; }});
  return proposals.empty() ? nothing("no other number of threads suits the CPUs") : proposals;
}

Proposals propose_pin(const Situation& s) {
  if (!s.may_pin) return nothing("the environment says whether threads are pinned");
  if (s.recipe.pin.value_or(s.pins)) return nothing("threads stay on CPUs of their own already");
  if (threads_of(s) > s.cpus) return nothing("there are more threads than CPUs");
  if (s.recipe.instances > 1) return nothing("the threads of instances are the caller's");
  return {{.technique = {},
           .text = "pin false -> true",
           .hypothesis = "a thread that stays on its CPU finds its caches warm",
           .apply = [](ModelRecipe& recipe) { recipe.pin = true; }}};
}

ModelProposal picked(KernelPick pick, SemanticClass semantic_class, std::string text) {
  return {.technique = {},
          .text = std::move(text),
          .hypothesis = "the fastest kernel of a node depends on its shape and on the machine",
          .semantic_class = semantic_class,
          .apply =
              [pick](ModelRecipe& recipe) {
                recipe.choices.pick = pick;
                recipe.choices.kernels.clear();
                recipe.choices.kernels_off.clear();
              },
          .sets_kernels = true};
}

Proposals propose_kernels(const Situation& s) {
  Proposals proposals;
  if (s.facts.has_alternatives && s.may_time)
    proposals.push_back(picked(KernelPick::kTimed,
                               SemanticClass::kBitIdentical,
                               "kernels: the fastest of those with the same bits"));
  if (s.facts.has_other_bits && s.may_time)
    proposals.push_back(picked(KernelPick::kTimedAnyBits,
                               SemanticClass::kReassociation,
                               "kernels: the fastest of all that are right"));
  // A kernel that is timed alone has no operands that lie packed: whole runs tell of these.
  for (const std::string& name : s.facts.replaceable)
    proposals.push_back({.technique = {},
                         .text = fmt::format("kernels and their layouts: without {}", name),
                         .hypothesis = "another kernel has its operands packed, or less to write",
                         .semantic_class = SemanticClass::kReassociation,
                         .apply =
                             [name](ModelRecipe& recipe) {
                               recipe.choices.kernels_off.push_back(name);
                               std::erase_if(recipe.choices.kernels,
                                             [&](const auto& each) { return each.second == name; });
                             },
                         .sets_kernels = true});
  return proposals.empty() ? nothing("each node of the model has one kernel here") : proposals;
}

Proposals propose_precision(const Situation& s) {
  if (s.recipe.choices.precision != DType::kF32) return nothing("products round to bf16 already");
  if (!s.facts.has_bf16)
    return nothing("the processor multiplies no bf16, or the model has no products");
  return {{.technique = {},
           .text = "precision f32 -> bf16",
           .hypothesis = "the processor multiplies twice as many bf16 at a time",
           .semantic_class = SemanticClass::kPrecision,
           .apply = [](ModelRecipe& recipe) { recipe.choices.precision = DType::kBF16; }}};
}

Proposals propose_quantize(const Situation& s) {
  if (!s.recipe.quantized.empty()) return nothing("products multiply bytes already");
  if (!s.has_data) return nothing("ranges of bytes follow from your samples: give --data FILE.npz");
  Proposals proposals;
  for (const auto& [method, name] : s.quantized)
    proposals.push_back(
        {.technique = {},
         .text = fmt::format("quantize f32 -> int8 ({})", name_of(method)),
         .hypothesis =
             "products of bytes read a quarter, and the processor multiplies more at a time",
         .semantic_class = SemanticClass::kPrecision,
         .apply = [name](ModelRecipe& recipe) { recipe.quantized = name; }});
  return proposals;
}

bool fuses(std::string_view pass) {
  return pass.starts_with("fuse_") || pass.starts_with("join_") || pass.starts_with("recognize_");
}

// Passes that fuse are on; one that fuses too much for a shape would lose.
Proposals propose_fusion(const Situation& s) {
  Proposals proposals;
  for (const std::string& name : s.facts.passes) {
    const auto pass = std::ranges::find(pipeline(), name, &PassInfo::name);
    if (!fuses(name) || pass == pipeline().end() ||
        pass->semantic_class == SemanticClass::kPrecision)
      continue;
    proposals.push_back(
        {.technique = {},
         .text = fmt::format("fusion: without {}", name),
         .hypothesis =
             "what is fused has one kernel for all shapes, and recomputes what others read",
         .semantic_class = pass->semantic_class,
         .apply = [name](ModelRecipe& recipe) { recipe.choices.passes_off.push_back(name); }});
  }
  return proposals.empty() ? nothing("nothing in the model is fused") : proposals;
}

Proposals propose_pages(const Situation& s) {
  const bool has = !s.huge_pages.empty() && s.huge_pages.find("[never]") == std::string::npos;
  return nothing(has ? "memory of results and packed weights asks for pages of 2 MiB already"
                     : "the system gives no pages of 2 MiB");
}

struct Technique {
  std::string_view name;
  Proposals (*propose)(const Situation&);
};
constexpr std::array kTechniques = {Technique{"batch", propose_batch},
                                    Technique{"instances", propose_instances},
                                    Technique{"quantize", propose_quantize},
                                    Technique{"precision", propose_precision},
                                    Technique{"threads", propose_threads},
                                    Technique{"kernels", propose_kernels},
                                    Technique{"pin", propose_pin},
                                    Technique{"fusion", propose_fusion},
                                    Technique{"pages", propose_pages}};

}  // namespace

ModelSituation machine_situation(const std::string& root) {
  ModelSituation situation;
  situation.cpus = usable_cpus();
  situation.cores = std::clamp(physical_cores(allowed_cpus(), root), 1, situation.cpus);
  situation.threads = num_threads();
  situation.pins = settings().get_bool("cpu.pin");
  situation.may_set_threads = settings().origin("threads").source < Source::kEnvironment;
  situation.may_pin = settings().origin("cpu.pin").source < Source::kEnvironment;
  situation.may_time = settings().get_bool("tune");
  situation.huge_pages = first_line(root + "/sys/kernel/mm/transparent_hugepage/enabled");
  return situation;
}

std::vector<std::string> model_techniques() {
  std::vector<std::string> names;
  for (const Technique& technique : kTechniques) names.emplace_back(technique.name);
  return names;
}

std::vector<ModelProposal> model_proposals(const ModelSituation& situation) {
  Proposals all;
  for (const Technique& technique : kTechniques)
    for (ModelProposal& proposal : technique.propose(situation)) {
      proposal.technique = technique.name;
      all.push_back(std::move(proposal));
    }
  return all;
}

}  // namespace ridge
