#include "ridge/attach/process/workplace.h"

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>

#include "ridge/attach/folders/folder_copy.h"
#include "ridge/base/error.h"

namespace ridge::attach {
namespace {

namespace fs = std::filesystem;

std::string working_folder() {
  std::error_code error;
  const fs::path folder = fs::current_path(error);
  if (error)
    throw UserError(fmt::format("cannot tell the working folder: {}", error.message()),
                    "start ridge in a folder that is there");
  return folder.string();
}

/// The working folder as the shell calls it, where it went there by a link; or nothing.
std::string other_name_of(const std::string& folder) {
  const char* name = std::getenv("PWD");
  if (name == nullptr || name[0] != '/' || name == folder) return {};
  struct stat one{}, other{};
  const bool is_it = ::stat(name, &one) == 0 && ::stat(folder.c_str(), &other) == 0 &&
                     one.st_dev == other.st_dev && one.st_ino == other.st_ino;
  return is_it ? name : "";
}

void check_can_be_kept_apart(const std::string& folder, const std::string& ours) {
  if (folder == "/")
    throw UserError("--sandbox cannot keep '/' as it is while a program runs in it",
                    "start ridge in the folder of the program");
  if (fs::canonical(ours).string().starts_with(folder + "/"))
    throw UserError(
        fmt::format("--sandbox needs a place for what a program writes in '{}', and the folder for "
                    "temporary files, '{}', lies in it",
                    folder,
                    folder_for_temporary_files()),
        "set TMPDIR to a folder outside of it");
}

}  // namespace

Workplace::Workplace(const CommandTemplate& command, Consent consent, SandboxWay way)
    : command_(command), folder_("place") {
  fs::create_directory(folder_.path() + "/out");
  switch (consent) {
    case Consent::kOut:
      how_ =
          "each run writes into the folder of its own that {out} names; elsewhere, over what was "
          "there";
      break;
    case Consent::kRerun:
      how_ = "each run writes over what was there, as --rerun allows";
      break;
    case Consent::kSandbox:
      keep_apart(way);
      break;
  }
}

void Workplace::keep_apart(SandboxWay way) {
  const std::string folder = working_folder();
  check_can_be_kept_apart(folder, folder_.path());
  std::string failures;
  if (way == SandboxWay::kAny || way == SandboxWay::kOverlay) {
    failures += take_overlay(folder, false);
    if (failures.empty()) return;
  }
  if (way == SandboxWay::kAny || way == SandboxWay::kUserOverlay) {
    const std::string failure = take_overlay(folder, true);
    if (failure.empty()) return;
    failures += (failures.empty() ? "" : "; ") + failure;
  }
  if (way == SandboxWay::kAny || way == SandboxWay::kCopy) {
    const std::string failure = take_copy(folder, failures);
    if (failure.empty()) return;
    failures += (failures.empty() ? "" : "; ") + failure;
  }
  throw UserError(fmt::format("--sandbox cannot keep what '{}' writes in '{}' apart: {}",
                              command_.text(),
                              folder,
                              failures),
                  "put {out} where the command names its output folder, or give --rerun");
}

// No process may use a state that another one has mounted while that mount is taken down: a trial
// has a state of its own.
std::string Workplace::take_overlay(const std::string& folder, bool in_user_namespace) {
  const std::string name = in_user_namespace ? "an overlay in a user namespace" : "an overlay";
  const auto made = [&](const std::string& state) {
    return make_sandbox(folder, folder_.path() + "/" + state, in_user_namespace);
  };
  try {
    if (const SandboxTrouble trouble =
            try_sandbox(made(in_user_namespace ? "tried-user" : "tried"));
        trouble.error != 0)
      return fmt::format("{} failed ({})", name, trouble.text());
    sandbox_ = made("state");
  } catch (const UserError& error) {
    return fmt::format("{} failed ({})", name, error.what());
  }
  how_ = fmt::format(
      "each run sees the working folder through {} of its own; what it writes outside of that "
      "folder is not kept apart",
      name);
  return {};
}

std::string Workplace::take_copy(const std::string& folder, const std::string& why) {
  copy_ = folder_.path() + "/copy/" + fs::path(folder).filename().string();
  moved_ = {{folder, copy_}};
  if (const std::string other = other_name_of(folder); !other.empty())
    moved_.emplace_back(other, copy_);
  try {
    copy_folder(folder, copy_, kMostCopiedBytes);
  } catch (const UserError& error) {
    return fmt::format("a copy failed ({})", error.what());
  }
  how_ = fmt::format(
      "each run works in a copy of the working folder; what it writes elsewhere is not kept apart, "
      "nor what it writes into '{}' where its own files name that folder{}",
      folder,
      why.empty() ? "" : fmt::format(" (no overlay: {})", why));
  return {};
}

void Workplace::place(ProgramRequest& request, int64_t steps) const {
  request.command = command_.filled(folder_.path() + "/out", steps);
  request.output = output_path();
  request.folders.push_back(folder_.path());
  request.sandbox = sandbox_;
  request.working_folder = copy_;
  request.moved = moved_;
}

}  // namespace ridge::attach
