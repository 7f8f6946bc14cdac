// The description of the data of a training. A checkpoint carries it, so that other data are read
// in the same way, columns and classes by their names, or are refused.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/base/dtype.h"
#include "ridge/data/options.h"

namespace ridge::data {

/// One field of a sample: "x" f32 [28,28,1]; "y" i64 [].
struct FieldType {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;

  int64_t elements() const;
  int64_t bytes() const;  ///< Bytes of one sample.
  bool operator==(const FieldType&) const = default;
};

struct DataDescription {
  DataKind kind = DataKind::kRandom;
  std::vector<FieldType> fields{};  ///< "x" and "y".
  int64_t classes = 0;  ///< Classes of "y", the vocabulary of tokens, or 0 for regression.
  std::vector<std::string> class_names{};  ///< images, table: in the order of their numbers.
  std::vector<std::string> columns{};      ///< table: features, in the order of "x".
  std::string target{};                    ///< table: the column to predict; of NPY files "".
  std::string tokenizer{};                 ///< text: how bytes become tokens.
  /// "x" is (value - mean) / deviation. table: of each column; idx, images: of each channel of
  /// x / 255.
  std::vector<double> mean{}, deviation{};

  bool operator==(const DataDescription&) const = default;
};

/// The tokenizer whose tokens are bytes.
inline constexpr std::string_view kByteTokenizer = "bytes";

/// The name of the text in a checkpoint and in the metadata of a safetensors file.
inline constexpr const char* kDescriptionKey = "ridge.data";

/// The description as JSON, schema "ridge.data/1". Numbers read back bit for bit. UserError where
/// parse_description() would refuse it: names that are not unique, numbers that are not finite.
std::string print_description(const DataDescription& description);

/// The description in a text from outside. UserError that opens with `source` for anything that is
/// missing, of the wrong kind, out of range, or that no data of that kind have.
DataDescription parse_description(std::string_view text, std::string_view source);

/// UserError unless data of `kind` are of the kind that a model was trained on.
void check_kind(const DataDescription& trained, DataKind kind);

/// UserError where samples as `found` are none for a model that was trained on `trained`: of
/// another kind, size, task, target or number of classes. Samples of tokens may have any length.
void check_fits(const DataDescription& trained, const DataDescription& found);

/// Sets mean and deviation of pictures, whose fields are set: those of `trained`, or if that is
/// null the options', where nothing stands for 0 and 1. Returns a line for the user if the options
/// ask for others than `trained` has, else nothing. UserError for options that do not fit.
std::string set_normalization(DataDescription& description,
                              const DataOptions& options,
                              const DataDescription* trained);

}  // namespace ridge::data
