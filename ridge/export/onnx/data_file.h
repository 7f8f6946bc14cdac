// The file of large tensors beside a model, and how both are written so that a killed process
// leaves the old pair or the new one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "ridge/base/function_ref.h"
#include "ridge/io/file.h"

namespace ridge::onnx {

/// Protobuf's own limit for a file is 2 GiB; some readers stop a little before.
inline constexpr int64_t kMostBytesInside = (int64_t{1} << 31) - (int64_t{1} << 26);
/// Smaller tensors stay in the model: shapes and axes are read by those who look at nothing else.
inline constexpr size_t kLeastOutside = 1024;

/// Tensors that lie in a file of their own, each at a whole page. Their bytes must outlive it.
class DataFile {
 public:
  /// Returns the place of the tensor in the file.
  size_t add(Bytes elements);
  bool is_empty() const { return parts_.empty(); }
  void give_to(ByteSink sink) const;
  /// The name PATH.CHECKSUM.data: files of other bytes have other names, and that of the model
  /// which is replaced stays as it is.
  std::string name_beside(const std::filesystem::path& model) const;

 private:
  struct Part {
    size_t offset = 0;
    Bytes elements;
  };
  std::vector<Part> parts_;
  size_t end_ = 0;
};

/// Writes the model to `path` by `give_model`, which gets the name of the data file, empty where
/// `outside` has none; and that file before it. Data of models that had this name before are
/// removed last. Returns the path of the data file, or nothing. On any failure UserError, and the
/// model is as it was.
std::string write_with_data(const std::filesystem::path& path,
                            const DataFile& outside,
                            FunctionRef<void(const std::string& data, ByteSink sink)> give_model);

}  // namespace ridge::onnx
