#include "ridge/data/kept_batch.h"

namespace ridge::data {

KeptBatch::KeptBatch(const Batch& batch, const std::vector<FieldType>& fields) : batch_(batch) {
  for (size_t i = 0; i < fields.size(); ++i) {
    const auto* from = static_cast<const std::byte*>(batch.fields[i]);
    memory_.emplace_back(from, from + fields[i].bytes() * batch.count);
    batch_.fields[i] = memory_.back().data();
  }
}

}  // namespace ridge::data
