// The elements of a model's tensors: in the file itself, in other files of its folder, or as lists
// of numbers.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ridge/import/onnx/known.h"
#include "ridge/import/onnx/model_proto.h"

namespace ridge::onnx {

/// The dtype of that TensorProto.DataType; nothing where Ridge has none.
std::optional<DType> dtype_of_onnx(int64_t data_type);
int64_t onnx_type_of(DType dtype);
/// Whether ElementFiles::read() takes such elements.
bool can_read(int64_t data_type);
/// "FLOAT", "UINT32" and so on; for messages.
std::string onnx_type_name(int64_t data_type);

/// The files in which a model says that elements lie, each mapped once.
class ElementFiles {
 public:
  /// `path` is the model's; empty: a model in memory, which has no other files.
  ElementFiles(std::filesystem::path path, std::shared_ptr<const void> owner)
      : model_(std::move(path)), owner_(std::move(owner)) {}

  /// The elements of the tensor, as they lie where that is possible. Integers of 2 and 4 bits,
  /// which files have packed, become i8 or u8 of the same values. UserError that names the tensor
  /// for a dtype that Ridge has not, for sizes that do not fit the bytes, for bools that are
  /// neither 0 nor 1, and for a file that is missing, too short or outside of the model's folder.
  Known read(const TensorProto& tensor);
  /// The bytes of a tensor of external data as its file has them; each is a u8. UserError as read()
  /// has it.
  Known stored(const TensorProto& tensor);
  /// The UserError of read() where a file that one of these tensors lies in, by external data, is
  /// missing, too short for all of them or outside of the folder.
  void check_files(const std::vector<const TensorProto*>& tensors);

 private:
  struct ExternalBytes {
    Bytes bytes;
    std::shared_ptr<const MappedFile> file;  ///< It owns them.
  };

  Known read_elements(const TensorProto& tensor, DType dtype, const std::string& who);
  Known read_external(const TensorProto& tensor, DType dtype, const std::string& who);
  Known read_packed(const TensorProto& tensor, const std::string& who);
  ExternalBytes external_bytes(const TensorProto& tensor, const std::string& who);
  // A file that has at least so many bytes.
  std::shared_ptr<const MappedFile> map(const std::string& location,
                                        int64_t bytes,
                                        const std::string& who);

  std::filesystem::path model_;
  std::shared_ptr<const void> owner_;  ///< It owns the bytes of the model.
  std::map<std::string, std::shared_ptr<const MappedFile>> files_;
};

}  // namespace ridge::onnx
