// Pooling over NHWC images and its gradients: walks over windows, or over the windows that hold a
// pixel.
#include "ridge/graph/ops/pool.h"

#include <algorithm>

#include "ridge/backend/cpu/cpu_kernels.h"
#include "ridge/backend/cpu/half_rows.h"
#include "ridge/backend/cpu/isa/pool_kernels.h"
#include "ridge/base/cpu/parallel.h"

namespace ridge::cpu {
namespace {

constexpr int64_t kChunkBytes = 32 << 10;
constexpr int64_t kGroupBytes = 8 << 20;  // bytes of sums, for 16-bit gradients
constexpr int64_t kTaskChannels = 64;     // channels of one task of the gradient of max pooling

// The kernels of a dtype, and the type by which they name its elements.
template <typename T>
struct Bits {
  using Type = T;
};
template <>
struct Bits<F16> {
  using Type = F16Bits;
};
template <>
struct Bits<BF16> {
  using Type = BF16Bits;
};

template <typename T>
const auto& kernels() {
  const AllPoolKernels& all = for_isa(avx2::pool_kernels, avx512::pool_kernels);
  if constexpr (std::is_same_v<T, double>)
    return all.f64;
  else if constexpr (std::is_same_v<T, float>)
    return all.f32;
  else if constexpr (std::is_same_v<T, F16>)
    return all.f16;
  else
    return all.bf16;
}

// Positions of one dimension that belong together: [begin, begin + count).
struct Span {
  int64_t begin = 0;
  int64_t count = 0;
};

// The pixels in each of `outputs` windows along one dimension of an image.
std::vector<Span> window_spans(const PoolFields& pool, size_t d, int64_t length, int64_t outputs) {
  std::vector<Span> spans;
  for (int64_t o = 0; o < outputs; ++o) {
    const int64_t first = o * pool.window.stride[d] - pool.window.padding[d];
    const int64_t begin = std::max<int64_t>(0, first);
    spans.push_back({begin, std::min(length, first + pool.kernel[d]) - begin});
  }
  return spans;
}

// The windows that hold each of `length` pixels: the inverse of window_spans.
std::vector<Span> covering_spans(const std::vector<Span>& windows, int64_t length) {
  std::vector<Span> spans(static_cast<size_t>(length));
  for (size_t o = 0; o < windows.size(); ++o)
    for (int64_t i = 0; i < windows[o].count; ++i) {
      Span& span = spans[static_cast<size_t>(windows[o].begin + i)];
      if (span.count++ == 0) span.begin = static_cast<int64_t>(o);
    }
  return spans;
}

struct Image {
  explicit Image(const Shape& shape)
      : count(shape[0]), height(shape[1]), width(shape[2]), channels(shape[3]) {}
  int64_t count, height, width, channels;
  int64_t row() const { return width * channels; }
  int64_t elements() const { return height * row(); }
};

// Both images, and which pixels of the one belong to which of the other.
struct Geometry {
  Geometry(const PoolFields& pool, const Shape& x_shape, const Shape& y_shape)
      : x(x_shape),
        y(y_shape),
        rows(window_spans(pool, 0, x.height, y.height)),
        cols(window_spans(pool, 1, x.width, y.width)) {}

  PoolRectangle rectangle(const Span& r, const Span& c, const Image& image) const {
    return {r.count, c.count, image.row(), image.channels, image.channels};
  }

  Image x, y;
  std::vector<Span> rows, cols;  // pixels of x for each row and column of y
};

// Calls body(n, h) for every row of the images, in parallel.
template <typename F>
void for_each_row(const Image& image, F body) {
  const int64_t grain = std::max<int64_t>(1, kChunkBytes / image.row());
  parallel_for(image.count * image.height, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) body(i / image.height, i % image.height);
  });
}

template <typename T>
const auto* bits(const T* elements) {
  return reinterpret_cast<const typename Bits<T>::Type*>(elements);
}
template <typename T>
auto* bits(T* elements) {
  return reinterpret_cast<typename Bits<T>::Type*>(elements);
}

// Calls pool(pixels of x, rectangle, oh, ow, pixel of y) for every window.
template <typename T, typename F>
void for_each_window(const Geometry& g, const T* x, T* y, F pool) {
  for_each_row(g.y, [&](int64_t n, int64_t oh) {
    const Span& rows = g.rows[static_cast<size_t>(oh)];
    const T* from = x + n * g.x.elements() + rows.begin * g.x.row();
    T* to = y + n * g.y.elements() + oh * g.y.row();
    for (int64_t ow = 0; ow < g.y.width; ++ow, to += g.y.channels) {
      const Span& cols = g.cols[static_cast<size_t>(ow)];
      pool(bits(from + cols.begin * g.x.channels), g.rectangle(rows, cols, g.x), oh, ow, bits(to));
    }
  });
}

template <typename F>
std::unique_ptr<HostKernel> make_for_float(DType dtype, F&& make) {
  return dispatch_float(dtype, "pool", std::forward<F>(make));
}

template <typename T, typename Max>
std::unique_ptr<HostKernel> make_max_pool_by(const Geometry& g, Max max) {
  return std::make_unique<HostKernel>([g, max](const KernelArgs& args) {
    for_each_window(
        g,
        static_cast<const T*>(args.inputs[0]),
        static_cast<T*>(args.outputs[0]),
        [&](auto* from, const PoolRectangle& r, int64_t, int64_t, auto* to) { max(from, r, to); });
  });
}

std::unique_ptr<HostKernel> make_max_pool(const Node& node) {
  const TensorType &x = node.inputs[0].type(), &y = node.outputs[0];
  const Geometry g(node.op_as<MaxPool2d>().pool, x.shape, y.shape);
  const AllPoolKernels& all = for_isa(avx2::pool_kernels, avx512::pool_kernels);
  if (x.dtype == DType::kI8) return make_max_pool_by<int8_t>(g, all.max_i8);
  if (x.dtype == DType::kU8) return make_max_pool_by<uint8_t>(g, all.max_u8);
  return make_for_float(
      x.dtype, [&]<typename T>(TypeTag<T>) { return make_max_pool_by<T>(g, kernels<T>().max); });
}

// The divisors of the sums along one dimension, one for each window.
template <typename Sum>
std::vector<Sum> counts(const std::vector<Span>& windows, int64_t kernel, bool count_padding) {
  std::vector<Sum> counts;
  for (const Span& window : windows)
    counts.push_back(static_cast<Sum>(count_padding ? kernel : window.count));
  return counts;
}

template <typename Sum>
std::vector<Sum> shares(std::vector<Sum> counts) {
  for (Sum& each : counts) each = Sum{1} / each;
  return counts;
}

std::unique_ptr<HostKernel> make_avg_pool(const Node& node) {
  const auto& op = node.op_as<AvgPool2d>();
  const TensorType &x = node.inputs[0].type(), &y = node.outputs[0];
  const Geometry g(op.pool, x.shape, y.shape);
  return make_for_float(x.dtype, [&]<typename T>(TypeTag<T>) {
    using Sum = ComputeType<T>;
    return std::make_unique<HostKernel>(
        [g,
         row_counts = counts<Sum>(g.rows, op.pool.kernel[0], op.count_padding),
         col_counts =
             counts<Sum>(g.cols, op.pool.kernel[1], op.count_padding)](const KernelArgs& args) {
          for_each_window(
              g,
              static_cast<const T*>(args.inputs[0]),
              static_cast<T*>(args.outputs[0]),
              [&](auto* from, const PoolRectangle& r, int64_t oh, int64_t ow, auto* to) {
                const Sum count =
                    row_counts[static_cast<size_t>(oh)] * col_counts[static_cast<size_t>(ow)];
                kernels<T>().avg(from, r, count, to);
              });
        });
  });
}

// Each pixel of dx gathers the windows that hold it.
template <typename T>
struct AvgPoolGrad {
  using Sum = ComputeType<T>;
  Geometry g;
  std::vector<Span> rows, cols;             // windows over each row and column of x
  std::vector<Sum> row_shares, col_shares;  // shares of each window's dy that a pixel gets

  void run(const T* dy, T* dx) const {
    for_each_row(g.x, [&](int64_t n, int64_t h) {
      const Span& over_row = rows[static_cast<size_t>(h)];
      const T* from = dy + n * g.y.elements() + over_row.begin * g.y.row();
      T* to = dx + n * g.x.elements() + h * g.x.row();
      for (int64_t w = 0; w < g.x.width; ++w, to += g.x.channels) {
        const Span& over_col = cols[static_cast<size_t>(w)];
        kernels<T>().avg_grad(bits(from + over_col.begin * g.y.channels),
                              g.rectangle(over_row, over_col, g.y),
                              row_shares.data() + over_row.begin,
                              col_shares.data() + over_col.begin,
                              bits(to));
      }
    });
  }
};

std::unique_ptr<HostKernel> make_avg_pool_grad(const Node& node) {
  const auto& op = node.op_as<AvgPool2dGrad>();
  const TensorType &dy = node.inputs[0].type(), &dx = node.outputs[0];
  const Geometry g(op.pool, dx.shape, dy.shape);
  return make_for_float(dy.dtype, [&]<typename T>(TypeTag<T>) {
    using Sum = ComputeType<T>;
    const AvgPoolGrad<T> grad{g,
                              covering_spans(g.rows, g.x.height),
                              covering_spans(g.cols, g.x.width),
                              shares(counts<Sum>(g.rows, op.pool.kernel[0], op.count_padding)),
                              shares(counts<Sum>(g.cols, op.pool.kernel[1], op.count_padding))};
    return std::make_unique<HostKernel>([grad](const KernelArgs& args) {
      grad.run(static_cast<const T*>(args.inputs[0]), static_cast<T*>(args.outputs[0]));
    });
  });
}

// Windows overlap, so a task owns some channels of one image and walks its windows in order. 16-bit
// gradients are summed in the workspace, for a group of images at a time.
template <typename T>
struct MaxPoolGrad {
  using Sum = ComputeType<T>;
  Geometry g;

  int64_t group() const {
    if (!is_half<T>) return g.x.count;
    const int64_t image = g.x.elements() * static_cast<int64_t>(sizeof(Sum));
    return std::clamp<int64_t>(kGroupBytes / image, 1, g.x.count);
  }
  size_t workspace_bytes() const {
    return is_half<T> ? static_cast<size_t>(group() * g.x.elements()) * sizeof(Sum) : 0;
  }

  void run(const T* x, const T* dy, T* dx, void* workspace) const {
    for (int64_t first = 0; first < g.x.count; first += group()) {
      const int64_t images = std::min(group(), g.x.count - first);
      T* to = dx + first * g.x.elements();
      auto* sums = static_cast<Sum*>(is_half<T> ? workspace : static_cast<void*>(to));
      add_images(x + first * g.x.elements(), dy + first * g.y.elements(), sums, images);
      if constexpr (is_half<T>)
        parallel_for(images * g.x.elements(), kChunkBytes, [&](int64_t begin, int64_t end) {
          narrow_row(sums + begin, to + begin, end - begin);
        });
    }
  }

  void add_images(const T* x, const T* dy, Sum* sums, int64_t images) const {
    const int64_t blocks = (g.x.channels + kTaskChannels - 1) / kTaskChannels;
    parallel_for(images * blocks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t n = i / blocks, channel = i % blocks * kTaskChannels;
        add_channels(x + n * g.x.elements() + channel,
                     dy + n * g.y.elements() + channel,
                     sums + n * g.x.elements() + channel,
                     std::min(kTaskChannels, g.x.channels - channel));
      }
    });
  }

  void add_channels(const T* x, const T* dy, Sum* sums, int64_t channels) const {
    for (int64_t pixel = 0; pixel < g.x.height * g.x.width; ++pixel)
      std::fill_n(sums + pixel * g.x.channels, channels, Sum{0});
    for (const Span& rows : g.rows)
      for (const Span& cols : g.cols) {
        const int64_t offset = rows.begin * g.x.row() + cols.begin * g.x.channels;
        PoolRectangle r = g.rectangle(rows, cols, g.x);
        r.channels = channels;
        kernels<T>().max_grad(bits(x + offset), bits(dy), r, sums + offset);
        dy += g.y.channels;
      }
  }
};

std::unique_ptr<HostKernel> make_max_pool_grad(const Node& node) {
  const TensorType &x = node.inputs[0].type(), &dy = node.inputs[1].type();
  const Geometry g(node.op_as<MaxPool2dGrad>().pool, x.shape, dy.shape);
  return make_for_float(x.dtype, [&]<typename T>(TypeTag<T>) {
    const MaxPoolGrad<T> grad{g};
    return std::make_unique<HostKernel>(
        [grad](const KernelArgs& args) {
          grad.run(static_cast<const T*>(args.inputs[0]),
                   static_cast<const T*>(args.inputs[1]),
                   static_cast<T*>(args.outputs[0]),
                   args.workspace);
        },
        grad.workspace_bytes());
  });
}

}  // namespace

void add_pool_kernels(KernelTable& table) {
  table.add("max_pool2d", {"windows"}, make_max_pool);
  table.add("max_pool2d_grad", {"windows"}, make_max_pool_grad);
  table.add("avg_pool2d", {"windows"}, make_avg_pool);
  table.add("avg_pool2d_grad", {"covering_windows"}, make_avg_pool_grad);
}

}  // namespace ridge::cpu
