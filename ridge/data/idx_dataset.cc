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

IdxFiles read_files(const std::string& images, const std::string& labels) {
  check(!labels.empty(), "the images in '{}' have no file of labels", images);
  IdxFiles files{read_idx(images), read_idx(labels)};
  const TensorType &image = files.images.type(), &label = files.labels.type();
  check(image.dtype == DType::kU8 && image.shape.size() == 3,
        "'{}' holds {}: images are u8 with 3 sizes",
        images,
        to_string(image));
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
std::array<float, 256> normal_values(const DataOptions& options) {
  for (const auto* list : {&options.mean, &options.deviation})
    check(list->size() <= 1, "IDX images have 1 channel, but {} numbers are given", list->size());
  const double mean = options.mean.empty() ? 0.0 : options.mean[0];
  const double deviation = options.deviation.empty() ? 1.0 : options.deviation[0];
  check(deviation > 0, "deviation is {}: it must be above 0", deviation);
  std::array<float, 256> values{};
  for (size_t i = 0; i < 256; ++i)
    values[i] = static_cast<float>((static_cast<double>(i) / 255 - mean) / deviation);
  return values;
}

class IdxDataset : public Dataset {
 public:
  struct Contents {
    IdxFiles files;
    std::vector<int64_t> samples;  ///< Numbers of the samples within the files.
    int64_t classes = 0;
    Augmentation augmentation;
    std::array<float, 256> values{};
  };
  explicit IdxDataset(Contents contents) : contents_(std::move(contents)) {
    const auto& shape = contents_.files.images.type().shape;
    height_ = shape[1];
    width_ = shape[2];
    fields_ = {{.name = "x", .dtype = DType::kF32, .shape = {height_, width_, 1}},
               {.name = "y", .dtype = DType::kI64, .shape = {}}};
  }

  int64_t size() const override { return static_cast<int64_t>(contents_.samples.size()); }
  const std::vector<FieldType>& fields() const override { return fields_; }
  int64_t classes() const override { return contents_.classes; }

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
        x[v * width_ + u] = contents_.values[inside ? image[from_y * width_ + from_x] : 0];
      }
    *static_cast<int64_t*>(out[1]) = contents_.files.labels.span<uint8_t>()[sample];
  }

 private:
  Contents contents_;
  int64_t height_, width_;
  std::vector<FieldType> fields_;
};

std::vector<int64_t> all_samples(int64_t count) {
  std::vector<int64_t> samples(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) samples[i] = i;
  return samples;
}

}  // namespace

std::unique_ptr<Dataset> open_idx_dataset(const DataOptions& options, Split split) {
  IdxDataset::Contents contents;
  contents.values = normal_values(options);
  contents.files = read_files(options.path, options.labels);
  const auto labels = contents.files.labels.span<uint8_t>();
  contents.classes = int64_t{*std::max_element(labels.begin(), labels.end())} + 1;
  const std::vector<int64_t> trained_shape = contents.files.images.type().shape;
  if (split == Split::kTrain) {
    check(options.shift >= 0 && options.shift < std::min(trained_shape[1], trained_shape[2]),
          "shift is {}: it may be 0 to the images' size",
          options.shift);
    contents.augmentation = {.flip = options.flip, .shift = options.shift};
  }
  if (options.eval_path.empty()) {
    contents.samples = split_samples(trained_shape[0], options.eval_fraction, split);
    return std::make_unique<IdxDataset>(std::move(contents));
  }
  if (split == Split::kEval) {
    contents.files = read_files(options.eval_path, options.eval_labels);
    const auto& shape = contents.files.images.type().shape;
    check(shape[1] == trained_shape[1] && shape[2] == trained_shape[2],
          "'{}' holds images of {} x {}, the training data of {} x {}",
          options.eval_path,
          shape[1],
          shape[2],
          trained_shape[1],
          trained_shape[2]);
    const auto evaluated = contents.files.labels.span<uint8_t>();
    const int64_t largest = *std::max_element(evaluated.begin(), evaluated.end());
    check(largest < contents.classes,
          "'{}' holds label {}, which the training data has not",
          options.eval_labels,
          largest);
  }
  contents.samples = all_samples(contents.files.images.type().shape[0]);
  return std::make_unique<IdxDataset>(std::move(contents));
}

}  // namespace ridge::data
