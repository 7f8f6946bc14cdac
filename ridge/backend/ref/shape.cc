// Ops that move elements: each is a copy of bits between two lists of offsets.
#include "ridge/graph/ops/shape.h"

#include <cstring>

#include "ridge/backend/ref/kernel.h"
#include "ridge/backend/ref/ref_kernels.h"
#include "ridge/backend/ref/walk.h"

namespace ridge::ref {
namespace {

// Element i of the output is element from[i] of the input.
void copy_from(const Call& call, const std::vector<size_t>& from) {
  const size_t size = size_of(call.inputs[0].dtype);
  for (size_t i = 0; i < from.size(); ++i)
    std::memcpy(call.output_bytes(0) + i * size, call.input_bytes(0) + from[i] * size, size);
}

// Element i of an input is element to[i] of the output.
void copy_to(const Call& call, size_t input, const std::vector<size_t>& to) {
  const size_t size = size_of(call.inputs[input].dtype);
  for (size_t i = 0; i < to.size(); ++i)
    std::memcpy(call.output_bytes(0) + to[i] * size, call.input_bytes(input) + i * size, size);
}

template <typename MoveOp>
void copy_all(const MoveOp&, const Call& call) {
  std::memcpy(
      call.output_bytes(0), call.input_bytes(0), static_cast<size_t>(call.outputs[0].bytes()));
}

void transpose(const Transpose& op, const Call& call) {
  const std::vector<int64_t> strides = strides_of(call.inputs[0].shape);
  std::vector<int64_t> permuted;
  for (int64_t axis : op.perm) permuted.push_back(strides[static_cast<size_t>(axis)]);
  copy_from(call, offsets(call.outputs[0].shape, permuted));
}

void broadcast(const Broadcast& op, const Call& call) {
  const Shape& from = call.inputs[0].shape;
  const std::vector<int64_t> strides = strides_of(from);
  const size_t added = op.shape.size() - from.size();
  std::vector<int64_t> repeated(op.shape.size(), 0);
  for (size_t axis = 0; axis < from.size(); ++axis)
    if (from[axis] == op.shape[axis + added]) repeated[axis + added] = strides[axis];
  copy_from(call, offsets(op.shape, repeated));
}

void slice(const Slice& op, const Call& call) {
  std::vector<int64_t> strides = strides_of(call.inputs[0].shape);
  int64_t start = 0;
  for (size_t axis = 0; axis < strides.size(); ++axis) {
    start += op.start[axis] * strides[axis];
    strides[axis] *= op.step[axis];
  }
  copy_from(call, offsets(call.outputs[0].shape, strides, start));
}

void pad(const Pad& op, const Call& call) {
  const auto count = static_cast<size_t>(call.outputs[0].elements());
  call.write(0, std::vector<double>(count, op.value));
  std::vector<int64_t> strides = strides_of(call.outputs[0].shape);
  int64_t start = 0;
  for (size_t axis = 0; axis < strides.size(); ++axis) {
    start += op.low[axis] * strides[axis];
    strides[axis] *= op.interior[axis] + 1;
  }
  copy_to(call, 0, offsets(call.inputs[0].shape, strides, start));
}

void mask_columns(const MaskColumns& op, const Call& call) {
  const auto columns = static_cast<size_t>(call.inputs[0].shape.back());
  std::vector<double> y = call.read<double>(0);
  for (size_t i = 0; i < y.size(); ++i)
    if (i % columns >= static_cast<size_t>(op.limit)) y[i] = op.value;
  call.write(0, y);
}

void concat(const Concat& op, const Call& call) {
  const std::vector<int64_t> strides = strides_of(call.outputs[0].shape);
  const auto axis = static_cast<size_t>(op.axis);
  int64_t begin = 0;
  for (size_t input = 0; input < call.inputs.size(); ++input) {
    const Shape& shape = call.inputs[input].shape;
    copy_to(call, input, offsets(shape, strides, begin * strides[axis]));
    begin += shape[axis];
  }
}

}  // namespace

void add_shape_kernels(KernelTable& table) {
  add_kernel<Copy>(table, copy_all<Copy>);
  add_kernel<Barrier>(table, copy_all<Barrier>);
  add_kernel<Reshape>(table, copy_all<Reshape>);
  add_kernel<Transpose>(table, transpose);
  add_kernel<Broadcast>(table, broadcast);
  add_kernel<Slice>(table, slice);
  add_kernel<Pad>(table, pad);
  add_kernel<MaskColumns>(table, mask_columns);
  add_kernel<Concat>(table, concat);
}

}  // namespace ridge::ref
