// Pictures: read the file, choose the crop, decode and resize it.
#include "ridge/data/image_dataset.h"

#include <unistd.h>

#include <algorithm>

#include "ridge/base/error.h"
#include "ridge/data/image_files.h"
#include "ridge/data/picture_cache.h"
#include "ridge/data/picture_crop.h"
#include "ridge/io/file.h"

namespace ridge::data {
namespace {

struct ImageOptions {
  int64_t size = 224;
  Crop crop = Crop::kRandom;
  bool flip = false;
  bool skip = true;  ///< Another sample replaces one that cannot be read.
  Normalization normalization;
};

Normalization normalization_of(const DataDescription& description) {
  Normalization result;
  for (size_t c = 0; c < 3; ++c) {
    const double deviation = description.deviation[c];
    result.scale[c] = static_cast<float>(1 / (255 * deviation));
    result.offset[c] = static_cast<float>(-description.mean[c] / deviation);
  }
  return result;
}

/// The crop where none may be random.
Crop crop_to_evaluate(Crop crop) { return crop == Crop::kRandom ? Crop::kCenter : crop; }

/// The part of a picture that a crop takes, but for a random one.
CropBox fixed_crop(Crop crop, const PictureSize& size, int64_t target) {
  if (crop == Crop::kCenter) return center_crop(size, target);
  return {.width = static_cast<double>(size.width), .height = static_cast<double>(size.height)};
}

ImageOptions image_options(const DataOptions& options, Split split) {
  check(options.size >= 1 && options.size <= kMostPictureSize,
        "size is {}: pictures may have 1 to {} pixels a side",
        options.size,
        kMostPictureSize);
  ImageOptions result{.size = options.size,
                      .crop = options.crop,
                      .flip = options.flip && split == Split::kTrain,
                      .skip = options.on_error == OnError::kSkip,
                      .normalization = {}};
  if (split == Split::kEval) result.crop = crop_to_evaluate(result.crop);
  return result;
}

/// Decoded pictures may take so much of the machine's memory that training still has most of it.
int64_t cache_limit() {
  constexpr int64_t kShare = 4;
  return int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE) / kShare;
}

class ImageScratch : public Scratch {
 public:
  ImageScratch(const ImageOptions& options, const PictureCache* cache, int64_t largest_file)
      : reader(options.size, options.normalization), cache_(cache) {
    if (cache == nullptr) file_.resize(static_cast<size_t>(largest_file) + 1);
  }
  int64_t bytes() const override { return reader.bytes() + static_cast<int64_t>(file_.size()); }

  PictureSize open(const std::vector<ImageFile>& files, int64_t index) {
    if (cache_ == nullptr) return reader.open(read_whole(files[index].path, file_));
    const StoredPicture* picture = cache_->picture(index);
    return picture != nullptr ? reader.open(*picture) : reader.open(cache_->file(index));
  }

  PictureReader reader;

 private:
  const PictureCache* cache_;
  std::vector<std::byte> file_;
};

class ImageDataset : public Dataset {
 public:
  ImageDataset(DataDescription description,
               std::vector<std::string> notes,
               std::vector<ImageFile> files,
               const ImageOptions& options)
      : Dataset(std::move(description), std::move(notes)),
        files_(std::move(files)),
        options_(options) {
    options_.normalization = normalization_of(this->description());
    for (const ImageFile& file : files_) largest_file_ = std::max(largest_file_, file.bytes);
  }

  int64_t size() const override { return static_cast<int64_t>(files_.size()); }

  std::unique_ptr<SampleCache> load_cache() const override {
    return std::make_unique<PictureCache>(
        files_,
        PictureCache::Options{
            .target = options_.size, .crop = options_.crop, .max_bytes = cache_limit()});
  }
  std::unique_ptr<Scratch> make_scratch(const SampleCache* cache) const override {
    return std::make_unique<ImageScratch>(
        options_, static_cast<const PictureCache*>(cache), largest_file_);
  }

  void read(int64_t index,
            const SampleKey& key,
            std::span<void* const> out,
            Scratch& scratch) const override {
    auto& image = static_cast<ImageScratch&>(scratch);
    for (int64_t attempt = 0; attempt < size(); ++attempt) {
      const int64_t at = (index + attempt) % size();
      try {
        read_picture(at, key, static_cast<float*>(out[0]), image);
        *static_cast<int64_t*>(out[1]) = files_[at].label;
        if (attempt > 0) ++scratch.skipped;
        return;
      } catch (const UserError& error) {
        if (!options_.skip)
          throw UserError(fmt::format("cannot use picture '{}': {}", files_[at].path, error.what()),
                          "remove the file, or set on_error = \"skip\"");
      }
    }
    throw UserError(fmt::format(
        "none of the {} pictures can be read; the first is '{}'", size(), files_[0].path));
  }

 private:
  void read_picture(int64_t index, const SampleKey& key, float* out, ImageScratch& scratch) const {
    const PictureSize size = scratch.open(files_, index);
    SampleRandom random(key);
    const bool mirrored = options_.flip && random.uniform() < 0.5;
    CropBox box = options_.crop == Crop::kRandom ? random_crop(size, random)
                                                 : fixed_crop(options_.crop, size, options_.size);
    box.mirrored = mirrored;
    scratch.reader.read(box, out);
  }

  std::vector<ImageFile> files_;
  ImageOptions options_;
  int64_t largest_file_ = 0;
};

}  // namespace

std::unique_ptr<Dataset> open_image_dataset(const DataOptions& options,
                                            Split split,
                                            const DataDescription* trained) {
  const ImageOptions image = image_options(options, split);
  DataDescription description{
      .kind = DataKind::kImages,
      .fields = {{.name = "x", .dtype = DType::kF32, .shape = {image.size, image.size, 3}},
                 {.name = "y", .dtype = DType::kI64, .shape = {}}},
      .class_names = trained != nullptr ? trained->class_names : class_folders(options.path)};
  description.classes = static_cast<int64_t>(description.class_names.size());
  std::vector<std::string> notes;
  if (std::string note = set_normalization(description, options, trained); !note.empty())
    notes.push_back(std::move(note));
  const bool apart = !options.eval_path.empty(), other = apart && split == Split::kEval;
  std::vector<ImageFile> files =
      list_images(other ? options.eval_path : options.path, description.class_names);
  if (!apart) {
    std::vector<ImageFile> chosen;
    for (int64_t i :
         split_samples(static_cast<int64_t>(files.size()), options.eval_fraction, split))
      chosen.push_back(std::move(files[i]));
    files = std::move(chosen);
  }
  return std::make_unique<ImageDataset>(
      std::move(description), std::move(notes), std::move(files), image);
}

PictureInputs::PictureInputs(const DataDescription& trained, Crop crop)
    : size_(trained.fields[0].shape[0]), crop_(crop_to_evaluate(crop)), short_side_(0) {
  check_kind(trained, DataKind::kImages);
  reader_ = std::make_unique<PictureReader>(size_, normalization_of(trained));
}

PictureInputs::PictureInputs(const PictureForm& form)
    : size_(form.size), crop_(Crop::kCenter), short_side_(form.short_side) {
  check_internal(size_ >= 1 && size_ <= short_side_,
                 "[PictureInputs] the middle {0} x {0} of a short side of {1}",
                 size_,
                 short_side_);
  reader_ = std::make_unique<PictureReader>(size_, form.normalization);
}

PictureInputs::PictureInputs(PictureInputs&&) noexcept = default;
PictureInputs::~PictureInputs() = default;

void PictureInputs::read(const std::string& path, float* out) {
  const std::string file = read_file(path);
  try {
    const PictureSize size = reader_->open(as_bytes(file));
    CropBox box =
        short_side_ > 0 ? center_crop(size, size_, short_side_) : fixed_crop(crop_, size, size_);
    box.reduces = short_side_ == 0;
    reader_->read(box, out);
  } catch (const UserError& error) {
    throw UserError(fmt::format("cannot use picture '{}': {}", path, error.message()),
                    "leave the file out");
  }
}

}  // namespace ridge::data
