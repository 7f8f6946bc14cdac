// Sums over all rows, in the kernel of a body over rows: a block takes 64 rows, and adds them up
// one after the other, in the order that the CPU adds them in: in shared memory, or each thread the
// columns that are its own in registers.
#pragma once

#include <string>
#include <vector>

#include "ridge/backend/cuda/print/kernel_text.h"

namespace ridge::cuda {

class RowColumnSums {
 public:
  /// A sum: of whole chunks of rows in the workspace at `at`.
  struct Sum {
    const Node* node;
    size_t output, at = 0;
    std::string of = {}, rows = {};  // names in shared memory: the sum, and rows on their way to it
  };

  explicit RowColumnSums(const FusedBody& body);

  /// Keeps them in registers where a block of `rows` rows then needs no more than `most_bytes` of
  /// shared memory, and says whether it does. Before place(), and for more than one row at a time:
  /// few threads have no registers for it.
  bool keep_in_registers(int64_t rows, int64_t most_bytes);
  bool empty() const { return sums_.empty(); }
  const std::vector<Sum>& all() const { return sums_; }
  int64_t chunks() const;
  /// The shared memory that a block of `rows` rows at a time needs, in bytes.
  int64_t shared_bytes(int64_t rows) const;
  /// Gives all their places from 0 on, for so many rows; `setup` declares them.
  void place(int64_t rows, std::vector<std::string>& setup);

  /// The parts of a chunk, by so many threads: zeros, the rows from `first` on, the result.
  void print_clearing(Lines& lines, int64_t threads) const;
  void print_adding(Lines& lines, int64_t threads) const;
  void print_results(KernelText& text, int64_t threads);
  /// The launches behind it that add up the chunks.
  void add_stages(KernelText& text) const;

 private:
  void open_columns(Lines& lines, int64_t threads) const;
  std::string sum_text(const Sum& sum) const;

  std::vector<Sum> sums_;
  bool in_registers_ = false;
  int64_t rows_, columns_, block_rows_ = 1;
};

}  // namespace ridge::cuda
