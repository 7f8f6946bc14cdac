// Configurations: what is read must print, and read back to the same text.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "ridge/base/error.h"
#include "ridge/config/text.h"

// The text up to a zero byte is the file; what follows is a flag.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const size_t zero = all.find('\0');
  try {
    ridge::Settings settings;
    std::vector<ridge::ConfigFlag> flags;
    if (zero != std::string_view::npos) flags.push_back(ridge::parse_set(all.substr(zero + 1)));
    const auto loaded = ridge::load_config(all.substr(0, zero), "fuzz", flags, settings);
    const std::string printed = ridge::to_toml(loaded.config);
    ridge::Settings fresh;
    const std::string with_origins = ridge::to_toml(loaded, settings);
    const auto again = ridge::load_config(with_origins, "printed", {}, fresh);
    if (ridge::to_toml(again.config) != printed) std::abort();
  } catch (const ridge::UserError&) {
    // A clear refusal is the other right answer. InternalError is not caught: it is a finding.
  }
  return 0;
}
