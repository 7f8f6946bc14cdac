// Elementwise ops, activations, casts and selection: one pass over memory.
#include "ridge/graph/ops/elementwise.h"

#include <algorithm>
#include <array>
#include <span>

#include "ridge/backend/cpu/block_kernel.h"
#include "ridge/backend/cpu/cpu_isa.h"
#include "ridge/backend/cpu/cpu_kernels.h"
#include "ridge/backend/cpu/isa/elementwise_kernels.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/graph/ops/activation.h"

namespace ridge::cpu {
namespace {

// Kernel tables are indexed by DType; ElementAt says which type stands where.
static_assert(static_cast<int>(DType::kF64) == 0 && static_cast<int>(DType::kF32) == 1 &&
              static_cast<int>(DType::kF16) == 2 && static_cast<int>(DType::kBF16) == 3 &&
              static_cast<int>(DType::kI64) == 4 && static_cast<int>(DType::kI32) == 5 &&
              static_cast<int>(DType::kI16) == 6 && static_cast<int>(DType::kU16) == 7 &&
              static_cast<int>(DType::kU8) == 8 && static_cast<int>(DType::kI8) == 9 &&
              static_cast<int>(DType::kBool) == 10 && kElements == 11);
static_assert(sizeof(bool) == sizeof(Bool8));

// Elements a thread takes at a time: 64 KiB of f32, and as many cache lines of smaller types.
constexpr int64_t kGrain = 16384;

const char* at(const void* data, int64_t index, size_t size) {
  return static_cast<const char*>(data) + static_cast<size_t>(index) * size;
}

char* at(void* data, int64_t index, size_t size) {
  return static_cast<char*>(data) + static_cast<size_t>(index) * size;
}

// Number and sizes of a node's elements, for its launches.
struct Elements {
  explicit Elements(const Node& node)
      : count(node.outputs[0].elements()),
        in_size(size_of(node.inputs[0].dtype())),
        out_size(size_of(node.outputs[0].dtype)) {}
  int64_t count;
  size_t in_size;
  size_t out_size;
};

UnaryKernel unary_kernel(UnaryOp op, int dtype) {
  return for_isa(avx2::unary_kernels, avx512::unary_kernels).by_op[static_cast<int>(op)][dtype];
}

BinaryKernel binary_kernel(BinaryOp op, int dtype) {
  return for_isa(avx2::binary_kernels, avx512::binary_kernels).by_op[static_cast<int>(op)][dtype];
}

int dtype_index(const Node& node) { return static_cast<int>(node.inputs[0].dtype()); }

void check_kernel(bool found, const Node& node) {
  check_internal(found,
                 "[{}] no kernel for dtype {} at '{}'",
                 node.op->name(),
                 name_of(node.inputs[0].dtype()),
                 node.site.name);
}

// `choose()` gives the kernel of the instruction set in use.
template <typename Choose>
std::unique_ptr<HostKernel> make_one_input(const Node& node, Choose choose) {
  check_kernel(choose() != nullptr, node);
  return std::make_unique<HostKernel>([elements = Elements(node), choose](const KernelArgs& args) {
    const UnaryKernel run = choose();
    parallel_for(elements.count, kGrain, [&](int64_t begin, int64_t end) {
      run(at(args.inputs[0], begin, elements.in_size),
          at(args.outputs[0], begin, elements.out_size),
          end - begin);
    });
  });
}

std::unique_ptr<HostKernel> make_unary(const Node& node) {
  return make_one_input(node, [op = *unary_op(*node.op), dtype = dtype_index(node)] {
    return unary_kernel(op, dtype);
  });
}

std::unique_ptr<HostKernel> make_cast(const Node& node) {
  const int from = dtype_index(node), to = static_cast<int>(node.outputs[0].dtype);
  return make_one_input(node, [from, to] {
    return for_isa(avx2::cast_kernels, avx512::cast_kernels).from_to[from][to];
  });
}

std::unique_ptr<HostKernel> make_binary(const Node& node) {
  const BinaryOp op = *binary_op(*node.op);
  const int dtype = dtype_index(node);
  check_kernel(binary_kernel(op, dtype) != nullptr, node);
  return std::make_unique<HostKernel>([=, elements = Elements(node)](const KernelArgs& args) {
    const BinaryKernel run = binary_kernel(op, dtype);
    parallel_for(elements.count, kGrain, [&](int64_t begin, int64_t end) {
      run(at(args.inputs[0], begin, elements.in_size),
          at(args.inputs[1], begin, elements.in_size),
          at(args.outputs[0], begin, elements.out_size),
          end - begin);
    });
  });
}

std::unique_ptr<HostKernel> make_where(const Node& node) {
  return std::make_unique<HostKernel>([elements = Elements(node)](const KernelArgs& args) {
    const size_t size = elements.out_size;
    const WhereKernel run =
        for_isa(avx2::binary_kernels, avx512::binary_kernels).where[std::countr_zero(size)];
    parallel_for(elements.count, kGrain, [&](int64_t begin, int64_t end) {
      run(static_cast<const Bool8*>(args.inputs[0]) + begin,
          at(args.inputs[1], begin, size),
          at(args.inputs[2], begin, size),
          at(args.outputs[0], begin, size),
          end - begin);
    });
  });
}

const Choice kVectorized{"vectorized"};

// The names of the forms of a list, in its order.
template <class Forms>
constexpr auto names_of() {
  std::array<std::string_view, Forms::kCount> names;
  Forms::for_each([&](int number, auto form) { names[static_cast<size_t>(number)] = form.name(); });
  return names;
}

constexpr auto kUnaryNames = names_of<UnaryForms>();
constexpr auto kBinaryNames = names_of<BinaryForms>();

// One op of the graph has two forms: gelu, and by its field gelu by tanh.
constexpr std::string_view kGeluByTanh = "gelu_tanh";

// The place of the name in the list; nothing where it has none.
template <typename Number>
std::optional<Number> number_of(std::span<const std::string_view> names, std::string_view name) {
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) return std::nullopt;
  return static_cast<Number>(found - names.begin());
}

}  // namespace

std::optional<UnaryOp> unary_op(const Op& op) {
  const auto* gelu = dynamic_cast<const Gelu*>(&op);
  const std::string_view name = gelu != nullptr && gelu->tanh ? kGeluByTanh : op.name();
  return number_of<UnaryOp>(kUnaryNames, name);
}

bool is_function(UnaryOp op) {
  bool is = false;
  UnaryForms::for_each([&](int number, auto form) {
    if (number == static_cast<int>(op)) is = form.kIsFunction;
  });
  return is;
}

std::optional<BinaryOp> binary_op(const Op& op) {
  return number_of<BinaryOp>(kBinaryNames, op.name());
}

std::optional<BlockKernel> block_kernel(const Op& op, DType input, DType output) {
  const int dtype = static_cast<int>(input);
  BlockKernel kernel;
  if (const auto known = unary_op(op)) {
    kernel.unary[0] = avx2::unary_kernels.by_op[static_cast<int>(*known)][dtype];
    kernel.unary[1] = avx512::unary_kernels.by_op[static_cast<int>(*known)][dtype];
    return kernel.unary[0] == nullptr ? std::nullopt : std::optional(kernel);
  }
  if (const auto known = binary_op(op)) {
    kernel.binary[0] = avx2::binary_kernels.by_op[static_cast<int>(*known)][dtype];
    kernel.binary[1] = avx512::binary_kernels.by_op[static_cast<int>(*known)][dtype];
    return kernel.binary[0] == nullptr ? std::nullopt : std::optional(kernel);
  }
  if (dynamic_cast<const Cast*>(&op) != nullptr) {
    const int to = static_cast<int>(output);
    kernel.unary[0] = avx2::cast_kernels.from_to[dtype][to];
    kernel.unary[1] = avx512::cast_kernels.from_to[dtype][to];
    return kernel;
  }
  if (dynamic_cast<const Where*>(&op) != nullptr) {
    const int size = std::countr_zero(size_of(output));
    kernel.where[0] = avx2::binary_kernels.where[size];
    kernel.where[1] = avx512::binary_kernels.where[size];
    return kernel;
  }
  return std::nullopt;
}

void add_elementwise_kernels(KernelTable& table) {
  for (const std::string_view name : kUnaryNames)
    if (name != kGeluByTanh) table.add(name, kVectorized, make_unary);
  for (const std::string_view name : kBinaryNames) table.add(name, kVectorized, make_binary);
  table.add(Cast::kTraits.name, kVectorized, make_cast);
  table.add(Where::kTraits.name, kVectorized, make_where);
}

}  // namespace ridge::cpu
