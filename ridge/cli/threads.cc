#include "ridge/cli/threads.h"

#include <algorithm>

#include "ridge/base/cpu_info.h"
#include "ridge/base/parallel.h"
#include "ridge/base/settings.h"

namespace ridge {

void set_threads(const std::string& text, std::string_view where) {
  settings().set("threads", text, Source::kFlag, where);
  apply_threads();
}

void apply_threads() {
  const auto wanted = static_cast<int>(settings().get_int("threads"));
  set_num_threads(wanted != 0 ? wanted : std::min(usable_cpus(), kMaxThreads));
}

}  // namespace ridge
