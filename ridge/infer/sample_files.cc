#include "ridge/infer/sample_files.h"

#include <algorithm>
#include <cmath>
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

/// The order and the dtype of a picture's numbers; by default those of `data`.
struct PictureOrder {
  DType dtype = DType::kF32;
  PictureLayout layout = PictureLayout::kNhwc;
  PictureChannels channels = PictureChannels::kRgb;

  bool operator==(const PictureOrder&) const = default;
};

/// Pictures, decoded when a batch needs them.
class PictureRows final : public InputRows {
 public:
  PictureRows(std::vector<std::string> paths,
              data::PictureInputs pictures,
              const PictureOrder& order = {})
      : paths_(std::move(paths)), pictures_(std::move(pictures)), order_(order) {}

  TensorType type() const override {
    const int64_t count = std::ssize(paths_), size = pictures_.size();
    return order_.layout == PictureLayout::kNchw
               ? TensorType{order_.dtype, {count, kChannels, size, size}}
               : TensorType{order_.dtype, {count, size, size, kChannels}};
  }

  void read(int64_t first, Tensor& rows) override {
    const int64_t count = rows.type().shape[0], sample = rows.elements() / count;
    for (int64_t i = 0; i < count; ++i) {
      const std::string& path = paths_[static_cast<size_t>(first + i)];
      if (order_ == PictureOrder()) {
        pictures_.read(path, rows.span<float>().data() + i * sample);
      } else {
        pixels_.resize(static_cast<size_t>(sample));
        pictures_.read(path, pixels_.data());
        write_pixels(rows, i * sample);
      }
    }
  }

  std::vector<std::string> names() const override { return paths_; }

 private:
  static constexpr int64_t kChannels = 3;

  // Pixels as the model orders them, as elements of `rows` from `first` on; those of an integer
  // dtype are rounded.
  void write_pixels(Tensor& rows, int64_t first) const {
    const int64_t pixels = pictures_.size() * pictures_.size();
    const bool is_chw = order_.layout == PictureLayout::kNchw;
    const bool is_bgr = order_.channels == PictureChannels::kBgr;
    dispatch(order_.dtype, [&]<typename T>(TypeTag<T>) {
      T* const to = rows.span<T>().data() + first;
      for (int64_t c = 0; c < kChannels; ++c) {
        const float* const from = pixels_.data() + (is_bgr ? kChannels - 1 - c : c);
        for (int64_t i = 0; i < pixels; ++i) {
          const float value = from[i * kChannels];
          to[is_chw ? c * pixels + i : i * kChannels + c] =
              convert<T>(is_float_type<T> ? value : std::nearbyint(value));
        }
      }
    });
  }

  std::vector<std::string> paths_;
  data::PictureInputs pictures_;
  PictureOrder order_;
  std::vector<float> pixels_;  // one picture as `data` orders it
};

// Channels as RGB, whichever order the model has.
data::Normalization normalization_of(const Preprocess& how) {
  constexpr double kBrightest = 255;
  data::Normalization result;
  for (size_t c = 0; c < 3; ++c) {
    const size_t of_model = how.channels == PictureChannels::kBgr ? 2 - c : c;
    result.scale[c] = static_cast<float>(how.scale / (kBrightest * how.deviation[of_model]));
    result.offset[c] = static_cast<float>(-how.mean[of_model] / how.deviation[of_model]);
  }
  return result;
}

void check_pictures(const std::string& path, const DataSpec& input, const TensorType& type) {
  const auto is_of = [](const Dim& dim, int64_t size) {
    return !dim.name.empty() || dim.size == size;
  };
  bool is_right = input.dtype == type.dtype && input.dims.size() == type.shape.size();
  for (size_t i = 1; is_right && i < type.shape.size(); ++i)
    is_right = is_of(input.dims[i], type.shape[i]);
  if (!is_right)
    throw UserError(fmt::format("'{}': pictures are prepared as {}, and input '{}' is {}",
                                path,
                                to_string(type),
                                input.name,
                                type_text(input)),
                    "name a FILE.toml with crop and layout of the model");
  if (!is_of(input.dims[0], type.shape[0]))
    throw UserError(fmt::format("'{}' has another number of pictures than input '{}', {}; got {}",
                                path,
                                input.name,
                                type_text(input),
                                type.shape[0]),
                    "export the model with a batch of any size");
}

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
        fmt::format("{}, or --preprocess where it is pictures", kArrays));
  switch (trained->kind) {
    case DataKind::kTable:
      return open_table(path, *trained, observer);
    case DataKind::kImages:
      return std::make_unique<PictureRows>(data::find_pictures(path),
                                           data::PictureInputs(*trained, crop));
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

std::unique_ptr<InputRows> open_pictures(const std::string& path,
                                         const DataSpec& input,
                                         const Preprocess& how) {
  if (is_array(path, nullptr)) return nullptr;
  const bool is_taken = is_float(input.dtype) || input.dtype == DType::kU8;
  auto rows = std::make_unique<PictureRows>(
      data::find_pictures(path),
      data::PictureInputs(data::PictureForm{
          .short_side = how.resize, .size = how.crop, .normalization = normalization_of(how)}),
      PictureOrder{.dtype = is_taken ? input.dtype : DType::kF32,
                   .layout = how.layout,
                   .channels = how.channels});
  check_pictures(path, input, rows->type());
  return rows;
}

}  // namespace ridge
