#include "ridge/backend/cuda/print/row_walk.h"

#include "ridge/backend/cuda/print/scalar_text.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/gather.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"

namespace ridge::cuda {

std::string load_text(Walk walk, std::string_view row) {
  return walk == Walk::kInOrder || walk == Walk::kHeld
             ? fmt::format("load<{}>({} + c)", width_of(walk), row)
             : fmt::format("packs.load({}, c)", row);
}

std::string store_text(Walk walk, std::string_view row, std::string_view pack) {
  return walk == Walk::kInOrder || walk == Walk::kHeld
             ? fmt::format("store<{}>({} + c, {});", width_of(walk), row, pack)
             : fmt::format("packs.store({}, c, {});", row, pack);
}

bool can_be_held(const FusedBody& body, Functions functions) {
  constexpr int64_t kMostBytes = 4 * 96;  // bytes of a thread, which has other registers too
  const int64_t columns = body.domain.columns;
  if (columns > kPiece || columns % kHeldStep != 0 || body.domain.rows() % kHeldRows != 0)
    return false;
  int64_t bytes = 0;
  for (const auto& node : body.graph.nodes()) {
    // Code for each element of a thread has to stay short: of all functions only the device's own
    // exponential is.
    const bool is_short = functions == Functions::kApprox && node->is<Exp>();
    const bool calls = is_domain(body.role(*node)) && has_approx_form(*node);
    if (node->is<Pick>() || (calls && !is_short)) return false;
    if (node->is<Input>() && node->outputs[0].elements() == body.domain.elements)
      bytes += columns / 32 * static_cast<int64_t>(size_of(node->outputs[0].dtype));
  }
  return bytes > 0 && bytes <= kMostBytes;
}

void print_bounds(Lines& lines, std::string_view type, int64_t columns, std::string_view is_there) {
  if (columns > kPiece) {
    lines.line("const {} begin = piece * {};", type, kPiece);
    lines.line("const {0} end = begin + {1} < {2} ? begin + {1} : begin < {2} ? {2} : begin;",
               type,
               kPiece,
               columns);
  } else if (is_there.empty()) {
    lines.line("const {} begin = 0, end = {};", type, columns);
  } else {
    lines.line("const {} begin = 0, end = {} ? {} : 0;", type, is_there, columns);
  }
}

void open_packs(
    Lines& lines, Walk walk, std::string_view index_type, int unrolled, int64_t columns) {
  if (walk == Walk::kHeld) {
    lines.add("#pragma unroll");
    lines.open("for (int j = 0; j < {}; ++j)", columns / kHeldStep);
    lines.line("const int32_t c = static_cast<int32_t>(lane) * 2 + j * {};", kHeldStep);
    return;
  }
  lines.line("#pragma unroll {}", unrolled);
  lines.open("for ({} c = begin + lane * 4; c < end; c += 64)", index_type);
}

std::string kept_text(std::string_view type, size_t input, int64_t shared) {
  return fmt::format(
      "{0}* const kept{1} = reinterpret_cast<{0}*>(shared + {2});", type, input, shared);
}

std::string keep_row_text(std::string_view row, size_t input, int64_t shared, int64_t columns) {
  return fmt::format("const auto* const kept{} = keep_row(shared + {}, {} + at, {});",
                     input,
                     shared,
                     row,
                     columns);
}

void add_kept_load(std::vector<std::string>& loads,
                   Walk walk,
                   size_t input,
                   std::string_view row,
                   bool is_first,
                   int64_t columns,
                   int64_t kept) {
  const std::string place = fmt::format("kept{} + (c - head + 4)", input);
  const bool is_whole = kept >= columns + 8;
  const std::string is_kept = is_whole ? "" : fmt::format("c - head + 8 <= {}", kept);
  const std::string load = load_text(walk, row);
  if (is_first) {
    loads.push_back(fmt::format("const auto p{} = {};", input, load));
    loads.push_back(
        fmt::format("{}store<4>({}, p{});", is_whole ? "" : "if (" + is_kept + ") ", place, input));
  } else {
    loads.push_back(fmt::format("const auto p{} = {};",
                                input,
                                is_whole
                                    ? fmt::format("load<4>({})", place)
                                    : fmt::format("{} ? load<4>({}) : {}", is_kept, place, load)));
  }
}

std::string marked_text(const Node& one_hot, std::string_view place) {
  const DType dtype = one_hot.outputs[0].dtype;
  const auto number = [&](int value) {
    return is_float(dtype) ? number_text(dtype, static_cast<double>(value))
                           : number_text(dtype, static_cast<int64_t>(value));
  };
  return fmt::format("static_cast<int32_t>(c + k) == {} ? {} : {}", place, number(1), number(0));
}

std::string masked_text(const Node& mask, std::string_view value) {
  const auto& op = mask.op_as<MaskColumns>();
  return fmt::format("static_cast<int32_t>(c + k) < {} ? {} : {}",
                     op.limit,
                     value,
                     number_text(mask.outputs[0].dtype, op.value));
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
