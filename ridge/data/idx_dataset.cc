// Keeps the bytes of all images in memory; a table of 256 numbers normalises them.
#include "ridge/data/idx_dataset.h"

#include <algorithm>
#include <array>

#include "ridge/base/error.h"
#include "ridge/data/order.h"
#include "ridge/io/idx.h"

namespace ridge::data {
namespace {

struct IdxFiles {
  Tensor images;  // u8 [n, height, width]
  Tensor labels;  // u8 [n]
};

Tensor read_images(const std::string& path) {
  Tensor images = read_idx(path);
  const TensorType& type = images.type();
  check(type.dtype == DType::kU8 && type.shape.size() == 3,
        "'{}' holds {}: images are u8 with 3 sizes",
        path,
        to_string(type));
  return images;
}

IdxFiles read_files(const std::string& images, const std::string& labels) {
  check(!labels.empty(), "the images in '{}' have no file of labels", images);
  IdxFiles files{read_images(images), read_idx(labels)};
  const TensorType &image = files.images.type(), &label = files.labels.type();
  check(label.dtype == DType::kU8 && label.shape.size() == 1,
        "'{}' holds {}: labels are u8 with 1 size",
        labels,
        to_string(label));
  if (image.shape[0] != label.shape[0])
    throw UserError(fmt::format("'{}' has {} images, but '{}' has {} labels",
                                images,
                                image.shape[0],
                                labels,
                                label.shape[0]),
                    "give the two files that belong together");
  return files;
}

struct Augmentation {
  bool flip = false;
  int64_t shift = 0;
};

/// The numbers of bytes 0 to 255.
std::array<float, 256> normal_values(const DataDescription& description) {
  std::array<float, 256> values{};
  for (size_t i = 0; i < 256; ++i)
    values[i] = static_cast<float>((static_cast<double>(i) / 255 - description.mean[0]) /
                                   description.deviation[0]);
  return values;
}

class IdxDataset : public Dataset {
 public:
  struct Contents {
    IdxFiles files;
    std::vector<int64_t> samples;  ///< Numbers of the samples within the files.
    Augmentation augmentation;
  };
  IdxDataset(DataDescription description, std::vector<std::string> notes, Contents contents)
      : Dataset(std::move(description), std::move(notes)),
        contents_(std::move(contents)),
        values_(normal_values(this->description())),
        height_(fields()[0].shape[0]),
        width_(fields()[0].shape[1]) {}

  int64_t size() const override { return static_cast<int64_t>(contents_.samples.size()); }

  void read(int64_t index,
            const SampleKey& key,
            std::span<void* const> out,
            Scratch&) const override {
    const int64_t sample = contents_.samples[index];
    const uint8_t* image =
        contents_.files.images.span<uint8_t>().data() + sample * height_ * width_;
    SampleRandom random(key);
    const int64_t range = 2 * contents_.augmentation.shift + 1;
    const int64_t right = random.below(range) - contents_.augmentation.shift;
    const int64_t down = random.below(range) - contents_.augmentation.shift;
    const bool mirrored = contents_.augmentation.flip && random.uniform() < 0.5;
    auto* x = static_cast<float*>(out[0]);
    for (int64_t v = 0; v < height_; ++v)
      for (int64_t u = 0; u < width_; ++u) {
        const int64_t from_y = v - down, from_x = (mirrored ? width_ - 1 - u : u) - right;
        const bool inside = from_y >= 0 && from_y < height_ && from_x >= 0 && from_x < width_;
        x[v * width_ + u] = values_[inside ? image[from_y * width_ + from_x] : 0];
      }
    *static_cast<int64_t*>(out[1]) = contents_.files.labels.span<uint8_t>()[sample];
  }

 private:
  Contents contents_;
  std::array<float, 256> values_;
  int64_t height_, width_;
};

std::vector<int64_t> all_samples(int64_t count) {
  std::vector<int64_t> samples(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) samples[i] = i;
  return samples;
}

int64_t largest_label(const IdxFiles& files) {
  const auto labels = files.labels.span<uint8_t>();
  return *std::max_element(labels.begin(), labels.end());
}

void check_size(const std::string& path, const Shape& images, const DataDescription& trained) {
  const std::vector<int64_t>& wanted = trained.fields[0].shape;
  if (images[1] != wanted[0] || images[2] != wanted[1])
    throw UserError(fmt::format("'{}' holds images of {} x {}, the training data of {} x {}",
                                path,
                                images[1],
                                images[2],
                                wanted[0],
                                wanted[1]),
                    "give images of the size that the training had");
}

void check_label(const std::string& path, int64_t label, const DataDescription& trained) {
  if (label >= trained.classes)
    throw UserError(
        fmt::format("'{}' holds label {}, which the training data has not", path, label),
        "take such images out, or train on all classes");
}

}  // namespace

std::unique_ptr<Dataset> open_idx_dataset(const DataOptions& options,
                                          Split split,
                                          const DataDescription* trained) {
  const bool apart = !options.eval_path.empty(), other = apart && split == Split::kEval;
  const std::string& path = other ? options.eval_path : options.path;
  const std::string& labels = other ? options.eval_labels : options.labels;
  IdxDataset::Contents contents{
      .files = read_files(path, labels), .samples = {}, .augmentation = {}};
  const Shape& shape = contents.files.images.type().shape;
  const int64_t largest = largest_label(contents.files);
  if (trained != nullptr) {
    check_size(path, shape, *trained);
    check_label(labels, largest, *trained);
  }
  DataDescription description{
      .kind = DataKind::kIdx,
      .fields = {{.name = "x", .dtype = DType::kF32, .shape = {shape[1], shape[2], 1}},
                 {.name = "y", .dtype = DType::kI64, .shape = {}}},
      .classes = trained != nullptr ? trained->classes : largest + 1};
  std::vector<std::string> notes;
  if (std::string note = set_normalization(description, options, trained); !note.empty())
    notes.push_back(std::move(note));
  if (split == Split::kTrain) {
    check(options.shift >= 0 && options.shift < std::min(shape[1], shape[2]),
          "shift is {}: it may be 0 to the images' size",
          options.shift);
    contents.augmentation = {.flip = options.flip, .shift = options.shift};
  }
  contents.samples =
      apart ? all_samples(shape[0]) : split_samples(shape[0], options.eval_fraction, split);
  return std::make_unique<IdxDataset>(
      std::move(description), std::move(notes), std::move(contents));
}

Tensor read_idx_inputs(const std::string& path, const DataDescription& trained) {
  check_kind(trained, DataKind::kIdx);
  const std::array<float, 256> values = normal_values(trained);
  const Tensor images = read_images(path);
  TensorType type{DType::kF32, images.type().shape};
  type.shape.push_back(1);
  Tensor x(type);
  const auto from = images.span<uint8_t>();
  std::transform(from.begin(), from.end(), x.span<float>().begin(), [&](uint8_t pixel) {
    return values[pixel];
  });
  return x;
}

}  // namespace ridge::data
