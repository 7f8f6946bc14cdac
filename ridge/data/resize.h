// Bilinear resizing of RGB rows into a normalised f32 picture, as the rows come from a decoder.
//
// Where the picture shrinks, the triangle that weighs the pixels widens with it (antialiasing), as
// in PIL. Each axis is a table of taps; the mirror image is a table in reverse order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ridge::data {

/// An interval of a row or column of `count` source pixels that is resized to `target` pixels.
struct AxisSpan {
  double begin = 0, length = 0;  ///< In source pixels; weights never reach outside of the source.
  int64_t count = 0, target = 0;
};

/// The taps of one axis: target i is the sum over k of weight[i * taps + k] * source[first[i] + k].
class ResizeAxis {
 public:
  /// Memory for `target` pixels made of up to `max_count` source pixels.
  ResizeAxis(int64_t target, int64_t max_count);

  void set(const AxisSpan& span, bool mirrored);

  int64_t taps() const { return taps_; }
  /// Not negative; first[i] + taps may go beyond the source, with zero weights there.
  const int32_t* first() const { return first_.data(); }
  const float* weights() const { return weights_.data(); }
  int64_t bytes() const;

 private:
  std::vector<int32_t> first_;
  std::vector<float> weights_;
  int64_t taps_ = 0;
};

/// (x / 255 - mean) / deviation for each of three channels; 0 and 1 by default.
struct Normalization {
  float scale[3] = {1.0f / 255, 1.0f / 255, 1.0f / 255};
  float offset[3] = {0, 0, 0};
};

/// Makes square pictures of `target` x `target` x 3 f32 from rows of RGB bytes.
class Resizer {
 public:
  enum class Code { kBest, kPlain };  ///< kPlain leaves AVX2 out: the same bits, for tests.

  /// `max_side` bounds the source's width and height.
  Resizer(int64_t target,
          int64_t max_side,
          const Normalization& normalization,
          Code code = Code::kBest);

  /// Begins a picture of rows.count rows of columns.count pixels; `out` takes the result.
  void begin(const AxisSpan& columns, const AxisSpan& rows, bool mirrored, float* out);
  /// The next row from above: columns.count * 3 bytes. The last one completes the picture.
  void add_row(const uint8_t* row);

  int64_t bytes() const;

 private:
  struct Kernels;
  static const Kernels& kernels(Code code);

  int64_t target_;
  const Kernels& kernels_;
  ResizeAxis columns_, rows_;
  std::vector<float> scale_, offset_;  // normalisation, for a row of the result
  std::vector<float> source_, resized_;
  int64_t width_ = 0, row_ = 0, next_ = 0;
  float* out_ = nullptr;
};

}  // namespace ridge::data
