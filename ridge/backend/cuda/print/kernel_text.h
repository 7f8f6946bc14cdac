// The text of a kernel under construction.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/backend/cuda/print/kernel.h"
#include "ridge/backend/cuda/print/scalar_text.h"
#include "ridge/graph/ops/fused.h"

namespace ridge::cuda {

// The tree of all reductions, as device/kernel.h has it: threads that share a piece, elements of a
// piece, rows that are summed one after the other.
inline constexpr int64_t kGroup = 16;
inline constexpr int64_t kPiece = 2048;
inline constexpr int64_t kSummedRows = 64;

/// Threads of a block where nothing asks for another number.
inline constexpr int64_t kThreads = 256;

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Thrown by those who print where a body has no kernel; print_kernel makes a refusal of it.
struct Refused {
  std::string why;
};

const std::vector<int64_t>& reduced_axes_of(const Node& reduction);
/// How many elements a mean divides its sum by; 1 for other reductions.
int64_t divisor_of(const Node& reduction);
/// "Plus" or "Larger", the way in which the reduction combines.
std::string_view combining(const Node& reduction);

/// Lines with their indentation.
class Lines {
 public:
  /// 1: within a function.
  explicit Lines(int depth = 1) : depth_(depth) {}
  template <typename... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    add(fmt::format(format, std::forward<Args>(args)...));
  }
  /// One line or several.
  void add(std::string_view text) {
    while (!text.empty()) {
      const std::string_view first = text.substr(0, text.find('\n'));
      text_.append(static_cast<size_t>(depth_) * 2, ' ').append(first).append("\n");
      text.remove_prefix(std::min(text.size(), first.size() + 1));
    }
  }
  template <typename... Args>
  void open(fmt::format_string<Args...> format, Args&&... args) {
    add(fmt::format(format, std::forward<Args>(args)...) + " {");
    ++depth_;
  }
  void close(std::string_view behind = {}) {
    --depth_;
    add(fmt::format("}}{}", behind));
  }
  void add_all(const std::vector<std::string>& lines) {
    for (const std::string& each : lines) add(each);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  int depth_;
};

class Statements;

/// A source of several functions, each with its launch. The name of the kernel is known last, so
/// that the text says kName until then.
class KernelText {
 public:
  static constexpr std::string_view kName = "@KERNEL@";
  static constexpr size_t kMostOperands = 480;  ///< A launch has 4 KiB for them.

  explicit KernelText(const FusedBody& body);
  /// Begins the kernel of a node that is no fused body.
  explicit KernelText(const Node& node);

  Lines lines;  ///< The body of the function that is being written.

  /// The name by which that function has a pointer; the first call makes it a parameter. `type`:
  /// of its elements, where that is not the dtype's.
  std::string input(size_t index, std::string_view type = {});
  std::string output(size_t index, std::string_view type = {});
  DType input_dtype(size_t index) const { return input_dtypes_.at(index); }
  /// `name`: of the parameter, of the type `type`.
  std::string workspace(size_t at, std::string_view type, std::string name);
  std::string fault();
  /// The last parameter of that function: "list", an Addresses of device/list.h.
  void list(std::vector<KernelOperand> operands) { listed_ = std::move(operands); }

  /// Takes bytes of the workspace.
  size_t take(size_t bytes);

  /// The source includes `header` of device/.
  void include(std::string_view header);
  /// Text before the functions.
  void declare(std::string_view text) { functions_ += text; }

  /// Opens a loop over i, from 0 to n, of all threads of the grid, and ends the function with it.
  void open_stride(int64_t n);
  void finish_stride(std::string_view suffix, int64_t n);

  /// Says of the next function which shared memory it declares beside its dynamic one, and for how
  /// many blocks at a time a multiprocessor shall have registers.
  size_t static_shared_bytes = 0;
  int blocks_at_once = 1;

  /// Ends the function with its launch; `suffix` distinguishes it from the kernel's other
  /// functions.
  void finish(std::string_view suffix, int64_t blocks, int64_t threads, size_t shared_bytes = 0);

  /// Stages that reduce `count` elements at `at` of the workspace to one, the output.
  void add_reduction(const Node& reduction, size_t at, int64_t count, size_t output);
  /// A sum of rows that lie at `at` of the workspace.
  struct RowSum {
    const Node* reduction;
    size_t output, at;
  };
  /// Stages that sum so many rows of each to one, its output; those of a kind in one launch.
  void add_row_sums(const std::vector<RowSum>& sums, int64_t rows);

  PrintedKernel result(std::string_view prefix, std::string_view summary);

  bool needs_functions = false, needs_random = false;
  /// Includes the device functions that the statements call.
  void include_functions(const Statements& code);

 private:
  std::string parameter(KernelOperand operand, std::string type, std::string name);
  void add_row_stage(std::vector<RowSum>& sums, int64_t rows);

  std::vector<DType> input_dtypes_, output_dtypes_;
  std::string ops_;  // the kernel's ops, as a part of its name
  std::vector<std::string> headers_;
  PrintedKernel made_;
  std::string functions_;
  int stages_ = 0;
  std::vector<std::string> parameters_;  // parameters of the function that is being written
  std::map<std::string, bool> named_;
  std::vector<KernelOperand> operands_, listed_;
};

/// The statements that compute values, each once, for one element or one row.
class Statements {
 public:
  /// The name of a value that is no plain elementwise op, or an empty text.
  using Leaf = std::function<std::string(const Node&)>;

  explicit Statements(Leaf leaf, Functions functions = Functions::kOfCpu)
      : leaf_(std::move(leaf)), functions_(functions) {}

  /// The name of the node's value; adds what computes it.
  std::string value(const Node& node);
  void know(const Node& node, std::string name) { names_[&node] = std::move(name); }
  /// Adds `const TYPE NAME = text;` with the node's name, and gives that.
  std::string name(const Node& node, std::string_view text);

  std::vector<std::string> lines;
  bool needs_functions = false, needs_approx = false;

 private:
  Leaf leaf_;
  Functions functions_;
  std::map<const Node*, std::string> names_;
};

/// The unsigned type that counts `elements`; divisions by what is known are multiplications then.
std::string_view index_type_of(int64_t elements);

/// The type of so many bytes (1 to 16, a power of two) that are moved and not computed with.
std::string unit_type(size_t bytes);

/// Bodies without rows, and those with.
PrintedKernel print_flat(const FusedBody& body, Functions functions);
/// Prints a body without rows for each tensor of a list of those lengths; the first `shared` inputs
/// of the body are for all of them.
PrintedKernel print_list(const FusedBody& body, size_t shared, std::vector<int64_t> lengths);
PrintedKernel print_rows(const FusedBody& body, Functions functions, const DeviceLimits& limits);

/// The kernel of a `matmul` node.
PrintedKernel print_matmul(const Node& node, const DeviceLimits& limits);

// Families of ops, a file each: the kernel of the node, or nothing where its op is none of theirs.
/// Prints attention or its gradient for tensor cores; nothing where no such kernel serves the node.
std::optional<PrintedKernel> print_attention_mma(const Node& node, const DeviceLimits& limits);
std::optional<PrintedKernel> print_source(const Node& node);
std::optional<PrintedKernel> print_move(const Node& node);
std::optional<PrintedKernel> print_gather(const Node& node);
std::optional<PrintedKernel> print_scatter(const Node& node);
std::optional<PrintedKernel> print_reduction(const Node& node);
std::optional<PrintedKernel> print_norm(const Node& node);

}  // namespace ridge::cuda
