#include "ridge/attach/workplace.h"

#include <filesystem>

#include "ridge/base/error.h"

namespace ridge::attach {

Workplace::Workplace(const CommandTemplate& command, Consent consent)
    : command_(command), folder_("place") {
  std::filesystem::create_directory(folder_.path() + "/out");
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
      throw UserError("--sandbox is not there yet", "put {out} into the command");
  }
}

void Workplace::place(ProgramRequest& request, int64_t steps) const {
  request.command = command_.filled(folder_.path() + "/out", steps);
  request.output = output_path();
  request.folders.push_back(folder_.path());
}

}  // namespace ridge::attach
