// Data sets: samples by number, read by several threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
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
  virtual ~Dataset() = default;

  virtual int64_t size() const = 0;
  virtual const std::vector<FieldType>& fields() const = 0;

  /// Writes sample `index` (0 to size() - 1) into one address a field, each aligned for its dtype.
  virtual void read(int64_t index,
                    const SampleKey& key,
                    std::span<void* const> out,
                    Scratch& scratch) const = 0;

  /// How many items of the fields' first axis sample `index` fills; what follows is padding. 0:
  /// all, as do those of every other sample.
  virtual int64_t length(int64_t index) const;

  /// Classes of "y", the vocabulary of tokens, or 0 for regression.
  virtual int64_t classes() const { return 0; }
  /// A name a class, in their order; empty where the data has none.
  virtual std::vector<std::string> class_names() const { return {}; }

  /// Makes the buffers of one reading thread; `cache` is null or of load_cache, and must outlive
  /// it.
  virtual std::unique_ptr<Scratch> make_scratch(const SampleCache* cache) const;
  /// Reads the samples from disk and decodes them, up to but without augmentation; null where a
  /// data set has them in memory anyway.
  virtual std::unique_ptr<SampleCache> load_cache() const { return nullptr; }
};

/// Opens what `options` describe; bad options and bad files are a UserError.
std::unique_ptr<Dataset> open_dataset(const DataOptions& options, Split split);

}  // namespace ridge::data
