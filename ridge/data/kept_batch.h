// A batch that outlives its loader's next one.
#pragma once

#include <cstddef>
#include <vector>

#include "ridge/data/loader.h"

namespace ridge::data {

/// A copy of a batch, in memory of its own.
class KeptBatch {
 public:
  /// `fields` are those of the data set.
  KeptBatch(const Batch& batch, const std::vector<FieldType>& fields);
  KeptBatch(KeptBatch&&) = default;
  KeptBatch& operator=(KeptBatch&&) = default;

  const Batch& batch() const { return batch_; }

 private:
  std::vector<std::vector<std::byte>> memory_;  ///< A field each.
  Batch batch_;
};

}  // namespace ridge::data
