// Manifests of checkpoints: whatever parses prints to a sealed text that parses to the same again,
// and so do the kernels that it names.
#include "ridge/io/checkpoint_manifest.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "ridge/base/error.h"
#include "ridge/train/run_kernels.h"

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
  try {
    const ridge::KernelPicks picks = ridge::read_picks(manifest.info.texts);
    std::map<std::string, std::string> texts;
    ridge::write_picks(picks, texts);
    if (!picks.choices.empty() && ridge::read_picks(texts) != picks) std::abort();
  } catch (const ridge::UserError&) {
  }
  return 0;
}
