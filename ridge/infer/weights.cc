#include "ridge/infer/weights.h"

#include <filesystem>
#include <set>
#include <string_view>

#include "ridge/base/named_list.h"
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
  return open_checkpoint_in(out, "train first, or give the weights by --weights", observer);
}

}  // namespace

OpenWeights open_weight_file(const std::string& path, nn::ModelKind kind, TrainObserver& observer) {
  struct Opened {
    explicit Opened(const std::string& from) : file(from) {}
    SafetensorsFile file;
    RenamedTensors renamed;
    std::optional<SafetensorsView> view;  ///< The view of those.
  };
  const auto opened = std::make_shared<Opened>(path);
  const SafetensorsView& file = *opened->file;
  OpenWeights weights{
      .path = path,
      .tensors = &file,
      .owner = opened,
      .data = trained_data(file.metadata(), path, "save it without that text of its metadata"),
      .kind = kind};
  auto renamed = with_own_names(file, kind, path);
  if (!renamed) return weights;
  opened->renamed = std::move(*renamed);
  opened->view.emplace(opened->renamed.tensors, file.metadata(), path);
  weights.tensors = &*opened->view;
  weights.names = opened->renamed.names;
  observer.on_message(
      fmt::format("'{}' names its tensors as {} does: they are read as those of a {}",
                  path,
                  name_of(weights.names),
                  name_of(kind)));
  return weights;
}

void check_names(const OpenWeights& weights, const std::vector<std::string>& needed) {
  const auto listed = [&](const std::vector<std::string>& own) {
    std::vector<std::string> names;
    for (const std::string& name : own)
      names.push_back(foreign_name(weights.kind, weights.names, name));
    return named_list(names);
  };
  std::vector<std::string> missing, left;
  for (const std::string& name : needed)
    if (!weights.tensors->contains(name)) missing.push_back(name);
  if (weights.names != TensorNames::kRidge) {
    const std::set<std::string_view> known(needed.begin(), needed.end());
    for (const TensorView& tensor : weights.tensors->tensors())
      if (!known.contains(tensor.name)) left.push_back(tensor.name);
  } else if (missing.size() == 1) {
    weights.tensors->tensor(missing[0]);  // it is refused with the nearest names
  }
  constexpr const char* kFix = "give the weights of this model, or the configuration of theirs";
  if (!missing.empty())
    throw UserError(fmt::format("{}: it lacks {}", weights.path, listed(missing)), kFix);
  if (!left.empty())
    throw UserError(fmt::format("{}: the model has nothing like {}", weights.path, listed(left)),
                    kFix);
}

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
  if (fs::is_regular_file(weights, ignored))
    return open_weight_file(weights, config.model.kind, observer);
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
          .data = trained_data(*checkpoint),
          .kind = config.model.kind};
}

// All is compared before anything is added.
void load_weights(State& state, std::span<const StateEntry> entries, const OpenWeights& weights) {
  const SafetensorsView& file = *weights.tensors;
  std::vector<StateEntry> copied;
  std::vector<std::string> needed;
  for (const StateEntry& entry : entries) needed.push_back(entry.name);
  check_names(weights, needed);
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
