// The safetensors format: eight bytes of header length, a JSON header, the tensors' bytes.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ridge/base/tensor.h"
#include "ridge/io/file.h"

namespace ridge {

/// A tensor to write, row-major in the caller's memory.
struct TensorView {
  std::string name;
  TensorType type;
  const void* data = nullptr;

  Bytes bytes() const {
    return {static_cast<const std::byte*>(data), static_cast<size_t>(type.bytes())};
  }
};

using TextMap = std::map<std::string, std::string>;

/// The header of a safetensors file that was checked against the file's bytes, and views of the
/// tensors in it.
class SafetensorsView {
 public:
  /// `bytes` must outlive the view; `source` opens every message. UserError for anything that the
  /// format forbids (header length, JSON, gaps, overlaps, sizes that do not fit the shapes,
  /// truncation), and for a dtype or a tensor without elements, which Ridge does not have.
  SafetensorsView(Bytes bytes, std::string source);
  /// Tensors in memory that outlives the view, each with a name of its own.
  SafetensorsView(std::vector<TensorView> tensors, TextMap metadata, std::string source);

  const TextMap& metadata() const { return metadata_; }
  /// In the order of their bytes.
  const std::vector<TensorView>& tensors() const { return tensors_; }
  /// UserError with the nearest names when there is none. The data may be unaligned.
  const TensorView& tensor(std::string_view name) const;
  bool contains(const std::string& name) const { return index_.count(name) != 0; }

  /// The same of a tensor that is to be used where it lies. UserError when the file's type is not
  /// `type`, or where a bool is neither 0 nor 1.
  const TensorView& checked(std::string_view name, const TensorType& type) const;

  /// Copies a tensor. read_into: UserError as checked() has it.
  Tensor read(std::string_view name) const;
  void read_into(std::string_view name, const TensorType& type, void* data) const;

 private:
  void parse_header(std::string_view header, Bytes data);

  std::string source_;
  TextMap metadata_;
  std::vector<TensorView> tensors_;
  std::unordered_map<std::string, size_t> index_;
};

/// A mapped safetensors file.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path)
      : file_(path), view_(file_.bytes(), path.string()) {}
  const SafetensorsView* operator->() const { return &view_; }
  const SafetensorsView& operator*() const { return view_; }
  Bytes bytes() const { return file_.bytes(); }

 private:
  MappedFile file_;
  SafetensorsView view_;
};

/// Gives the file to `sink` in pieces of at most 1 MiB: no tensor is copied. Tensors come by size
/// of their elements, largest first, and then by name, so that each is aligned to its elements.
/// UserError for a name that appears twice, is "__metadata__" or is not UTF-8.
void write_safetensors(ByteSink sink,
                       std::span<const TensorView> tensors,
                       const TextMap& metadata = {});

/// The same to a file, atomically (io/file.h).
void save_safetensors(const std::filesystem::path& path,
                      std::span<const TensorView> tensors,
                      const TextMap& metadata = {});

}  // namespace ridge
