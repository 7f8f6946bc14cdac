// Measurements that are the same for every backend on the host.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "ridge/backend/host.h"
#include "ridge/base/cpu/parallel.h"

namespace ridge {
namespace {

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

double measure_copy_bandwidth() {
  constexpr int64_t kBytes = int64_t{128} << 20;  // far beyond any last-level cache share
  constexpr int64_t kChunk = int64_t{1} << 20;
  std::vector<std::byte> from(kBytes, std::byte{1}), to(kBytes, std::byte{2});
  double best = 1e9;
  for (int repetition = 0; repetition < 5; ++repetition)
    best = std::min(best, seconds_of([&] {
                      parallel_for(kBytes, kChunk, [&](int64_t begin, int64_t end) {
                        std::memcpy(to.data() + begin, from.data() + begin, end - begin);
                      });
                    }));
  return 2.0 * static_cast<double>(kBytes) / best;
}

double measure_launch_seconds() {
  constexpr int kLaunches = 10000;
  const HostKernel kernel([](const KernelArgs&) {});
  const auto stream = make_host_stream(StreamMode::kInline);
  double best = 1e9;
  for (int repetition = 0; repetition < 5; ++repetition)
    best = std::min(best, seconds_of([&] {
                      for (int i = 0; i < kLaunches; ++i) kernel.launch(*stream, {});
                    }));
  return best / kLaunches;
}

}  // namespace ridge
