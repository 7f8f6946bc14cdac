// Constants and index ramps.
#include "ridge/graph/ops/source.h"

#include <cstring>

#include "ridge/backend/cpu/cpu_kernels.h"
#include "ridge/backend/cpu/strided_copy.h"
#include "ridge/base/cpu/parallel.h"

namespace ridge::cpu {
namespace {

// The elements of a constant: all of them, or the one that stands for all.
std::vector<char> constant_bytes(const Constant& op) {
  const size_t count = op.values.size() + op.ints.size(), size = size_of(op.dtype);
  std::vector<char> bytes(count * size);
  dispatch(op.dtype, [&]<typename T>(TypeTag<T>) {
    for (size_t i = 0; i < count; ++i) {
      const T element = [&] {
        if constexpr (is_float_type<T>)
          return convert<T>(op.values[i]);
        else
          return convert<T>(op.ints[i]);
      }();
      std::memcpy(bytes.data() + i * size, &element, size);
    }
  });
  return bytes;
}

std::unique_ptr<HostKernel> make_constant(const Node& node) {
  const auto& op = node.op_as<Constant>();
  const int64_t elements = node.outputs[0].elements();
  const size_t size = size_of(op.dtype);
  return std::make_unique<HostKernel>(
      [bytes = constant_bytes(op),
       copy = op.is_splat() ? plain_fill(elements, size) : plain_copy(elements, size)](
          const KernelArgs& args) { copy.run(bytes.data(), args.outputs[0]); });
}

// Elements [begin, end) of (A, size, inner), each its place on the middle axis.
template <typename T>
void write_ramp(T* to, int64_t begin, int64_t end, int64_t size, int64_t inner) {
  int64_t place = begin / inner % size, left = inner - begin % inner;
  for (int64_t i = begin; i < end;) {
    const int64_t stop = std::min(end, i + left);
    const T element = convert<T>(place);
    for (; i < stop; ++i) to[i] = element;
    left = inner;
    if (++place == size) place = 0;
  }
}

std::unique_ptr<HostKernel> make_iota(const Node& node) {
  const auto& op = node.op_as<Iota>();
  const auto axis = op.shape.begin() + op.axis;
  const int64_t size = *axis, inner = numel(Shape(axis + 1, op.shape.end()));
  const int64_t elements = node.outputs[0].elements();
  return dispatch(op.dtype, [&]<typename T>(TypeTag<T>) {
    return std::make_unique<HostKernel>([=](const KernelArgs& args) {
      T* to = static_cast<T*>(args.outputs[0]);
      parallel_for(elements, 16384, [&](int64_t begin, int64_t end) {
        write_ramp(to, begin, end, size, inner);
      });
    });
  });
}

}  // namespace

void add_source_kernels(KernelTable& table) {
  table.add("constant", {"fill"}, make_constant);
  table.add("iota", {"ramp"}, make_iota);
}

}  // namespace ridge::cpu
