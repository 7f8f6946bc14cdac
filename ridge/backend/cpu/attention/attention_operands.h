// The shape of attention and the rows of its operands, shared by the CPU kernels of attention and
// of its gradient.
#pragma once

#include <algorithm>

#include "ridge/backend/backend.h"
#include "ridge/backend/cpu/half_rows.h"
#include "ridge/backend/cpu/isa/attention/attention_kernels.h"
#include "ridge/backend/cpu/isa/transpose_kernels.h"
#include "ridge/graph/ops/attention.h"

namespace ridge::cpu {

inline const auto& attention_kernels(float) {
  return for_isa(avx2::attention_f32, avx512::attention_f32);
}
inline const auto& attention_kernels(double) {
  return for_isa(avx2::attention_f64, avx512::attention_f64);
}

/// All that a kernel keeps of its node.
struct AttentionShape {
  AttentionLayout layout;
  double scale = 1.0;
  bool causal = false;
  bool is_packed = false;
  size_t mask_input = 0;  ///< 0: no mask of bool.
  size_t bias_input = 0;  ///< 0: no bias.
  /// Strides of either over batch, head and query, in elements; 0 along an axis that is repeated.
  int64_t mask_batch = 0, mask_head = 0, mask_query = 0;

  AttentionShape(const AttentionForm& form, const Node& node, size_t mask)
      : layout(attention_layout(form, node.input_types())),
        scale(form.scale),
        causal(form.causal),
        is_packed(form.is_packed()) {
    if (node.inputs.size() <= mask) return;
    const std::vector<TensorType> types = node.input_types();
    mask_input = ridge::mask_input(types, mask);
    bias_input = ridge::bias_input(types, mask);
    const Shape& shape = node.inputs[mask].shape();
    const auto stride = [&](size_t axis, int64_t elements) {
      return shape[axis] == 1 ? 0 : elements;
    };
    mask_batch = stride(0, shape[1] * shape[2] * shape[3]);
    mask_head = stride(1, shape[2] * shape[3]);
    mask_query = stride(2, shape[3]);
  }

  /// Heads of all batches, numbered from 0.
  int64_t heads() const { return layout.batch * layout.heads; }
  /// One past the last key that a query sees which lies before `query`.
  int64_t end_of_keys(int64_t query) const {
    return causal ? std::min(query, layout.keys) : layout.keys;
  }

  /// The element of mask or bias for a query and a key of a head.
  int64_t mask_offset(int64_t head, int64_t query, int64_t key) const {
    return head / layout.heads * mask_batch + head % layout.heads * mask_head + query * mask_query +
           key;
  }

  /// Whether a mask of bool forbids all of some keys to all of some queries: what they would add is
  /// zero.
  bool forbids(const KernelArgs& args,
               int64_t head,
               int64_t query,
               int64_t queries,
               int64_t key,
               int64_t keys) const {
    if (mask_input == 0) return false;
    const auto* row =
        static_cast<const uint8_t*>(args.inputs[mask_input]) + mask_offset(head, query, key);
    const int64_t rows = mask_query == 0 ? 1 : queries;
    for (int64_t i = 0; i < rows; ++i, row += mask_query)
      if (std::any_of(row, row + keys, [](uint8_t may_see) { return may_see != 0; })) return false;
    return true;
  }

  /// The scores of `queries` queries from `query` on against `keys` keys from `key` on.
  template <typename Sum>
  AttentionScores<Sum> scores(const KernelArgs& args,
                              int64_t head,
                              int64_t query,
                              int64_t key) const {
    AttentionScores<Sum> s{};
    s.open_keys = causal ? query + 1 - key : layout.keys;
    s.mask_stride = mask_query;
    if (mask_input != 0)
      s.mask = static_cast<const uint8_t*>(args.inputs[mask_input]) + mask_offset(head, query, key);
    return s;
  }
};

/// Rows of one operand and head.
template <typename T>
struct HeadRows {
  T* first;
  int64_t stride;

  HeadRows(T* rows, int64_t row_stride) : first(rows), stride(row_stride) {}
  HeadRows(T* tensor, const HeadLayout& layout, int64_t heads, int64_t head)
      : first(tensor + layout.begin + head / heads * layout.batch_stride +
              head % heads * layout.head_stride),
        stride(layout.row_stride) {}

  T* row(int64_t i) const { return first + i * stride; }
  HeadRows from(int64_t i) const { return {row(i), stride}; }
};

/// Elements of a row with its padding.
inline int64_t padded(int64_t n) {
  return (n + kAttentionPadding - 1) / kAttentionPadding * kAttentionPadding;
}

/// Whether rows of n elements must be copied before a kernel can read them in whole vectors.
template <typename T>
bool needs_copy(int64_t n) {
  return is_half<T> || n % kAttentionPadding != 0;
}

/// to = rows of n elements in the type of the sums, `to_stride` apart, zeros behind them.
template <typename T>
void copy_rows(HeadRows<const T> from, int64_t rows, int64_t n, ComputeType<T>* to) {
  const int64_t to_stride = padded(n);
  for (int64_t i = 0; i < rows; ++i, to += to_stride) {
    widen_row(from.row(i), to, n);
    std::fill(to + n, to + to_stride, ComputeType<T>(0));
  }
}

/// The rows in the type of the sums, readable in whole vectors where `whole`: as they lie, or
/// copied to the buffer.
template <typename T>
HeadRows<const ComputeType<T>> wide_rows(
    HeadRows<const T> from, int64_t rows, int64_t n, bool whole, ComputeType<T>* buffer) {
  if constexpr (!is_half<T>)
    if (!whole || !needs_copy<T>(n)) return from;
  copy_rows<T>(from, rows, n, buffer);
  return {buffer, padded(n)};
}

/// A transposition of f32 or f64: to[j * to_row + i] = from[i * from_row + j], i < rows, j < n.
template <typename Sum>
void transpose_rows(
    const Sum* from, int64_t from_row, int64_t rows, int64_t n, Sum* to, int64_t to_row) {
  constexpr auto kSize = static_cast<int64_t>(sizeof(Sum));
  for_isa(avx2::transpose_kernels, avx512::transpose_kernels)
      .of_bytes(kSize)({.from = reinterpret_cast<const char*>(from),
                        .to = reinterpret_cast<char*>(to),
                        .rows = n,
                        .cols = rows,
                        .from_cols = {from_row * kSize},
                        .to_rows = {to_row * kSize}});
}

/// A panel (n, kAttentionLanes) of queries' rows, transposed; lanes without a query are zero.
template <typename Sum>
void fill_panel(HeadRows<const Sum> from, int64_t queries, int64_t n, Sum* panel) {
  if (queries < kAttentionLanes) std::fill_n(panel, n * kAttentionLanes, Sum(0));
  transpose_rows(from.first, from.stride, queries, n, panel, kAttentionLanes);
}

/// The inverse, into rows of T; `buffer` holds a panel.
template <typename T>
void store_panel(const ComputeType<T>* panel,
                 int64_t queries,
                 int64_t n,
                 HeadRows<T> to,
                 ComputeType<T>* buffer) {
  if constexpr (is_half<T>) {
    transpose_rows(panel, kAttentionLanes, n, queries, buffer, n);
    for (int64_t i = 0; i < queries; ++i) narrow_row<T>(buffer + i * n, to.row(i), n);
  } else {
    transpose_rows(panel, kAttentionLanes, n, queries, to.first, to.stride);
  }
}

}  // namespace ridge::cpu
