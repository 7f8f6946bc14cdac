#include "ridge/infer/sample_files.h"

#include <algorithm>
#include <filesystem>

#include "ridge/base/error.h"
#include "ridge/data/idx_dataset.h"
#include "ridge/data/image_dataset.h"
#include "ridge/data/image_files.h"
#include "ridge/data/table_dataset.h"

namespace ridge {
namespace {

using data::DataDescription;
using data::DataKind;

constexpr const char* kArrays = "give a FILE.npy or FILE.npz with what the model takes";

/// Pictures, decoded when a batch needs them.
class PictureRows final : public InputRows {
 public:
  PictureRows(std::vector<std::string> paths, const DataDescription& trained, data::Crop crop)
      : paths_(std::move(paths)), sample_(trained.fields[0].shape), pictures_(trained, crop) {}

  TensorType type() const override {
    TensorType type{DType::kF32, sample_};
    type.shape.insert(type.shape.begin(), static_cast<int64_t>(paths_.size()));
    return type;
  }

  void read(int64_t first, Tensor& rows) override {
    const int64_t count = rows.type().shape[0], sample = numel(sample_);
    for (int64_t i = 0; i < count; ++i)
      pictures_.read(paths_[static_cast<size_t>(first + i)],
                     rows.span<float>().data() + i * sample);
  }

  std::vector<std::string> names() const override { return paths_; }

 private:
  std::vector<std::string> paths_;
  Shape sample_;
  data::PictureInputs pictures_;
};

// A table in NPY has no names: its columns are "0", "1", ...
bool is_npy_table(const DataDescription& trained) {
  return trained.kind == DataKind::kTable && trained.target.empty();
}

// Whether a file holds what the model takes, and not samples.
bool is_array(const std::string& path, const DataDescription* trained) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return false;
  const bool is_table = trained != nullptr && is_npy_table(*trained);
  return path.ends_with(".npz") || (path.ends_with(".npy") && !is_table);
}

std::unique_ptr<InputRows> open_table(const std::string& path,
                                      const DataDescription& trained,
                                      TrainObserver& observer) {
  std::vector<std::string> notes;
  const std::vector<float> x = data::read_table_inputs(path, trained, notes);
  for (const std::string& note : notes) observer.on_message(note);
  const auto columns = static_cast<int64_t>(trained.columns.size());
  check(!x.empty(), "'{}' has no rows; give one at least", path);
  Tensor tensor({DType::kF32, {static_cast<int64_t>(x.size()) / columns, columns}});
  std::copy(x.begin(), x.end(), tensor.span<float>().begin());
  return std::make_unique<TensorRows>(std::move(tensor));
}

}  // namespace

std::string array_note(const std::string& path, const DataDescription* trained) {
  if (trained == nullptr || !is_array(path, trained)) return {};
  const auto is_other = [](double usual) {
    return [usual](double value) { return value != usual; };
  };
  if (std::none_of(trained->mean.begin(), trained->mean.end(), is_other(0)) &&
      std::none_of(trained->deviation.begin(), trained->deviation.end(), is_other(1)))
    return {};
  return fmt::format("'{}' is taken as it is; the model was trained on (value - mean) / deviation",
                     path);
}

std::unique_ptr<InputRows> open_samples(const std::string& path,
                                        const DataDescription* trained,
                                        data::Crop crop,
                                        TrainObserver& observer) {
  if (is_array(path, trained)) return nullptr;
  if (trained == nullptr)
    throw UserError(
        fmt::format("'{}' is no array, and the model does not say how samples are read", path),
        kArrays);
  switch (trained->kind) {
    case DataKind::kTable:
      return open_table(path, *trained, observer);
    case DataKind::kImages:
      return std::make_unique<PictureRows>(data::find_pictures(path), *trained, crop);
    case DataKind::kIdx:
      return std::make_unique<TensorRows>(data::read_idx_inputs(path, *trained));
    case DataKind::kText:
    case DataKind::kRandom:
      break;
  }
  throw UserError(fmt::format("'{}' is no array, and data of kind '{}' have no files of samples",
                              path,
                              name_of(trained->kind)),
                  kArrays);
}

}  // namespace ridge
