#include "ridge/backend/cuda/fault_table.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace ridge::cuda {
namespace {

// The layout is that of Fault in device/kernel.h.
struct Fault {
  uint64_t place;  // 1 + the number of the index among all of the node's
  int64_t index;
};

constexpr size_t kRecords = 4096;

}  // namespace

struct FaultTable::Memory {
  explicit Memory(const DeviceRef& device)
      : on_device(device, kRecords * sizeof(Fault)), on_host(device, kRecords * sizeof(Fault)) {
    Stream stream(device);
    stream.fill(on_device.at(0, on_device.bytes()), 0, on_device.bytes());
    stream.synchronize();
    std::memset(on_host.bytes().data(), 0, on_host.bytes().size());
  }
  const Fault& fault(size_t record) const {
    return reinterpret_cast<const Fault*>(on_host.bytes().data())[record];
  }

  Arena on_device;
  PinnedMemory on_host;
};

FaultTable::Memory& FaultTable::memory() {
  if (memory_ == nullptr) memory_ = std::make_unique<Memory>(device_);
  return *memory_;
}

std::unique_ptr<const FaultTable::Record> FaultTable::make_record(Owner owner) {
  device_->ensure_current();
  const std::lock_guard lock(mutex_);
  const auto free =
      std::find_if(rows_.begin(), rows_.end(), [](const Row& row) { return !row.is_taken; });
  const auto number = static_cast<size_t>(free - rows_.begin());
  check_internal(number < kRecords, "more than {} kernels check indices", kRecords);
  const DevicePointer address = memory().on_device.at(number * sizeof(Fault), sizeof(Fault));
  if (free == rows_.end())
    rows_.push_back({std::move(owner)});
  else
    *free = {std::move(owner)};
  return std::make_unique<const Record>(*this, number, address);
}

FaultTable::FaultTable(DeviceRef device) : device_(std::move(device)) {}

FaultTable::~FaultTable() = default;

FaultTable::Record::~Record() {
  const std::lock_guard lock(table_.mutex_);
  // Its owner stays, for what the last launches may have found.
  table_.rows_[number_].is_taken = false;
}

void FaultTable::Record::launch_on(const Stream& stream) const {
  if (stream_ == &stream) return;
  stream_ = &stream;
  const std::lock_guard lock(table_.mutex_);
  table_.rows_[number_].stream = &stream;
}

void FaultTable::forget(const Stream& stream) {
  const std::lock_guard lock(mutex_);
  for (Row& row : rows_)
    if (row.stream == &stream) row.stream = nullptr;
}

void FaultTable::queue_read(Stream& stream) const {
  const size_t bytes = rows_.size() * sizeof(Fault);
  stream.copy_to_host(memory_->on_host.bytes().data(), memory_->on_device.at(0, bytes), bytes);
}

// The number of records when there is none.
size_t FaultTable::first_fault(const Stream& stream) const {
  size_t record = 0;
  while (record < rows_.size() &&
         (memory_->fault(record).place == 0 || !rows_[record].is_of(stream)))
    ++record;
  return record;
}

void FaultTable::synchronize(Stream& stream) {
  // Streams that are waited for at the same time take turns: the copy on the host is one.
  std::unique_lock lock(mutex_);
  if (rows_.empty()) {
    lock.unlock();
    return stream.synchronize();
  }
  queue_read(stream);
  stream.synchronize();
  if (first_fault(stream) < rows_.size()) fail(stream);
}

void FaultTable::fail(Stream& stream) {
  // Another stream's kernel may have been writing the record while it was read.
  const Driver& driver = device_->driver();
  driver.check(driver.ctx_synchronize());
  queue_read(stream);
  for (size_t record = 0; record < rows_.size(); ++record)
    if (rows_[record].is_of(stream))
      stream.fill(memory_->on_device.at(record * sizeof(Fault), sizeof(Fault)), 0, sizeof(Fault));
  stream.synchronize();
  const size_t record = first_fault(stream);
  check_internal(record < rows_.size(), "a fault of the device is gone");
  const Fault& fault = memory_->fault(record);
  const Owner& owner = rows_[record].owner;
  throw UserError(fmt::format("[{}] index {} at {} is out of range; expected 0 to {}, at site '{}'",
                              owner.op,
                              fault.index,
                              fault.place - 1,
                              owner.limit - 1,
                              owner.site));
}

}  // namespace ridge::cuda
