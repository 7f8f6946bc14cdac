// The gradients of a convolution and of the batch norm behind it: the gradient of what lies between
// them is made a chunk at a time, which both gradients of the convolution use while it is in the
// nearer caches.
#include <algorithm>

#include "ridge/backend/cpu/batch_norm_plan.h"
#include "ridge/backend/cpu/conv/conv_depthwise.h"
#include "ridge/backend/cpu/conv/conv_patches.h"
#include "ridge/backend/cpu/conv/conv_pointwise.h"
#include "ridge/backend/cpu/conv/input_norm.h"
#include "ridge/backend/cpu/cpu_kernels.h"
#include "ridge/backend/cpu/gemm/gemm.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/graph/ops/conv_norm.h"

namespace ridge::cpu {
namespace {

constexpr int64_t kChunkElements = kPixelChunkBytes / static_cast<int64_t>(sizeof(float));
constexpr int64_t kBothElements = (640 << 10) / 4;  // elements of rows of dz and of x
constexpr size_t kInputNorm = 8;                    // the first input that belongs to it

// Whether the convolution's input is what a norm before it gives.
bool makes_x(const Node& node) { return node.inputs.size() > kInputNorm; }

ConvGeometry geometry_of_norm(const Node& node) {
  const auto& op = node.op_as<Conv2dNormGrad>();
  return {
      op.window, op.groups, node.inputs[0].shape(), node.inputs[1].shape(), node.inputs[2].shape()};
}

// The gradient of the batch norm's input, any rows of it.
class NormGradient {
 public:
  explicit NormGradient(const Node& node)
      : plan_(node.inputs[2].type(),
              node.inputs[2].dtype(),
              node.op_as<Conv2dNormGrad>().eps,
              norm_activation(node.op_as<Conv2dNormGrad>().activation,
                              Conv2dNormGrad::kTraits.name)) {}

  BatchNormData carve(Workspace& space) const { return plan_.carve(space); }

  // Sums over all rows; `bound` has its part of the workspace.
  void prepare(const KernelArgs& args, BatchNormData& bound) const {
    bind_backward(args.inputs.subspan(2, 6), args.outputs.subspan(2), bound);
    plan_.sum(steps(), bound);
  }

  // Rows [begin, end) to `to`.
  void write(const BatchNormData& bound, int64_t begin, int64_t end, float* to) const {
    BatchNormData shifted = bound;
    shifted.x = static_cast<const float*>(bound.x) + begin * bound.channels;
    shifted.dy = static_cast<const float*>(bound.dy) + begin * bound.channels;
    shifted.result = to;
    steps().write(shifted, 0, end - begin);
  }

 private:
  const BatchNormSteps& steps() const {
    return batch_norm_kernels().backward[plan_.dtype][plan_.activation];
  }
  BatchNormPlan plan_;
};

// The convolution's input, any rows of it: where it lies, or made by the norm before.
class ConvInput {
 public:
  explicit ConvInput(const Node& node)
      : channels_(node.inputs[0].dim(-1)),
        is_made_(makes_x(node)),
        norm_(node.inputs[0].type(),
              node.op_as<Conv2dNormGrad>().input_activation,
              Conv2dNormGrad::kTraits.name) {}

  float* carve(Workspace& space) const { return space.take<float>(is_made_ ? norm_.table() : 0); }

  BatchNormData bind(const KernelArgs& args, float* table) const {
    if (is_made_) return norm_.bind(args.inputs[0], args.inputs.subspan(kInputNorm), table);
    BatchNormData bound{};
    bound.x = args.inputs[0];
    return bound;
  }

  // Rows [begin, end), at `space` if they are made.
  const float* rows(const BatchNormData& bound, int64_t begin, int64_t end, float* space) const {
    if (!is_made_) return static_cast<const float*>(bound.x) + begin * channels_;
    norm_.write(bound, begin, end, space);
    return space;
  }

 private:
  int64_t channels_;
  bool is_made_;
  InputNorm norm_;
};

// The rows that one run makes for the convolution's gradients.
struct Rows {
  const NormGradient& norm;
  const ConvInput& input;
  BatchNormData of_norm, of_input;

  // Rows [begin, end) of dz to `to`.
  void make_dz(int64_t begin, int64_t end, float* to) const { norm.write(of_norm, begin, end, to); }
  // The same of x, at `space` if they are made.
  const float* x(int64_t begin, int64_t end, float* space) const {
    return input.rows(of_input, begin, end, space);
  }
};

// Both gradients by those of the convolution, part by part: each of the parts() of a Conv has
// sums() numbers, which combine() adds up to dw.
template <class Conv>
class Gradients {
 public:
  explicit Gradients(const Node& node) : norm_(node), input_(node), conv_(node) {}

  size_t workspace_bytes() const {
    Workspace space(nullptr);
    carve(space);
    return space.used();
  }

  void run(const KernelArgs& args) const {
    Workspace space(args.workspace);
    Bound bound = carve(space);
    norm_.prepare(args, bound.norm);
    const Rows rows{norm_, input_, bound.norm, input_.bind(args, bound.table)};
    // From the end on, which the sums have left in the caches.
    parallel_for(conv_.parts(), 1, [&](int64_t i, int64_t) {
      const int64_t part = conv_.parts() - 1 - i;
      conv_.run_part(part, args, rows, bound.sums + part * conv_.sums());
    });
    conv_.combine(bound.sums, static_cast<float*>(args.outputs[1]));
  }

 private:
  struct Bound {
    BatchNormData norm;
    float* table;
    float* sums;
  };

  Bound carve(Workspace& space) const {
    return {.norm = norm_.carve(space),
            .table = input_.carve(space),
            .sums = space.take<float>(conv_.parts() * conv_.sums())};
  }

  NormGradient norm_;
  ConvInput input_;
  Conv conv_;
};

// ---- a kernel of a single pixel ----

PixelSums pixel_sums(const ConvGeometry& g) {
  return {g.images * g.in[0] * g.in[1], g.channels, g.out_channels, sizeof(float)};
}

bool accepts_pointwise(const Node& node) {
  const ConvGeometry g = geometry_of_norm(node);
  return node.outputs[0].dtype == DType::kF32 && g.is_pointwise() && g.groups == 1 &&
         pixel_sums(g).pays();
}

class PointwiseParts {
 public:
  explicit PointwiseParts(const Node& node) : g_(geometry_of_norm(node)), sums_(pixel_sums(g_)) {}

  int64_t parts() const { return sums_.parts(); }
  int64_t sums() const { return sums_.sums(); }
  void combine(float* sums, float* dw) const { sums_.combine(sums, dw); }

  void run_part(int64_t part, const KernelArgs& args, const Rows& rows, float* sums) const {
    alignas(64) float chunk[kChunkElements];  // rows of dz, then of x if it is computed
    float* const dz = chunk;
    float* const x_space = chunk + sums_.chunk() * g_.out_channels;
    const float* w = static_cast<const float*>(args.inputs[1]);
    float* dx = static_cast<float*>(args.outputs[0]);
    const int64_t first = sums_.first_of(part), end = sums_.first_of(part + 1);
    for (int64_t i = first; i < end; i += sums_.chunk()) {
      const int64_t n = std::min(sums_.chunk(), end - i);
      rows.make_dz(i, i + n, dz);
      gemm({.m = n,
            .n = g_.channels,
            .k = g_.out_channels,
            .transpose_b = true,
            .lda = g_.out_channels,
            .ldb = g_.out_channels,
            .ldc = g_.channels},
           dz,
           w,
           dx + i * g_.channels,
           /*accumulate=*/false,
           nullptr);
      sums_.add(rows.x(i, i + n, x_space), dz, n, i == first, sums);
    }
  }

 private:
  ConvGeometry g_;
  PixelSums sums_;
};

// ---- one channel a group ----

int64_t most_elements(const Node& node) { return makes_x(node) ? kBothElements : kChunkElements; }

bool accepts_depthwise(const Node& node) {
  return node.outputs[0].dtype == DType::kF32 &&
         DepthwiseGradients::accepts(geometry_of_norm(node), most_elements(node), makes_x(node));
}

class DepthwiseParts {
 public:
  explicit DepthwiseParts(const Node& node)
      : conv_(geometry_of_norm(node), most_elements(node), makes_x(node)) {}

  int64_t parts() const { return conv_.parts(); }
  int64_t sums() const { return conv_.sums(); }
  void combine(float* sums, float* dw) const { conv_.combine(sums, dw); }

  void run_part(int64_t part, const KernelArgs& args, const Rows& rows, float* sums) const {
    alignas(64) float space[kBothElements];  // rows of dz, then of x if it is computed
    float* const x_space = space + conv_.most_of_dy();
    const auto make_dy = [&](int64_t begin, int64_t end) {
      rows.make_dz(begin, end, space);
      return static_cast<const float*>(space);
    };
    const auto make_x = [&](int64_t begin, int64_t end) { return rows.x(begin, end, x_space); };
    conv_.run_part(part,
                   {static_cast<const float*>(args.inputs[1]),
                    static_cast<float*>(args.outputs[0]),
                    make_x,
                    make_dy,
                    sums});
  }

 private:
  DepthwiseGradients conv_;
};

template <class Conv>
std::unique_ptr<HostKernel> make(const Node& node) {
  const Gradients<Conv> gradients(node);
  const size_t bytes = gradients.workspace_bytes();
  return std::make_unique<HostKernel>([gradients](const KernelArgs& args) { gradients.run(args); },
                                      bytes);
}

}  // namespace

void add_conv_norm_grad_kernels(KernelTable& table, const KernelTable& (*plain)()) {
  const auto name = Conv2dNormGrad::kTraits.name;
  table.add(name, {"gemm", 0}, make<PointwiseParts>, accepts_pointwise);
  table.add(name, {"depthwise", 1}, make<DepthwiseParts>, accepts_depthwise);
  table.add(name, {std::string(kExpandedChoice)}, [plain](const Node& node) {
    return make_expanded(node, plain());
  });
}

}  // namespace ridge::cpu
