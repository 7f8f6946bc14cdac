// `ridge supervise`, which ridge starts for itself.
#include <string>
#include <vector>

#include "ridge/attach/program.h"
#include "ridge/cli/verbs.h"

namespace ridge {

std::optional<int> run_supervise(const std::vector<char*>& words) {
  if (words.size() < 2 || std::string_view(words[1]) != "supervise") return {};
  return attach::supervise({words.begin() + 2, words.end()});
}

}  // namespace ridge
