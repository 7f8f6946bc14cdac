// NPY files, versions 1 to 3.
#pragma once

#include <filesystem>
#include <string>

#include "ridge/base/tensor.h"
#include "ridge/io/file.h"

namespace ridge {

/// The array of an NPY file in memory, of either byte order, in row-major order whatever its own.
/// u32 and u64 become i64. UserError that opens with `source` for a header that is not one, a dtype
/// that Ridge does not have, a u64 beyond i64, and data of another size than the header says.
Tensor parse_npy(Bytes bytes, const std::string& source);

/// The same from a file.
Tensor read_npy(const std::filesystem::path& path);

}  // namespace ridge
