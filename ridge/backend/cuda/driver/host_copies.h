// Copies between the device and memory of the host that is not page-locked.
#pragma once

#include <cstddef>
#include <mutex>
#include <optional>
#include <vector>

#include "ridge/backend/cuda/driver/staging.h"

namespace ridge::cuda {

/// Copies to the device go through page-locked slots, filled in the call, so that the host may use
/// its memory again at once; bytes from the device lie in such slots until hand_over(). Nothing
/// waits for the device while there are free slots, and nothing allocates but the first copy.
/// Streams and threads share one object.
class HostCopies {
 public:
  explicit HostCopies(DeviceRef device) : device_(std::move(device)) {}
  HostCopies(const HostCopies&) = delete;
  HostCopies& operator=(const HostCopies&) = delete;

  void to_device(Stream& stream, DevicePointer to, const void* from, size_t bytes);
  /// `to` must stay, and has the bytes after hand_over(stream) at the latest. An error ends all
  /// copies of the stream to the host.
  void to_host(Stream& stream, void* to, DevicePointer from, size_t bytes);

  /// All work of `stream` has run: what it has read goes to where it was asked for.
  void hand_over(const Stream& stream);
  /// Nobody waits for what `stream` has read.
  void drop(const Stream& stream) noexcept;

 private:
  struct Piece {
    Event copied;
    const Stream* stream = nullptr;  ///< Null: it holds nothing that somebody waits for.
    void* to = nullptr;
    size_t bytes = 0;
    bool has_work = false;  ///< `copied` was recorded and not seen done.
  };
  struct Down {
    explicit Down(const DeviceRef& device);
    std::byte* slot(size_t number) const;
    PinnedMemory memory;
    std::vector<Piece> pieces;
    size_t next = 0;
  };
  static void finish(Down& down, size_t number);

  DeviceRef device_;
  std::mutex mutex_;
  std::optional<PinnedRing> up_;
  std::optional<Down> down_;
};

}  // namespace ridge::cuda
