// Dropout.
#include "ridge/graph/ops/random.h"

#include "ridge/backend/cpu/cpu_isa.h"
#include "ridge/backend/cpu/cpu_kernels.h"
#include "ridge/backend/cpu/dropout_mask.h"
#include "ridge/base/cpu/parallel.h"

namespace ridge::cpu {
namespace {

constexpr int64_t kGrain = 16384;

std::unique_ptr<HostKernel> make_dropout(const Node& node) {
  const int64_t n = node.outputs[0].elements();
  return std::make_unique<HostKernel>([n,
                                       mask = DropoutMask(node.op_as<Dropout>(), n),
                                       dtype = node.outputs[0].dtype](const KernelArgs& args) {
    const DropoutStream stream = mask.stream(static_cast<const int64_t*>(args.inputs[1]));
    const DropoutKernel run =
        for_isa(avx2::random_kernels, avx512::random_kernels).dropout[static_cast<int>(dtype)];
    const size_t size = size_of(dtype);
    parallel_for(n, kGrain, [&](int64_t begin, int64_t end) {
      const size_t offset = static_cast<size_t>(begin) * size;
      run(stream,
          static_cast<uint64_t>(begin),
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
