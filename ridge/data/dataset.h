// Data sets: samples by number, read by several threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ridge/data/description.h"
#include "ridge/data/options.h"

namespace ridge::data {

/// The label of padding, which does not count.
inline constexpr int64_t kPadLabel = -100;

/// Keys the augmentation of a sample: the same numbers whatever thread reads it, and when.
struct SampleKey {
  uint64_t seed = 0;
  int64_t epoch = 0;
  int64_t sample = 0;  ///< The number in the data set, also where another one replaces it.
};

/// Working memory of one reading thread, made by Dataset::make_scratch with its pages touched.
class Scratch {
 public:
  virtual ~Scratch() = default;
  virtual int64_t bytes() const { return 0; }

  int64_t skipped = 0;  ///< Reads that another sample replaced, as the reader counts them.
};

/// Samples of a data set held in memory for a loader; immutable.
class SampleCache {
 public:
  virtual ~SampleCache() = default;
  virtual int64_t bytes() const = 0;
};

enum class Split { kTrain, kEval };

/// Reading is safe from several threads, each with a scratch of its own. The training split
/// augments as its options say, the other never does.
class Dataset {
 public:
  /// `notes`: what the user should know of how the files were read.
  explicit Dataset(DataDescription description, std::vector<std::string> notes = {})
      : description_(std::move(description)), notes_(std::move(notes)) {}
  virtual ~Dataset() = default;

  /// Says how to read other data for a model that is trained on these.
  const DataDescription& description() const { return description_; }
  const std::vector<FieldType>& fields() const { return description_.fields; }
  /// Classes of "y", the vocabulary of tokens, or 0 for regression.
  int64_t classes() const { return description_.classes; }
  const std::vector<std::string>& notes() const { return notes_; }

  virtual int64_t size() const = 0;

  /// Writes sample `index` (0 to size() - 1) into one address a field, each aligned for its dtype.
  virtual void read(int64_t index,
                    const SampleKey& key,
                    std::span<void* const> out,
                    Scratch& scratch) const = 0;

  /// How many items of the fields' first axis sample `index` fills; what follows is padding. 0:
  /// all, as do those of every other sample.
  virtual int64_t length(int64_t index) const;

  /// Makes the buffers of one reading thread; `cache` is null or of load_cache, and must outlive
  /// it.
  virtual std::unique_ptr<Scratch> make_scratch(const SampleCache* cache) const;
  /// Reads the samples from disk and decodes them, up to but without augmentation; null where a
  /// data set has them in memory anyway.
  virtual std::unique_ptr<SampleCache> load_cache() const { return nullptr; }

 private:
  DataDescription description_;
  std::vector<std::string> notes_;
};

/// Opens what `options` describe; bad options and bad files are a UserError. `trained` describes
/// the data that a model was trained on: columns and classes are found by their names, numbers are
/// normalised as they were, and what does not fit is a UserError. Null: the training data of
/// `options` are those data.
std::unique_ptr<Dataset> open_dataset(const DataOptions& options,
                                      Split split,
                                      const DataDescription* trained = nullptr);

}  // namespace ridge::data
