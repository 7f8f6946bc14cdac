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
#include "ridge/base/parallel.h"
#include "ridge/graph/ops/conv_norm.h"

namespace ridge::cpu {
namespace {

constexpr int64_t kChunkElements = kPixelChunkBytes / static_cast<int64_t>(sizeof(float));

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

  void carve(Workspace& space, BatchNormData& bound) const { plan_.carve(space, bound); }

  // Sums over all rows; `bound` has its part of the workspace.
  void prepare(const KernelArgs& args, BatchNormData& bound) const {
    BatchNormData carved = bound;
    bound = plan_.data;
    bound.chunk_first = carved.chunk_first;
    bound.chunk_second = carved.chunk_second;
    bound.table = carved.table;
    bound.x = args.inputs[2];
    bound.gamma = args.inputs[3];
    bound.beta = args.inputs[4];
    bound.mean = const_cast<void*>(args.inputs[5]);
    bound.variance = const_cast<void*>(args.inputs[6]);
    bound.dy = args.inputs[7];
    bound.dgamma = args.outputs[2];
    bound.dbeta = args.outputs[3];
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
      : g_(geometry_of_norm(node)), norm_(node), sums_(pixel_sums(g_)) {}

  size_t workspace_bytes() const {
    BatchNormData ignored{};
    Workspace space(nullptr);
    carve(space, ignored);
    return space.used();
  }

  void run(const KernelArgs& args) const {
    BatchNormData bound{};
    Workspace space(args.workspace);
    float* all = carve(space, bound);
    norm_.prepare(args, bound);
    // From the end on, which the sums have left in the caches.
    parallel_for(sums_.parts(), 1, [&](int64_t i, int64_t) {
      const int64_t part = sums_.parts() - 1 - i;
      run_part(args, bound, part, all + part * sums_.sums());
    });
    sums_.combine(all, static_cast<float*>(args.outputs[1]));
  }

 private:
  float* carve(Workspace& space, BatchNormData& bound) const {
    norm_.carve(space, bound);
    return space.take<float>(sums_.parts() * sums_.sums());
  }

  void run_part(const KernelArgs& args,
                const BatchNormData& bound,
                int64_t part,
                float* sums) const {
    alignas(64) float dz[kChunkElements];
    const float* x = static_cast<const float*>(args.inputs[0]);
    const float* w = static_cast<const float*>(args.inputs[1]);
    float* dx = static_cast<float*>(args.outputs[0]);
    const int64_t first = sums_.first_of(part), end = sums_.first_of(part + 1);
    for (int64_t i = first; i < end; i += sums_.chunk()) {
      const int64_t n = std::min(sums_.chunk(), end - i);
      norm_.write(bound, i, i + n, dz);
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
      sums_.add(x + i * g_.channels, dz, n, i == first, sums);
    }
  }

  ConvGeometry g_;
  NormGradient norm_;
  PixelSums sums_;
};

// ---- one channel a group ----

bool accepts_depthwise(const Node& node) {
  return node.outputs[0].dtype == DType::kF32 &&
         DepthwiseGradients::accepts(geometry_of_norm(node), kChunkElements);
}

class DepthwiseNormGradient {
 public:
  explicit DepthwiseNormGradient(const Node& node)
      : norm_(node), conv_(geometry_of_norm(node), kChunkElements) {}

  size_t workspace_bytes() const {
    BatchNormData ignored{};
    Workspace space(nullptr);
    carve(space, ignored);
    return space.used();
  }

  void run(const KernelArgs& args) const {
    BatchNormData bound{};
    Workspace space(args.workspace);
    float* all = carve(space, bound);
    norm_.prepare(args, bound);
    parallel_for(conv_.parts(), 1, [&](int64_t i, int64_t) {
      alignas(64) float dz[kChunkElements];
      const int64_t part = conv_.parts() - 1 - i;
      const auto make = [&](int64_t begin, int64_t end) {
        norm_.write(bound, begin, end, dz);
        return static_cast<const float*>(dz);
      };
      conv_.run_part(part,
                     {static_cast<const float*>(args.inputs[0]),
                      static_cast<const float*>(args.inputs[1]),
                      static_cast<float*>(args.outputs[0]),
                      make,
                      all + part * conv_.sums()});
    });
    conv_.combine(all, static_cast<float*>(args.outputs[1]));
  }

 private:
  float* carve(Workspace& space, BatchNormData& bound) const {
    norm_.carve(space, bound);
    return space.take<float>(conv_.parts() * conv_.sums());
  }

  NormGradient norm_;
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

void add_conv_norm_kernels(KernelTable& table, const KernelTable& (*plain)()) {
  const auto name = Conv2dNormGrad::kTraits.name;
  table.add(name, {"gemm", 0}, make<PointwiseNormGradient>, accepts_pointwise);
  table.add(name, {"depthwise", 1}, make<DepthwiseNormGradient>, accepts_depthwise);
  table.add(name, {std::string(kExpandedChoice)}, [plain](const Node& node) {
    return make_expanded(node, plain());
  });
}

}  // namespace ridge::cpu
