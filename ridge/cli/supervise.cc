// `ridge supervise`, which ridge starts for itself.
#include <unistd.h>

#include <string>
#include <vector>

#include "ridge/attach/process/program.h"
#include "ridge/cli/verbs.h"

namespace ridge {

std::optional<int> run_supervise(const std::vector<char*>& words) {
  if (words.size() < 2 || std::string_view(words[1]) != "supervise") return {};
  // It blocks the signals that others may send it: a check for leaks at exit could wait for ever.
  ::_exit(attach::supervise({words.begin() + 2, words.end()}));  // floors-waiver: see above
}

}  // namespace ridge
