// Columns first: each row is resized as it comes and then added to the rows of the result that it
// has a part in; the last part of a row normalises it while it is in the cache.
//
// Everything is a multiplication and an addition in a fixed order, so that the copy compiled for
// AVX2 gives the same bits.
#include "ridge/data/resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ridge/base/cpu/cpu_info.h"
#include "ridge/base/error.h"

namespace ridge::data {
namespace {

// A pixel and the first channel of the next one: read and written as four lanes.
using Pixel = float __attribute__((vector_size(16)));

/// Room behind a row for taps that reach beyond it, and for the fourth lane.
int64_t padded(int64_t count, int64_t max_taps) { return 3 * (count + max_taps) + 4; }

[[gnu::always_inline]] inline Pixel load(const float* from) {
  Pixel pixel;
  std::memcpy(&pixel, from, sizeof pixel);
  return pixel;
}

template <int64_t kTaps>
[[gnu::always_inline]] inline void resize_taps(const float* source,
                                               const ResizeAxis& axis,
                                               int64_t target,
                                               float* out) {
  const int64_t taps = kTaps > 0 ? kTaps : axis.taps();
  const int32_t* first = axis.first();
  const float* weight = axis.weights();
  for (int64_t i = 0; i < target; ++i, weight += taps, out += 3) {
    const float* from = source + 3 * int64_t{first[i]};
    Pixel sum = load(from) * weight[0];
    for (int64_t k = 1; k < taps; ++k) sum += load(from + 3 * k) * weight[k];
    std::memcpy(out, &sum, sizeof sum);
  }
}

[[gnu::always_inline]] inline void resize_row(const float* source,
                                              const ResizeAxis& axis,
                                              int64_t target,
                                              float* out) {
  switch (axis.taps()) {
    case 2:
      return resize_taps<2>(source, axis, target, out);
    case 3:
      return resize_taps<3>(source, axis, target, out);
    case 4:
      return resize_taps<4>(source, axis, target, out);
    case 5:
      return resize_taps<5>(source, axis, target, out);
    default:
      return resize_taps<0>(source, axis, target, out);
  }
}

/// One row's part in one row of the result.
struct Part {
  const float *row, *scale, *offset;
  float* out;
  int64_t count;
  float weight;
  bool first, last;
};

[[gnu::always_inline]] inline void add_part(const Part& part) {
  const float* __restrict row = part.row;
  const float* __restrict scale = part.scale;
  const float* __restrict offset = part.offset;
  float* __restrict out = part.out;
  const float weight = part.weight;
  if (part.first && part.last) {
    for (int64_t i = 0; i < part.count; ++i) out[i] = row[i] * weight * scale[i] + offset[i];
  } else if (part.first) {
    for (int64_t i = 0; i < part.count; ++i) out[i] = row[i] * weight;
  } else if (part.last) {
    for (int64_t i = 0; i < part.count; ++i)
      out[i] = (out[i] + row[i] * weight) * scale[i] + offset[i];
  } else {
    for (int64_t i = 0; i < part.count; ++i) out[i] += row[i] * weight;
  }
}

[[gnu::always_inline]] inline void widen(const uint8_t* __restrict from,
                                         float* __restrict to,
                                         int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(from[i]);
}

void widen_plain(const uint8_t* from, float* to, int64_t count) { widen(from, to, count); }
void resize_row_plain(const float* source, const ResizeAxis& axis, int64_t target, float* out) {
  resize_row(source, axis, target, out);
}
void add_part_plain(const Part& part) { add_part(part); }

[[gnu::target("avx2")]] void widen_avx2(const uint8_t* from, float* to, int64_t count) {
  widen(from, to, count);
}
[[gnu::target("avx2")]] void resize_row_avx2(const float* source,
                                             const ResizeAxis& axis,
                                             int64_t target,
                                             float* out) {
  resize_row(source, axis, target, out);
}
[[gnu::target("avx2")]] void add_part_avx2(const Part& part) { add_part(part); }

/// Taps that a target pixel may have: the triangle spans twice the shrinkage.
int64_t taps_for(double shrinkage) {
  return 2 * static_cast<int64_t>(std::ceil(std::max(shrinkage, 1.0))) + 1;
}

}  // namespace

/// One copy of the loops for each instruction set.
struct Resizer::Kernels {
  void (*widen)(const uint8_t*, float*, int64_t);
  void (*resize_row)(const float*, const ResizeAxis&, int64_t, float*);
  void (*add_part)(const Part&);
};

const Resizer::Kernels& Resizer::kernels(Code code) {
  static constexpr Kernels kPlain{widen_plain, resize_row_plain, add_part_plain};
  static constexpr Kernels kAvx2{widen_avx2, resize_row_avx2, add_part_avx2};
  return code == Code::kBest && cpu_info().avx2 ? kAvx2 : kPlain;
}

ResizeAxis::ResizeAxis(int64_t target, int64_t max_count)
    : first_(static_cast<size_t>(target)),
      weights_(static_cast<size_t>(
          target * taps_for(static_cast<double>(max_count) / static_cast<double>(target)))) {}

int64_t ResizeAxis::bytes() const {
  return static_cast<int64_t>(first_.size() * sizeof(int32_t) + weights_.size() * sizeof(float));
}

void ResizeAxis::set(const AxisSpan& span, bool mirrored) {
  const double shrinkage = span.length / static_cast<double>(span.target);
  const double reach = std::max(shrinkage, 1.0);
  const auto first_of = [&](double centre) {
    return std::max<int64_t>(static_cast<int64_t>(centre - reach + 0.5), 0);
  };
  const auto end_of = [&](double centre) {
    return std::min(static_cast<int64_t>(centre + reach + 0.5), span.count);
  };
  taps_ = 1;
  for (int64_t i = 0; i < span.target; ++i) {
    const double centre = span.begin + (static_cast<double>(i) + 0.5) * shrinkage;
    taps_ = std::max(taps_, end_of(centre) - first_of(centre));
  }
  check_internal(span.target * taps_ <= static_cast<int64_t>(weights_.size()),
                 "[ResizeAxis] {} taps for {} pixels are more than planned",
                 taps_,
                 span.target);
  for (int64_t i = 0; i < span.target; ++i) {
    const double centre = span.begin + (static_cast<double>(i) + 0.5) * shrinkage;
    const int64_t first = first_of(centre), taps = end_of(centre) - first;
    const auto triangle = [&](int64_t k) {
      const double distance = (static_cast<double>(first + k) + 0.5 - centre) / reach;
      return std::max(1.0 - std::abs(distance), 0.0);
    };
    double total = 0;
    for (int64_t k = 0; k < taps; ++k) total += triangle(k);
    const int64_t target = mirrored ? span.target - 1 - i : i;
    first_[target] = static_cast<int32_t>(first);
    for (int64_t k = 0; k < taps_; ++k)
      weights_[target * taps_ + k] = k < taps ? static_cast<float>(triangle(k) / total) : 0.0f;
  }
}

Resizer::Resizer(int64_t target, int64_t max_side, const Normalization& normalization, Code code)
    : target_(target),
      kernels_(kernels(code)),
      columns_(target, max_side),
      rows_(target, max_side) {
  const int64_t max_taps = taps_for(static_cast<double>(max_side) / static_cast<double>(target));
  for (int64_t i = 0; i < 3 * target; ++i) {
    scale_.push_back(normalization.scale[i % 3]);
    offset_.push_back(normalization.offset[i % 3]);
  }
  source_.resize(static_cast<size_t>(padded(max_side, max_taps)));
  resized_.resize(static_cast<size_t>(3 * target + 4));
}

int64_t Resizer::bytes() const {
  const size_t floats = scale_.size() + offset_.size() + source_.size() + resized_.size();
  return columns_.bytes() + rows_.bytes() + static_cast<int64_t>(floats * sizeof(float));
}

void Resizer::begin(const AxisSpan& columns, const AxisSpan& rows, bool mirrored, float* out) {
  columns_.set(columns, mirrored);
  rows_.set(rows, false);
  width_ = columns.count;
  row_ = next_ = 0;
  out_ = out;
  // Taps beyond the row must read finite numbers: their weight is zero, and zero times NaN is NaN.
  std::fill_n(source_.begin() + 3 * width_, padded(0, columns_.taps()), 0.0f);
}

void Resizer::add_row(const uint8_t* row) {
  const int64_t taps = rows_.taps();
  const int32_t* first = rows_.first();
  // Zero weights fill up the taps of some rows: the last row that counts decides.
  const auto is_last = [&](int64_t i) {
    const float* weights = rows_.weights() + i * taps;
    for (int64_t k = row_ - first[i] + 1; k < taps; ++k)
      if (weights[k] != 0) return false;
    return true;
  };
  if (next_ < target_ && first[next_] <= row_) {
    kernels_.widen(row, source_.data(), 3 * width_);
    kernels_.resize_row(source_.data(), columns_, target_, resized_.data());
    int64_t done = next_;
    for (int64_t i = next_; i < target_ && first[i] <= row_; ++i) {
      const bool last = is_last(i);
      kernels_.add_part({.row = resized_.data(),
                         .scale = scale_.data(),
                         .offset = offset_.data(),
                         .out = out_ + 3 * target_ * i,
                         .count = 3 * target_,
                         .weight = rows_.weights()[i * taps + row_ - first[i]],
                         .first = row_ == first[i],
                         .last = last});
      if (last) done = i + 1;
    }
    next_ = done;
  }
  ++row_;
}

}  // namespace ridge::data
