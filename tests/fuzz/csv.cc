// CSV texts: the columns of whatever reads have a row each, and ids that name categories.
#include "ridge/io/csv.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "ridge/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const ridge::CsvTable table = ridge::parse_csv(text, "fuzz");
    for (const ridge::CsvColumn& column : table.columns) {
      const size_t rows = column.is_text ? column.ids.size() : column.numbers.size();
      if (rows != static_cast<size_t>(table.rows)) std::abort();
      const auto categories = static_cast<int64_t>(column.categories.size());
      for (int32_t id : column.ids)
        if (id < -1 || id >= categories) std::abort();
    }
  } catch (const ridge::UserError&) {
    // A clear refusal is the other right answer. InternalError is not caught: it is a finding.
  }
  return 0;
}
