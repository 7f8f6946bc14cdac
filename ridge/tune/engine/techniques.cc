#include "ridge/tune/engine/techniques.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "ridge/config/keys.h"
#include "ridge/config/value.h"
#include "ridge/train/task.h"
#include "ridge/tune/engine/technique_batch.h"
#include "ridge/tune/engine/technique_lengths.h"

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

// A device computes beside the host, in memory of its own.
bool is_on_device(const Situation& s) { return s.config.train.is_on_gpu(); }

constexpr const char* kHostDoesNotCompute = "the device computes, not the host's threads";

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
  if (!s.config.data.is_cacheable()) return nothing("samples are never read again");
  if (s.config.loader.cache) return nothing("samples are kept in memory already");
  if (s.epochs <= 1) return nothing("the run reads no sample twice");
  return one(set("loader.cache", true),
             "from the second epoch on no sample is read and decoded again");
}

// A device has it always: nothing is to be tried, and the report shall say so.
Proposals propose_overlap(const Situation& s) {
  if (!is_on_device(s)) return nothing("the host computes: a batch is read where it lies");
  Proposals proposals =
      nothing("a batch is copied from page-locked memory while the step before it runs");
  proposals.is_done = true;
  return proposals;
}

// ---- what a step costs the host ----

Proposals propose_capture(const Situation& s) {
  if (!is_on_device(s)) return nothing("the host computes: there is nothing to capture");
  if (s.config.train.capture != Capture::kOff)
    return nothing("the launches of a step are captured already");
  return one(set("train.capture", "auto"),
             "the host launches a step as one piece, not kernel by kernel");
}

Proposals propose_threads(const Situation& s) {
  if (is_on_device(s)) return nothing(kHostDoesNotCompute);
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
  if (is_on_device(s)) return nothing(kHostDoesNotCompute);
  if (s.settings.get_bool("cpu.pin")) return nothing("threads stay on CPUs of their own already");
  if (s.settings.get_int("threads") > s.cpus) return nothing("there are more threads than CPUs");
  return one(set("cpu.pin", true), "a thread that stays on its CPU finds its caches warm");
}

Proposals propose_metrics(const Situation& s) {
  constexpr int64_t kRarely = 50;
  const int64_t now = s.config.metrics.every;
  if (now >= kRarely) return nothing(fmt::format("one step in {} is reported already", now));
  return one(set("metrics.every", kRarely), "no step waits for the result of each to be reported");
}

Proposals propose_micro(const Situation& s) {
  const int64_t now = s.micro > 0 ? s.micro : s.config.train.micro;
  if (now == 1) return nothing("a step is one batch already, and the update is part of its graph");
  if (s.config.train.memory_limit > 0 && now > s.config.train.micro)
    return nothing(fmt::format("the limit of memory asks for {} micro-batches", now));
  const int64_t fewest = std::max<int64_t>(1, s.fewest_parts);
  if (fewest >= now)
    return nothing(
        fmt::format("the device has no free memory for fewer than {} micro-batches", now));
  Proposals proposals;
  proposals.tries.push_back(
      {.changes = {set("train.micro", fewest)},
       .semantic_class = SemanticClass::kReassociation,
       .hypothesis =
           fewest == 1
               ? "one pass over the batch launches less, and the update joins its graph"
               : "the largest micro-batches that fit into the device's memory launch least"});
  // Fewer launches on the one hand, results that stay in the cache on the other.
  for (const int64_t micro : {now / 2, now / 4})
    if (micro > fewest)
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
// On a device that has no memory for a step as one batch, recomputed results may cost less than the
// launches of all micro-batches.
Proposals propose_recompute(const Situation& s) {
  if (s.config.train.memory_limit == 0 && s.fewest_parts > 1 && s.micro > 1)
    return {
        .tries = {{.changes = {set("train.micro", 1), set("train.memory_limit", s.free_device_mib)},
                   .semantic_class = SemanticClass::kReassociation,
                   .hypothesis = "recomputed results leave memory for the whole batch"}},
        .reason = {}};
  if (s.config.train.memory_limit == 0) return nothing("no memory limit");
  Proposals proposals = nothing(s.memory);
  proposals.is_done = true;
  return proposals;
}

// ---- kernels and precision ----

Proposals propose_jit(const Situation& s) {
  if (is_on_device(s)) return nothing("the device runs kernels that are compiled for it");
  if (s.settings.get_bool("cpu.jit")) return nothing("fused loops are machine code already");
  return one(set("cpu.jit", true), "machine code keeps a loop's values in registers");
}

Proposals propose_choices(const Situation& s) {
  if (s.settings.get_bool("tune")) return nothing("kernels are picked by time already");
  return one(set("tune", true),
             "the first candidate of a node is not always the fastest",
             kernels_of(s.config) == KernelRange::kAnyBits ? SemanticClass::kReassociation
                                                           : SemanticClass::kBitIdentical);
}

// Each algorithm of a library, and each of our own kernels, may add up in another order.
Proposals propose_kernels(const Situation& s) {
  if (kernels_of(s.config) == KernelRange::kAnyBits)
    return nothing("the fastest kernels are picked already, whatever their last bits");
  Proposals proposals = one(set("train.kernels", "fastest"),
                            "some kernels that add up in another order take less time",
                            SemanticClass::kReassociation);
  if (!s.settings.get_bool("tune")) proposals.tries[0].changes.push_back(set("tune", true));
  return proposals;
}

Proposals propose_isa(const Situation& s) {
  if (is_on_device(s)) return nothing(kHostDoesNotCompute);
  if (s.settings.get_string("cpu.isa") == "auto")
    return nothing("the widest instruction set is used already");
  return one(set("cpu.isa", "auto"), "wider registers");
}

// TF32 is f32 in memory.
bool computes_in_f32(const Situation& s) {
  const Precision precision = s.config.train.precision;
  return s.config.model.dtype == DType::kF32 &&
         (precision == Precision::kF32 || precision == Precision::kTf32);
}

Proposals propose_tf32(const Situation& s) {
  if (!is_on_device(s)) return nothing("only a GPU multiplies in TF32");
  if (!computes_in_f32(s)) return nothing("products do not compute in f32");
  if (s.config.train.precision == Precision::kTf32)
    return nothing("products compute in TF32 already");
  return one(set("train.precision", "tf32"),
             "tensor cores multiply f32 that is rounded to 10 bits on the way",
             SemanticClass::kPrecision);
}

Proposals propose_bf16(const Situation& s) {
  if (!computes_in_f32(s)) return nothing("products do not compute in f32");
  return one(set("train.precision", "bf16"),
             "products of 16-bit numbers take less time and memory traffic",
             SemanticClass::kPrecision);
}

Proposals propose_fp16(const Situation& s) {
  if (!computes_in_f32(s)) return nothing("products do not compute in f32");
  return one(set("train.precision", "fp16"),
             "products of 16-bit numbers take less time where the machine multiplies f16",
             SemanticClass::kPrecision);
}

constexpr std::array kTechniques = {
    Technique{"loader.workers", "threads that load ahead", Affects::kLoading, propose_workers},
    Technique{"loader.cache", "samples stay in memory", Affects::kLoading, propose_cache},
    Technique{"overlap", "batches copied beside a step", Affects::kLoading, propose_overlap},
    Technique{"capture", "launches as one piece", Affects::kComputing, propose_capture},
    Technique{"threads", "threads that compute", Affects::kComputing, propose_threads},
    Technique{"pinning", "threads that stay on a CPU", Affects::kComputing, propose_pinning},
    Technique{"metrics", "steps reported late, some at once", Affects::kReporting, propose_metrics},
    Technique{"micro", "fewer micro-batches a step", Affects::kLaunching, propose_micro},
    Technique{"padding", "batches as long as they need", Affects::kComputing, propose_padding},
    Technique{"jit", "machine code for fused loops", Affects::kComputing, propose_jit},
    Technique{"choices", "kernels picked by time", Affects::kComputing, propose_choices},
    Technique{"kernels", "kernels with other last bits", Affects::kComputing, propose_kernels},
    Technique{"isa", "the widest instruction set", Affects::kComputing, propose_isa},
    Technique{"bf16", "products in 16 bits", Affects::kComputing, propose_bf16},
    Technique{"fp16", "products in f16, with a loss scale", Affects::kComputing, propose_fp16},
    Technique{"tf32", "products in TF32", Affects::kComputing, propose_tf32},
    Technique{"buckets", "like lengths in a batch", Affects::kComputing, propose_buckets},
    Technique{"tokens", "batches that hold so many tokens", Affects::kBatch, propose_tokens},
    Technique{"batch", "more samples a step", Affects::kBatch, propose_batch},
    Technique{"recompute", "recomputed results", Affects::kComputing, propose_recompute},
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
