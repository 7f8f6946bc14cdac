// Checkpoints: DIR/step-00000123/ with state.safetensors and manifest.json.
//
// A checkpoint is written to DIR/.tmp-step-..., synchronised, and renamed: whatever kills the
// process, a folder called step-... is whole, or an error of the disk that the checksums show.
// One process at a time may write to a DIR.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ridge/io/checkpoint_manifest.h"
#include "ridge/io/safetensors.h"

namespace ridge {

/// Writes a checkpoint of `info.step` to `dir`, which is made when missing, and returns its
/// folder. One of the same step is replaced: at once where the file system can exchange names, else
/// with a moment in which neither has its name. On failure (a full disk, say) UserError; the older
/// checkpoints are untouched and nothing temporary is left.
std::filesystem::path save_checkpoint(const std::filesystem::path& dir,
                                      const Checkpoint& info,
                                      std::span<const TensorView> tensors);

/// A checkpoint whose bytes were all checked.
class OpenCheckpoint {
 public:
  const std::filesystem::path& path() const { return path_; }
  const Checkpoint& info() const { return manifest_.info; }
  /// Names and types, in the order in which they were given to save_checkpoint.
  const std::vector<CheckpointManifest::Entry>& tensors() const { return manifest_.tensors; }
  bool contains(const std::string& name) const { return state_->contains(name); }
  /// The mapped tensors, which live as long as the checkpoint does.
  const SafetensorsView& state() const { return *state_; }
  /// UserError with the nearest names when there is no such tensor, and with both types when the
  /// tensor is not of `type`.
  Tensor read(std::string_view name) const { return state_->read(name); }
  void read_into(std::string_view name, const TensorType& type, void* data) const {
    state_->read_into(name, type, data);
  }

 private:
  friend OpenCheckpoint open_checkpoint(const std::filesystem::path& path);
  OpenCheckpoint(std::filesystem::path path, CheckpointManifest manifest, SafetensorsFile state);

  std::filesystem::path path_;
  CheckpointManifest manifest_;
  SafetensorsFile state_;
};

/// Opens the checkpoint folder `path` and verifies all of it. UserError says what is missing,
/// truncated or corrupt, and which tensor where that is known.
OpenCheckpoint open_checkpoint(const std::filesystem::path& path);

/// The newest checkpoint in `dir` that passes open_checkpoint, nothing when `dir` has none at all.
/// A line "step-00000123: why" goes to `skipped` for each newer one that was refused; UserError
/// with `fix` when all were.
std::optional<OpenCheckpoint> open_latest(const std::filesystem::path& dir,
                                          std::vector<std::string>& skipped,
                                          const std::string& fix = {});

/// Steps of the checkpoints in `dir`, newest first; not verified. Empty when there is no `dir`.
std::vector<int64_t> checkpoint_steps(const std::filesystem::path& dir);

/// The folder that the checkpoint of `step` has in `dir`.
std::filesystem::path checkpoint_path(const std::filesystem::path& dir, int64_t step);

/// Writes to the file DIR/best that `step` is the best checkpoint; UserError when there is none of
/// that step. best_step: nothing when none is marked.
void mark_best(const std::filesystem::path& dir, int64_t step);
std::optional<int64_t> best_step(const std::filesystem::path& dir);

/// Removes what is older than the `keep_last` newest complete checkpoints up to `current_step`, and
/// what dead processes left. The best one stays, and so does everything beyond `current_step`: a
/// run that went back to an older checkpoint must not lose its own to those it turned away from.
/// Returns the steps removed.
std::vector<int64_t> prune_checkpoints(const std::filesystem::path& dir,
                                       int64_t keep_last,
                                       int64_t current_step);

}  // namespace ridge
