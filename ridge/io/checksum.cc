#include "ridge/io/checksum.h"

#include <fmt/core.h>
#define XXH_STATIC_LINKING_ONLY  // the state as a member instead of an allocation of the library
#include <xxhash.h>

namespace ridge {

struct Checksum::State {
  XXH64_state_t hash;
};

Checksum::Checksum() : state_(std::make_unique<State>()) { XXH64_reset(&state_->hash, 0); }

Checksum::~Checksum() = default;

void Checksum::update(Bytes bytes) {
  if (!bytes.empty()) XXH64_update(&state_->hash, bytes.data(), bytes.size());
}

uint64_t Checksum::value() const { return XXH64_digest(&state_->hash); }

uint64_t checksum(Bytes bytes) { return XXH64(bytes.data(), bytes.size(), 0); }

std::string checksum_text(uint64_t value) { return fmt::format("{:016x}", value); }

}  // namespace ridge
