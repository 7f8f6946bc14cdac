// Constants and index ramps.
#include "ridge/graph/ops/source.h"

#include "ridge/backend/ref/kernel.h"
#include "ridge/backend/ref/ref_kernels.h"
#include "ridge/backend/ref/walk.h"

namespace ridge::ref {
namespace {

template <typename V>
void write_constant(const std::vector<V>& values, const Call& call) {
  const auto count = static_cast<size_t>(call.outputs[0].elements());
  if (values.size() == count) return call.write(0, values);
  call.write(0, std::vector<V>(count, values[0]));
}

void constant(const Constant& op, const Call& call) {
  if (is_float(op.dtype))
    write_constant(op.values, call);
  else
    write_constant(op.ints, call);
}

void iota(const Iota& op, const Call& call) {
  std::vector<int64_t> strides(op.shape.size(), 0);
  strides[static_cast<size_t>(op.axis)] = 1;
  const std::vector<size_t> ramp = offsets(op.shape, strides);
  call.write(0, std::vector<int64_t>(ramp.begin(), ramp.end()));
}

}  // namespace

void add_source_kernels(KernelTable& table) {
  add_kernel<Constant>(table, constant);
  add_kernel<Iota>(table, iota);
}

}  // namespace ridge::ref
