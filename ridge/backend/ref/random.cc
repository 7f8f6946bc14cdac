// Dropout.
#include "ridge/graph/ops/random.h"

#include "ridge/backend/ref/kernel.h"
#include "ridge/backend/ref/ref_kernels.h"
#include "ridge/base/hash.h"
#include "ridge/base/philox.h"

namespace ridge::ref {
namespace {

void dropout(const Dropout& op, const Call& call) {
  std::vector<double> x = call.read<double>(0);
  const std::vector<int64_t> rng = call.read<int64_t>(1);  // seed, step, first sample
  const RngKey key{.seed = static_cast<uint64_t>(rng[0]),
                   .step = static_cast<uint64_t>(rng[1]),
                   .site = hash64(op.key)};
  const auto elements_per_sample = x.size() / static_cast<uint64_t>(op.samples);
  const uint64_t first = static_cast<uint64_t>(rng[2]) * elements_per_sample;
  const double scale = 1.0 / (1.0 - op.p);
  const bool is_wide = call.inputs[0].dtype == DType::kF64;
  const auto product = [&](double each) {
    return is_wide ? each * scale
                   : static_cast<double>(static_cast<float>(each) * static_cast<float>(scale));
  };
  for (size_t i = 0; i < x.size(); ++i) {
    const bool kept = static_cast<double>(random_f32(key, first + i)) >= op.p;
    x[i] = kept ? product(x[i]) : 0.0;
  }
  call.write(0, x);
}

}  // namespace

void add_random_kernels(KernelTable& table) { add_kernel<Dropout>(table, dropout); }

}  // namespace ridge::ref
