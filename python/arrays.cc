#include "python/arrays.h"

#include <nanobind/stl/string.h>

#include <bit>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace ridge::python {
namespace {

namespace nb = nanobind;
using nb::dlpack::dtype_code;

struct DTypeRow {
  DType dtype;
  dtype_code code;
  uint8_t bits;
  std::string_view name;
};

constexpr DTypeRow kDTypes[] = {{DType::kF64, dtype_code::Float, 64, "float64"},
                                {DType::kF32, dtype_code::Float, 32, "float32"},
                                {DType::kF16, dtype_code::Float, 16, "float16"},
                                {DType::kBF16, dtype_code::Bfloat, 16, "bfloat16"},
                                {DType::kI64, dtype_code::Int, 64, "int64"},
                                {DType::kI32, dtype_code::Int, 32, "int32"},
                                {DType::kI16, dtype_code::Int, 16, "int16"},
                                {DType::kU16, dtype_code::UInt, 16, "uint16"},
                                {DType::kU8, dtype_code::UInt, 8, "uint8"},
                                {DType::kI8, dtype_code::Int, 8, "int8"},
                                {DType::kBool, dtype_code::Bool, 8, "bool"}};

const DTypeRow& row_of(DType dtype) {
  for (const DTypeRow& row : kDTypes)
    if (row.dtype == dtype) return row;
  throw InternalError("[python] dtype out of range");
}

std::optional<DType> engine_dtype(nb::dlpack::dtype given) {
  for (const DTypeRow& row : kDTypes)
    if (static_cast<uint8_t>(row.code) == given.code && row.bits == given.bits && given.lanes == 1)
      return row.dtype;
  return std::nullopt;
}

// The stride of an axis of one element is never used.
bool is_row_major(const PythonArray& array) {
  int64_t wanted = 1;
  for (size_t i = array.ndim(); i-- > 0;) {
    if (array.shape(i) != 1 && array.stride(i) != wanted) return false;
    wanted *= static_cast<int64_t>(array.shape(i));
  }
  return true;
}

// "f32[N,3]", as the engine's own errors have it.
std::string type_text(const DataSpec& spec) {
  std::string text;
  for (const Dim& dim : spec.dims) {
    text += text.empty() ? "" : ",";
    text += dim.name.empty() ? std::to_string(dim.size) : dim.name;
    if (!dim.name.empty() && dim.size > 0) text += "<=" + std::to_string(dim.size);
  }
  return std::string(name_of(spec.dtype)) + "[" + text + "]";
}

// Strides count elements.
std::string strides_text(const PythonArray& array) {
  std::string text;
  for (size_t i = 0; i < array.ndim(); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(array.stride(i));
  return text;
}

std::string text_of(nb::handle value) { return nb::cast<std::string>(nb::str(value)); }

[[noreturn]] void refuse(const DataSpec& input,
                         const std::string& what,
                         const std::string& got,
                         const std::string& fix) {
  throw UserError(
      "input '" + input.name + "' " + what + "; got " + got + ", expected " + type_text(input),
      fix);
}

/// A NumPy array over memory that `keeper` frees.
template <typename Keeper>
nb::object numpy_over(std::unique_ptr<Keeper> keeper,
                      void* data,
                      const std::vector<int64_t>& sizes,
                      const DTypeRow& row) {
  const std::vector<size_t> shape(sizes.begin(), sizes.end());
  const nb::capsule owner(keeper.get(), [](void* of) noexcept { delete static_cast<Keeper*>(of); });
  static_cast<void>(keeper.release());
  return nb::ndarray<nb::numpy>(data,
                                shape.size(),
                                shape.data(),
                                owner,
                                nullptr,
                                {static_cast<uint8_t>(row.code), row.bits, 1})
      .cast();
}

nb::object numpy_of_bf16(const Array& array) {
  auto wide = std::make_unique<std::vector<float>>(array.elements());
  const auto* const from = static_cast<const uint16_t*>(array.data.get());
  for (size_t i = 0; i < wide->size(); ++i)
    (*wide)[i] = std::bit_cast<float>(static_cast<uint32_t>(from[i]) << 16);
  void* const data = wide->data();
  return numpy_over(std::move(wide), data, array.shape, row_of(DType::kF32));
}

}  // namespace

std::string_view numpy_name(DType dtype) { return row_of(dtype).name; }

ArrayView view_of(const DataSpec& input, nb::handle value, PythonArray& keeper) {
  const std::string wanted(numpy_name(input.dtype));
  const auto refuse_dtype = [&] {
    refuse(input, "has another dtype", text_of(value.attr("dtype")), "convert it to " + wanted);
  };
  if (!nb::try_cast(value, keeper, false) || !keeper.is_valid()) {
    const std::string type = text_of(value.type().attr("__name__"));
    if (nb::hasattr(value, "dtype")) {
      // "float32", or "torch.float32" of a tensor whose elements lie nowhere, or not in order.
      if (text_of(value.attr("dtype")).ends_with(wanted))
        refuse(input, "cannot be read", type, "give a dense tensor on the host");
      refuse_dtype();
    }
    refuse(input,
           "is no array",
           type,
           "give a NumPy array, as by numpy.asarray(x, '" + wanted + "'), or a tensor with DLPack");
  }
  if (keeper.device_type() != nb::device::cpu::value)
    refuse(
        input, "lies on a device", text_of(value.type().attr("__name__")), "move it to the host");
  const std::optional<DType> dtype = engine_dtype(keeper.dtype());
  if (!dtype) refuse_dtype();
  if (!is_row_major(keeper))
    refuse(input,
           "has gaps or another order of axes",
           "strides " + strides_text(keeper),
           "give numpy.ascontiguousarray(x), which copies it");
  return {*dtype,
          {keeper.shape_ptr(), keeper.shape_ptr() + keeper.ndim()},
          keeper.data(),
          keeper.nbytes()};
}

nb::object numpy_array(const Array& array) {
  if (array.dtype == DType::kBF16) return numpy_of_bf16(array);
  void* const data = array.data.get();
  return numpy_over(std::make_unique<Array>(array), data, array.shape, row_of(array.dtype));
}

}  // namespace ridge::python
