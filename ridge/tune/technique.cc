#include "ridge/tune/technique.h"

#include <fmt/format.h>

#include <array>

#include "ridge/train/config_keys.h"
#include "ridge/train/config_value.h"
#include "ridge/tune/technique_batch.h"
#include "ridge/tune/technique_lengths.h"

namespace ridge {
namespace {

ConfigFlag set(std::string key, const auto& value) {
  return {std::move(key), fmt::format("{}", value), "ridge optimize"};
}

Proposals one(ConfigFlag change,
              std::string hypothesis,
              SemanticClass semantic_class = SemanticClass::kBitIdentical) {
  Proposals proposals;
  proposals.tries.push_back({.changes = {std::move(change)},
                             .semantic_class = semantic_class,
                             .hypothesis = std::move(hypothesis)});
  return proposals;
}

Proposals nothing(std::string reason) { return {.tries = {}, .reason = std::move(reason)}; }

// ---- starvation ----

Proposals propose_workers(const Situation& s) {
  const int64_t now = s.config.loader.workers;
  Proposals proposals;
  for (const int64_t workers : {int64_t{1}, int64_t{s.cpus}})
    if (workers > now && (proposals.tries.empty() || workers > 1))
      proposals.tries.push_back(
          {.changes = {set("loader.workers", workers)},
           .hypothesis = "batches are made while a step computes, not between steps"});
  if (proposals.tries.empty())
    proposals.reason = fmt::format("{} workers already, on {} CPUs", now, s.cpus);
  return proposals;
}

Proposals propose_prefetch(const Situation& s) {
  const data::LoaderOptions& loader = s.config.loader;
  if (loader.workers == 0) return nothing("no thread loads ahead");
  constexpr int64_t kDeep = 8;
  if (loader.prefetch >= kDeep)
    return nothing(fmt::format("{} batches are kept ready already", loader.prefetch));
  return one(set("loader.prefetch", kDeep),
             "more batches ready bridge samples that take long to read");
}

Proposals propose_cache(const Situation& s) {
  if (s.config.loader.cache) return nothing("samples are kept in memory already");
  if (s.epochs <= 1) return nothing("the run reads no sample twice");
  return one(set("loader.cache", true),
             "from the second epoch on no sample is read and decoded again");
}

// ---- what a step costs the host ----

Proposals propose_threads(const Situation& s) {
  const int64_t wanted = s.settings.get_int("threads");
  const int64_t now = wanted == 0 ? s.cpus : wanted;
  Proposals proposals;
  if (now != s.cpus)
    proposals.tries.push_back(
        {.changes = {set("threads", s.cpus)}, .hypothesis = "every CPU computes"});
  if (now != 1)
    proposals.tries.push_back(
        {.changes = {set("threads", 1)},
         .hypothesis = "small kernels wait for each other longer than they compute"});
  if (proposals.tries.empty()) proposals.reason = "there is one CPU, and one thread computes";
  return proposals;
}

Proposals propose_pinning(const Situation& s) {
  if (s.settings.get_bool("cpu.pin")) return nothing("threads stay on CPUs of their own already");
  if (s.settings.get_int("threads") > s.cpus) return nothing("there are more threads than CPUs");
  return one(set("cpu.pin", true), "a thread that stays on its CPU finds its caches warm");
}

Proposals propose_metrics(const Situation& s) {
  constexpr int64_t kRarely = 50;
  const int64_t now = s.config.metrics.every;
  if (now >= kRarely) return nothing(fmt::format("one step in {} is told already", now));
  return one(set("metrics.every", kRarely), "no step waits for the result of each to be told");
}

Proposals propose_micro(const Situation& s) {
  const int64_t now = s.micro > 0 ? s.micro : s.config.train.micro;
  if (now == 1) return nothing("a step is one batch already, and the update is part of its graph");
  if (s.config.train.memory_limit > 0 && now > s.config.train.micro)
    return nothing(fmt::format("the limit of memory asks for {} micro-batches", now));
  Proposals proposals;
  proposals.tries.push_back(
      {.changes = {set("train.micro", 1)},
       .semantic_class = SemanticClass::kReassociation,
       .hypothesis = "one pass over the batch launches less, and the update joins its graph"});
  // Fewer launches on the one hand, results that stay in the cache on the other.
  for (const int64_t micro : {now / 2, now / 4})
    if (micro > 1)
      proposals.tries.push_back(
          {.changes = {set("train.micro", micro)},
           .semantic_class = SemanticClass::kReassociation,
           .hypothesis = fmt::format("{} passes launch less than {}, and what each computes is "
                                     "still small enough to stay in the cache",
                                     micro,
                                     now)});
  return proposals;
}

// ---- memory ----

// It is a way to keep within a limit, never to be faster: the plan has chosen it, or not, before
// anything is tried.
Proposals propose_recompute(const Situation& s) {
  if (s.config.train.memory_limit == 0) return nothing("no memory limit");
  Proposals proposals = nothing(s.memory);
  proposals.is_done = true;
  return proposals;
}

// ---- kernels and precision ----

Proposals propose_jit(const Situation& s) {
  if (s.settings.get_bool("cpu.jit")) return nothing("fused loops are machine code already");
  return one(set("cpu.jit", true), "machine code keeps a loop's values in registers");
}

Proposals propose_choices(const Situation& s) {
  if (s.settings.get_bool("tune")) return nothing("kernels are picked by time already");
  return one(set("tune", true), "the first candidate of a node is not always the fastest");
}

Proposals propose_isa(const Situation& s) {
  if (s.settings.get_string("cpu.isa") == "auto")
    return nothing("the widest instruction set is used already");
  return one(set("cpu.isa", "auto"), "wider registers");
}

Proposals propose_bf16(const Situation& s) {
  if (s.config.train.precision != "f32" || s.config.model.dtype != DType::kF32)
    return nothing("products do not compute in f32");
  return one(set("train.precision", "bf16"),
             "products of 16-bit numbers take less time and memory traffic",
             SemanticClass::kPrecision);
}

Proposals propose_fp16(const Situation& s) {
  if (s.config.train.precision != "f32" || s.config.model.dtype != DType::kF32)
    return nothing("products do not compute in f32");
  return one(set("train.precision", "fp16"),
             "products of 16-bit numbers take less time where the machine multiplies f16",
             SemanticClass::kPrecision);
}

constexpr std::array kTechniques = {
    Technique{"loader.workers", "threads that load ahead", Affects::kLoading, propose_workers},
    Technique{"loader.cache", "samples stay in memory", Affects::kLoading, propose_cache},
    Technique{"threads", "threads that compute", Affects::kComputing, propose_threads},
    Technique{"pinning", "threads that stay on a CPU", Affects::kComputing, propose_pinning},
    Technique{"metrics", "steps told late, some at once", Affects::kTelling, propose_metrics},
    Technique{"micro", "fewer parts a batch", Affects::kLaunching, propose_micro},
    Technique{"padding", "batches as long as they need", Affects::kComputing, propose_padding},
    Technique{"jit", "machine code for fused loops", Affects::kComputing, propose_jit},
    Technique{"choices", "kernels picked by time", Affects::kComputing, propose_choices},
    Technique{"isa", "the widest instruction set", Affects::kComputing, propose_isa},
    Technique{"bf16", "products in 16 bits", Affects::kComputing, propose_bf16},
    Technique{"fp16", "products in f16, with a loss scale", Affects::kComputing, propose_fp16},
    Technique{"buckets", "like lengths in a batch", Affects::kComputing, propose_buckets},
    Technique{"tokens", "batches that hold so many tokens", Affects::kBatch, propose_tokens},
    Technique{"batch", "more samples a step", Affects::kBatch, propose_batch},
    Technique{"recompute", "results made again", Affects::kComputing, propose_recompute},
    Technique{"loader.prefetch", "more batches ready", Affects::kLoading, propose_prefetch},
};

std::string value_now(const std::string& key, const Situation& situation) {
  TrainConfig config = situation.config;
  const std::vector<ConfigKey> keys = config_keys(config);
  for (const ConfigKey& row : keys)
    if (row.name == key && is_active(row, keys)) return value_text(row.field);
  return situation.settings.origin(key).value;
}

}  // namespace

std::span<const Technique> techniques() { return kTechniques; }

std::string change_text(const std::vector<ConfigFlag>& changes, const Situation& situation) {
  std::string text;
  for (const ConfigFlag& change : changes) {
    const std::string now = value_now(change.key, situation);
    // Another change that was kept has made it already.
    if (now == change.value || now == '"' + change.value + '"') continue;
    text += fmt::format("{}{} {} -> {}", text.empty() ? "" : ", ", change.key, now, change.value);
  }
  return text;
}

}  // namespace ridge
