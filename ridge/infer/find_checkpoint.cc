#include "ridge/infer/find_checkpoint.h"

#include <fmt/format.h>

#include <vector>

#include "ridge/base/error.h"

namespace ridge {
namespace fs = std::filesystem;

fs::path checkpoint_folder(const fs::path& out) { return out / "checkpoints"; }

namespace {

std::optional<OpenCheckpoint> newest_in(const fs::path& folder,
                                        const std::string& fix,
                                        TrainObserver& observer) {
  std::vector<std::string> skipped;
  std::optional<OpenCheckpoint> found = open_latest(folder, skipped, fix);
  for (const std::string& reason : skipped)
    observer.on_message(fmt::format(
        "checkpoint {}; {} takes its place", reason, found->path().filename().string()));
  return found;
}

void refuse_earlier_run(const std::string& out) {
  const std::vector<int64_t> steps =
      out.empty() ? std::vector<int64_t>{} : checkpoint_steps(checkpoint_folder(out));
  if (steps.empty()) return;
  throw UserError(
      fmt::format("'{}' holds checkpoints of an earlier run, up to step {}", out, steps.front()),
      "give --resume auto to go on with it, --out for another folder, or remove it");
}

}  // namespace

std::optional<OpenCheckpoint> find_checkpoint(const std::string& resume,
                                              const std::string& out,
                                              TrainObserver& observer) {
  if (resume == "no") {
    refuse_earlier_run(out);
    return std::nullopt;
  }
  if (resume == "auto")
    return out.empty()
               ? std::nullopt
               : newest_in(checkpoint_folder(out), "start again in another folder", observer);
  return open_checkpoint_in(
      resume, "give --resume the folder of a run or of a checkpoint", observer);
}

OpenCheckpoint open_checkpoint_in(const std::string& path,
                                  const std::string& fix,
                                  TrainObserver& observer) {
  const fs::path folder = path;
  std::error_code ignored;
  if (fs::exists(folder / "manifest.json", ignored)) return open_checkpoint(folder);
  const fs::path inner = checkpoint_folder(folder);
  std::optional<OpenCheckpoint> found =
      newest_in(fs::exists(inner, ignored) ? inner : folder, fix, observer);
  if (!found) throw UserError(fmt::format("no checkpoint in '{}'", path), fix);
  return std::move(*found);
}

}  // namespace ridge
