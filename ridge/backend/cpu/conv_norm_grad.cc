// The gradients of a convolution and of the batch norm behind it: the gradient of what lies between
// them is made a chunk at a time, which both gradients of the convolution use while it is in the
// nearer caches.
#include <algorithm>

#include "ridge/backend/cpu/batch_norm_plan.h"
#include "ridge/backend/cpu/conv_depthwise.h"
#include "ridge/backend/cpu/conv_patches.h"
#include "ridge/backend/cpu/conv_pointwise.h"
#include "ridge/backend/cpu/cpu_kernels.h"
#include "ridge/backend/cpu/gemm.h"
#include "ridge/backend/cpu/input_norm.h"
#include "ridge/base/parallel.h"
#include "ridge/graph/ops/conv_norm.h"

namespace ridge::cpu {
namespace {

constexpr int64_t kChunkElements = kPixelChunkBytes / static_cast<int64_t>(sizeof(float));
constexpr int64_t kBothElements = (640 << 10) / 4;  // of rows of dz and of x
constexpr size_t kInputNorm = 8;                    // the first input that belongs to it

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
        is_made_(node.inputs.size() > kInputNorm),
        norm_(node.inputs[0].type(),
              node.op_as<Conv2dNormGrad>().input_activation,
              Conv2dNormGrad::kTraits.name) {}

  bool is_made() const { return is_made_; }

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

// What both kernels carve of their workspace.
struct Bound {
  BatchNormData norm{}, input{};
  float* table = nullptr;
  float* sums = nullptr;
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

class PointwiseNormGradient {
 public:
  explicit PointwiseNormGradient(const Node& node)
      : g_(geometry_of_norm(node)), norm_(node), input_(node), sums_(pixel_sums(g_)) {}

  size_t workspace_bytes() const {
    Workspace space(nullptr);
    carve(space);
    return space.used();
  }

  void run(const KernelArgs& args) const {
    Workspace space(args.workspace);
    Bound bound = carve(space);
    norm_.prepare(args, bound.norm);
    bound.input = input_.bind(args, bound.table);
    // From the end on, which the sums have left in the caches.
    parallel_for(sums_.parts(), 1, [&](int64_t i, int64_t) {
      const int64_t part = sums_.parts() - 1 - i;
      run_part(args, bound, part);
    });
    sums_.combine(bound.sums, static_cast<float*>(args.outputs[1]));
  }

 private:
  Bound carve(Workspace& space) const {
    Bound bound;
    bound.norm = norm_.carve(space);
    bound.table = input_.carve(space);
    bound.sums = space.take<float>(sums_.parts() * sums_.sums());
    return bound;
  }

  void run_part(const KernelArgs& args, const Bound& bound, int64_t part) const {
    alignas(64) float chunk[kChunkElements];  // of dz, then of x if it is made
    float* const dz = chunk;
    float* const x_space = chunk + sums_.chunk() * g_.out_channels;
    const float* w = static_cast<const float*>(args.inputs[1]);
    float* dx = static_cast<float*>(args.outputs[0]);
    const int64_t first = sums_.first_of(part), end = sums_.first_of(part + 1);
    for (int64_t i = first; i < end; i += sums_.chunk()) {
      const int64_t n = std::min(sums_.chunk(), end - i);
      norm_.write(bound.norm, i, i + n, dz);
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
      sums_.add(input_.rows(bound.input, i, i + n, x_space),
                dz,
                n,
                i == first,
                bound.sums + part * sums_.sums());
    }
  }

  ConvGeometry g_;
  NormGradient norm_;
  ConvInput input_;
  PixelSums sums_;
};

// ---- one channel a group ----

int64_t most_elements(bool makes_x) { return makes_x ? kBothElements : kChunkElements; }

bool accepts_depthwise(const Node& node) {
  const bool makes_x = node.inputs.size() > kInputNorm;
  return node.outputs[0].dtype == DType::kF32 &&
         DepthwiseGradients::accepts(geometry_of_norm(node), most_elements(makes_x), makes_x);
}

class DepthwiseNormGradient {
 public:
  explicit DepthwiseNormGradient(const Node& node)
      : norm_(node),
        input_(node),
        conv_(geometry_of_norm(node), most_elements(input_.is_made()), input_.is_made()) {}

  size_t workspace_bytes() const {
    Workspace space(nullptr);
    carve(space);
    return space.used();
  }

  void run(const KernelArgs& args) const {
    Workspace space(args.workspace);
    Bound bound = carve(space);
    norm_.prepare(args, bound.norm);
    bound.input = input_.bind(args, bound.table);
    parallel_for(conv_.parts(), 1, [&](int64_t i, int64_t) {
      run_part(args, bound, conv_.parts() - 1 - i);
    });
    conv_.combine(bound.sums, static_cast<float*>(args.outputs[1]));
  }

 private:
  Bound carve(Workspace& space) const {
    Bound bound;
    bound.norm = norm_.carve(space);
    bound.table = input_.carve(space);
    bound.sums = space.take<float>(conv_.parts() * conv_.sums());
    return bound;
  }

  void run_part(const KernelArgs& args, const Bound& bound, int64_t part) const {
    alignas(64) float rows[kBothElements];  // of dz, then of x if it is made
    float* const x_space = rows + conv_.most_of_dy();
    const auto make_dy = [&](int64_t begin, int64_t end) {
      norm_.write(bound.norm, begin, end, rows);
      return static_cast<const float*>(rows);
    };
    const auto make_x = [&](int64_t begin, int64_t end) {
      return input_.rows(bound.input, begin, end, x_space);
    };
    conv_.run_part(part,
                   {static_cast<const float*>(args.inputs[1]),
                    static_cast<float*>(args.outputs[0]),
                    make_x,
                    make_dy,
                    bound.sums + part * conv_.sums()});
  }

  NormGradient norm_;
  ConvInput input_;
  DepthwiseGradients conv_;
};

template <typename Gradient>
std::unique_ptr<HostKernel> make(const Node& node) {
  const Gradient gradient(node);
  const size_t bytes = gradient.workspace_bytes();
  return std::make_unique<HostKernel>([gradient](const KernelArgs& args) { gradient.run(args); },
                                      bytes);
}

}  // namespace

void add_conv_norm_grad_kernels(KernelTable& table, const KernelTable& (*plain)()) {
  const auto name = Conv2dNormGrad::kTraits.name;
  table.add(name, {"gemm", 0}, make<PointwiseNormGradient>, accepts_pointwise);
  table.add(name, {"depthwise", 1}, make<DepthwiseNormGradient>, accepts_depthwise);
  table.add(name, {std::string(kExpandedChoice)}, [plain](const Node& node) {
    return make_expanded(node, plain());
  });
}

}  // namespace ridge::cpu
