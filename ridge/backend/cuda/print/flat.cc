// Bodies without rows: a grid-stride loop over packs of elements; with reductions of all elements,
// over pieces of 2048, a group of sixteen threads each.
//
//   for (uint32_t i = first; i < n; i += stride) {
//     const Pack<float, 4> p0 = load<4>(in0 + i);
//     Pack<float, 4> q0;
//     for (int k = 0; k < 4; ++k) { ...; set(q0.at[k], mul_3); }
//     store<4>(out0 + i, q0);
//   }
#include "ridge/backend/cuda/print/flat_body.h"

namespace ridge::cuda {
namespace {

void print_stride(FlatBody& body) {
  Lines& lines = body.text.lines;
  // The only block reads {seed, step, first sample} before one of its threads writes over them.
  if (body.text.needs_random && body.elements() <= 3) lines.add("__syncthreads();");
  const std::string_view type = body.index_type();
  lines.line(
      "const {0} stride = static_cast<{0}>(gridDim.x) * {1};", type, kThreads * body.width());
  lines.line("const {0} first = (static_cast<{0}>(blockIdx.x) * {1} + threadIdx.x) * {2};",
             type,
             kThreads,
             body.width());
  lines.open("for ({} i = first; i < {}; i += stride)", type, body.elements());
  body.print_pack();
  lines.close();
  body.text.finish("", ceil_div(body.elements(), kThreads * body.width()), kThreads);
}

void print_pieces(FlatBody& body) {
  Lines& lines = body.text.lines;
  if (body.text.needs_random && body.elements() <= 3) lines.add("__syncthreads();");
  const std::string_view type = body.index_type();
  const int64_t groups = kThreads / kGroup;
  lines.line("const uint32_t lane = threadIdx.x % {};", kGroup);
  lines.open("for ({0} first = blockIdx.x * {1}; first < {2}; first += gridDim.x * {1})",
             type,
             groups,
             body.pieces());
  lines.line("const {} piece = first + threadIdx.x / {};", type, kGroup);
  lines.line("const {0} end = piece + 1 < {1} ? (piece + 1) * {2} : piece < {1} ? {3} : 0;",
             type,
             body.pieces(),
             kPiece,
             body.elements());
  body.print_piece();
  lines.close();
  body.text.finish("", ceil_div(body.pieces(), groups), kThreads);
}

}  // namespace

PrintedKernel print_flat(const FusedBody& fused, Functions functions) {
  FlatBody body(fused, functions);
  body.print_setup();
  body.totals().empty() ? print_stride(body) : print_pieces(body);
  for (const FlatBody::Total& total : body.totals())
    if (body.pieces() > 1)
      body.text.add_reduction(*total.node, total.at, body.pieces(), total.output);
  return body.text.result("loop",
                          fmt::format("{} elements, {} at a time.", body.elements(), body.width()));
}

}  // namespace ridge::cuda
