#include "ridge/run/input_staging.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "ridge/base/alignment.h"
#include "ridge/base/error.h"
#include "ridge/run/state.h"

namespace ridge {

InputStaging::InputStaging(const Plan& plan, Backend& backend, Stream& copies)
    : plan_(plan),
      backend_(backend),
      copies_(copies),
      memory_(resident_memory(backend, plan.staging_bytes)) {
  const int64_t half = plan.staging_bytes / 2;
  for (int i = 0; i < 2; ++i)
    slots_[i] = {.device = static_cast<std::byte*>(memory_.get()) + i * half,
                 .scalars = HostMemory(backend, kMostScalarBytes),
                 .packed = {},
                 .copied = copies.make_event(),
                 .taken = copies.make_event()};
  size_t most = 0;
  for (const EntryPlan& entry : plan.entries) most = std::max(most, entry.inputs.size());
  pieces_.reserve(most);
}

void InputStaging::copy(size_t entry, void* to, int64_t staging, const void* host, size_t bytes) {
  check_internal(pieces_.empty() || entry == entry_,
                 "inputs of '{}' are written before '{}' has run on its own",
                 plan_.entries[entry].name,
                 plan_.entries[entry_].name);
  Slot& slot = slots_[filling_];
  if (pieces_.empty()) copies_.wait(*slot.taken);
  entry_ = entry;
  backend_.copy_to_device(copies_, slot.device + staging, host, bytes);
  auto* const place = static_cast<std::byte*>(to);
  if (!pieces_.empty()) {  // pieces that lie side by side in both places are joined
    Piece& last = pieces_.back();
    const auto last_bytes = static_cast<int64_t>(last.bytes);
    if (last.to + last_bytes == place && last.staging + last_bytes == staging) {
      last.bytes += bytes;
      return;
    }
  }
  pieces_.push_back({place, staging, bytes});
}

void InputStaging::write(size_t entry, void* to, int64_t staging, const void* host, size_t bytes) {
  copy(entry, to, staging, host, bytes);
}

void InputStaging::write_scalars(
    size_t entry, void* to, int64_t staging, const void* host, size_t bytes) {
  check_internal(scalar_bytes_ + bytes <= kMostScalarBytes,
                 "more than {} bytes of scalars for '{}'",
                 kMostScalarBytes,
                 plan_.entries[entry].name);
  // Free again: finish() of the last run waited for the copies of the one before, which had these.
  std::byte* const kept = slots_[filling_].scalars.get() + scalar_bytes_;
  std::memcpy(kept, host, bytes);
  scalar_bytes_ += aligned_bytes(bytes);
  copy(entry, to, staging, kept, bytes);
}

void InputStaging::write_rows(size_t entry,
                              void* to,
                              int64_t staging,
                              const void* host,
                              size_t bytes,
                              size_t stride,
                              size_t rows) {
  for (Slot& slot : slots_)
    if (slot.packed.get() == nullptr)
      slot.packed = HostMemory(backend_, static_cast<size_t>(plan_.staging_bytes / 2));
  std::byte* const packed = slots_[filling_].packed.get() + staging;  // free, as the scalars are
  const auto* from = static_cast<const std::byte*>(host);
  for (size_t row = 0; row < rows; ++row, from += stride)
    std::memcpy(packed + row * bytes, from, bytes);
  copy(entry, to, staging, packed, rows * bytes);
}

void InputStaging::take(size_t entry, Stream& compute) {
  // A run that threw had no finish(); its copies come after those of the run before it.
  if (copied_now_ != nullptr) copied_before_ = std::exchange(copied_now_, nullptr);
  if (pieces_.empty()) return;
  check_internal(entry == entry_,
                 "'{}' runs while inputs of '{}' wait for it",
                 plan_.entries[entry].name,
                 plan_.entries[entry_].name);
  Slot& slot = slots_[filling_];
  copies_.record(*slot.copied);
  compute.wait(*slot.copied);
  for (const Piece& piece : pieces_)
    backend_.copy_on_device(compute, piece.to, slot.device + piece.staging, piece.bytes);
  compute.record(*slot.taken);
  copied_now_ = slot.copied.get();
  filling_ = 1 - filling_;
  pieces_.clear();
  scalar_bytes_ = 0;
}

void InputStaging::finish() {
  if (copied_before_ != nullptr) copied_before_->synchronize();
  copied_before_ = std::exchange(copied_now_, nullptr);
}

}  // namespace ridge
