#include "ridge/backend/ref/ref_backend.h"

namespace ridge {
namespace {

class RefBackend final : public HostBackend {
 public:
  explicit RefBackend(StreamMode mode) : HostBackend("ref", {}, mode) {}
  Calibration calibrate() override { return {}; }
};

}  // namespace

std::unique_ptr<Backend> make_ref_backend(StreamMode mode) {
  return std::make_unique<RefBackend>(mode);
}

}  // namespace ridge
