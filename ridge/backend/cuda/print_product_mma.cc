// The product of 16-bit factors by tensor cores, device/product_mma.h: what is printed are its
// sizes and its tiles.
#include "ridge/backend/cuda/kernel_text.h"
#include "ridge/backend/cuda/product_form.h"
#include "ridge/backend/cuda/scalar_text.h"
#include "ridge/graph/ops/fused_matmul.h"
#include "ridge/graph/ops/matmul.h"

namespace ridge::cuda {
namespace {

// The model of cut_product(): an H200.
constexpr int64_t kMultiprocessors = 132;
constexpr double kBytesPerNs = 4300.0, kLaunchNs = 2500.0;
// What a block spends on a tile but for the products: where a loop reads other tensors it waits for
// them, unless another block has work meanwhile.
constexpr double kTaskNs = 700.0, kLoopNs = 2500.0;
// A multiprocessor with one block of several that it has room for does so much of what it could.
constexpr double kAlone = 0.6;
// What the sums of all parts may take, and the least steps of one.
constexpr int64_t kMostPartBytes = int64_t{64} << 20, kFewestSteps = 8;
constexpr int64_t kMostSize = int64_t{1} << 30;

int64_t tiles_of(const ProductSize& size, const ProductForm& form) {
  return size.batches * ceil_div(size.m, form.rows) * ceil_div(size.n, form.columns);
}

// Nanoseconds.
double time_of(const ProductSize& size, const ProductCut& cut) {
  const ProductForm& form = cut.form;
  const int64_t tasks = tiles_of(size, form) * cut.parts;
  const double flops = 2.0 * static_cast<double>(form.rows * form.columns * form.kDepth) *
                       static_cast<double>(cut.part_steps(size.k));
  const double task = flops * static_cast<double>(kMultiprocessors) / (form.rate * 1e3);
  const auto turns = static_cast<double>(ceil_div(tasks, kMultiprocessors));
  const double time =
      std::max(turns, kAlone * static_cast<double>(form.per_multiprocessor)) * task +
      turns * (size.has_loop ? kLoopNs : kTaskNs) / static_cast<double>(form.per_multiprocessor);
  if (cut.parts == 1) return time;
  const auto bytes =
      static_cast<double>(size.batches * size.m * size.n * (cut.parts * 8 + size.result_bytes));
  return time + kLaunchNs + bytes / kBytesPerNs;
}

}  // namespace

int64_t ProductCut::part_steps(int64_t k) const {
  return ceil_div(ceil_div(k, ProductForm::kDepth), parts);
}

ProductCut cut_product(const ProductSize& size) {
  const int64_t steps = ceil_div(size.k, ProductForm::kDepth);
  const int64_t sum_bytes = size.batches * size.m * size.n * 4;
  ProductCut best{kProductForms[0]};
  double least = time_of(size, best);
  for (const ProductForm& form : kProductForms)
    for (int64_t wished = 1; wished * kFewestSteps <= steps || wished == 1; ++wished) {
      // Parts of nearly equal length, of which none is empty.
      ProductCut cut{form, wished};
      cut.parts = ceil_div(steps, cut.part_steps(size.k));
      if (cut.parts > 1 && cut.parts * sum_bytes > kMostPartBytes) break;
      if (const double time = time_of(size, cut); time < least) best = cut, least = time;
    }
  return best;
}

namespace {

// The product of a node, alone or with a loop.
const MatMul& product_of(const Node& node) {
  return node.is<MatMul>() ? node.op_as<MatMul>() : node.op_as<FusedMatMul>().product;
}

class ProductPrinter {
 public:
  explicit ProductPrinter(const Node& node) : node_(node), op_(product_of(node)), text_(node) {
    const TensorType a = node.inputs[0].type(), b = node.inputs[1].type();
    const TensorType y = op_.infer(std::vector<TensorType>{a, b})[0];
    dtype_ = a.dtype;
    if (size_of(dtype_) != 2) throw Refused{fmt::format("has factors of {}", name_of(dtype_))};
    const size_t rank = y.shape.size();
    size_.m = y.shape[rank - 2], size_.n = y.shape[rank - 1];
    size_.k = a.shape[rank - (op_.transpose_a ? 2 : 1)];
    size_.batches = y.elements() / (size_.m * size_.n);
    for (const TensorType& each : node.outputs)
      size_.result_bytes += static_cast<int64_t>(size_of(each.dtype));
    size_.has_loop = has_loop();
    // Places are numbers of 32 bits.
    for (const int64_t each : {size_.m, size_.n, size_.k})
      if (each > kMostSize) throw Refused{fmt::format("has a size of {}", each)};
    if (tiles_of(size_, kProductForms[2]) > kMostSize) throw Refused{"has more than 2^30 tiles"};
  }

  const ProductSize& size() const { return size_; }
  ProductCut cut() const { return cut_product(size_); }

  PrintedKernel print(const ProductCut& cut) {
    cut_ = cut;
    text_.include("product_mma.h");
    text_.declare(shape_text());
    if (has_loop()) add_loop();
    const ProductForm& form = cut_.form;
    const std::string a = text_.input(0), b = text_.input(1);
    const size_t at = is_cut() ? text_.take(sum_bytes()) : 0;
    text_.lines.line("multiply_mma<{}_shape>({}, {}, {});",
                     KernelText::kName,
                     a,
                     b,
                     is_cut() ? store_text("float", parts(at)) : finish_text());
    text_.finish("",
                 tiles_of(size_, form) * cut_.parts,
                 form.threads(),
                 static_cast<size_t>(form.shared_bytes()),
                 static_cast<uint32_t>(form.per_multiprocessor));
    if (is_cut()) {
      const std::string from = parts(at);
      text_.lines.line("add_parts<{}_shape>({}, {});", KernelText::kName, from, finish_text());
      text_.finish("_sum", ceil_div(elements(), kThreads * run()), kThreads);
    }
    PrintedKernel made = text_.result(
        "matmul_mma" + loop_.ops,
        fmt::format("{} of {} x {} x {} (M x N x K), by tensor cores, tiles of {} x {}, {} parts.",
                    size_.batches,
                    size_.m,
                    size_.n,
                    size_.k,
                    form.rows,
                    form.columns,
                    cut_.parts));
    made.same_bits = false;
    return made;
  }

 private:
  bool has_loop() const { return node_.is<FusedMatMul>(); }
  bool is_cut() const { return cut_.parts > 1; }
  int64_t elements() const { return size_.batches * size_.m * size_.n; }
  size_t sum_bytes() const { return static_cast<size_t>(elements() * cut_.parts) * sizeof(float); }
  // The sums of all parts, as a parameter.
  std::string parts(size_t at) { return text_.workspace(at, "float", "parts"); }
  // What is done with sums.
  static std::string store_text(std::string_view type, std::string_view to) {
    return fmt::format("StoreSums<{}>{{{}}}", type, to);
  }
  std::string finish_text() {
    if (!has_loop()) return store_text(stored_type(node_.outputs[0].dtype), text_.output(0));
    std::vector<std::string> pointers;
    for (const size_t number : loop_.inputs) pointers.push_back(text_.input(number + 1));
    for (size_t i = 0; i < node_.outputs.size(); ++i) pointers.push_back(text_.output(i));
    return fmt::format("{}_loop{{{}}}", KernelText::kName, fmt::join(pointers, ", "));
  }

  // The loop as what finishes the sums (device/product_mma.h). Its pointers have the numbers of its
  // own inputs.
  void add_loop() {
    const FusedBody& body = read_body(node_.op_as<FusedMatMul>().loop);
    loop_ = print_around_product(body, run());
    text_.needs_functions = text_.needs_functions || loop_.needs_functions;
    text_.needs_random = text_.needs_random || loop_.needs_random;
    std::vector<std::string> members, reads;
    for (const PackText::Read& each : loop_.reads) {
      members.push_back(each.member + ";");
      reads.push_back(each.text);
    }
    Lines lines(0);
    lines.open("struct {}_loop", KernelText::kName);
    for (const size_t number : loop_.inputs)
      lines.line("const {}* in{};", stored_type(node_.inputs[number + 1].dtype()), number);
    for (size_t i = 0; i < node_.outputs.size(); ++i)
      lines.line("{}* out{};", stored_type(node_.outputs[i].dtype), i);
    lines.line("struct Read {{ {} }};", fmt::join(members, " "));
    lines.line(
        "Read read({} i) const {{ return {{{}}}; }}", loop_.index_type, fmt::join(reads, ", "));
    lines.open("void operator()({} i, const Pack<float, {}>& p0, const Read& from) const",
               loop_.index_type,
               run());
    lines.add(loop_.lines);
    lines.close();
    lines.close();
    text_.declare("\n" + lines.text().substr(0, lines.text().size() - 1) + ";\n");
  }

  // Bytes that are copied at once, of lines of so many elements.
  static int64_t bytes_at_once(int64_t line) {
    int64_t bytes = 16;
    while (line * 2 % bytes != 0) bytes /= 2;
    return bytes;
  }
  int64_t run() const { return size_.n % 4 == 0 ? 4 : size_.n % 2 == 0 ? 2 : 1; }

  std::string shape_text() const {
    const ProductForm& form = cut_.form;
    const int64_t steps = cut_.part_steps(size_.k);
    Lines lines(0);
    lines.open("struct {}_shape", KernelText::kName);
    lines.line("using Element = {};", stored_type(dtype_));
    lines.line("using Index = {};", index_type_of(elements() * cut_.parts));
    lines.line("static constexpr int64_t kBatches = {}, kM = {}, kN = {}, kK = {};",
               size_.batches,
               size_.m,
               size_.n,
               size_.k);
    lines.line("static constexpr bool kTransposeA = {}, kTransposeB = {};",
               op_.transpose_a,
               op_.transpose_b);
    lines.line("static constexpr int kTileRows = {}, kTileColumns = {};", form.rows, form.columns);
    lines.line("static constexpr int kWarpRows = {}, kWarpColumns = {};",
               form.warp_rows,
               form.warp_columns);
    lines.line("static constexpr int kDepth = {}, kStages = {}, kSharedBytes = {};",
               form.kDepth,
               form.stages,
               form.shared_bytes());
    lines.line("static constexpr int kPartSteps = {}, kParts = {};", steps, cut_.parts);
    lines.line("static constexpr int kBytesA = {}, kBytesB = {}, kRun = {};",
               bytes_at_once(op_.transpose_a ? size_.m : size_.k),
               bytes_at_once(op_.transpose_b ? size_.k : size_.n),
               run());
    lines.close();
    return "\n" + lines.text().substr(0, lines.text().size() - 1) + ";\n";
  }

  const Node& node_;
  const MatMul& op_;
  KernelText text_;
  PackText loop_;
  DType dtype_ = DType::kBF16;
  ProductSize size_{};
  ProductCut cut_{};
};

}  // namespace

std::optional<PrintedKernel> print_matmul_mma(const Node& node) {
  if (!node.is<MatMul>() && !node.is<FusedMatMul>()) return std::nullopt;
  ProductPrinter printer(node);
  return printer.print(printer.cut());
}

bool is_faster_joined(const Node& node) {
  constexpr double kLibraryRate = 750.0;  // TFLOP/s
  const ProductPrinter printer(node);
  const ProductSize& size = printer.size();
  const auto elements = static_cast<double>(size.batches * size.m * size.n);
  const double apart = 2.0 * elements * static_cast<double>(size.k) / (kLibraryRate * 1e3) +
                       elements * 2 * 2 / kBytesPerNs + kLaunchNs;
  return time_of(size, printer.cut()) < apart;
}

PrintedKernel print_product(const Node& node, const ProductCut& cut) {
  return ProductPrinter(node).print(cut);
}

}  // namespace ridge::cuda
