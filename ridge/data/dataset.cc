// The code that all data sets share, and opening one by its kind.
#include "ridge/data/dataset.h"

#include "ridge/base/error.h"
#include "ridge/data/idx_dataset.h"
#include "ridge/data/image_dataset.h"
#include "ridge/data/random_dataset.h"
#include "ridge/data/table_dataset.h"
#include "ridge/data/text_dataset.h"

namespace ridge::data {
int64_t Dataset::length(int64_t) const { return 0; }

std::unique_ptr<Scratch> Dataset::make_scratch(const SampleCache*) const {
  return std::make_unique<Scratch>();
}

namespace {

std::unique_ptr<Dataset> open_kind(const DataOptions& options,
                                   Split split,
                                   const DataDescription* trained) {
  switch (options.kind) {
    case DataKind::kIdx:
      return open_idx_dataset(options, split, trained);
    case DataKind::kImages:
      return open_image_dataset(options, split, trained);
    case DataKind::kTable:
      return open_table_dataset(options, split, trained);
    case DataKind::kText:
      return open_text_dataset(options, split);
    case DataKind::kRandom:
      return open_random_dataset(options, split);
  }
  throw InternalError("[open_dataset] a kind without a data set");
}

// Whether the files to train on say what samples are; else the options do.
bool is_described_by_files(DataKind kind) {
  return kind != DataKind::kText && kind != DataKind::kRandom;
}

}  // namespace

std::unique_ptr<Dataset> open_dataset(const DataOptions& options,
                                      Split split,
                                      const DataDescription* trained) {
  if (trained == nullptr && split == Split::kEval && is_described_by_files(options.kind)) {
    const auto training = open_kind(options, Split::kTrain, nullptr);
    return open_dataset(options, split, &training->description());
  }
  if (trained != nullptr) check_kind(*trained, options.kind);
  std::unique_ptr<Dataset> dataset = open_kind(options, split, trained);
  if (trained != nullptr) check_fits(*trained, dataset->description());
  return dataset;
}

}  // namespace ridge::data
