#include "ridge/infer/weights.h"

#include <filesystem>

#include "ridge/infer/find_checkpoint.h"
#include "ridge/infer/trained_data.h"
#include "ridge/run/backends.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

// The checkpoint of a run that is best, where one is marked and whole, else its newest.
OpenCheckpoint best_or_newest(const std::string& out, TrainObserver& observer) {
  const fs::path folder = checkpoint_folder(out);
  if (const auto best = best_step(folder)) try {
      return open_checkpoint(checkpoint_path(folder, *best));
    } catch (const UserError& refusal) {
      observer.on_message(
          fmt::format("the best checkpoint, step {}, is left out: {}", *best, refusal.message()));
    }
  auto newest = find_checkpoint("auto", out, observer);
  if (!newest)
    throw UserError(fmt::format("no checkpoint in '{}'", out),
                    "train first, or give the weights by --weights");
  return std::move(*newest);
}

}  // namespace

ProgramOptions inference_options() {
  ProgramOptions options;
  options.plan.packs = true;
  return options;
}

ProgramOptions inference_options(const ModelSource& source) {
  ProgramOptions options = inference_options();
  options.passes.highest = source.highest_rewrite();
  return options;
}

OpenWeights open_weights(const TrainConfig& config,
                         const std::string& weights,
                         TrainObserver& observer) {
  std::error_code ignored;
  if (fs::is_regular_file(weights, ignored)) {
    const auto file = std::make_shared<const SafetensorsFile>(weights);
    return {.path = weights,
            .tensors = &**file,
            .owner = file,
            .data = trained_data(
                (*file)->metadata(), weights, "save it without that text of its metadata")};
  }
  if (weights.empty() && config.train.out.empty())
    throw UserError("there are no weights: the configuration has no train.out",
                    "give a file or folder by --weights");
  constexpr const char* kFix = "give --weights a file, or the folder of a run or of a checkpoint";
  const auto checkpoint = std::make_shared<const OpenCheckpoint>(
      weights.empty() ? best_or_newest(config.train.out, observer)
                      : open_checkpoint_in(weights, kFix, observer));
  return {.path = checkpoint->path().string(),
          .tensors = &checkpoint->state(),
          .owner = checkpoint,
          .data = trained_data(*checkpoint)};
}

// All is compared before anything is added.
void load_weights(State& state, std::span<const StateEntry> entries, const OpenWeights& weights) {
  const SafetensorsView& file = *weights.tensors;
  std::vector<StateEntry> copied;
  for (const StateEntry& entry : entries)
    check(!state.has(entry.name), "state '{}' has a value, and takes none from a file", entry.name);
  for (const StateEntry& entry : entries)
    if (!state.can_adopt(entry.type, file.checked(entry.name, entry.type).data))
      copied.push_back(entry);
  state.declare(copied);
  for (const StateEntry& entry : copied) {
    const Bytes bytes = file.tensor(entry.name).bytes();
    state.write_part(entry.name, 0, bytes.data(), bytes.size());
  }
  for (const StateEntry& entry : entries)
    if (const void* const data = file.tensor(entry.name).data; state.can_adopt(entry.type, data))
      state.adopt(entry, data, weights.owner);
}

std::unique_ptr<Backend> open_backend(const std::string& device, TrainObserver& observer) {
  return make_backend(device, [&](const std::string& note) { observer.on_message(note); });
}

}  // namespace ridge
