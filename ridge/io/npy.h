// NPY files, versions 1 to 3, and NPZ files, which are ZIP archives of them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "ridge/base/tensor.h"
#include "ridge/io/file.h"
#include "ridge/io/zip.h"

namespace ridge {

/// The array of an NPY file in memory, of either byte order, in row-major order whatever its own.
/// u32 and u64 become i64. UserError that opens with `source` for a header that is not one, a dtype
/// that Ridge does not have, a u64 beyond i64, and data of another size than the header says.
Tensor parse_npy(Bytes bytes, const std::string& source);

/// The same from a file.
Tensor read_npy(const std::filesystem::path& path);

/// Writes version 1, little-endian and row-major, atomically (io/file.h). BF16, which NPY has not,
/// becomes f32.
void write_npy(const std::filesystem::path& path, const Tensor& tensor);

/// The arrays of an NPZ file in memory, stored or deflated. Each is read when it is asked for.
class NpzView {
 public:
  /// `bytes` must outlive the view; `source` opens every message. UserError for what parse_zip()
  /// refuses, and for files that are not called NAME.npy.
  NpzView(Bytes bytes, std::string source);

  /// In the order of the file.
  const std::vector<std::string>& names() const { return names_; }
  bool contains(const std::string& name) const;
  /// UserError with the nearest names when there is none, where it is damaged, and for what
  /// parse_npy() refuses.
  Tensor read(const std::string& name) const;

 private:
  std::string source_;
  std::vector<ZipEntry> entries_;
  std::vector<std::string> names_;
};

/// Writes an array NAME.npy for each, not deflated, as write_npy() does.
void write_npz(const std::filesystem::path& path, const NamedTensors& tensors);

}  // namespace ridge
