#include "ridge/attach/watch/watch_source.h"

#include <fmt/format.h>
#include <unistd.h>

#include <ctime>

#include "ridge/base/clock.h"

namespace ridge::attach {

int64_t wall_ns_of_ticks(int64_t ticks) {
  constexpr int64_t kSecond = 1'000'000'000;
  const int64_t rate = ::sysconf(_SC_CLK_TCK);
  timespec up{};
  // The clock that goes on while the machine sleeps, as that of the ticks does.
  if (rate <= 0 || ticks <= 0 || ::clock_gettime(CLOCK_BOOTTIME, &up) != 0) return 0;
  const int64_t up_ns = up.tv_sec * kSecond + up.tv_nsec;
  const double age_ns =
      static_cast<double>(up_ns) - static_cast<double>(ticks) * 1e9 / static_cast<double>(rate);
  const int64_t now = wall_ns();
  if (age_ns < -static_cast<double>(kSecond) || age_ns > static_cast<double>(up_ns)) return 0;
  return now - static_cast<int64_t>(age_ns < 0 ? 0 : age_ns);
}

WatchSource::WatchSource(pid_t root, const ShimFolder* shim) : tree_(root), shim_(shim) {}

WatchInput WatchSource::take() {
  WatchInput input;
  input.tree = tree_.take();
  input.cpu_joules = energy_.take().value_or(-1);
  input.gpus = nvml_.sample();
  input.has_shim = shim_ != nullptr;
  if (shim_ != nullptr) input.facts = shim_->facts();
  input.wall_ns = wall_ns();
  if (started_wall_ns_ == 0 && !input.tree.processes.empty())
    started_wall_ns_ = wall_ns_of_ticks(input.tree.processes.front().start_ticks);
  input.started_wall_ns = started_wall_ns_;
  if (!nvml_.problem().empty()) input.missing.push_back("GPU: " + nvml_.problem());
  if (!energy_.problem().empty()) input.missing.push_back("CPU power: " + energy_.problem());
  for (const std::string& what : tree_.missing()) input.missing.push_back(what);
  return input;
}

}  // namespace ridge::attach
