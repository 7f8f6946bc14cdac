// Wrong data that kernels find on the device: an index out of range becomes an error of the host
// when a stream is waited for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ridge/backend/cuda/driver/arena.h"
#include "ridge/backend/cuda/driver/staging.h"

namespace ridge::cuda {

/// One record (`Fault` of device/kernel.h) for each kernel that checks indices, so that what is
/// found has the site of its node, and addresses stay as they are under a captured graph. The table
/// takes memory when the first record is asked for.
class FaultTable {
 public:
  /// Whose record it is, for the error.
  struct Owner {
    std::string op, site;
    int64_t limit = 0;  ///< Bound of the indices.
  };
  class Record;

  explicit FaultTable(DeviceRef device);
  FaultTable(const FaultTable&) = delete;
  FaultTable& operator=(const FaultTable&) = delete;
  ~FaultTable();

  /// A record of zeros.
  std::unique_ptr<const Record> make_record(Owner owner);

  /// Waits for `stream`. UserError where a kernel of it has found wrong data since the last call;
  /// the records of the stream are zeros again then. A program on another stream does not hear of
  /// it.
  void synchronize(Stream& stream);
  /// `stream` ends: what its kernels found and nobody heard of is left to whoever waits next.
  void forget(const Stream& stream);

 private:
  struct Memory;
  struct Row {
    Owner owner;
    bool is_taken = true;
    const Stream* stream = nullptr;  ///< The last one that launched its kernel.
    bool is_of(const Stream& other) const { return stream == nullptr || stream == &other; }
  };
  Memory& memory();
  void queue_read(Stream& stream) const;
  size_t first_fault(const Stream& stream) const;
  [[noreturn]] void fail(Stream& stream);

  DeviceRef device_;
  std::mutex mutex_;
  std::unique_ptr<Memory> memory_;
  std::vector<Row> rows_;  ///< By record.
};

/// A record in use. The table must outlive it.
class FaultTable::Record {
 public:
  Record(FaultTable& table, size_t number, DevicePointer address)
      : table_(table), number_(number), address_(address) {}
  Record(const Record&) = delete;
  Record& operator=(const Record&) = delete;
  ~Record();
  DevicePointer address() const { return address_; }
  /// Says that its kernel is launched on `stream`; replays of a captured graph run there, too. A
  /// thread at a time may call it.
  void launch_on(const Stream& stream) const;

 private:
  FaultTable& table_;
  size_t number_;
  mutable const Stream* stream_ = nullptr;
  DevicePointer address_;
};

}  // namespace ridge::cuda
