#include "ridge/base/cpu/scale_rows.h"

namespace ridge {

void scale_rows(DType dtype, void* elements, int64_t rows, std::span<const double> scale) {
  dispatch_float(dtype, "scale_rows", [&]<typename T>(TypeTag<T>) {
    T* row = static_cast<T*>(elements);
    for (int64_t r = 0; r < rows; ++r, row += scale.size())
      for (size_t i = 0; i < scale.size(); ++i)
        row[i] = convert<T>(static_cast<double>(row[i]) * scale[i]);
  });
}

}  // namespace ridge
