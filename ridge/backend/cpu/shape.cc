// Ops that move elements: each is one or a few strided copies.
#include "ridge/graph/ops/shape.h"

#include <algorithm>
#include <cstring>

#include "ridge/backend/cpu/cpu_kernels.h"
#include "ridge/backend/cpu/strided_copy.h"
#include "ridge/base/cpu/parallel.h"

namespace ridge::cpu {
namespace {

// A strided copy with a place to start on either side, in bytes.
struct PlacedCopy {
  StridedCopy copy;
  int64_t from = 0;
  int64_t to = 0;

  void run(const void* source, void* target) const {
    copy.run(static_cast<const char*>(source) + from, static_cast<char*>(target) + to);
  }
};

const TensorType& in_type(const Node& node, size_t i = 0) { return node.inputs[i].type(); }

std::unique_ptr<HostKernel> one_copy(PlacedCopy copy) {
  return std::make_unique<HostKernel>([copy = std::move(copy)](const KernelArgs& args) {
    copy.run(args.inputs[0], args.outputs[0]);
  });
}

std::unique_ptr<HostKernel> make_copy(const Node& node) {
  return one_copy({plain_copy(in_type(node).elements(), size_of(in_type(node).dtype))});
}

std::unique_ptr<HostKernel> make_transpose(const Node& node) {
  const auto from = byte_strides(in_type(node)), to = byte_strides(node.outputs[0]);
  const auto& perm = node.op_as<Transpose>().perm;
  std::vector<CopyAxis> axes;
  for (size_t i = 0; i < perm.size(); ++i)
    axes.push_back({node.outputs[0].shape[i], from[static_cast<size_t>(perm[i])], to[i]});
  return one_copy({StridedCopy(axes, size_of(in_type(node).dtype))});
}

std::unique_ptr<HostKernel> make_broadcast(const Node& node) {
  const TensorType &x = in_type(node), &y = node.outputs[0];
  const auto from = byte_strides(x), to = byte_strides(y);
  const size_t added = y.shape.size() - x.shape.size();
  std::vector<CopyAxis> axes;
  for (size_t i = 0; i < y.shape.size(); ++i) {
    const bool repeats = i < added || x.shape[i - added] != y.shape[i];
    axes.push_back({y.shape[i], repeats ? 0 : from[i - added], to[i]});
  }
  return one_copy({StridedCopy(axes, size_of(x.dtype))});
}

std::unique_ptr<HostKernel> make_slice(const Node& node) {
  const auto& op = node.op_as<Slice>();
  const auto from = byte_strides(in_type(node)), to = byte_strides(node.outputs[0]);
  std::vector<CopyAxis> axes;
  int64_t start = 0;
  for (size_t i = 0; i < from.size(); ++i) {
    axes.push_back({node.outputs[0].shape[i], from[i] * op.step[i], to[i]});
    start += op.start[i] * from[i];
  }
  return one_copy({StridedCopy(axes, size_of(in_type(node).dtype)), start});
}

std::unique_ptr<HostKernel> make_mask_columns(const Node& node) {
  const auto& op = node.op_as<MaskColumns>();
  const TensorType& type = node.outputs[0];
  const int64_t columns = type.shape.back(), rows = type.elements() / columns, limit = op.limit;
  return dispatch_float(type.dtype, "mask_columns", [&]<typename T>(TypeTag<T>) {
    const T value = convert<T>(op.value);
    return std::make_unique<HostKernel>([=](const KernelArgs& args) {
      const auto* x = static_cast<const T*>(args.inputs[0]);
      auto* y = static_cast<T*>(args.outputs[0]);
      for (int64_t row = 0; row < rows; ++row, x += columns, y += columns) {
        if (x != y) std::copy_n(x, limit, y);
        std::fill(y + limit, y + columns, value);
      }
    });
  });
}

std::unique_ptr<HostKernel> make_concat(const Node& node) {
  const auto axis = static_cast<size_t>(node.op_as<Concat>().axis);
  const TensorType& y = node.outputs[0];
  const auto to = byte_strides(y);
  std::vector<PlacedCopy> copies;
  int64_t start = 0;
  for (const Value& input : node.inputs) {
    const auto from = byte_strides(input.type());
    std::vector<CopyAxis> axes;
    for (size_t i = 0; i < to.size(); ++i) axes.push_back({input.shape()[i], from[i], to[i]});
    copies.push_back({StridedCopy(axes, size_of(y.dtype)), 0, start});
    start += input.shape()[axis] * to[axis];
  }
  return std::make_unique<HostKernel>([copies = std::move(copies)](const KernelArgs& args) {
    for (size_t i = 0; i < copies.size(); ++i) copies[i].run(args.inputs[i], args.outputs[0]);
  });
}

// The fills around the elements of a Pad. Slabs of axis i span the data of the axes before it and
// all of the axes behind it, so that together they cover every padded element once.
std::vector<PlacedCopy> pad_fills(const Pad& op, const TensorType& x, const TensorType& y) {
  const auto to = byte_strides(y);
  std::vector<PlacedCopy> fills;
  std::vector<CopyAxis> data;  // the axes before i, at the places of data
  int64_t data_start = 0;
  for (size_t i = 0; i < to.size(); ++i) {
    const int64_t step = op.interior[i] + 1;
    const auto add_slab = [&](int64_t first, std::vector<CopyAxis> slab) {
      std::vector<CopyAxis> axes = data;
      axes.insert(axes.end(), slab.begin(), slab.end());
      for (size_t j = i + 1; j < to.size(); ++j) axes.push_back({y.shape[j], 0, to[j]});
      for (const CopyAxis& axis : axes)
        if (axis.size == 0) return;
      fills.push_back({StridedCopy(axes, size_of(y.dtype)), 0, data_start + first * to[i]});
    };
    add_slab(0, {{op.low[i], 0, to[i]}});
    add_slab(y.shape[i] - op.high[i], {{op.high[i], 0, to[i]}});
    add_slab(op.low[i] + 1, {{x.shape[i] - 1, 0, to[i] * step}, {op.interior[i], 0, to[i]}});
    data.push_back({x.shape[i], 0, to[i] * step});
    data_start += op.low[i] * to[i];
  }
  return fills;
}

// The bytes of `value` in the dtype.
uint64_t element_bits(DType dtype, double value) {
  return dispatch(dtype, [&]<typename T>(TypeTag<T>) {
    const T element = convert<T>(value);
    uint64_t bits = 0;
    std::memcpy(&bits, &element, sizeof(T));
    return bits;
  });
}

// The copy of x to its places in y from axis `first` on.
PlacedCopy pad_data(const Pad& op, const TensorType& x, const TensorType& y, size_t first) {
  const auto from = byte_strides(x), to = byte_strides(y);
  std::vector<CopyAxis> axes;
  int64_t start = 0;
  for (size_t i = first; i < to.size(); ++i) {
    axes.push_back({x.shape[i], from[i], to[i] * (op.interior[i] + 1)});
    start += op.low[i] * to[i];
  }
  return {StridedCopy(axes, size_of(x.dtype)), 0, start};
}

// Slices of the first axis that the nearer caches hold.
constexpr int64_t kSliceBytes = 256 << 10;
constexpr int64_t kSliceChunkBytes = 64 << 10;

// True where fills around the data would be many and short: then each slice of the first axis is
// filled whole, and the data written over it.
bool pads_by_slices(const TensorType& x, const TensorType& y) {
  return y.shape.size() > 1 && y.shape[0] == x.shape[0] && y.elements() > 2 * x.elements() &&
         y.bytes() <= kSliceBytes * y.shape[0] && y.shape[0] > 1;
}

std::unique_ptr<HostKernel> make_pad_by_slices(const Node& node) {
  const auto& op = node.op_as<Pad>();
  const TensorType &x = in_type(node), &y = node.outputs[0];
  const int64_t slices = y.shape[0], from = byte_strides(x)[0], to = byte_strides(y)[0];
  return std::make_unique<HostKernel>(
      [=,
       data = pad_data(op, x, y, 1),
       fill = plain_fill(y.elements() / slices, size_of(y.dtype)),
       bits = element_bits(x.dtype, op.value)](const KernelArgs& args) {
        const char* const source = static_cast<const char*>(args.inputs[0]);
        char* const target = static_cast<char*>(args.outputs[0]);
        const int64_t grain = std::max<int64_t>(1, kSliceChunkBytes / to);
        parallel_for(slices, grain, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            fill.run(&bits, target + i * to);
            data.run(source + i * from, target + i * to);
          }
        });
      });
}

std::unique_ptr<HostKernel> make_pad(const Node& node) {
  const auto& op = node.op_as<Pad>();
  const TensorType &x = in_type(node), &y = node.outputs[0];
  if (pads_by_slices(x, y)) return make_pad_by_slices(node);
  return std::make_unique<HostKernel>(
      [data = pad_data(op, x, y, 0),
       fills = pad_fills(op, x, y),
       bits = element_bits(x.dtype, op.value)](const KernelArgs& args) {
        data.run(args.inputs[0], args.outputs[0]);
        for (const PlacedCopy& fill : fills) fill.run(&bits, args.outputs[0]);
      });
}

}  // namespace

void add_shape_kernels(KernelTable& table) {
  table.add("copy", {"copy"}, make_copy);
  table.add("barrier", {"copy"}, make_copy);
  table.add("reshape", {"copy"}, make_copy);
  table.add("transpose", {"strided_copy"}, make_transpose);
  table.add("broadcast", {"strided_copy"}, make_broadcast);
  table.add("slice", {"strided_copy"}, make_slice);
  table.add("pad", {"strided_copy"}, make_pad);
  table.add("mask_columns", {"fill"}, make_mask_columns);
  table.add("concat", {"strided_copy"}, make_concat);
}

}  // namespace ridge::cpu
