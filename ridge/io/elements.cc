#include "ridge/io/elements.h"

#include <algorithm>

#include "ridge/base/error.h"

namespace ridge {

void swap_bytes(std::span<std::byte> data, size_t element_size) {
  if (element_size == 1) return;
  for (size_t i = 0; i + element_size <= data.size(); i += element_size)
    std::reverse(data.begin() + static_cast<ptrdiff_t>(i),
                 data.begin() + static_cast<ptrdiff_t>(i + element_size));
}

void check_bools(DType dtype, std::span<const std::byte> data, std::string_view where) {
  if (dtype != DType::kBool) return;
  const auto bad =
      std::find_if(data.begin(), data.end(), [](std::byte b) { return b > std::byte{1}; });
  if (bad == data.end()) return;
  throw UserError(fmt::format("{}: element {} is the byte {}, and a bool is 0 or 1",
                              where,
                              bad - data.begin(),
                              std::to_integer<int>(*bad)));
}

}  // namespace ridge
