// Finds the checkpoints of a run, and the one that is asked for.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "ridge/io/checkpoint.h"
#include "ridge/run/observer.h"

namespace ridge {

/// The folder of checkpoints of a run that writes to `out`.
std::filesystem::path checkpoint_folder(const std::filesystem::path& out);

/// The checkpoint that `resume` asks for: "no" (nothing), "auto" (the newest in `out`, nothing when
/// it has none), a run's folder, or a checkpoint's. Says through `observer` which newer ones were
/// corrupt. UserError when there is none to be had, or "no" meets checkpoints of an earlier run.
std::optional<OpenCheckpoint> find_checkpoint(const std::string& resume,
                                              const std::string& out,
                                              TrainObserver& observer);

/// The checkpoint at `path`, its folder or that of its run, of which it is the newest one that is
/// not corrupt; which newer ones are it says through `observer`. UserError with `fix` when there is
/// none.
OpenCheckpoint open_checkpoint_in(const std::string& path,
                                  const std::string& fix,
                                  TrainObserver& observer);

}  // namespace ridge
