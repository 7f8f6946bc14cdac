#include "ridge/backend/cpu/conv/conv_patches.h"

#include <algorithm>
#include <cstring>

#include "ridge/backend/cpu/cpu_isa.h"
#include "ridge/backend/cpu/half_rows.h"
#include "ridge/backend/cpu/isa/gemm/gemm_amx_kernels.h"
#include "ridge/base/cpu/parallel.h"

namespace ridge::cpu {
namespace {

constexpr int64_t kChunkBytes = 64 << 10;

// The first and the last kBytes of some, which together are all of them.
template <size_t kBytes>
void copy_ends(const std::byte* from, std::byte* to, size_t bytes) {
  std::byte first[kBytes], last[kBytes];
  std::memcpy(first, from, kBytes);
  std::memcpy(last, from + bytes - kBytes, kBytes);
  std::memcpy(to, first, kBytes);
  std::memcpy(to + bytes - kBytes, last, kBytes);
}

// A call of memcpy costs more than the copy of a short run.
template <typename From, typename To>
To* copy_run(const From* from, To* to, int64_t n) {
  if constexpr (!std::is_same_v<From, To>) {
    widen_row(from, to, n);
  } else {
    const size_t bytes = static_cast<size_t>(n) * sizeof(To);
    const auto* source = reinterpret_cast<const std::byte*>(from);
    auto* target = reinterpret_cast<std::byte*>(to);
    if (bytes > 64)
      std::memcpy(target, source, bytes);
    else if (bytes >= 32)
      copy_ends<32>(source, target, bytes);
    else if (bytes >= 16)
      copy_ends<16>(source, target, bytes);
    else
      for (int64_t i = 0; i < n; ++i) to[i] = from[i];
  }
  return to + n;
}

constexpr int64_t kShortRun = 16;

template <typename To>
To* clear_run(To* to, int64_t n) {
  if (n < kShortRun)
    for (int64_t i = 0; i < n; ++i) to[i] = To{};
  else
    std::memset(static_cast<void*>(to), 0, static_cast<size_t>(n) * sizeof(To));
  return to + n;
}

bool are_neighbours(const std::vector<int64_t>& offsets) {
  return offsets.back() - offsets.front() + 1 == static_cast<int64_t>(offsets.size());
}

template <typename From, typename To>
class PatchWriter {
 public:
  PatchWriter(const PatchMatrix& patches, const From* source)
      : p_(patches),
        source_(source),
        row_(static_cast<int64_t>(patches.offsets[1].size()) * patches.channels),
        runs_on_(patches.channels == patches.pitch && are_neighbours(patches.offsets[1])) {}

  // Rows [begin, end) of the matrix.
  void write(int64_t begin, int64_t end, To* to) const {
    const int64_t depth = p_.depth();
    while (begin < end) {
      // Pixels of one line of the grid see the same rows of the source.
      const int64_t j = begin % p_.grid[1], line = begin / p_.grid[1];
      const int64_t count = std::min(end - begin, p_.grid[1] - j);
      const int64_t first_row = line / p_.grid[0] * p_.source[0];
      To* at = to;
      for (int64_t offset : p_.offsets[0]) {
        const int64_t row = line % p_.grid[0] * p_.step[0] + offset;
        const bool is_inside = row >= 0 && row < p_.source[0];
        const From* source = source_ + (first_row + row) * p_.source[1] * p_.pitch;
        for (int64_t i = 0; i < count; ++i)
          if (is_inside)
            write_row(source, (j + i) * p_.step[1], at + i * depth);
          else
            clear_run(at + i * depth, row_);
        at += row_;
      }
      begin += count;
      to += count * depth;
    }
  }

  // Elements [begin, end) of a row of the matrix, tap by tap; returns their end.
  To* write_part(int64_t pixel, int64_t begin, int64_t end, To* to) const {
    const int64_t j = pixel % p_.grid[1], i = pixel / p_.grid[1] % p_.grid[0];
    const int64_t first_row = pixel / p_.grid[1] / p_.grid[0] * p_.source[0];
    const auto taps = static_cast<int64_t>(p_.offsets[1].size());
    while (begin < end) {
      const int64_t tap = begin / p_.channels, channel = begin % p_.channels;
      const int64_t n = std::min(p_.channels - channel, end - begin);
      const int64_t row = i * p_.step[0] + p_.offsets[0][static_cast<size_t>(tap / taps)];
      const int64_t column = j * p_.step[1] + p_.offsets[1][static_cast<size_t>(tap % taps)];
      const bool is_inside = row >= 0 && row < p_.source[0] && column >= 0 && column < p_.source[1];
      const int64_t at = ((first_row + row) * p_.source[1] + column) * p_.pitch + channel;
      to = is_inside ? copy_run(source_ + at, to, n) : clear_run(to, n);
      begin += n;
    }
    return to;
  }

  // Some columns of the matrix, by `rows` of the transposed one, as columns.rows elements a pixel.
  void write_columns(const GemmRows& columns, To* to) const {
    const int64_t end = columns.row + columns.rows;
    for (int64_t column = columns.row; column < end;) {
      const int64_t channel = column % p_.channels;
      const int64_t n = std::min(p_.channels - channel, end - column);
      write_tap(column / p_.channels, channel, n, columns, to + (column - columns.row));
      column += n;
    }
  }

 private:
  // `n` channels of one tap for the pixels that are the steps of `columns`.
  void write_tap(int64_t tap, int64_t channel, int64_t n, const GemmRows& columns, To* to) const {
    const auto taps = static_cast<int64_t>(p_.offsets[1].size());
    const int64_t down = p_.offsets[0][static_cast<size_t>(tap / taps)];
    const int64_t right = p_.offsets[1][static_cast<size_t>(tap % taps)];
    // The pixels of a line of the grid that see the source.
    const int64_t step = p_.step[1];
    const int64_t first = right >= 0 ? 0 : (step - 1 - right) / step;
    const int64_t last = right >= p_.source[1] ? 0 : (p_.source[1] - 1 - right) / step + 1;
    const auto clear = [&](int64_t pixels) {
      for (int64_t i = 0; i < pixels; ++i, to += columns.rows) clear_run(to, n);
    };
    int64_t j = columns.step % p_.grid[1], i = columns.step / p_.grid[1] % p_.grid[0];
    int64_t image_row = columns.step / p_.grid[1] / p_.grid[0] * p_.source[0];
    for (int64_t left = columns.steps; left > 0; j = 0) {
      const int64_t end = std::min(p_.grid[1], j + left);
      const int64_t row = i * p_.step[0] + down;
      const bool is_inside = row >= 0 && row < p_.source[0];
      const int64_t begin_inside = is_inside ? std::clamp(first, j, end) : end;
      const int64_t end_inside = std::clamp(last, begin_inside, end);
      clear(begin_inside - j);
      const int64_t at = (image_row + row) * p_.source[1] + begin_inside * step + right;
      const From* from = source_ + at * p_.pitch + channel;
      for (int64_t k = begin_inside; k < end_inside; ++k, from += step * p_.pitch) {
        copy_run(from, to, n);
        to += columns.rows;
      }
      clear(end - end_inside);
      left -= end - j;
      if (++i < p_.grid[0]) continue;
      i = 0;
      image_row += p_.source[0];
    }
  }

  // The horizontal offsets from column `start` of a row of the source.
  To* write_row(const From* row, int64_t start, To* to) const {
    const std::vector<int64_t>& offsets = p_.offsets[1];
    if (runs_on_ && start + offsets.front() >= 0 && start + offsets.back() < p_.source[1])
      return copy_run(row + (start + offsets.front()) * p_.pitch, to, row_);
    size_t first = 0, last = offsets.size();
    while (first < last && start + offsets[first] < 0) ++first;
    while (first < last && start + offsets[last - 1] >= p_.source[1]) --last;
    to = clear_run(to, static_cast<int64_t>(first) * p_.channels);
    if (runs_on_ && first < last) {
      const int64_t n = static_cast<int64_t>(last - first) * p_.channels;
      to = copy_run(row + (start + offsets[first]) * p_.pitch, to, n);
    } else {
      for (size_t k = first; k < last; ++k)
        to = copy_run(row + (start + offsets[k]) * p_.pitch, to, p_.channels);
    }
    return clear_run(to, static_cast<int64_t>(offsets.size() - last) * p_.channels);
  }

  const PatchMatrix& p_;
  const From* source_;
  int64_t row_;   // elements of one vertical offset
  bool runs_on_;  // neighbouring offsets lie side by side in the source
};

// Rows of the matrix as rows of tiles, of which each 32 steps lie elsewhere.
class TileWriter {
 public:
  TileWriter(const PatchMatrix& patches, const BF16* source)
      : p_(patches),
        source_(source),
        line_(static_cast<int64_t>(patches.offsets[1].size()) * patches.channels),
        runs_on_(patches.channels == patches.pitch && are_neighbours(patches.offsets[1])),
        panel_((patches.depth() + kAmxSteps - 1) / kAmxSteps * kAmxTile) {}

  // Rows [begin, begin + rows); those beyond, up to a whole panel, are zero.
  void write(int64_t begin, int64_t rows, BF16Bits* panels) const {
    for (int64_t i = 0; i < rows; ++i) {
      BF16Bits* const row = row_at(panels, i);
      if (p_.channels % kAmxSteps == 0)
        write_taps(begin + i, row);
      else
        write_mixed(begin + i, row);
    }
    for (int64_t i = rows; i % kAmxLanes != 0; ++i)
      kernels().place_row(nullptr, panel_ / kAmxTile, row_at(panels, i));
  }

 private:
  static constexpr int64_t kMostDepth = 8192;

  static const GemmAmxKernels& kernels() { return avx512::gemm_amx_kernels; }
  BF16Bits* row_at(BF16Bits* panels, int64_t row) const {
    return panels + row / kAmxLanes * panel_ + row % kAmxLanes * kAmxSteps;
  }
  static const BF16Bits* bits_at(const BF16* p) { return reinterpret_cast<const BF16Bits*>(p); }

  // A pixel whose taps have whole tiles of channels each.
  void write_taps(int64_t pixel, BF16Bits* row) const {
    const int64_t column = pixel % p_.grid[1] * p_.step[1], line = pixel / p_.grid[1];
    const int64_t first_row = line / p_.grid[0] * p_.source[0];
    const std::vector<int64_t>& across = p_.offsets[1];
    const int64_t line_tiles = line_ / kAmxSteps, tap_tiles = p_.channels / kAmxSteps;
    const bool is_whole =
        runs_on_ && column + across.front() >= 0 && column + across.back() < p_.source[1];
    for (const int64_t down : p_.offsets[0]) {
      const int64_t y = line % p_.grid[0] * p_.step[0] + down;
      const BF16* const from = source_ + (first_row + y) * p_.source[1] * p_.pitch;
      if (y < 0 || y >= p_.source[0]) {
        kernels().place_row(nullptr, line_tiles, row);
      } else if (is_whole) {
        kernels().place_row(bits_at(from + (column + across.front()) * p_.pitch), line_tiles, row);
      } else {
        BF16Bits* to = row;
        for (const int64_t right : across) {
          const int64_t x = column + right;
          const bool is_inside = x >= 0 && x < p_.source[1];
          kernels().place_row(is_inside ? bits_at(from + x * p_.pitch) : nullptr, tap_tiles, to);
          to += tap_tiles * kAmxTile;
        }
      }
      row += line_tiles * kAmxTile;
    }
  }

  // A pixel whose taps begin and end within tiles: its steps lie side by side first.
  void write_mixed(int64_t pixel, BF16Bits* row) const {
    alignas(64) BF16Bits bits[kMostDepth];  // an array of BF16 would be zero first
    PatchWriter<BF16, BF16>(p_, source_).write(pixel, pixel + 1, reinterpret_cast<BF16*>(bits));
    clear_run(bits + p_.depth(), panel_ / kAmxLanes - p_.depth());
    kernels().place_row(bits, panel_ / kAmxTile, row);
  }

  const PatchMatrix& p_;
  const BF16* source_;
  int64_t line_;   // elements of one vertical offset
  bool runs_on_;   // neighbouring offsets lie side by side in the source
  int64_t panel_;  // elements of 16 rows
};

}  // namespace

ConvGeometry::ConvGeometry(
    const WindowFields& window, int64_t group_count, const Shape& x, const Shape& w, const Shape& y)
    : images(x[0]),
      in{x[1], x[2]},
      out{y[1], y[2]},
      kernel{w[0], w[1]},
      stride{window.stride[0], window.stride[1]},
      padding{window.padding[0], window.padding[1]},
      dilation{window.dilation[0], window.dilation[1]},
      channels(x[3]),
      out_channels(y[3]),
      groups(group_count) {}

bool multiplies_bf16(const ConvGeometry& g, bool by_tiles) {
  constexpr int64_t kFewestDepth = 16, kFewestColumns = 8;
  return (by_tiles ? has_amx() : has_bf16_pairs()) && g.taps() * g.group_in() >= kFewestDepth &&
         g.group_out() >= kFewestColumns && (g.groups == 1 || g.group_in() >= kFewestColumns);
}

bool ConvGeometry::is_pointwise() const {
  return taps() == 1 && in == out && stride == std::array<int64_t, 2>{1, 1} &&
         padding == std::array<int64_t, 2>{0, 0};
}

int64_t PatchMatrix::chunk_rows(int64_t bytes, size_t element_bytes) const {
  const int64_t fitting = bytes / (depth() * static_cast<int64_t>(element_bytes));
  // Whole cache lines of rows suit the packing.
  const int64_t rows = fitting > 64 ? fitting / 16 * 16 : std::max<int64_t>(fitting, 1);
  return std::min(rows, pixels());
}

PatchMatrix forward_patches(const ConvGeometry& g) {
  PatchMatrix patches{g.images, g.in, g.channels, g.group_in(), g.out, g.stride, {}};
  for (size_t d = 0; d < 2; ++d)
    for (int64_t k = 0; k < g.kernel[d]; ++k)
      patches.offsets[d].push_back(k * g.dilation[d] - g.padding[d]);
  return patches;
}

template <typename From, typename To>
void gather_patches(
    const PatchMatrix& patches, const From* source, int64_t begin, int64_t end, To* to) {
  const PatchWriter<From, To> writer(patches, source);
  const int64_t depth = patches.depth();
  const int64_t grain =
      std::max<int64_t>(1, kChunkBytes / (depth * static_cast<int64_t>(sizeof(To))));
  parallel_for(end - begin, grain, [&](int64_t first, int64_t last) {
    writer.write(begin + first, begin + last, to + first * depth);
  });
}

template <typename T>
void gather_patches(const PatchMatrix& p, const T* source, const GemmRows& rows, T* to) {
  const PatchWriter<T, T> writer(p, source);
  if (rows.steps == p.depth()) return writer.write(rows.row, rows.row + rows.rows, to);
  for (int64_t i = 0; i < rows.rows; ++i)
    to = writer.write_part(rows.row + i, rows.step, rows.step + rows.steps, to);
}

void gather_patch_tiles(
    const PatchMatrix& patches, const BF16* source, int64_t begin, int64_t rows, BF16* panels) {
  TileWriter(patches, source).write(begin, rows, reinterpret_cast<BF16Bits*>(panels));
}

template <typename T>
void gather_patch_columns(const PatchMatrix& p, const T* source, const GemmRows& rows, T* to) {
  PatchWriter<T, T>(p, source).write_columns(rows, to);
}

template void gather_patch_columns(const PatchMatrix&, const double*, const GemmRows&, double*);
template void gather_patch_columns(const PatchMatrix&, const float*, const GemmRows&, float*);
template void gather_patches(const PatchMatrix&, const double*, const GemmRows&, double*);
template void gather_patches(const PatchMatrix&, const float*, const GemmRows&, float*);

template void gather_patches(const PatchMatrix&, const double*, int64_t, int64_t, double*);
template void gather_patches(const PatchMatrix&, const float*, int64_t, int64_t, float*);
template void gather_patches(const PatchMatrix&, const F16*, int64_t, int64_t, F16*);
template void gather_patches(const PatchMatrix&, const BF16*, int64_t, int64_t, BF16*);
template void gather_patches(const PatchMatrix&, const F16*, int64_t, int64_t, float*);
template void gather_patches(const PatchMatrix&, const BF16*, int64_t, int64_t, float*);

}  // namespace ridge::cpu
