#include "ridge/backend/cpu/strided_copy.h"

#include <algorithm>
#include <cstring>

#include "ridge/backend/cpu/cpu_isa.h"
#include "ridge/backend/cpu/isa/transpose_kernels.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/base/error.h"

namespace ridge::cpu {
namespace {

constexpr int64_t kTileBytes = 32 << 10;
constexpr int64_t kChunkBytes = 64 << 10;
// A transposed tile touches this many bytes of every line on either side.
constexpr int64_t kTransposeEdge = 256;
// Joined axes have a table of so many lines at most.
constexpr int64_t kMostLines = 1 << 15;

struct Word16 {
  uint64_t low, high;
};

// Calls body with a value of the unsigned type of so many bytes.
template <typename F>
void with_word(int64_t bytes, F&& body) {
  switch (bytes) {
    case 1:
      return body(uint8_t{});
    case 2:
      return body(uint16_t{});
    case 4:
      return body(uint32_t{});
    case 8:
      return body(uint64_t{});
    default:
      return body(Word16{});
  }
}

bool is_word(int64_t bytes) { return bytes <= 16 && (bytes & (bytes - 1)) == 0; }

std::vector<CopyAxis> merge(const std::vector<CopyAxis>& axes) {
  std::vector<CopyAxis> merged;
  for (const CopyAxis& axis : axes) {
    if (axis.size == 1) continue;
    if (!merged.empty() && merged.back().from == axis.size * axis.from &&
        merged.back().to == axis.size * axis.to)
      merged.back() = {merged.back().size * axis.size, axis.from, axis.to};
    else
      merged.push_back(axis);
  }
  return merged;
}

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

StridedCopy::StridedCopy(std::vector<CopyAxis> axes, size_t element_bytes)
    : element_(static_cast<int64_t>(element_bytes)) {
  outer_ = merge(axes);
  // A short run moves as one wider element.
  if (!outer_.empty()) {
    const CopyAxis last = outer_.back();
    if (last.from == element_ && last.to == element_ && is_word(last.size * element_)) {
      element_ *= last.size;
      outer_.pop_back();
    }
  }
  col_ = row_ = {1, element_, element_};
  choose_kind();
  if (kind_ == Kind::kTranspose) join_lines();
  choose_tiles();
}

void StridedCopy::choose_kind() {
  if (outer_.empty()) return;
  col_ = outer_.back();
  outer_.pop_back();
  if (col_.from == element_ && col_.to == element_)
    kind_ = Kind::kRuns;
  else if (col_.from == 0 && col_.to == element_)
    kind_ = Kind::kFill;
  else
    kind_ = Kind::kElements;
  auto row = outer_.empty() ? outer_.end() : outer_.end() - 1;
  if (kind_ == Kind::kElements && col_.to == element_) {
    const auto contiguous = std::find_if(
        outer_.begin(), outer_.end(), [&](const CopyAxis& axis) { return axis.from == element_; });
    if (contiguous != outer_.end()) {
      kind_ = Kind::kTranspose;
      row = contiguous;
    }
  }
  if (row != outer_.end()) {
    row_ = *row;
    outer_.erase(row);
  }
}

// Lines of a few elements waste most of each cache line: the axis that goes on behind them joins
// them, where there is one (the taps of a kernel (O, I, H, W), and its channels).
void StridedCopy::join_lines() {
  const int64_t edge = kTransposeEdge / element_;
  const auto join = [&](CopyAxis& axis, int64_t CopyAxis::* run, int64_t CopyAxis::* step) {
    std::vector<int64_t> table;
    if (axis.size >= edge) return table;
    const auto next = std::find_if(outer_.begin(), outer_.end(), [&](const CopyAxis& other) {
      return other.*run == axis.size * axis.*run && axis.size * other.size <= kMostLines;
    });
    if (next == outer_.end()) return table;
    for (int64_t i = 0; i < next->size; ++i)
      for (int64_t k = 0; k < axis.size; ++k) table.push_back(i * (*next).*step + k * axis.*step);
    axis.size *= next->size;
    axis.*step = 0;
    outer_.erase(next);
    return table;
  };
  to_rows_ = join(row_, &CopyAxis::from, &CopyAxis::to);
  if (to_rows_.empty()) from_cols_ = join(col_, &CopyAxis::to, &CopyAxis::from);
}

void StridedCopy::choose_tiles() {
  if (kind_ == Kind::kTranspose) {
    const int64_t edge = kTransposeEdge / element_;
    tile_rows_ = std::min(row_.size, edge);
    tile_cols_ = std::min(col_.size, std::max(edge, edge * edge / tile_rows_));
    tile_rows_ = std::min(row_.size, std::max(edge, edge * edge / tile_cols_));
  } else {
    tile_cols_ = std::min(col_.size, kTileBytes / element_);
    tile_rows_ = std::min(row_.size, std::max<int64_t>(1, kTileBytes / (element_ * tile_cols_)));
  }
  tiles_ = ceil_div(row_.size, tile_rows_) * ceil_div(col_.size, tile_cols_);
  for (const CopyAxis& axis : outer_) tiles_ *= axis.size;
  grain_ = std::max<int64_t>(1, kChunkBytes / (tile_rows_ * tile_cols_ * element_));
}

void StridedCopy::run(const void* from, void* to) const {
  const int64_t row_tiles = ceil_div(row_.size, tile_rows_);
  const int64_t col_tiles = ceil_div(col_.size, tile_cols_);
  parallel_for(tiles_, grain_, [&](int64_t begin, int64_t end) {
    int64_t rest = begin;
    int64_t col = rest % col_tiles;
    rest /= col_tiles;
    int64_t row = rest % row_tiles;
    rest /= row_tiles;
    int64_t at[2 * kMaxRank] = {};
    const char* source = static_cast<const char*>(from);
    char* target = static_cast<char*>(to);
    for (size_t i = outer_.size(); i-- > 0;) {
      at[i] = rest % outer_[i].size;
      rest /= outer_[i].size;
      source += at[i] * outer_[i].from;
      target += at[i] * outer_[i].to;
    }
    for (int64_t tile = begin; tile < end; ++tile) {
      run_tile(source, target, row * tile_rows_, col * tile_cols_);
      if (++col < col_tiles) continue;
      col = 0;
      if (++row < row_tiles) continue;
      row = 0;
      for (size_t i = outer_.size(); i-- > 0;) {
        source += outer_[i].from;
        target += outer_[i].to;
        if (++at[i] < outer_[i].size) break;
        at[i] = 0;
        source -= outer_[i].size * outer_[i].from;
        target -= outer_[i].size * outer_[i].to;
      }
    }
  });
}

void StridedCopy::run_tile(const char* from, char* to, int64_t row, int64_t col) const {
  const int64_t rows = std::min(tile_rows_, row_.size - row);
  const int64_t cols = std::min(tile_cols_, col_.size - col);
  // An axis with a table has a stride of zero on its side.
  from += row * row_.from + col * col_.from;
  to += row * row_.to + col * col_.to;
  if (kind_ == Kind::kTranspose) {
    const TransposeTile tile{
        .from = from,
        .to = to,
        .rows = rows,
        .cols = cols,
        .from_cols = {col_.from, from_cols_.empty() ? nullptr : from_cols_.data() + col},
        .to_rows = {row_.to, to_rows_.empty() ? nullptr : to_rows_.data() + row}};
    return for_isa(avx2::transpose_kernels, avx512::transpose_kernels).of_bytes(element_)(tile);
  }
  if (kind_ == Kind::kRuns) {
    const auto bytes = static_cast<size_t>(cols * element_);
    for (int64_t r = 0; r < rows; ++r, from += row_.from, to += row_.to)
      std::memcpy(to, from, bytes);
    return;
  }
  with_word(element_, [&]<typename Word>(Word word) {
    for (int64_t r = 0; r < rows; ++r, from += row_.from, to += row_.to) {
      if (kind_ == Kind::kFill) {
        std::memcpy(&word, from, sizeof(Word));
        for (int64_t c = 0; c < cols; ++c) std::memcpy(to + c * sizeof(Word), &word, sizeof(Word));
      } else {
        for (int64_t c = 0; c < cols; ++c)
          std::memcpy(to + c * col_.to, from + c * col_.from, sizeof(Word));
      }
    }
  });
}

std::vector<int64_t> byte_strides(const TensorType& type) {
  std::vector<int64_t> strides(type.shape.size());
  int64_t stride = static_cast<int64_t>(size_of(type.dtype));
  for (size_t i = strides.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= type.shape[i];
  }
  return strides;
}

StridedCopy plain_copy(int64_t elements, size_t element_bytes) {
  const auto stride = static_cast<int64_t>(element_bytes);
  return StridedCopy({{elements, stride, stride}}, element_bytes);
}

StridedCopy plain_fill(int64_t elements, size_t element_bytes) {
  return StridedCopy({{elements, 0, static_cast<int64_t>(element_bytes)}}, element_bytes);
}

}  // namespace ridge::cpu
