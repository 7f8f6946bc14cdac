// Descriptions of data: whatever parses prints to a text that parses to the same again, and fits
// itself.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "ridge/base/error.h"
#include "ridge/data/description.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  ridge::data::DataDescription description;
  try {
    description = ridge::data::parse_description(text, "fuzz");
  } catch (const ridge::UserError&) {
    return 0;  // A clear refusal is the other right answer.
  }
  const std::string printed = ridge::data::print_description(description);
  if (ridge::data::parse_description(printed, "printed") != description) std::abort();
  ridge::data::check_fits(description, description);
  return 0;
}
