// The depthwise choice: every pixel of the result is a sum over taps, vectorised over channels.
#include "ridge/backend/cpu/conv/conv_depthwise.h"

#include <algorithm>

#include "ridge/backend/cpu/conv/conv_patches.h"
#include "ridge/backend/cpu/gemm/product_kernel.h"
#include "ridge/backend/cpu/half_rows.h"
#include "ridge/backend/cpu/isa/depthwise_kernels.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/graph/ops/fused_conv.h"

namespace ridge::cpu {
namespace {

constexpr int64_t kChunkBytes = 256 << 10;  // bytes of the result; less where rows are few
constexpr int64_t kChunks = 64;
constexpr int64_t kPartialSums = 16;  // partial gradients of the weights, added up in their order

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

// For each place along one dimension of the result, the taps that reach the source, in its order.
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
      std::sort(taps_.begin() + static_cast<std::ptrdiff_t>(starts_.back()),
                taps_.end(),
                [](const DepthwiseTap& a, const DepthwiseTap& b) { return a.source < b.source; });
    }
    starts_.push_back(taps_.size());
  }

  // True where place i + by has the taps of place i, `distance` elements further.
  bool are_alike(int64_t i, int64_t by, int64_t distance) const {
    if (i + by + 1 >= static_cast<int64_t>(starts_.size())) return false;
    const DepthwiseTaps a = at(i), b = at(i + by);
    return std::equal(a.taps,
                      a.taps + a.count,
                      b.taps,
                      b.taps + b.count,
                      [&](const DepthwiseTap& first, const DepthwiseTap& second) {
                        return first.source + distance == second.source &&
                               first.weight == second.weight;
                      });
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

// From one column of the result to the next that sees the source alike, and how far that is there.
struct Lap {
  int64_t columns, advance;
};

// Images from images and the kernel: y from x, or dx from dy.
class ImageProduct {
 public:
  template <typename F>
  ImageProduct(const ConvGeometry& g,
               const std::array<int64_t, 2>& source,
               const std::array<int64_t, 2>& grid,
               Lap lap,
               F place_of)
      : images_(g.images),
        channels_(g.channels),
        source_(source),
        grid_(grid),
        lap_(lap),
        rows_(grid[0],
              g.kernel[0],
              {source[1] * channels_, g.kernel[1] * channels_},
              [&](int64_t i, int64_t tap) { return place_of(g, 0, i, tap); }),
        cols_(grid[1], g.kernel[1], {channels_, channels_}, [&](int64_t i, int64_t tap) {
          return place_of(g, 1, i, tap);
        }) {
    find_strips();
  }

  template <typename T>
  void run(const T* from, const T* weights, T* to, const FinishRange* finish) const {
    const int64_t rows = images_ * grid_[0], row = grid_[1] * channels_;
    const int64_t most = kChunkBytes / (row * static_cast<int64_t>(sizeof(T)));
    const int64_t grain = std::max<int64_t>(1, std::min(most, rows / kChunks));
    parallel_for(rows, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        run_row(from + i / grid_[0] * source_[0] * source_[1] * channels_,
                weights,
                i % grid_[0],
                to + i * row);
        if (finish != nullptr) (*finish)(i* row, (i + 1) * row);
      }
    });
  }

  // One row of the result, of an image that begins at `image`.
  template <typename T>
  void run_row(const T* image, const T* weights, int64_t row, T* to) const {
    const DepthwiseTaps rows = rows_.at(row);
    for (const Unit& unit : units_) {
      const DepthwiseTaps cols = cols_.at(unit.column);
      T* result = to + unit.column * channels_;
      if (unit.is_strip)
        Kernels<T>::get().strip({bits(image),
                                 bits(weights),
                                 rows,
                                 cols,
                                 channels_,
                                 lap_.advance,
                                 channels_,
                                 bits(result),
                                 lap_.columns * channels_});
      else
        Kernels<T>::get().pixel({bits(image), bits(weights), rows, cols, channels_, bits(result)});
    }
  }

 private:
  struct Unit {
    int64_t column;
    bool is_strip;
  };

  // Cuts a row into strips and single pixels.
  void find_strips() {
    std::vector<bool> done(static_cast<size_t>(grid_[1]));
    for (int64_t j = 0; j < grid_[1]; ++j) {
      if (done[static_cast<size_t>(j)]) continue;
      const bool is_strip = begins_strip(j);
      for (int64_t p = 0; p < (is_strip ? kStripPixels : 1); ++p)
        done[static_cast<size_t>(j + p * lap_.columns)] = true;
      units_.push_back({j, is_strip});
    }
  }

  bool begins_strip(int64_t j) const {
    const DepthwiseTaps taps = cols_.at(j);
    if (taps.count < 1 || taps.count > kStripTaps || lap_.advance > kStripAdvance) return false;
    for (int64_t k = 1; k < taps.count; ++k)
      if (taps.taps[k].source != taps.taps[0].source + k * channels_) return false;
    for (int64_t p = 1; p < kStripPixels; ++p)
      if (!cols_.are_alike(j, p * lap_.columns, p * lap_.advance * channels_)) return false;
    return true;
  }

  int64_t images_, channels_;
  std::array<int64_t, 2> source_, grid_;
  Lap lap_;
  TapTable rows_, cols_;
  std::vector<Unit> units_;
};

ProductKernel make_image_kernel(DType dtype, ImageProduct product) {
  return dispatch_float(dtype, "depthwise", [&]<typename T>(TypeTag<T>) {
    return ProductKernel{
        [product = std::move(product)](const KernelArgs& args, const FinishRange* finish) {
          product.run(static_cast<const T*>(args.inputs[0]),
                      static_cast<const T*>(args.inputs[1]),
                      static_cast<T*>(args.outputs[0]),
                      finish);
        }};
  });
}

ImageProduct forward_product(const ConvGeometry& g) {
  return ImageProduct(g, g.in, g.out, {1, g.stride[1]}, input_place);
}

ProductKernel make_forward(const Node& node) {
  return make_image_kernel(node.outputs[0].dtype, forward_product(geometry_of<Conv2d>(node)));
}

ImageProduct input_gradient(const ConvGeometry& g) {
  return ImageProduct(g, g.out, g.in, {g.stride[1], 1}, output_place);
}

std::unique_ptr<HostKernel> make_input_gradient(const Node& node) {
  return make_alone(
      make_image_kernel(node.outputs[0].dtype, input_gradient(geometry_of<Conv2dGradInput>(node))));
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
      inner_.first = std::max(inner_.first, first);
      inner_.count = std::min(inner_.count, end);  // the end, so far
    }
    inner_.count = std::max<int64_t>(0, inner_.count - inner_.first);
    if (g.kernel[0] > kDotTaps || g.kernel[1] != kDotTaps) inner_.count = 0;
  }

  size_t workspace_bytes() const { return static_cast<size_t>(parts() * weights()) * sizeof(Sum); }

  using Sum = ComputeType<T>;

  void run(const T* x, const T* dy, T* dw, void* workspace) const {
    Sum* partial = static_cast<Sum*>(workspace);
    parallel_for(parts(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) {
        Sum* sums = partial + p * weights();
        std::fill_n(sums, weights(), Sum{0});
        for (int64_t row = first_row(p); row < first_row(p + 1); ++row) add_row(x, dy, row, sums);
      }
    });
    combine(partial, dw);
  }

  void combine(Sum* partial, T* dw) const {
    parallel_for(weights(), 4096, [&](int64_t begin, int64_t end) {
      for (int64_t p = 1; p < parts(); ++p)
        for (int64_t i = begin; i < end; ++i) partial[i] += partial[p * weights() + i];
      narrow_row(partial + begin, dw + begin, end - begin);
    });
  }

  int64_t rows() const { return g_.images * g_.out[0]; }
  int64_t parts() const { return std::min(rows(), kPartialSums); }
  int64_t first_row(int64_t part) const { return rows() * part / parts(); }
  int64_t weights() const { return g_.taps() * g_.channels; }

  // Adds the terms of row `row` of all rows of dy to the sums.
  void add_row(const T* x, const T* dy, int64_t row, Sum* sums) const {
    const int64_t c = g_.channels, image = row / g_.out[0];
    x += image * g_.in[0] * g_.in[1] * c;
    dy += row * g_.out[1] * c;
    std::array<DepthwiseTap, kDotTaps> inner;
    int64_t taps = 0;
    for (int64_t i = 0; i < g_.kernel[0]; ++i) {
      const int64_t h = input_place(g_, 0, row % g_.out[0], i);
      if (h < 0) continue;
      const DepthwiseTap tap{h * g_.in[1] * c, i * g_.kernel[1] * c};
      add_edges(x + tap.source, dy, sums + tap.weight);
      if (inner_.count > 0) inner[static_cast<size_t>(taps++)] = tap;
    }
    if (taps > 0) add_inner(x, dy, {inner.data(), taps}, sums);
  }

 private:
  struct Columns {
    int64_t first, count;
  };

  // The columns in which each tap meets a pixel.
  void add_inner(const T* x, const T* dy, const DepthwiseTaps& rows, Sum* sums) const {
    const int64_t c = g_.channels;
    Kernels<T>::get().dots({bits(x + input_place(g_, 1, inner_.first, 0) * c),
                            bits(dy + inner_.first * c),
                            rows,
                            g_.dilation[1] * c,
                            g_.stride[1] * c,
                            c,
                            inner_.count,
                            c,
                            sums});
  }

  // The other columns, of one row of x and of the kernel.
  void add_edges(const T* x, const T* dy, Sum* sums) const {
    for (int64_t j = 0; j < g_.kernel[1]; ++j) {
      const auto [first, count] = columns_[static_cast<size_t>(j)];
      const int64_t end = first + count;
      if (inner_.count == 0) {
        add_columns(x, dy, j, {first, count}, sums);
      } else {
        add_columns(x, dy, j, {first, inner_.first - first}, sums);
        const int64_t behind = inner_.first + inner_.count;
        add_columns(x, dy, j, {behind, end - behind}, sums);
      }
    }
  }

  void add_columns(const T* x, const T* dy, int64_t tap, Columns columns, Sum* sums) const {
    if (columns.count <= 0) return;
    const int64_t c = g_.channels;
    Kernels<T>::get().dot({bits(x + input_place(g_, 1, columns.first, tap) * c),
                           bits(dy + columns.first * c),
                           g_.stride[1] * c,
                           c,
                           columns.count,
                           c,
                           sums + tap * c});
  }

  ConvGeometry g_;
  std::vector<Columns> columns_;  // columns of dy that each horizontal tap meets
  Columns inner_{0, INT64_MAX};   // columns that all taps meet; none for kernels of other sizes
};

std::unique_ptr<HostKernel> make_weight_gradient(const Node& node) {
  const ConvGeometry g = geometry_of<Conv2dGradWeight>(node);
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

// Rows [begin, end) of an image.
struct Rows {
  int64_t begin, end;
};

// Rows of dy that rows of dx take from, `own` among them.
Rows rows_of_dy(const ConvGeometry& g, Rows dx, Rows own) {
  Rows needed = own;
  for (int64_t row = dx.begin; row < dx.end; ++row)
    for (int64_t tap = 0; tap < g.kernel[0]; ++tap) {
      const int64_t place = output_place(g, 0, row, tap);
      if (place < 0) continue;
      needed.begin = std::min(needed.begin, place);
      needed.end = std::max(needed.end, place + 1);
    }
  return needed;
}

// Rows of x that rows of y take from; one at least.
Rows rows_of_x(const ConvGeometry& g, Rows y) {
  const int64_t begin = y.begin * g.stride[0] - g.padding[0];
  const int64_t end = (y.end - 1) * g.stride[0] - g.padding[0] + g.kernel[0];
  const int64_t first = std::clamp<int64_t>(begin, 0, g.in[0] - 1);
  return {first, std::clamp(end, first + 1, g.in[0])};
}

// Rows of y for which x has at most so many rows.
int64_t rows_within(const ConvGeometry& g, int64_t rows) {
  return rows < g.kernel[0] ? 0 : (rows - g.kernel[0]) / g.stride[0] + 1;
}

bool is_depthwise(const ConvGeometry& g) {
  return g.groups == g.channels && g.channels == g.out_channels;
}

bool is_small_depthwise(const ConvGeometry& g) {
  return g.kernel[0] <= 3 && g.dilation[0] == 1 && g.padding[0] <= 1 && is_depthwise(g);
}

constexpr int64_t kMostHalo = 2;    // rows of dy around those that a band owns
constexpr int64_t kFewestRows = 3;  // rows of dy that a band owns, at least

}  // namespace

// ---- forward, of an input that is made ----

class DepthwiseForward::Body {
 public:
  Body(const ConvGeometry& g, int64_t most_elements)
      : g_(g), image_(forward_product(g)), at_once_(most_rows(g, most_elements)) {}

  // Rows of y that so much of x makes.
  static int64_t most_rows(const ConvGeometry& g, int64_t most_elements) {
    return rows_within(g, most_elements / (g.in[1] * g.channels));
  }

  int64_t bands(int64_t wanted) const {
    return g_.images * std::min(g_.out[0], (wanted + g_.images - 1) / g_.images);
  }

  void run_band(int64_t band,
                int64_t bands,
                float* window,
                WritePixels write_x,
                const float* w,
                float* y,
                const FinishRange* finish) const {
    const int64_t of_image = bands / g_.images, image = band / of_image, i = band % of_image;
    const Rows own{g_.out[0] * i / of_image, g_.out[0] * (i + 1) / of_image};
    const int64_t x_row = g_.in[1] * g_.channels, y_row = g_.out[1] * g_.channels;
    Rows held{0, 0};  // rows of the image that lie in the window
    for (Rows now{own.begin, own.begin}; now.begin < own.end; now.begin = now.end) {
      now.end = std::min(now.begin + at_once_, own.end);
      const Rows needed = rows_of_x(g_, now);
      const Rows kept{needed.begin, std::max(held.end, needed.begin)};
      std::copy(window + (kept.begin - held.begin) * x_row,
                window + (kept.end - held.begin) * x_row,
                window);
      const int64_t before = image * g_.in[0];
      write_x((before + kept.end) * g_.in[1],
              (before + needed.end) * g_.in[1],
              window + (kept.end - kept.begin) * x_row);
      held = needed;
      for (int64_t row = now.begin; row < now.end; ++row) {
        const int64_t first = (image * g_.out[0] + row) * y_row;
        image_.run_row(window - held.begin * x_row, w, row, y + first);
        if (finish != nullptr) (*finish)(first, first + y_row);
      }
    }
  }

 private:
  ConvGeometry g_;
  ImageProduct image_;
  int64_t at_once_;  // rows of y
};

bool DepthwiseForward::accepts(const ConvGeometry& g, int64_t most_elements) {
  return g.dilation[0] == 1 && is_depthwise(g) && Body::most_rows(g, most_elements) >= 1;
}

DepthwiseForward::DepthwiseForward(const ConvGeometry& g, int64_t most_elements)
    : body_(std::make_shared<const Body>(g, most_elements)) {}

int64_t DepthwiseForward::bands(int64_t wanted) const { return body_->bands(wanted); }
void DepthwiseForward::run_band(int64_t band,
                                int64_t bands,
                                float* window,
                                WritePixels write_x,
                                const float* w,
                                float* y,
                                const FinishRange* finish) const {
  body_->run_band(band, bands, window, write_x, w, y, finish);
}

// ---- gradients, of a dy that is made ----

class DepthwiseGradients::Body {
 public:
  Body(const ConvGeometry& g, int64_t most_elements, bool makes_x)
      : g_(g),
        image_(input_gradient(g)),
        weight_(g),
        band_(rows_of_band(g, most_elements, makes_x)) {}

  // Rows of dy that a band owns.
  static int64_t rows_of_band(const ConvGeometry& g, int64_t most_elements, bool makes_x) {
    const int64_t dy_row = g.out[1] * g.channels, x_row = g.in[1] * g.channels;
    if (!makes_x) return most_elements / dy_row - kMostHalo;
    const int64_t left = most_elements - kMostHalo * dy_row - (g.kernel[0] - 1) * x_row;
    return left / (dy_row + g.stride[0] * x_row);
  }

  const WeightGradient<float>& weight() const { return weight_; }
  int64_t most_of_dy() const { return (band_ + kMostHalo) * g_.out[1] * g_.channels; }

  void run_part(int64_t part, const Part& to) const {
    std::fill_n(to.sums, weight_.weights(), 0.0F);
    const int64_t end = weight_.first_row(part + 1);
    for (int64_t row = weight_.first_row(part); row < end;) {
      const int64_t image = row / g_.out[0], in_image = row % g_.out[0];
      const int64_t count = std::min({band_, end - row, g_.out[0] - in_image});
      run_band(image, {in_image, in_image + count}, to);
      row += count;
    }
  }

 private:
  // Bands of neighbouring rows of dy have neighbouring rows of dx.
  Rows rows_of_dx(Rows own) const {
    const auto first = [&](int64_t row) { return std::min(g_.in[0], row * g_.stride[0]); };
    return {first(own.begin), own.end == g_.out[0] ? g_.in[0] : first(own.end)};
  }

  void run_band(int64_t image, Rows own, const Part& to) const {
    const Rows dx = rows_of_dx(own), needed = rows_of_dy(g_, dx, own), seen = rows_of_x(g_, own);
    const int64_t before = image * g_.out[0], x_before = image * g_.in[0];
    const float* dy =
        to.make_dy((before + needed.begin) * g_.out[1], (before + needed.end) * g_.out[1]);
    const float* x =
        to.make_x((x_before + seen.begin) * g_.in[1], (x_before + seen.end) * g_.in[1]);
    const int64_t dy_row = g_.out[1] * g_.channels, dx_row = g_.in[1] * g_.channels;
    const float* dy_image = dy - needed.begin * dy_row;
    float* dx_image = to.dx + x_before * dx_row;
    for (int64_t row = dx.begin; row < dx.end; ++row)
      image_.run_row(dy_image, to.w, row, dx_image + row * dx_row);
    const float* x_first = x - (x_before + seen.begin) * dx_row;
    for (int64_t row = own.begin; row < own.end; ++row)
      weight_.add_row(x_first, dy_image - before * dy_row, before + row, to.sums);
  }

  ConvGeometry g_;
  ImageProduct image_;
  WeightGradient<float> weight_;
  int64_t band_;
};

bool DepthwiseGradients::accepts(const ConvGeometry& g, int64_t most_elements, bool makes_x) {
  return is_small_depthwise(g) && Body::rows_of_band(g, most_elements, makes_x) >= kFewestRows;
}

DepthwiseGradients::DepthwiseGradients(const ConvGeometry& g, int64_t most_elements, bool makes_x)
    : body_(std::make_shared<const Body>(g, most_elements, makes_x)) {}

int64_t DepthwiseGradients::parts() const { return body_->weight().parts(); }
int64_t DepthwiseGradients::sums() const { return body_->weight().weights(); }
int64_t DepthwiseGradients::most_of_dy() const { return body_->most_of_dy(); }
void DepthwiseGradients::run_part(int64_t part, const Part& to) const { body_->run_part(part, to); }
void DepthwiseGradients::combine(float* sums, float* dw) const {
  body_->weight().combine(sums, dw);
}

void add_depthwise_kernels(KernelTable& table) {
  add_product<Conv2d, FusedConv2d>(
      table, {.choice = {"depthwise", 1}, .make = make_forward, .accepts = [](const Node& node) {
                return is_depthwise(node.inputs[1].shape(), node.op_as<Conv2d>().groups);
              }});
  table.add("conv2d_grad_input", {"depthwise", 1}, make_input_gradient, [](const Node& node) {
    return is_depthwise(node.inputs[1].shape(), node.op_as<Conv2dGradInput>().groups);
  });
  table.add("conv2d_grad_weight", {"depthwise", 2}, make_weight_gradient, [](const Node& node) {
    return is_depthwise(node.outputs[0].shape, node.op_as<Conv2dGradWeight>().groups);
  });
}

}  // namespace ridge::cpu
