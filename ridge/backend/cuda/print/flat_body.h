// The elements of a body without rows, as text: how a thread computes a pack of them, and how a
// group of threads computes a piece where there are reductions. The loops around that are in
// flat.cc, and those over a list of tensors in list.cc.
#pragma once

#include <set>
#include <span>
#include <string>
#include <vector>

#include "ridge/backend/cuda/print/kernel_text.h"
#include "ridge/backend/cuda/print/scalar_text.h"

namespace ridge::cuda {

class FlatBody {
 public:
  /// `lengths` are those of the tensors of a list: the body is then that of each tensor, and its
  /// first `shared` inputs are for all of them. Refused: there is no such text.
  FlatBody(const FusedBody& body,
           Functions functions,
           size_t shared = 0,
           std::span<const int64_t> lengths = {});
  FlatBody(const FlatBody&) = delete;
  FlatBody& operator=(const FlatBody&) = delete;

  /// A reduction of all elements. With several pieces it is left in parts at `at` of the workspace.
  struct Total {
    const Node* node;
    size_t output, at = 0;
  };
  const std::vector<Total>& totals() const { return totals_; }
  int64_t elements() const { return body_.domain.elements; }
  int64_t pieces() const { return ceil_div(elements(), kPiece); }
  /// Elements of the longest tensor of a list, else all there are.
  int64_t longest() const { return longest_; }
  /// Elements of a pack.
  int64_t width() const { return width_; }
  /// Counts elements; unsigned, so that divisions by what is known are multiplications.
  std::string_view index_type() const { return index_type_of(longest_); }

  /// Writes the lines before all loops; makes the inputs that they and the loops read parameters.
  void print_setup();
  /// Writes the work on the pack at `i`, up to `end` where there are pieces or a list.
  void print_pack();
  /// Writes the work of a group on `piece`, which ends at `end`.
  void print_piece();

  KernelText text;

 private:
  bool is_list() const { return !lengths_.empty(); }
  int64_t pack_width() const;
  bool is_whole() const;
  std::string in(size_t number);
  std::string out(size_t index);
  std::string left() const;
  std::string leaf(const Node& node);
  std::string element_of(size_t number, DType dtype);
  std::string dropout(const Node& node);
  void add_result(size_t index);
  void add_total(const Node& node, size_t index);

  const FusedBody& body_;
  const size_t shared_;
  const std::span<const int64_t> lengths_;
  int64_t longest_, width_ = 4;
  bool has_totals_ = false, needs_at_ = false;
  Statements code_;  // of one element
  std::vector<std::string> loads_, setup_, ends_, stores_, sums_, results_;
  std::set<size_t> read_, shared_reads_;  // inputs
  std::vector<Total> totals_;
};

}  // namespace ridge::cuda
