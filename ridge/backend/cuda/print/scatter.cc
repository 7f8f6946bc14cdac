// Adding to rows by index, in the order of the indices, as the CPU does: the same bits, and no
// atomic additions. The indices are sorted first, digit by digit and stably, so that each row has a
// list of its updates; then every row adds its own.
//
//   for each digit:  sort_count, sort_sum, sort_place
//   find_rows        where each row's list begins
//   add_in_order
#include <algorithm>

#include "ridge/backend/cuda/print/kernel_text.h"
#include "ridge/backend/cuda/print/scalar_text.h"
#include "ridge/graph/ops/gather.h"

namespace ridge::cuda {
namespace {

// These numbers are those of device/scatter.h.
constexpr int64_t kSortChunk = 1024;
constexpr int64_t kDigits = 256;
constexpr int64_t kSumThreads = 1024;
constexpr int64_t kWarps = 8;

class ScatterPrinter {
 public:
  explicit ScatterPrinter(const Node& node)
      : node_(node),
        dtype_(node.outputs[0].dtype),
        size_(node.op_as<ScatterAdd>().size),
        count_(node.inputs[1].type().elements()),
        text_(node) {
    const auto axis = static_cast<size_t>(node.op_as<ScatterAdd>().axis);
    const Shape& shape = node.outputs[0].shape;
    for (size_t i = 0; i < axis; ++i) outer_ *= shape[i];
    for (size_t i = axis + 1; i < shape.size(); ++i) inner_ *= shape[i];
    constexpr int64_t kMost = int64_t{1} << 32;
    if (count_ >= kMost || size_ >= kMost)
      throw Refused{fmt::format("sorts {} indices into {} rows", count_, size_)};
  }

  PrintedKernel print() {
    text_.include("scatter.h");
    const size_t list_bytes = static_cast<size_t>(count_) * sizeof(uint32_t);
    counts_ = text_.take(static_cast<size_t>(chunks() * kDigits) * sizeof(uint32_t));
    for (List& list : lists_) list = {text_.take(list_bytes), text_.take(list_bytes)};
    starts_ = text_.take(static_cast<size_t>(size_ + 1) * sizeof(uint32_t));
    int pass = 0;
    for (int shift = 0; shift == 0 || (size_ - 1) >> shift != 0; shift += 8) sort(pass++, shift);
    print_starts(lists_[pass % 2]);
    print_adding(lists_[pass % 2]);
    PrintedKernel made =
        text_.result("scatter_add", fmt::format("{} rows of {} into {}.", count_, inner_, size_));
    made.index_limit = size_;
    return made;
  }

 private:
  // Indices in the order in which they are sorted so far, and their numbers.
  struct List {
    size_t keys = 0, numbers = 0;
  };

  int64_t chunks() const { return ceil_div(count_, kSortChunk); }

  // The first pass reads the indices themselves.
  std::string read_keys(int pass) {
    if (pass == 0)
      return fmt::format("Indices<{}> keys{{{}, {}, {}}};",
                         stored_type(node_.inputs[1].dtype()),
                         text_.input(1),
                         size_,
                         text_.fault());
    const List& from = lists_[pass % 2];
    return fmt::format("SortedIndices keys{{{}, {}}};",
                       text_.workspace(from.keys, "const uint32_t", "keys_in"),
                       text_.workspace(from.numbers, "const uint32_t", "numbers_in"));
  }

  void sort(int pass, int shift) {
    Lines& lines = text_.lines;
    const auto counts = [&] { return text_.workspace(counts_, "uint32_t", "counts"); };
    lines.add("const " + read_keys(pass));
    lines.line("sort_count(keys, {}, {}, {});", counts(), count_, shift);
    text_.finish(fmt::format("_count{}", pass), chunks(), kDigits);

    lines.line("sort_sum({}, {});", counts(), chunks() * kDigits);
    text_.finish(fmt::format("_sum{}", pass), 1, kSumThreads);

    const List& to = lists_[(pass + 1) % 2];
    lines.add("const " + read_keys(pass));
    lines.line("sort_place(keys, {}, {}, {}, {}, {});",
               counts(),
               text_.workspace(to.keys, "uint32_t", "keys_out"),
               text_.workspace(to.numbers, "uint32_t", "numbers_out"),
               count_,
               shift);
    text_.finish(fmt::format("_place{}", pass), chunks(), kDigits);
  }

  void print_starts(const List& list) {
    text_.open_stride(size_ + 1);
    text_.lines.line("{}[i] = first_not_below({}, {}, static_cast<uint32_t>(i));",
                     text_.workspace(starts_, "uint32_t", "starts"),
                     text_.workspace(list.keys, "const uint32_t", "keys"),
                     count_);
    text_.finish_stride("_rows", size_ + 1);
  }

  void print_adding(const List& list) {
    // Neighbours that a thread adds: 16 bytes of them, and of the 16-bit floats four.
    int64_t width = std::clamp<int64_t>(16 / static_cast<int64_t>(size_of(dtype_)), 1, 4);
    while (inner_ % width != 0) width /= 2;
    const bool has_base = node_.inputs.size() == 3;
    const std::string base = has_base ? text_.input(2) : "";
    text_.lines.line(
        "add_in_order<{}, {}>({}, {}, {}, {}, {}, {}, {}, {}, {});",
        stored_type(dtype_),
        width,
        text_.input(0),
        has_base ? base : fmt::format("static_cast<const {}*>(nullptr)", stored_type(dtype_)),
        text_.output(0),
        text_.workspace(starts_, "const uint32_t", "starts"),
        text_.workspace(list.numbers, "const uint32_t", "numbers"),
        outer_,
        count_,
        size_,
        inner_);
    const int64_t items = outer_ * size_ * ceil_div(inner_, 32 * width);
    text_.finish("_add", ceil_div(items, kWarps), kThreads);
  }

  const Node& node_;
  DType dtype_;
  int64_t size_, count_;
  int64_t outer_ = 1, inner_ = 1;
  KernelText text_;
  List lists_[2];
  size_t counts_ = 0, starts_ = 0;
};

}  // namespace

std::optional<PrintedKernel> print_scatter(const Node& node) {
  if (!node.is<ScatterAdd>()) return std::nullopt;
  return ScatterPrinter(node).print();
}

}  // namespace ridge::cuda
