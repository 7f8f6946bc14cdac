#include "ridge/backend/cuda/row_walk.h"

namespace ridge::cuda {

std::string load_text(Walk walk, std::string_view row) {
  return walk == Walk::kInOrder ? fmt::format("load<4>({} + c)", row)
                                : fmt::format("packs.load({}, c)", row);
}

std::string store_text(Walk walk, std::string_view row, std::string_view pack) {
  return walk == Walk::kInOrder ? fmt::format("store<4>({} + c, {});", row, pack)
                                : fmt::format("packs.store({}, c, {});", row, pack);
}

void print_unaligned_loop(Lines& lines, int level, int unrolled) {
  lines.line("int32_t c{} = static_cast<int32_t>(begin + lane * 4);", level);
  lines.line("const int32_t last{} = static_cast<int32_t>(end);", level);
  lines.line("#pragma unroll {}", unrolled);
  lines.line("for (; c{0} + 4 <= last{0}; c{0} += 64) pass{0}(UnalignedPack(), c{0});", level);
  lines.line("if (c{0} < last{0}) pass{0}(EdgePack{{last{0}}}, c{0});", level);
}

void print_spread_loop(Lines& lines, int level, int unrolled, int64_t columns, int64_t threads) {
  lines.line("#pragma unroll {}", unrolled);
  lines.line("for (int32_t c = head + static_cast<int32_t>(threadIdx.x) * 4; c + 4 <= {}; c += {})",
             columns,
             threads * 4);
  lines.line("  pass{}(WholePack(), c);", level);
  if (columns % 4 == 0) return;
  lines.line("const int32_t edge{0} = threadIdx.x == 0 ? head - 4 : head + ({1} - head) / 4 * 4;",
             level,
             columns);
  lines.line("if (threadIdx.x < 2) pass{0}(EdgePack{{{1}}}, edge{0});", level, columns);
}

}  // namespace ridge::cuda
