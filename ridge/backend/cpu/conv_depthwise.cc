// The depthwise choice: every pixel of the result is a sum over taps, vectorised over channels.
#include "ridge/backend/cpu/conv_depthwise.h"

#include <algorithm>

#include "ridge/backend/cpu/conv_patches.h"
#include "ridge/backend/cpu/half_rows.h"
#include "ridge/backend/cpu/isa/depthwise_kernels.h"
#include "ridge/base/parallel.h"

namespace ridge::cpu {
namespace {

constexpr int64_t kChunkBytes = 16 << 10;
constexpr int64_t kPartialSums = 16;  // of the gradient of the weights, added up in their order

const AllDepthwiseKernels& all_kernels() {
  return for_isa(avx2::depthwise_kernels, avx512::depthwise_kernels);
}

// The kernels of a dtype, and elements by the name that they have there.
template <typename T>
struct Kernels {
  using Bits = T;
  static const auto& get() {
    if constexpr (std::is_same_v<T, double>)
      return all_kernels().f64;
    else
      return all_kernels().f32;
  }
};
template <>
struct Kernels<F16> {
  using Bits = F16Bits;
  static const auto& get() { return all_kernels().f16; }
};
template <>
struct Kernels<BF16> {
  using Bits = BF16Bits;
  static const auto& get() { return all_kernels().bf16; }
};

template <typename T>
const auto* bits(const T* elements) {
  return reinterpret_cast<const typename Kernels<T>::Bits*>(elements);
}
template <typename T>
auto* bits(T* elements) {
  return reinterpret_cast<typename Kernels<T>::Bits*>(elements);
}

// For each place along one dimension of the result, the taps that reach the source.
class TapTable {
 public:
  // place_of(i, tap) is the source's place that tap shows to place i, or -1.
  template <typename F>
  TapTable(int64_t places, int64_t kernel, DepthwiseTap strides, F place_of) {
    for (int64_t i = 0; i < places; ++i) {
      starts_.push_back(taps_.size());
      for (int64_t tap = 0; tap < kernel; ++tap)
        if (const int64_t place = place_of(i, tap); place >= 0)
          taps_.push_back({place * strides.source, tap * strides.weight});
    }
    starts_.push_back(taps_.size());
  }

  DepthwiseTaps at(int64_t i) const {
    const size_t begin = starts_[static_cast<size_t>(i)];
    const size_t end = starts_[static_cast<size_t>(i) + 1];
    return {taps_.data() + begin, static_cast<int64_t>(end - begin)};
  }

 private:
  std::vector<DepthwiseTap> taps_;
  std::vector<size_t> starts_;
};

int64_t input_place(const ConvGeometry& g, size_t d, int64_t out, int64_t tap) {
  const int64_t place = out * g.stride[d] + tap * g.dilation[d] - g.padding[d];
  return place < g.in[d] ? place : -1;
}

int64_t output_place(const ConvGeometry& g, size_t d, int64_t in, int64_t tap) {
  const int64_t distance = in + g.padding[d] - tap * g.dilation[d];
  if (distance < 0 || distance % g.stride[d] != 0) return -1;
  const int64_t place = distance / g.stride[d];
  return place < g.out[d] ? place : -1;
}

// Images from images and the kernel: y from x, or dx from dy.
struct ImageProduct {
  int64_t images, channels;
  std::array<int64_t, 2> source, grid;
  TapTable rows, cols;

  template <typename T>
  void run(const T* from, const T* weights, T* to) const {
    const int64_t row = grid[1] * channels;
    const int64_t grain =
        std::max<int64_t>(1, kChunkBytes / (row * static_cast<int64_t>(sizeof(T))));
    parallel_for(images * grid[0], grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const T* image = from + i / grid[0] * source[0] * source[1] * channels;
        for (int64_t j = 0; j < grid[1]; ++j)
          Kernels<T>::get().pixel({bits(image),
                                   bits(weights),
                                   rows.at(i % grid[0]),
                                   cols.at(j),
                                   channels,
                                   bits(to + i * row + j * channels)});
      }
    });
  }
};

template <typename F>
ImageProduct image_product(const ConvGeometry& g,
                           const std::array<int64_t, 2>& source,
                           const std::array<int64_t, 2>& grid,
                           F place_of) {
  const int64_t c = g.channels;
  const auto along = [&](size_t d) {
    return [&g, d, place_of](int64_t i, int64_t tap) { return place_of(g, d, i, tap); };
  };
  return {g.images,
          c,
          source,
          grid,
          TapTable(grid[0], g.kernel[0], {source[1] * c, g.kernel[1] * c}, along(0)),
          TapTable(grid[1], g.kernel[1], {c, c}, along(1))};
}

std::unique_ptr<HostKernel> make_image_kernel(DType dtype, ImageProduct product) {
  return dispatch_float(dtype, "depthwise", [&]<typename T>(TypeTag<T>) {
    return std::make_unique<HostKernel>([product = std::move(product)](const KernelArgs& args) {
      product.run(static_cast<const T*>(args.inputs[0]),
                  static_cast<const T*>(args.inputs[1]),
                  static_cast<T*>(args.outputs[0]));
    });
  });
}

std::unique_ptr<HostKernel> make_forward(const Node& node) {
  const auto& op = node.op_as<Conv2d>();
  const ConvGeometry g(
      op.window, op.groups, node.inputs[0].shape(), node.inputs[1].shape(), node.outputs[0].shape);
  return make_image_kernel(node.outputs[0].dtype, image_product(g, g.in, g.out, input_place));
}

std::unique_ptr<HostKernel> make_input_gradient(const Node& node) {
  const auto& op = node.op_as<Conv2dGradInput>();
  const ConvGeometry g(
      op.window, op.groups, node.outputs[0].shape, node.inputs[1].shape(), node.inputs[0].shape());
  return make_image_kernel(node.outputs[0].dtype, image_product(g, g.out, g.in, output_place));
}

// Sums over the rows of dy in parts, each in a workspace of its own, then over the parts.
template <typename T>
class WeightGradient {
 public:
  explicit WeightGradient(const ConvGeometry& g) : g_(g) {
    for (int64_t tap = 0; tap < g.kernel[1]; ++tap) {
      int64_t first = 0, end = g.out[1];
      while (first < end && input_place(g, 1, first, tap) < 0) ++first;
      while (first < end && input_place(g, 1, end - 1, tap) < 0) --end;
      columns_.push_back({first, end - first});
    }
  }

  size_t workspace_bytes() const { return static_cast<size_t>(parts() * weights()) * sizeof(Sum); }

  void run(const T* x, const T* dy, T* dw, void* workspace) const {
    Sum* partial = static_cast<Sum*>(workspace);
    parallel_for(parts(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) {
        Sum* sums = partial + p * weights();
        std::fill_n(sums, weights(), Sum{0});
        for (int64_t row = rows() * p / parts(); row < rows() * (p + 1) / parts(); ++row)
          add_row(x, dy, row, sums);
      }
    });
    parallel_for(weights(), 4096, [&](int64_t begin, int64_t end) {
      for (int64_t p = 1; p < parts(); ++p)
        for (int64_t i = begin; i < end; ++i) partial[i] += partial[p * weights() + i];
      narrow_row(partial + begin, dw + begin, end - begin);
    });
  }

 private:
  using Sum = ComputeType<T>;
  struct Columns {
    int64_t first, count;
  };

  int64_t rows() const { return g_.images * g_.out[0]; }
  int64_t parts() const { return std::min(rows(), kPartialSums); }
  int64_t weights() const { return g_.taps() * g_.channels; }

  // What row `row` of all rows of dy adds to the sums.
  void add_row(const T* x, const T* dy, int64_t row, Sum* sums) const {
    const int64_t c = g_.channels, image = row / g_.out[0];
    for (int64_t i = 0; i < g_.kernel[0]; ++i) {
      const int64_t h = input_place(g_, 0, row % g_.out[0], i);
      if (h < 0) continue;
      for (int64_t j = 0; j < g_.kernel[1]; ++j) {
        const auto [first, count] = columns_[static_cast<size_t>(j)];
        if (count == 0) continue;
        const int64_t w = input_place(g_, 1, first, j);
        Kernels<T>::get().dot({bits(x + ((image * g_.in[0] + h) * g_.in[1] + w) * c),
                               bits(dy + (row * g_.out[1] + first) * c),
                               g_.stride[1] * c,
                               c,
                               count,
                               c,
                               sums + (i * g_.kernel[1] + j) * c});
      }
    }
  }

  ConvGeometry g_;
  std::vector<Columns> columns_;  // of dy that each horizontal tap meets
};

std::unique_ptr<HostKernel> make_weight_gradient(const Node& node) {
  const auto& op = node.op_as<Conv2dGradWeight>();
  const ConvGeometry g(
      op.window, op.groups, node.inputs[0].shape(), node.outputs[0].shape, node.inputs[1].shape());
  return dispatch_float(node.outputs[0].dtype, "depthwise", [&]<typename T>(TypeTag<T>) {
    const WeightGradient<T> gradient(g);
    const size_t bytes = gradient.workspace_bytes();
    return std::make_unique<HostKernel>(
        [gradient](const KernelArgs& args) {
          gradient.run(static_cast<const T*>(args.inputs[0]),
                       static_cast<const T*>(args.inputs[1]),
                       static_cast<T*>(args.outputs[0]),
                       args.workspace);
        },
        bytes);
  });
}

// One channel in and one out a group, given the shape of the weights (KH, KW, C / groups, O).
bool is_depthwise(const Shape& w, int64_t groups) { return w[2] == 1 && w[3] == groups; }

}  // namespace

void add_depthwise_kernels(KernelTable& table) {
  table.add("conv2d", {"depthwise", 1}, make_forward, [](const Node& node) {
    return is_depthwise(node.inputs[1].shape(), node.op_as<Conv2d>().groups);
  });
  table.add("conv2d_grad_input", {"depthwise", 1}, make_input_gradient, [](const Node& node) {
    return is_depthwise(node.inputs[1].shape(), node.op_as<Conv2dGradInput>().groups);
  });
  table.add("conv2d_grad_weight", {"depthwise", 2}, make_weight_gradient, [](const Node& node) {
    return is_depthwise(node.outputs[0].shape, node.op_as<Conv2dGradWeight>().groups);
  });
}

}  // namespace ridge::cpu
