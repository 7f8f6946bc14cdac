// The code that all data sets share, and opening one by its kind.
#include "ridge/data/dataset.h"

#include "ridge/base/error.h"
#include "ridge/data/idx_dataset.h"
#include "ridge/data/image_dataset.h"
#include "ridge/data/random_dataset.h"
#include "ridge/data/table_dataset.h"
#include "ridge/data/text_dataset.h"

namespace ridge::data {
int64_t FieldType::elements() const {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  return count;
}

int64_t FieldType::bytes() const { return elements() * static_cast<int64_t>(size_of(dtype)); }

int64_t Dataset::length(int64_t) const { return 0; }

std::unique_ptr<Scratch> Dataset::make_scratch(const SampleCache*) const {
  return std::make_unique<Scratch>();
}

std::unique_ptr<Dataset> open_dataset(const DataOptions& options, Split split) {
  switch (options.kind) {
    case DataKind::kIdx:
      return open_idx_dataset(options, split);
    case DataKind::kImages:
      return open_image_dataset(options, split);
    case DataKind::kTable:
      return open_table_dataset(options, split);
    case DataKind::kText:
      return open_text_dataset(options, split);
    case DataKind::kRandom:
      return open_random_dataset(options, split);
  }
  throw InternalError("[open_dataset] a kind without a data set");
}

}  // namespace ridge::data
