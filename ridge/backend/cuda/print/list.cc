// Bodies without rows that are computed for each tensor of a list: the loop runs over chunks of
// 4096 elements, or pieces, of all tensors. A table says which tensor a chunk is of, and `list`
// where that tensor lies.
#include <algorithm>
#include <utility>

#include "ridge/backend/cuda/print/flat_body.h"

namespace ridge::cuda {
namespace {

// Elements of a tensor of a list that a block takes at a time: enough to make up for finding out
// which tensor it is, few enough for small tensors to have blocks.
constexpr int64_t kChunk = 4096;

class ListPrinter {
 public:
  ListPrinter(const FusedBody& fused, size_t shared, std::vector<int64_t> lengths)
      : fused_(fused),
        shared_(shared),
        own_inputs_(fused.graph.inputs().size() - shared),
        results_(fused.graph.outputs().size()),
        lengths_(std::move(lengths)),
        body_(fused, Functions::kOfCpu, shared, lengths_) {}

  PrintedKernel print() {
    find_targets();
    const size_t most = (KernelText::kMostOperands - shared_) / (own_inputs_ + results_);
    for (size_t first = 0; first < lengths_.size(); first += most) {
      Launched part;
      for (size_t tensor = first; tensor < std::min(first + most, lengths_.size()); ++tensor) {
        part.add(lengths_[tensor], has_totals() ? kPiece : kChunk);
        for (size_t i = 0; i < own_inputs_; ++i)
          part.operands.push_back({KernelOperand::kInput, shared_ + tensor * own_inputs_ + i});
        const KernelOperand* const targets = targets_.data() + tensor * results_;
        part.operands.insert(part.operands.end(), targets, targets + results_);
      }
      print_part(std::move(part));
    }
    for (const FlatBody::Total& total : body_.totals()) print_stages(total);
    return body_.text.result("loops",
                             fmt::format("{} tensors of up to {} elements, {} at a time.",
                                         lengths_.size(),
                                         body_.longest(),
                                         body_.width()));
  }

 private:
  // The tensors of a list that one launch has room for, under construction.
  struct Launched {
    std::vector<KernelOperand> operands;
    std::vector<int64_t> lengths;
    std::vector<int64_t> firsts;  // by tensor: chunks or pieces of those before it
    int64_t all = 0;              // of chunks or pieces

    void add(int64_t length, int64_t unit) {
      lengths.push_back(length);
      firsts.push_back(all);
      all += ceil_div(length, unit);
    }
  };

  bool has_totals() const { return !body_.totals().empty(); }

  // Finds where the first launches write: partial results, for tensors of several pieces.
  void find_targets() {
    for (size_t tensor = 0; tensor < lengths_.size(); ++tensor)
      for (size_t i = 0; i < results_; ++i)
        targets_.push_back({KernelOperand::kOutput, tensor * results_ + i});
    for (const FlatBody::Total& total : body_.totals())
      for (size_t tensor = 0; tensor < lengths_.size(); ++tensor)
        if (const int64_t count = ceil_div(lengths_[tensor], kPiece); count > 1)
          targets_[tensor * results_ + total.output] = partial(count, total);
  }

  KernelOperand partial(int64_t count, const FlatBody::Total& total) {
    const size_t size = size_of(total.node->outputs[0].dtype);
    return {KernelOperand::kWorkspace, body_.text.take(static_cast<size_t>(count) * size)};
  }

  // Ends the function that is being written: `list` and its tables are the part's.
  void finish_part(Launched part, int64_t units_of_block) {
    if (part.all >= int64_t{1} << 31) throw Refused{"has too many elements"};
    const auto table = [&](std::string_view name, std::string_view type, auto numbers) {
      body_.text.declare(fmt::format("\n__constant__ const {} {}_{}{}[] = {{{}}};",
                                     type,
                                     KernelText::kName,
                                     name,
                                     launches_,
                                     fmt::join(numbers, ", ")));
    };
    table("firsts", "uint32_t", part.firsts);
    table("lengths", body_.index_type(), part.lengths);
    body_.text.declare("\n");
    body_.text.list(std::move(part.operands));
    body_.text.finish(
        fmt::format("_{}", launches_++), ceil_div(part.all, units_of_block), kThreads);
  }
  std::string table_name(std::string_view name) const {
    return fmt::format("{}_{}{}", KernelText::kName, name, launches_);
  }

  void print_part(Launched part) {
    Lines& lines = body_.text.lines;
    body_.print_setup();
    const int64_t units = has_totals() ? kThreads / kGroup : 1;
    if (has_totals()) lines.line("const uint32_t lane = threadIdx.x % {};", kGroup);
    lines.open("for (uint32_t first = blockIdx.x * {0}; first < {1}; first += gridDim.x * {0})",
               units,
               part.all);
    lines.line("const uint32_t unit = first{};",
               has_totals() ? fmt::format(" + threadIdx.x / {}", kGroup) : "");
    lines.line("const uint32_t tensor = tensor_of(unit, {}, {});",
               table_name("firsts"),
               part.lengths.size());
    print_pointers();
    lines.line("const {} n = {}[tensor];", body_.index_type(), table_name("lengths"));
    has_totals() ? print_listed_piece() : print_chunk();
    lines.close();
    finish_part(std::move(part), units);
  }

  void print_pointers() {
    const size_t slots = own_inputs_ + results_;
    for (const Node* node : fused_.graph.inputs())
      if (const size_t number = input_number(*node); number >= shared_)
        print_pointer(
            fmt::format("const {}* const in{}", stored_type(node->outputs[0].dtype), number),
            slots,
            number - shared_);
    for (size_t i = 0; i < results_; ++i)
      print_pointer(
          fmt::format("{}* const out{}", stored_type(fused_.graph.outputs()[i].value.dtype()), i),
          slots,
          own_inputs_ + i);
  }
  void print_pointer(const std::string& declared, size_t slots, size_t slot) {
    const std::string_view type = std::string_view(declared).substr(0, declared.rfind(" const "));
    body_.text.lines.line(
        "{} = static_cast<{}>(list.at[tensor * {} + {}]);", declared, type, slots, slot);
  }

  void print_chunk() {
    Lines& lines = body_.text.lines;
    const std::string_view type = body_.index_type();
    lines.line("const {0} begin = static_cast<{0}>(unit - {1}[tensor]) * {2};",
               type,
               table_name("firsts"),
               kChunk);
    lines.line("const {0} end = n - begin < {1} ? n : begin + {1};", type, kChunk);
    lines.open("for ({} i = begin + threadIdx.x * {}; i < end; i += {})",
               type,
               body_.width(),
               kThreads * body_.width());
    body_.print_pack();
    lines.close();
  }

  void print_listed_piece() {
    Lines& lines = body_.text.lines;
    const std::string_view type = body_.index_type();
    lines.line("const {0} piece = unit - {1}[tensor], pieces = (n + {2}) / {3};",
               type,
               table_name("firsts"),
               kPiece - 1,
               kPiece);
    lines.line("const {0} end = piece + 1 < pieces ? (piece + 1) * {1} : piece < pieces ? n : 0;",
               type,
               kPiece);
    body_.print_piece();
  }

  // Reduces the parts of a total to one number, for the tensors of several pieces.
  void print_stages(const FlatBody::Total& total) {
    struct Part {
      KernelOperand from, output;
      int64_t count;
    };
    std::vector<Part> open;
    for (size_t tensor = 0; tensor < lengths_.size(); ++tensor)
      if (const int64_t count = ceil_div(lengths_[tensor], kPiece); count > 1) {
        const size_t at = tensor * results_ + total.output;
        open.push_back({targets_[at], {KernelOperand::kOutput, at}, count});
      }
    while (!open.empty()) {
      std::vector<Part> next;
      for (size_t first = 0; first < open.size(); first += KernelText::kMostOperands / 2) {
        Launched part;
        const size_t last = std::min(open.size(), first + KernelText::kMostOperands / 2);
        for (size_t i = first; i < last; ++i) {
          const int64_t pieces = ceil_div(open[i].count, kPiece);
          const KernelOperand to = pieces > 1 ? partial(pieces, total) : open[i].output;
          part.operands.insert(part.operands.end(), {open[i].from, to});
          part.add(open[i].count, kPiece);
          if (pieces > 1) next.push_back({to, open[i].output, pieces});
        }
        body_.text.lines.line("reduce_list<{}, {}>(list, {}, {}, {}, {});",
                              combining(*total.node),
                              stored_type(total.node->outputs[0].dtype),
                              table_name("firsts"),
                              table_name("lengths"),
                              part.lengths.size(),
                              part.all);
        finish_part(std::move(part), kThreads / kGroup);
      }
      open = std::move(next);
    }
  }

  const FusedBody& fused_;
  const size_t shared_, own_inputs_, results_;  // of each tensor, but for the shared inputs
  const std::vector<int64_t> lengths_;
  FlatBody body_;
  std::vector<KernelOperand> targets_;  // by tensor and result
  int launches_ = 0;
};

}  // namespace

PrintedKernel print_list(const FusedBody& body, size_t shared, std::vector<int64_t> lengths) {
  return ListPrinter(body, shared, std::move(lengths)).print();
}

}  // namespace ridge::cuda
