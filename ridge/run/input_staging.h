// Inputs on their way to a device that runs beside the host: while one run reads its inputs, those
// of the next are written.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "ridge/backend/backend.h"
#include "ridge/compile/plan.h"

namespace ridge {

/// Two slots, used in turn, one a run:
///
///   copies    write 0, "copied 0"   write 1, "copied 1"   after "taken 0": write 0 ...
///   compute        after "copied 0": 0 -> arena, "taken 0", run   after "copied 1": 1 -> arena ...
///
/// Kernels read the arena and no slot: what is recorded has fixed addresses, the bytes of an input
/// serve other values later in the run, and a copy within the device is many times faster than the
/// one from the host before it. The copy waits for what the run before wrote there because both are
/// on one stream.
class InputStaging {
 public:
  /// Takes plan.staging_bytes of device memory. Plan, backend and the stream of copies must outlive
  /// it.
  InputStaging(const Plan& plan, Backend& backend, Stream& copies);

  /// Queues a copy of `host` to where it waits, in a slot at `staging`, until `entry` runs; there
  /// it goes to `to`. `host` stays as it is until finish() of the next run has returned.
  void write(size_t entry, void* to, int64_t staging, const void* host, size_t bytes);
  /// The same from memory that may change at once. At most kMostScalarBytes for all of a run.
  void write_scalars(size_t entry, void* to, int64_t staging, const void* host, size_t bytes);
  /// The same of `rows` rows of `bytes` that lie `stride` bytes apart; packed on the host, for a
  /// copy to the device costs more than they do. The first call takes the memory for that.
  void write_rows(size_t entry,
                  void* to,
                  int64_t staging,
                  const void* host,
                  size_t bytes,
                  size_t stride,
                  size_t rows);
  static constexpr size_t kMostScalarBytes = 4096;

  /// At the start of a run: brings what was written to its place on `compute`.
  void take(size_t entry, Stream& compute);
  /// At the end of a run, when all of it is queued: waits until what the run before took has been
  /// copied from the host. It has been, unless the host is more than two runs ahead of the device;
  /// this keeps it from going farther.
  void finish();

 private:
  struct Slot {
    std::byte* device = nullptr;
    HostMemory scalars, packed;
    std::unique_ptr<Event> copied, taken;
  };
  /// Bytes that wait in a slot.
  struct Piece {
    std::byte* to;
    int64_t staging;
    size_t bytes;
  };
  void copy(size_t entry, void* to, int64_t staging, const void* host, size_t bytes);

  const Plan& plan_;
  Backend& backend_;
  Stream& copies_;
  DeviceMemory memory_;
  Slot slots_[2];
  int filling_ = 0;
  size_t entry_ = 0;           ///< Whose inputs are in the slot that is filled.
  std::vector<Piece> pieces_;  ///< The pieces in the slot that is filled.
  size_t scalar_bytes_ = 0;
  Event* copied_now_ = nullptr;     ///< The event of this run's copies; null where it took nothing.
  Event* copied_before_ = nullptr;  ///< The event of the copies of the run before.
};

}  // namespace ridge
