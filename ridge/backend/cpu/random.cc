// Dropout.
#include "ridge/graph/ops/random.h"

#include <cmath>

#include "ridge/backend/cpu/cpu_isa.h"
#include "ridge/backend/cpu/cpu_kernels.h"
#include "ridge/backend/cpu/isa/random_kernels.h"
#include "ridge/base/hash.h"
#include "ridge/base/parallel.h"
#include "ridge/base/philox.h"

namespace ridge::cpu {
namespace {

constexpr int64_t kGrain = 16384;

std::unique_ptr<HostKernel> make_dropout(const Node& node) {
  const Dropout& op = node.op_as<Dropout>();
  const int64_t n = node.outputs[0].elements();
  const DropoutStream stream{.philox_key = 0,
                             .step = 0,
                             // u * 2^-24 >= p, with the whole number u; p * 2^24 is exact.
                             .threshold = static_cast<uint32_t>(std::ceil(op.p * 0x1p24)),
                             .keep = 1.0 - op.p};
  return std::make_unique<HostKernel>([n,
                                       stream,
                                       site = hash64(op.key),
                                       per_sample = n / op.samples,
                                       dtype = node.outputs[0].dtype](const KernelArgs& args) {
    const auto* rng = static_cast<const int64_t*>(args.inputs[1]);  // seed, step, first sample
    DropoutStream keyed = stream;
    keyed.philox_key = rng_philox_key(static_cast<uint64_t>(rng[0]), site);
    keyed.step = static_cast<uint64_t>(rng[1]);
    const uint64_t first = static_cast<uint64_t>(rng[2]) * static_cast<uint64_t>(per_sample);
    const DropoutKernel run =
        for_isa(avx2::random_kernels, avx512::random_kernels).dropout[static_cast<int>(dtype)];
    const size_t size = size_of(dtype);
    parallel_for(n, kGrain, [&](int64_t begin, int64_t end) {
      const size_t offset = static_cast<size_t>(begin) * size;
      run(keyed,
          first + static_cast<uint64_t>(begin),
          static_cast<const char*>(args.inputs[0]) + offset,
          static_cast<char*>(args.outputs[0]) + offset,
          end - begin);
    });
  });
}

}  // namespace

void add_random_kernels(KernelTable& table) {
  table.add(Dropout::kTraits.name, {"vectorized"}, make_dropout);
}

}  // namespace ridge::cpu
