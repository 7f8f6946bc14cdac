#include "ridge/io/checkpoint.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>

#include "ridge/base/error.h"
#include "ridge/io/checksum.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kTemporary = ".tmp-step-";
constexpr std::string_view kTemporaryBest = ".tmp-best-";
constexpr const char* kState = "state.safetensors";
constexpr const char* kManifest = "manifest.json";
constexpr const char* kBest = "best";

[[noreturn]] void fail(std::string_view action, const fs::path& path, int code) {
  throw UserError(fmt::format("cannot {} '{}': {}", action, path.string(), std::strerror(code)));
}

std::string folder_name(int64_t step) { return fmt::format("{}{:08}", kPrefix, step); }

std::optional<int64_t> step_of(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  int64_t step = 0;
  const char* end = name.data() + name.size();
  if (std::from_chars(name.data() + kPrefix.size(), end, step).ptr != end) return std::nullopt;
  if (step < 0 || folder_name(step) != name) return std::nullopt;
  return step;
}

/// Names in `dir` that begin with `prefix`; none when there is no `dir`.
std::vector<std::string> names_in(const fs::path& dir, std::string_view prefix) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator entries(dir, error);
  if (error == std::errc::no_such_file_or_directory) return names;
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    std::string name = entries->path().filename().string();
    if (name.starts_with(prefix)) names.push_back(std::move(name));
  }
  if (error) fail("list", dir, error.value());
  return names;
}

fs::path temporary_path(const fs::path& dir, int64_t step) {
  return dir / fmt::format("{}{:08}-{}", kTemporary, step, unique_suffix());
}

/// Renames `from` to `to`; what had that name before is removed.
void publish(const fs::path& from, const fs::path& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return;
  if (errno == EEXIST &&
      ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) {
    sync_folder(to.parent_path());
    std::error_code ignored;  // prune_checkpoints removes it another time
    fs::remove_all(from, ignored);
    return;
  }
  if (errno != EINVAL && errno != ENOSYS && errno != EEXIST) fail("rename", from, errno);
  // A file system without these flags: two steps.
  const fs::path old = from.string() + "-old";
  if (::rename(to.c_str(), old.c_str()) != 0 && errno != ENOENT) fail("rename", to, errno);
  if (::rename(from.c_str(), to.c_str()) != 0) {
    const int code = errno;
    ::rename(old.c_str(), to.c_str());
    fail("rename", from, code);
  }
  std::error_code ignored;
  fs::remove_all(old, ignored);
}

CheckpointManifest::File write_state(const fs::path& path, std::span<const TensorView> tensors) {
  FileWriter file(path);
  Checksum sum;
  int64_t bytes = 0;
  const auto sink = [&](Bytes piece) {
    sum.update(piece);
    file.write(piece);
    bytes += static_cast<int64_t>(piece.size());
  };
  write_safetensors(sink, tensors);
  file.finish();
  return {bytes, sum.value()};
}

/// Writes both files into `folder` and waits for the disk.
void write_files(const fs::path& folder,
                 const Checkpoint& info,
                 std::span<const TensorView> tensors) {
  CheckpointManifest manifest;
  manifest.info = info;
  manifest.files[kState] = write_state(folder / kState, tensors);
  for (const TensorView& tensor : tensors)
    manifest.tensors.push_back({tensor.name, tensor.type, checksum(tensor.bytes())});
  FileWriter file(folder / kManifest);
  file.write(as_bytes(print_manifest(manifest)));
  file.finish();
  sync_folder(folder);
}

CheckpointManifest read_manifest(const fs::path& folder) {
  const fs::path path = folder / kManifest;
  std::error_code error;
  if (!fs::exists(path, error))
    throw UserError(
        fmt::format("'{}' is not a checkpoint: it has no {}", folder.string(), kManifest));
  const std::string text = read_file(path);
  check_seal(text, path.string());
  CheckpointManifest manifest = parse_manifest(text, path.string());
  check(manifest.files.count(kState) != 0, "{}: '{}' is missing", path.string(), kState);
  return manifest;
}

void check_size(const fs::path& path, int64_t found, int64_t expected) {
  check(found == expected,
        "'{}' is {}: {} says {} bytes, file has {}",
        path.string(),
        found < expected ? "truncated" : "corrupt",
        kManifest,
        expected,
        found);
}

/// " (tensor 'w')" for the first tensor whose bytes are not those of the manifest; nothing where
/// not even the header can be read.
std::string damaged_tensor(const fs::path& path, const CheckpointManifest& manifest) {
  try {
    const SafetensorsFile state(path);
    for (const auto& entry : manifest.tensors)
      if (checksum(state->tensor(entry.name).bytes()) != entry.checksum)
        return fmt::format(" (tensor '{}')", entry.name);
  } catch (const UserError&) {
  }
  return "";
}

void verify_file(const fs::path& path,
                 const CheckpointManifest::File& expected,
                 const CheckpointManifest& manifest) {
  const MappedFile file(path);
  check_size(path, static_cast<int64_t>(file.bytes().size()), expected.bytes);
  const uint64_t found = checksum(file.bytes());
  if (found == expected.checksum) return;
  throw UserError(fmt::format("'{}' is corrupt{}: its checksum is {}, {} says {}",
                              path.string(),
                              damaged_tensor(path, manifest),
                              checksum_text(found),
                              kManifest,
                              checksum_text(expected.checksum)));
}

void check_same_tensors(const SafetensorsView& state,
                        const CheckpointManifest& manifest,
                        const fs::path& path) {
  for (const auto& entry : manifest.tensors)
    check(state.tensor(entry.name).type == entry.type,
          "'{}': tensor '{}' is {}, {} says {}",
          path.string(),
          entry.name,
          to_string(state.tensor(entry.name).type),
          kManifest,
          to_string(entry.type));
  check(state.tensors().size() == manifest.tensors.size(),
        "'{}' holds {} tensors, {} says {}",
        path.string(),
        state.tensors().size(),
        kManifest,
        manifest.tensors.size());
}

/// Whether the checkpoint has all its bytes, whatever they are: cheap, unlike open_checkpoint.
bool is_complete(const fs::path& folder) {
  try {
    for (const auto& [name, file] : read_manifest(folder).files) {
      std::error_code error;
      const auto size = fs::file_size(folder / name, error);
      if (error || static_cast<int64_t>(size) != file.bytes) return false;
    }
    return true;
  } catch (const UserError&) {
    return false;
  }
}

/// Removes a checkpoint such that it never looks like a damaged one.
void remove_checkpoint(const fs::path& dir, int64_t step) {
  const fs::path path = checkpoint_path(dir, step), dead = temporary_path(dir, step);
  if (::rename(path.c_str(), dead.c_str()) != 0) fail("remove", path, errno);
  std::error_code error;
  fs::remove_all(dead, error);
  if (error) fail("remove", dead, error.value());
}

/// Removes what saves and marks left that were killed.
void remove_temporaries(const fs::path& dir) {
  for (std::string_view prefix : {kTemporary, kTemporaryBest})
    for (const std::string& name : names_in(dir, prefix)) {
      std::error_code error;
      fs::remove_all(dir / name, error);
      if (error) fail("remove", dir / name, error.value());
    }
}

}  // namespace

fs::path checkpoint_path(const fs::path& dir, int64_t step) { return dir / folder_name(step); }

fs::path save_checkpoint(const fs::path& dir,
                         const Checkpoint& info,
                         std::span<const TensorView> tensors) {
  check(info.step >= 0 && info.epoch >= 0 && info.sample >= 0,
        "checkpoint: step, epoch and sample must not be negative; got {}, {}, {}",
        info.step,
        info.epoch,
        info.sample);
  std::error_code error;
  if (fs::create_directories(dir, error)) sync_folder(dir.parent_path());
  if (error) fail("create", dir, error.value());
  const fs::path path = checkpoint_path(dir, info.step), folder = temporary_path(dir, info.step);
  if (::mkdir(folder.c_str(), 0777) != 0) fail("create", folder, errno);
  try {
    write_files(folder, info, tensors);
    publish(folder, path);
  } catch (...) {
    fs::remove_all(folder, error);
    throw;
  }
  sync_folder(dir);
  return path;
}

OpenCheckpoint::OpenCheckpoint(fs::path path, CheckpointManifest manifest, SafetensorsFile state)
    : path_(std::move(path)), manifest_(std::move(manifest)), state_(std::move(state)) {}

OpenCheckpoint open_checkpoint(const fs::path& path) {
  CheckpointManifest manifest = read_manifest(path);
  for (const auto& [name, file] : manifest.files) verify_file(path / name, file, manifest);
  SafetensorsFile state(path / kState);
  check_same_tensors(*state, manifest, path / kState);
  return OpenCheckpoint(path, std::move(manifest), std::move(state));
}

std::vector<int64_t> checkpoint_steps(const fs::path& dir) {
  std::vector<int64_t> steps;
  for (const std::string& name : names_in(dir, kPrefix))
    if (const auto step = step_of(name)) steps.push_back(*step);
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

std::optional<OpenCheckpoint> open_latest(const fs::path& dir,
                                          std::vector<std::string>& skipped,
                                          const std::string& fix) {
  std::string reasons;
  for (int64_t step : checkpoint_steps(dir)) {
    try {
      OpenCheckpoint found = open_checkpoint(checkpoint_path(dir, step));
      check(found.info().step == step, "its manifest says step {}", found.info().step);
      return found;
    } catch (const UserError& refusal) {
      skipped.push_back(fmt::format("{}: {}", folder_name(step), refusal.message()));
      reasons += (reasons.empty() ? " " : "; ") + skipped.back();
    }
  }
  if (reasons.empty()) return std::nullopt;
  throw UserError(fmt::format("no checkpoint in '{}' can be used:{}", dir.string(), reasons), fix);
}

void mark_best(const fs::path& dir, int64_t step) {
  std::error_code error;
  check(fs::is_directory(checkpoint_path(dir, step), error),
        "cannot mark '{}' as best: no such checkpoint",
        checkpoint_path(dir, step).string());
  write_file_atomically(dir / kBest, folder_name(step) + "\n");
}

std::optional<int64_t> best_step(const fs::path& dir) {
  const fs::path path = dir / kBest;
  std::error_code error;
  if (!fs::exists(path, error)) return std::nullopt;
  std::string name = read_file(path, 4096);
  if (name.ends_with('\n')) name.pop_back();
  const auto step = step_of(name);
  check(step.has_value(), "'{}' does not name a checkpoint", path.string());
  return step;
}

std::vector<int64_t> prune_checkpoints(const fs::path& dir,
                                       int64_t keep_last,
                                       int64_t current_step) {
  check(keep_last >= 1, "at least one checkpoint must be kept; got {}", keep_last);
  const auto best = best_step(dir);
  std::vector<int64_t> removed;
  int64_t kept = 0;
  for (int64_t step : checkpoint_steps(dir)) {
    if (step > current_step) continue;
    if (kept < keep_last) {
      kept += is_complete(checkpoint_path(dir, step));
    } else if (step != best) {
      remove_checkpoint(dir, step);
      removed.push_back(step);
    }
  }
  remove_temporaries(dir);
  return removed;
}

}  // namespace ridge
