#include "ridge/cli/common/threads.h"

#include "ridge/base/cpu/parallel.h"
#include "ridge/base/settings.h"

namespace ridge {

void set_threads(const std::string& text, std::string_view where) {
  settings().set("threads", text, Source::kFlag, where);
  apply_threads();
}

}  // namespace ridge
