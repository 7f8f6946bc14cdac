// Convolution and its gradients as products of matrices of patches, a chunk of pixels at a time.
#include "ridge/graph/ops/conv.h"

#include <algorithm>

#include "ridge/backend/cpu/conv/conv_depthwise.h"
#include "ridge/backend/cpu/conv/conv_packed.h"
#include "ridge/backend/cpu/conv/conv_patches.h"
#include "ridge/backend/cpu/conv/conv_pointwise.h"
#include "ridge/backend/cpu/conv/conv_winograd.h"
#include "ridge/backend/cpu/cpu_kernels.h"
#include "ridge/backend/cpu/gemm/gemm.h"
#include "ridge/backend/cpu/gemm/gemm_amx.h"
#include "ridge/backend/cpu/gemm/product_kernel.h"
#include "ridge/backend/cpu/half_rows.h"
#include "ridge/backend/cpu/strided_copy.h"
#include "ridge/backend/cpu/workspace.h"
#include "ridge/base/cpu/cpu_info.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/graph/ops/fused_conv.h"

namespace ridge::cpu {
namespace {

// gemm() of T, or gemm_amx().
template <typename T, typename Sum, bool kTiles>
struct Multiply {
  static size_t workspace_bytes(const GemmShape& shape) {
    if constexpr (kTiles) return gemm_amx_workspace_bytes(shape, {}, /*has_panels=*/false);
    return gemm_workspace_bytes(shape, dtype_of<Sum>());
  }
  static void run(const GemmShape& shape,
                  const T* a,
                  const T* b,
                  Sum* c,
                  bool accumulate,
                  void* workspace,
                  const FinishBlock* finish = nullptr) {
    if constexpr (kTiles)
      gemm_amx(shape, {}, a, b, c, accumulate, workspace, finish);
    else
      gemm(shape, a, b, c, accumulate, workspace, finish);
  }
};

// Few enough for the nearer caches, enough rows to repay packing the other factor for each chunk.
constexpr int64_t kPatchBytes = 2 << 20;
constexpr int64_t kCopyBytes = 64 << 10;

// ---- patches times a matrix: the forward direction and the gradient of the input ----

// Rows of patches times a matrix (depth, columns), a chunk of rows at a time. For tiles patches are
// gathered where they are multiplied, as far as that goes: then all rows are one chunk, or as many
// as a limit to the chunk's results allows.
template <typename T, bool kTiles>
class PatchProduct {
 public:
  PatchProduct(PatchMatrix patches,
               GemmProducts products,
               int64_t columns,
               int64_t ldb,
               int64_t ldc,
               bool has_results_of_its_own = false)
      : patches_(std::move(patches)), products_(products), columns_(columns), ldb_(ldb), ldc_(ldc) {
    gathers_ = kTiles && can_gather_tiles(shape(patches_.pixels()));
    chunk_ = gathers_ ? patches_.pixels() : patches_.chunk_rows(kPatchBytes, sizeof(T));
    const int64_t most = kPatchBytes / (columns * static_cast<int64_t>(sizeof(T)));
    if (gathers_ && has_results_of_its_own) chunk_ = std::clamp<int64_t>(most, 1, chunk_);
  }

  const PatchMatrix& patches() const { return patches_; }
  int64_t chunk() const { return chunk_; }
  /// Elements of a chunk of patches.
  int64_t row_elements() const { return gathers_ ? 0 : chunk_ * patches_.depth(); }

  size_t gemm_bytes() const { return Multiply<T, T, kTiles>::workspace_bytes(shape(chunk_)); }

  // Rows [begin, end) of the product to c; `rows` has room for row_elements().
  void multiply(const T* source,
                const T* b,
                int64_t begin,
                int64_t end,
                T* c,
                T* rows,
                void* gemm_space,
                const FinishBlock* finish = nullptr) const {
    if constexpr (kTiles)
      if (gathers_) {
        const auto gather = [&](int64_t row, int64_t count, BF16* panels) {
          gather_patch_tiles(patches_, source, begin + row, count, panels);
        };
        return gemm_amx_gathered(shape(end - begin), GatherTiles(gather), b, c, gemm_space, finish);
      }
    gather_patches(patches_, source, begin, end, rows);
    Multiply<T, T, kTiles>::run(
        shape(end - begin), rows, b, c, /*accumulate=*/false, gemm_space, finish);
  }

 private:
  GemmShape shape(int64_t rows) const {
    return {.m = rows,
            .n = columns_,
            .k = patches_.depth(),
            .lda = patches_.depth(),
            .ldb = ldb_,
            .ldc = ldc_,
            .products = products_};
  }

  PatchMatrix patches_;
  GemmProducts products_;
  int64_t chunk_ = 0, columns_, ldb_, ldc_;
  bool gathers_ = false;
};

template <typename T, bool kTiles = false>
class ForwardConvolution {
 public:
  ForwardConvolution(const ConvGeometry& g, GemmProducts products)
      : g_(g),
        product_(forward_patches(g), products, g.group_out(), g.out_channels, g.out_channels) {}

  size_t workspace_bytes() const {
    Workspace space(nullptr);
    space.take<T>(product_.row_elements());
    return space.used() + product_.gemm_bytes();
  }

  void run(const T* x, const T* w, T* y, void* workspace, const FinishRange* finish) const {
    Workspace space(workspace);
    T* rows = space.take<T>(product_.row_elements());
    void* gemm_space = space.take<char>(0);
    const int64_t pixels = product_.patches().pixels();
    for (int64_t group = 0; group < g_.groups; ++group)
      for (int64_t begin = 0; begin < pixels; begin += product_.chunk()) {
        const int64_t first = begin * g_.out_channels + group * g_.group_out();
        run_finishing(finish, first, 0, g_.out_channels, [&](const FinishBlock* finish_block) {
          product_.multiply(x + group * g_.group_in(),
                            w + group * g_.group_out(),
                            begin,
                            std::min(pixels, begin + product_.chunk()),
                            y + first,
                            rows,
                            gemm_space,
                            finish_block);
        });
      }
  }

 private:
  ConvGeometry g_;
  PatchProduct<T, kTiles> product_;
};

// One dimension of the pixels of x that lie alike between the windows: those at first, first +
// stride, ... Each sees, through tap k, the pixel of y at its own ordinal plus offsets[k].
struct Phase {
  int64_t first = 0;
  int64_t count = 0;
  std::vector<int64_t> offsets;  // ascending
  std::vector<int64_t> taps;     // taps of the kernel, in the order of the offsets
};

std::vector<Phase> phases(const ConvGeometry& g, size_t d) {
  std::vector<Phase> phases;
  for (int64_t first = 0; first < std::min(g.stride[d], g.in[d]); ++first) {
    Phase phase{first, (g.in[d] - first - 1) / g.stride[d] + 1, {}, {}};
    for (int64_t tap = g.kernel[d] - 1; tap >= 0; --tap) {
      const int64_t distance = first + g.padding[d] - tap * g.dilation[d];
      if (distance % g.stride[d] != 0) continue;
      phase.offsets.push_back(distance / g.stride[d]);
      phase.taps.push_back(tap);
    }
    phases.push_back(std::move(phase));
  }
  return phases;
}

// The pixels of one phase in either dimension are a convolution of dy with some of the taps.
template <typename T, bool kTiles = false>
class InputGradient {
 public:
  InputGradient(const ConvGeometry& g, GemmProducts products)
      : g_(g),
        products_(products),
        transpose_tap_({{g.group_out(), kSize, g.group_in() * kSize},
                        {g.group_in(), g.out_channels * kSize, kSize}},
                       sizeof(T)),
        clear_(plain_fill(g.images * g.in[0] * g.in[1] * g.channels, sizeof(T))) {
    for (const Phase& vertical : phases(g, 0))
      for (const Phase& horizontal : phases(g, 1)) add_part(vertical, horizontal);
  }

  size_t workspace_bytes() const {
    Workspace space(nullptr);
    carve(space);
    size_t gemm_bytes = 0;
    for (const Part& part : parts_) gemm_bytes = std::max(gemm_bytes, part.product.gemm_bytes());
    return space.used() + gemm_bytes;
  }

  void run(const T* dy, const T* w, T* dx, void* workspace) const {
    Workspace space(workspace);
    const Buffers buffers = carve(space);
    if (leaves_gaps_) {
      const T zero{};
      clear_.run(&zero, dx);
    }
    for (const Part& part : parts_)
      for (int64_t group = 0; group < g_.groups; ++group)
        run_part(part,
                 dy + group * g_.group_out(),
                 w + group * g_.group_out(),
                 dx + group * g_.group_in(),
                 buffers);
  }

 private:
  static constexpr auto kSize = static_cast<int64_t>(sizeof(T));

  struct Part {
    PatchProduct<T, kTiles> product;
    std::array<int64_t, 2> first;
    std::vector<int64_t> taps;  // in the order of the product's depth
  };
  struct Buffers {
    T *weights, *rows, *results;
    void* gemm_space;
  };

  bool is_dense() const { return g_.stride == std::array<int64_t, 2>{1, 1}; }

  void add_part(const Phase& vertical, const Phase& horizontal) {
    if (vertical.taps.empty() || horizontal.taps.empty()) {
      leaves_gaps_ = true;
      return;
    }
    PatchMatrix patches{g_.images,
                        g_.out,
                        g_.out_channels,
                        g_.group_out(),
                        {vertical.count, horizontal.count},
                        {1, 1},
                        {vertical.offsets, horizontal.offsets}};
    std::vector<int64_t> taps;
    for (int64_t row : vertical.taps)
      for (int64_t column : horizontal.taps) taps.push_back(row * g_.kernel[1] + column);
    parts_.push_back({PatchProduct<T, kTiles>(std::move(patches),
                                              products_,
                                              g_.group_in(),
                                              g_.group_in(),
                                              is_dense() ? g_.channels : g_.group_in(),
                                              !is_dense()),
                      {vertical.first, horizontal.first},
                      std::move(taps)});
  }

  Buffers carve(Workspace& space) const {
    int64_t weights = 0, rows = 0, results = 0;
    for (const Part& part : parts_) {
      const int64_t depth = part.product.patches().depth();
      weights = std::max(weights, depth * g_.group_in());
      rows = std::max(rows, part.product.row_elements());
      if (!is_dense()) results = std::max(results, part.product.chunk() * g_.group_in());
    }
    T* weight_space = space.take<T>(weights);
    T* row_space = space.take<T>(rows);
    T* result_space = space.take<T>(results);
    return {weight_space, row_space, result_space, space.take<char>(0)};
  }

  void run_part(const Part& part, const T* dy, const T* w, T* dx, const Buffers& buffers) const {
    const int64_t tap_elements = g_.group_in() * g_.out_channels;
    for (size_t i = 0; i < part.taps.size(); ++i)
      transpose_tap_.run(
          w + part.taps[i] * tap_elements,
          buffers.weights + static_cast<int64_t>(i) * g_.group_out() * g_.group_in());
    const int64_t pixels = part.product.patches().pixels(), chunk = part.product.chunk();
    for (int64_t begin = 0; begin < pixels; begin += chunk) {
      const int64_t end = std::min(pixels, begin + chunk);
      T* to = is_dense() ? dx + begin * g_.channels : buffers.results;
      part.product.multiply(dy, buffers.weights, begin, end, to, buffers.rows, buffers.gemm_space);
      if (!is_dense()) place(part, begin, end, buffers.results, dx);
    }
  }

  // Copies results to their pixels, which lie a stride apart.
  void place(const Part& part, int64_t begin, int64_t end, const T* results, T* dx) const {
    const auto& grid = part.product.patches().grid;
    const int64_t channels = g_.group_in();
    const int64_t grain = std::max<int64_t>(1, kCopyBytes / (channels * kSize));
    parallel_for(end - begin, grain, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        const int64_t pixel = begin + i;
        const int64_t column = part.first[1] + pixel % grid[1] * g_.stride[1];
        const int64_t row = part.first[0] + pixel / grid[1] % grid[0] * g_.stride[0];
        const int64_t image = pixel / grid[1] / grid[0];
        T* to = dx + ((image * g_.in[0] + row) * g_.in[1] + column) * g_.channels;
        std::copy_n(results + i * channels, channels, to);
      }
    });
  }

  ConvGeometry g_;
  GemmProducts products_;
  StridedCopy transpose_tap_;  // (group_in, group_out) of one tap to (group_out, group_in)
  StridedCopy clear_;
  bool leaves_gaps_ = false;
  std::vector<Part> parts_;
};

// ---- the gradient of the weights: patches, transposed, times dy ----

template <typename T, bool kTiles = false>
class WeightGradient {
 public:
  WeightGradient(const ConvGeometry& g, GemmProducts products)
      : g_(g),
        products_(products),
        patches_(forward_patches(g)),
        chunk_(patches_.chunk_rows(kPatchBytes, sizeof(Factor))) {}

  size_t workspace_bytes() const {
    if (gathers()) return 0;
    Workspace space(nullptr);
    carve(space);
    return space.used() + Product::workspace_bytes(shape(chunk_));
  }

  void run(const T* x, const T* dy, T* dw, void* workspace) const {
    if constexpr (!is_half<T>)
      if (gathers()) return run_gathering(x, dy, dw);
    Workspace space(workspace);
    const Buffers buffers = carve(space);
    for (int64_t begin = 0; begin < patches_.pixels(); begin += chunk_) {
      const int64_t end = std::min(patches_.pixels(), begin + chunk_);
      const Factor* right = widen(dy + begin * g_.out_channels, end - begin, buffers.dy);
      Sum* sums = is_half<T> ? buffers.sums : reinterpret_cast<Sum*>(dw);
      for (int64_t group = 0; group < g_.groups; ++group) {
        gather_patches(patches_, x + group * g_.group_in(), begin, end, buffers.rows);
        Product::run(shape(end - begin),
                     buffers.rows,
                     right + group * g_.group_out(),
                     sums + group * g_.group_out(),
                     /*accumulate=*/begin > 0,
                     buffers.gemm_space);
      }
    }
    if constexpr (is_half<T>) narrow_row(buffers.sums, dw, weights());
  }

 private:
  using Sum = ComputeType<T>;
  using Factor = std::conditional_t<kTiles, T, Sum>;  // what is multiplied
  using Product = Multiply<Factor, Sum, kTiles>;
  static constexpr bool kWidens = is_half<T> && !kTiles;
  struct Buffers {
    Factor *rows, *dy;
    Sum* sums;
    void* gemm_space;
  };

  int64_t weights() const { return patches_.depth() * g_.out_channels; }

  bool gathers() const { return can_gather(shape(patches_.pixels()), dtype_of<T>()); }

  // Patches are written where they are multiplied, and lie nowhere.
  void run_gathering(const T* x, const T* dy, T* dw) const {
    for (int64_t group = 0; group < g_.groups; ++group) {
      const T* source = x + group * g_.group_in();
      const auto gather = [&](const GemmRows& rows, T* to) {
        gather_patch_columns(patches_, source, rows, to);
      };
      gemm_gathered<T>(shape(patches_.pixels()),
                       GatherRows<T>(gather),
                       dy + group * g_.group_out(),
                       dw + group * g_.group_out());
    }
  }

  Buffers carve(Workspace& space) const {
    Factor* rows = space.take<Factor>(chunk_ * patches_.depth());
    Factor* dy = space.take<Factor>(kWidens ? chunk_ * g_.out_channels : 0);
    Sum* sums = space.take<Sum>(is_half<T> ? weights() : 0);
    return {rows, dy, sums, space.take<char>(0)};
  }

  GemmShape shape(int64_t pixels) const {
    return {.m = patches_.depth(),
            .n = g_.group_out(),
            .k = pixels,
            .transpose_a = true,
            .lda = patches_.depth(),
            .ldb = g_.out_channels,
            .ldc = g_.out_channels,
            .products = products_};
  }

  const Factor* widen(const T* dy, int64_t pixels, Factor* buffer) const {
    if constexpr (!kWidens) {
      return dy;
    } else {
      const int64_t grain = kCopyBytes / static_cast<int64_t>(sizeof(Sum));
      parallel_for(pixels * g_.out_channels, grain, [&](int64_t begin, int64_t end) {
        widen_row(dy + begin, buffer + begin, end - begin);
      });
      return buffer;
    }
  }

  ConvGeometry g_;
  GemmProducts products_;
  PatchMatrix patches_;
  int64_t chunk_;
};

template <class Forward, typename T>
ProductKernel forward_kernel(const Forward& forward) {
  const size_t bytes = forward.workspace_bytes();
  return {[forward](const KernelArgs& args, const FinishRange* finish) {
            forward.run(static_cast<const T*>(args.inputs[0]),
                        static_cast<const T*>(args.inputs[1]),
                        static_cast<T*>(args.outputs[0]),
                        args.workspace,
                        finish);
          },
          bytes};
}

ProductKernel make_forward(const Node& node) {
  const ConvGeometry g = geometry_of<Conv2d>(node);
  return dispatch_float(node.outputs[0].dtype, "conv2d", [&]<typename T>(TypeTag<T>) {
    return forward_kernel<ForwardConvolution<T>, T>(ForwardConvolution<T>(g, GemmProducts::kOwn));
  });
}

template <bool kTiles>
ProductKernel make_bf16_forward(const Node& node) {
  using Forward = ForwardConvolution<BF16, kTiles>;
  return forward_kernel<Forward, BF16>(Forward(geometry_of<Conv2d>(node), kBF16Products<kTiles>));
}

// A kernel of a direction, whose run takes both inputs, the output and the workspace.
template <class Direction, typename T>
std::unique_ptr<HostKernel> direction_kernel(const Direction& direction) {
  const size_t bytes = direction.workspace_bytes();
  return std::make_unique<HostKernel>(
      [direction](const KernelArgs& args) {
        direction.run(static_cast<const T*>(args.inputs[0]),
                      static_cast<const T*>(args.inputs[1]),
                      static_cast<T*>(args.outputs[0]),
                      args.workspace);
      },
      bytes);
}

template <typename Op, template <typename, bool> typename Direction>
std::unique_ptr<HostKernel> make_by_patches(const Node& node) {
  const ConvGeometry g = geometry_of<Op>(node);
  return dispatch_float(node.outputs[0].dtype, Op::kTraits.name, [&]<typename T>(TypeTag<T>) {
    return direction_kernel<Direction<T, false>, T>(Direction<T, false>(g, GemmProducts::kOwn));
  });
}

template <typename Op, template <typename, bool> typename Direction, bool kTiles>
std::unique_ptr<HostKernel> make_bf16(const Node& node) {
  using Kernel = Direction<BF16, kTiles>;
  return direction_kernel<Kernel, BF16>(Kernel(geometry_of<Op>(node), kBF16Products<kTiles>));
}

// Convolutions of bf16 by tiles, or by vdpbf16ps.
template <bool kTiles>
void add_bf16_kernels(KernelTable& table, const Choice& choice) {
  add_product<Conv2d, FusedConv2d>(table,
                                   {.choice = choice,
                                    .make = make_bf16_forward<kTiles>,
                                    .accepts = multiplies_bf16<Conv2d, kTiles>});
  table.add("conv2d_grad_input",
            choice,
            make_bf16<Conv2dGradInput, InputGradient, kTiles>,
            multiplies_bf16<Conv2dGradInput, kTiles>);
  table.add("conv2d_grad_weight",
            choice,
            make_bf16<Conv2dGradWeight, WeightGradient, kTiles>,
            multiplies_bf16<Conv2dGradWeight, kTiles>);
}

void add_pairs_kernels(KernelTable& table) {
  add_pointwise_pairs_kernels(table);
  add_bf16_kernels</*kTiles=*/false>(table, {"im2col_pairs_gemm", 3});
}

}  // namespace

void add_conv_kernels(KernelTable& table) {
  // The choice to take comes first.
  if (cpu_info().fast_bf16) add_pairs_kernels(table);
  add_pointwise_kernels(table);
  add_bf16_kernels</*kTiles=*/true>(table, {"im2col_amx_gemm", 2});
  add_depthwise_kernels(table);
  add_winograd_kernels(table);
  add_product<Conv2d, FusedConv2d>(table,
                                   {.choice = {"im2col_gemm", 0},
                                    .make = make_forward,
                                    .packed_operands = conv_panels,
                                    .make_packed = make_packed_conv});
  table.add(
      "conv2d_grad_input", {"im2col_gemm", 0}, make_by_patches<Conv2dGradInput, InputGradient>);
  table.add(
      "conv2d_grad_weight", {"im2col_gemm", 0}, make_by_patches<Conv2dGradWeight, WeightGradient>);
  if (!cpu_info().fast_bf16) add_pairs_kernels(table);
}

}  // namespace ridge::cpu
