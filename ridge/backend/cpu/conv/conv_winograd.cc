// Blocks of 2x2 tiles of the result, each a task: their inputs are transformed into sixteen small
// matrices (tiles, channels), which are multiplied by the sixteen of the weights, packed once for
// all tasks or beforehand, and the sums are transformed back. A block lies on the stack, in the
// nearer caches.
#include "ridge/backend/cpu/conv/conv_winograd.h"

#include <algorithm>

#include "ridge/backend/cpu/conv/conv_patches.h"
#include "ridge/backend/cpu/cpu_isa.h"
#include "ridge/backend/cpu/gemm/gemm_plan.h"
#include "ridge/backend/cpu/gemm/product_kernel.h"
#include "ridge/backend/cpu/isa/gemm/gemm_kernels.h"
#include "ridge/backend/cpu/isa/transpose_kernels.h"
#include "ridge/backend/cpu/isa/winograd_kernels.h"
#include "ridge/backend/cpu/strided_copy.h"
#include "ridge/backend/cpu/workspace.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/base/cpu/scale_rows.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/fused_conv.h"
#include "ridge/graph/ops/shape.h"

namespace ridge::cpu {
namespace {

constexpr int64_t kBlockElements = (5 << 19) / sizeof(float);
constexpr int64_t kNearElements = (768 << 10) / sizeof(float);
constexpr int64_t kFewestTiles = 32, kMostTiles = 128;
// Tiles up to which weights that are transformed beforehand are worth their memory.
constexpr int64_t kTilesThatPay = 256;
constexpr int64_t kMostChannels = 8192;
constexpr int64_t kLine = 16;  // elements of a cache line

// A convolution of `source` pixels of `in` channels to a result of `out` channels.
struct WinogradPlan {
  int64_t images, in, out;
  std::array<int64_t, 2> source, result, padding;
  bool flipped;  // taps in reverse order, and of `out` by `in` channels

  int64_t tiles_down() const { return ceil_div(result[0], 2); }
  int64_t tiles_across() const { return ceil_div(result[1], 2); }
  int64_t tiles() const { return images * tiles_down() * tiles_across(); }
  // Rows lie a line further apart than they are long, and the products an odd number of lines, so
  // that they do not evict one another.
  static int64_t pitch(int64_t channels) { return channels + kLine; }
  static int64_t step(int64_t tiles, int64_t channels) {
    const int64_t elements = tiles * pitch(channels);
    return elements / kLine % 2 == 0 ? elements + kLine : elements;
  }
  int64_t block_elements(int64_t tiles) const {
    return kWinogradProducts * (step(tiles, in) + step(tiles, out));
  }
  int64_t block_tiles() const {
    int64_t tiles = kMostTiles;
    while (tiles > kFewestTiles && block_elements(tiles) > kNearElements) tiles -= 16;
    while (block_elements(tiles) > kBlockElements) --tiles;
    return tiles;
  }
  // A product is summed in chains over at most so many input channels.
  int64_t chain() const { return round_up(ceil_div(in, ceil_div(in, kGemmDepth)), 8); }
};

const WinogradKernels& kernels() {
  return for_isa(avx2::winograd_kernels, avx512::winograd_kernels);
}
const GemmKernel<float>& gemm_kernel() {
  return *for_isa(avx2::gemm_kernels, avx512::gemm_kernels).f32;
}
int64_t panel_width() { return gemm_kernel().cols; }

// The panels of any instruction set fit into so many columns.
int64_t packed_columns(const WinogradPlan& plan) { return round_up(plan.out, kGemmColumns); }

class WinogradConvolution {
 public:
  // `is_packed`: its weights are those that pack() gives.
  WinogradConvolution(const WinogradPlan& plan, bool is_packed)
      : p_(plan),
        is_packed_(is_packed),
        transpose_tap_({{p_.in, kSize, p_.out * kSize}, {p_.out, p_.in * kSize, kSize}}, kSize) {}

  size_t workspace_bytes() const {
    Workspace space(nullptr);
    carve(space);
    return space.used();
  }

  void run(const float* source,
           const float* weights,
           float* result,
           void* workspace,
           const FinishRange* finish) const {
    Workspace space(workspace);
    const Buffers buffers = carve(space);
    std::fill_n(buffers.zeros, p_.in, 0.0f);
    if (!is_packed_) pack_weights(weights, buffers);
    const float* panels = is_packed_ ? weights : buffers.packed;
    const Tasks tasks = cut();
    parallel_for(tasks.blocks * tasks.groups, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const Range block = part(p_.tiles(), tasks.blocks, i % tasks.blocks);
        const Range some = columns_of(tasks.groups, i / tasks.blocks);
        run_block(block, some, {source, panels, buffers.zeros, result});
        if (finish != nullptr) finish_tiles(block, some, *finish);
      }
    });
  }

 private:
  static constexpr int64_t kSize = sizeof(float);
  struct Buffers {
    float *packed, *turned, *zeros;
  };

  struct Operands {
    const float *source, *panels, *zeros;
    float* result;
  };

  // Blocks of tiles, as many for each thread; where there are fewer than threads, each several
  // times, for some of the columns.
  struct Tasks {
    int64_t blocks, groups;
  };
  Tasks cut() const {
    const int64_t threads = num_threads(), fewest = ceil_div(p_.tiles(), p_.block_tiles());
    if (fewest >= threads) return {std::min(round_up(fewest, threads), p_.tiles()), 1};
    return {fewest, std::min(ceil_div(threads, fewest), ceil_div(p_.out, panel_width()))};
  }
  Range columns_of(int64_t groups, int64_t i) const {
    const Range panels = part(ceil_div(p_.out, panel_width()), groups, i);
    return {panels.begin * panel_width(), std::min(p_.out, panels.end * panel_width())};
  }

  int64_t product_elements() const { return p_.in * packed_columns(p_); }

  Buffers carve(Workspace& space) const {
    float* packed = space.take<float>(is_packed_ ? 0 : kWinogradProducts * product_elements());
    float* turned = space.take<float>(p_.flipped ? 9 * p_.in * p_.out : 0);
    return {packed, turned, space.take<float>(p_.in)};
  }

  // Panels (products, panels, in, width) of the transformed weights.
  void pack_weights(const float* weights, const Buffers& buffers) const {
    const int64_t tap = p_.in * p_.out, width = panel_width();
    if (p_.flipped) {
      for (int64_t i = 0; i < 9; ++i)
        transpose_tap_.run(weights + i * tap, buffers.turned + (8 - i) * tap);
      weights = buffers.turned;
    }
    parallel_for(p_.in, 16, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) {
        WinogradWeights row{
            {}, buffers.packed + c * width, product_elements(), p_.in * width, width, p_.out};
        for (int64_t i = 0; i < 9; ++i) row.taps[i] = weights + i * tap + c * p_.out;
        kernels().weights(row);
      }
    });
  }

  void run_block(Range tiles, Range columns, const Operands& operands) const {
    alignas(64) float block[kBlockElements];
    const int64_t step_in = p_.step(tiles.size(), p_.in);
    const int64_t step_out = p_.step(tiles.size(), p_.out);
    float* sums = block + kWinogradProducts * step_in;
    for (int64_t t = tiles.begin; t < tiles.end; ++t)
      read_tile(t, operands, block + (t - tiles.begin) * p_.pitch(p_.in), step_in);
    for (int64_t i = 0; i < kWinogradProducts; ++i)
      multiply(tiles.size(),
               columns,
               block + i * step_in,
               operands.panels + i * product_elements(),
               sums + i * step_out);
    for (int64_t t = tiles.begin; t < tiles.end; ++t)
      write_tile(
          t, columns, sums + (t - tiles.begin) * p_.pitch(p_.out), step_out, operands.result);
  }

  // First row and column of the results of a tile, and its image.
  struct Place {
    int64_t image, row, column;
  };
  Place place(int64_t tile) const {
    const int64_t across = tile % p_.tiles_across(), rest = tile / p_.tiles_across();
    return {rest / p_.tiles_down(), rest % p_.tiles_down() * 2, across * 2};
  }

  void read_tile(int64_t tile, const Operands& operands, float* to, int64_t step) const {
    const Place at = place(tile);
    WinogradInput input{{}, to, step, p_.in};
    for (int64_t i = 0; i < 4; ++i)
      for (int64_t j = 0; j < 4; ++j) {
        const int64_t row = at.row + i - p_.padding[0], column = at.column + j - p_.padding[1];
        const bool inside = row >= 0 && row < p_.source[0] && column >= 0 && column < p_.source[1];
        input.pixels[4 * i + j] =
            inside ? operands.source +
                         ((at.image * p_.source[0] + row) * p_.source[1] + column) * p_.in
                   : operands.zeros;
      }
    kernels().input(input);
  }

  void write_tile(
      int64_t tile, Range columns, const float* from, int64_t step, float* result) const {
    const Place at = place(tile);
    WinogradOutput output{from + columns.begin, step, {}, columns.size()};
    for (int64_t i = 0; i < 2; ++i)
      for (int64_t j = 0; j < 2; ++j) {
        const int64_t row = at.row + i, column = at.column + j;
        if (row < p_.result[0] && column < p_.result[1])
          output.pixels[2 * i + j] =
              result + ((at.image * p_.result[0] + row) * p_.result[1] + column) * p_.out +
              columns.begin;
      }
    kernels().output(output);
  }

  // The ranges of the result that tiles cover: of a row of tiles, those of two rows of pixels.
  void finish_tiles(Range tiles, Range columns, const FinishRange& finish) const {
    for (int64_t tile = tiles.begin; tile < tiles.end;) {
      const Place at = place(tile);
      const int64_t count =
          std::min(tiles.end - tile, p_.tiles_across() - tile % p_.tiles_across());
      const int64_t pixels = std::min(2 * count, p_.result[1] - at.column);
      for (int64_t row = at.row; row < std::min(at.row + 2, p_.result[0]); ++row)
        finish_rows(finish,
                    {0, 0, pixels, columns.begin, columns.size()},
                    ((at.image * p_.result[0] + row) * p_.result[1] + at.column) * p_.out,
                    p_.out);
      tile += count;
    }
  }

  // One product: (tiles, in) times panels of (in, columns).
  void multiply(int64_t tiles, Range columns, const float* a, const float* b, float* c) const {
    const GemmKernel<float>& kernel = gemm_kernel();
    const int64_t heights = ceil_div(tiles, kernel.rows), chain = p_.chain();
    for (int64_t j = columns.begin; j < columns.end; j += kernel.cols)
      for (int64_t p = 0; p < p_.in; p += chain)
        for (int64_t i = 0; i < heights; ++i) {
          const Range rows = part(tiles, heights, i);
          kernel.tile({std::min(chain, p_.in - p),
                       a + rows.begin * p_.pitch(p_.in) + p,
                       p_.pitch(p_.in),
                       1,
                       b + j * p_.in + p * kernel.cols,
                       kernel.cols,
                       c + rows.begin * p_.pitch(p_.out) + j,
                       p_.pitch(p_.out),
                       1,
                       static_cast<int>(rows.size()),
                       static_cast<int>(std::min<int64_t>(kernel.cols, columns.end - j)),
                       p > 0,
                       nullptr,
                       nullptr});
        }
  }

  WinogradPlan p_;
  bool is_packed_;
  StridedCopy transpose_tap_;  // (out, in) of one tap to (in, out)
};

WinogradPlan plan_of(const ConvGeometry& g, bool input_gradient) {
  if (!input_gradient) return {g.images, g.channels, g.out_channels, g.in, g.out, g.padding, false};
  // dx is a convolution of dy by the turned kernel, with the rest of a whole window around it.
  return {g.images,
          g.out_channels,
          g.channels,
          g.out,
          g.in,
          {2 - g.padding[0], 2 - g.padding[1]},
          true};
}

template <typename Op>
ConvGeometry geometry(const Node& node) {
  const auto& op = node.op_as<Op>();
  const Shape &first = node.inputs[0].shape(), &w = node.inputs[1].shape(),
              &result = node.outputs[0].shape;
  if constexpr (std::is_same_v<Op, Conv2d>)
    return {op.window, op.groups, first, w, result};
  else
    return {op.window, op.groups, result, w, first};
}

template <typename Op>
bool accepts(const Node& node) {
  using Pair = std::array<int64_t, 2>;
  const ConvGeometry g = geometry<Op>(node);
  const auto fits = [](int64_t channels) {
    return channels % kLine == 0 && channels <= kMostChannels;
  };
  const WinogradPlan plan = plan_of(g, std::is_same_v<Op, Conv2dGradInput>);
  return node.outputs[0].dtype == DType::kF32 && g.kernel == Pair{3, 3} && g.stride == Pair{1, 1} &&
         g.dilation == Pair{1, 1} && g.groups == 1 && fits(g.channels) && fits(g.out_channels) &&
         plan.block_elements(1) <= kBlockElements;
}

template <typename Op, bool kIsPacked = false>
ProductKernel make(const Node& node) {
  const WinogradConvolution convolution(
      plan_of(geometry<Op>(node), std::is_same_v<Op, Conv2dGradInput>), kIsPacked);
  const auto run = [convolution](const KernelArgs& args, const FinishRange* finish) {
    convolution.run(static_cast<const float*>(args.inputs[0]),
                    static_cast<const float*>(args.inputs[1]),
                    static_cast<float*>(args.outputs[0]),
                    args.workspace,
                    finish);
  };
  return {run, convolution.workspace_bytes()};
}

// ---- weights that are transformed beforehand ----

// The panels of weights as they lie: (3, 3, in, out), or (out, in, 3, 3), which may be scaled.
class WinogradPacking {
 public:
  WinogradPacking(const WinogradPlan& plan, bool is_out_first, std::vector<double> scale)
      : p_(plan), is_out_first_(is_out_first), scale_(std::move(scale)) {}

  void run(const char* weights, float* packed) const {
    const int64_t blocks = ceil_div(p_.in, kChannels), panels = packed_columns(p_) / panel_width();
    parallel_for(panels * blocks, 4, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t first = i % blocks * kChannels;
        const Range channels{first, std::min(first + kChannels, p_.in)};
        pack_block(weights, i / blocks * panel_width(), channels, packed);
      }
    });
  }

 private:
  static constexpr int64_t kSize = sizeof(float);
  static constexpr int64_t kTaps = 9;
  static constexpr int64_t kChannels = 16;  // those of a block

  // Some input channels of the panel whose first column is `column`.
  void pack_block(const char* weights, int64_t column, Range channels, float* packed) const {
    const int64_t width = panel_width(), step = p_.in * packed_columns(p_);
    const int64_t columns = std::clamp<int64_t>(p_.out - column, 0, width);
    float* to = packed + column * p_.in + channels.begin * width;
    if (columns < width)
      for (int64_t i = 0; i < kWinogradProducts; ++i)
        std::fill_n(to + i * step, channels.size() * width, 0.0f);
    if (columns == 0) return;
    alignas(64) float turned[kChannels * kTaps * kGemmColumns];
    if (is_out_first_) turn(weights, column, columns, channels, turned);
    for (int64_t c = channels.begin; c < channels.end; ++c, to += width) {
      WinogradWeights row{{}, to, step, p_.in * width, width, columns};
      for (int64_t i = 0; i < kTaps; ++i)
        row.taps[i] = is_out_first_ ? turned + ((c - channels.begin) * kTaps + i) * width
                                    : reinterpret_cast<const float*>(
                                          weights + ((i * p_.in + c) * p_.out + column) * kSize);
      kernels().weights(row);
    }
  }

  // Rows of a panel's columns, for each channel and tap.
  void turn(const char* weights, int64_t column, int64_t columns, Range channels, float* to) const {
    const int64_t of_column = p_.in * kTaps * kSize, rows = channels.size() * kTaps;
    for_isa(avx2::transpose_kernels, avx512::transpose_kernels)
        .of_bytes(kSize)({.from = weights + column * of_column + channels.begin * kTaps * kSize,
                          .to = reinterpret_cast<char*>(to),
                          .rows = rows,
                          .cols = columns,
                          .from_cols = {of_column},
                          .to_rows = {panel_width() * kSize}});
    if (scale_.empty()) return;
    const double* const scale = scale_.data() + column;
    for (int64_t i = 0; i < rows; ++i, to += panel_width())
      scale_rows(DType::kF32, to, 1, {scale, static_cast<size_t>(columns)});
  }

  WinogradPlan p_;
  bool is_out_first_;
  std::vector<double> scale_;  // of the columns
};

std::unique_ptr<NodeKernel> make_packing(const WinogradPlan& plan, const LyingElements& from) {
  const bool is_out_first = from.perm == std::vector<int64_t>{2, 3, 1, 0};
  if (!is_out_first && !(from.perm.empty() && from.scale.empty())) return nullptr;
  return std::make_unique<HostKernel>(
      [packing = WinogradPacking(plan, is_out_first, from.scale)](const KernelArgs& args) {
        packing.run(static_cast<const char*>(args.inputs[0]), static_cast<float*>(args.outputs[0]));
      });
}

// Rows of G, along one axis of the taps.
Value spread_taps(Value taps, int64_t axis) {
  const auto tap = [&](int64_t i) { return slice(taps, axis, i, i + 1); };
  const Value a = tap(0), b = tap(1), c = tap(2), ends = a + c;
  return concat({a, (ends + b) * 0.5, (ends - b) * 0.5, c}, axis);
}

// The same by ops, in the order of the kernel: weights (3, 3, in, out) as panels (products, panels,
// in, width), the columns beyond `out` zero.
Value packed_weights(Value weights, const WinogradPlan& plan) {
  const int64_t columns = packed_columns(plan), width = panel_width();
  const Value products = spread_taps(spread_taps(weights, 0), 1);
  const Value padded = pad(products, {0, 0, 0, 0}, {0, 0, 0, columns - plan.out});
  return transpose(reshape(padded, {kWinogradProducts, plan.in, columns / width, width}),
                   {0, 2, 1, 3});
}

std::vector<PackedOperand> panels_of(const Node& node) {
  const WinogradPlan plan = plan_of(geometry<Conv2d>(node), false);
  if (plan.tiles() > kTilesThatPay) return {};
  return {{.input = 1,
           .layout = fmt::format("winograd{}", panel_width()),
           .pack = [plan](Value weights) { return packed_weights(weights, plan); },
           .kernel = [plan](const LyingElements& from) { return make_packing(plan, from); }}};
}

}  // namespace

void add_winograd_kernels(KernelTable& table) {
  add_product<Conv2d, FusedConv2d>(table,
                                   {.choice = {"winograd", 2},
                                    .make = make<Conv2d>,
                                    .accepts = accepts<Conv2d>,
                                    .packed_operands = panels_of,
                                    .make_packed = make<Conv2d, true>});
  table.add(
      "conv2d_grad_input",
      {"winograd", 2},
      [](const Node& node) { return make_alone(make<Conv2dGradInput>(node)); },
      accepts<Conv2dGradInput>);
}

}  // namespace ridge::cpu
