// IDX files, the format of MNIST, plain or gzipped.
#pragma once

#include <filesystem>
#include <string>

#include "ridge/base/tensor.h"
#include "ridge/io/file.h"

namespace ridge {

/// The tensor of an IDX file in memory, gzipped or not: u8, i8, i16, i32, f32 or f64, in the shape
/// that its header gives. UserError that opens with `source` for a header that is not one, and for
/// data of another size than the header says.
Tensor parse_idx(Bytes bytes, const std::string& source);

/// The same from a file.
Tensor read_idx(const std::filesystem::path& path);

}  // namespace ridge
