// Manifests of checkpoints: whatever parses prints to a sealed text that parses to the same again.
#include "ridge/io/checkpoint_manifest.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "ridge/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  ridge::CheckpointManifest manifest;
  try {
    manifest = ridge::parse_manifest(text, "fuzz");
  } catch (const ridge::UserError&) {
    return 0;  // A clear refusal is the other right answer.
  }
  const std::string printed = ridge::print_manifest(manifest);
  ridge::check_seal(printed, "printed");
  if (ridge::print_manifest(ridge::parse_manifest(printed, "printed")) != printed) std::abort();
  return 0;
}
