// Looking up by index and its transpose, and one-hot vectors.
#include "ridge/graph/ops/gather.h"

#include <algorithm>
#include <cstring>

#include "ridge/backend/cpu/cpu_kernels.h"
#include "ridge/backend/cpu/half_rows.h"
#include "ridge/base/cpu/parallel.h"

namespace ridge::cpu {
namespace {

constexpr int64_t kBlockBytes = 32 << 10;  // bytes of a row that are handled at a time
constexpr int64_t kChunkBytes = 64 << 10;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// A tensor (outer, size, inner) around one axis.
struct AxisView {
  AxisView(const Shape& shape, int64_t axis)
      : outer(numel(Shape(shape.begin(), shape.begin() + axis))),
        size(shape[static_cast<size_t>(axis)]),
        inner(numel(Shape(shape.begin() + axis + 1, shape.end()))) {}
  int64_t outer, size, inner;
};

// Calls body with a null pointer to the type of the indices.
template <typename F>
auto with_index(DType dtype, F&& body) {
  if (dtype == DType::kI32) return body(static_cast<const int32_t*>(nullptr));
  return body(static_cast<const int64_t*>(nullptr));
}

[[noreturn]] void refuse_index(
    std::string_view op, int64_t index, int64_t place, const Shape& shape, int64_t size) {
  Shape position(shape.size());
  for (size_t i = shape.size(); i-- > 0;) {
    position[i] = place % shape[i];
    place /= shape[i];
  }
  throw UserError(fmt::format("[{}] index {} at {} is out of range; expected 0 to {}",
                              op,
                              index,
                              to_string(position),
                              size - 1));
}

// UserError, naming the first by position, unless all indices are in [0, size).
template <typename Index>
void check_range(std::string_view op, const Index* indices, const Shape& shape, int64_t size) {
  parallel_for(numel(shape), 16384, [&](int64_t begin, int64_t end) {
    bool fits = true;
    for (int64_t i = begin; i < end; ++i)
      fits &= static_cast<uint64_t>(int64_t{indices[i]}) < static_cast<uint64_t>(size);
    if (fits) return;
    for (int64_t i = begin; i < end; ++i)
      if (indices[i] < 0 || indices[i] >= size) refuse_index(op, indices[i], i, shape, size);
  });
}

// ---- gather ----

struct GatherRows {
  AxisView x;
  int64_t count;  // number of indices
  int64_t row;    // bytes

  // Copies rows to (outer, count), a block of columns at a time.
  template <typename Index>
  void run(const char* from, const Index* indices, char* to) const {
    const int64_t block = std::min(row, kBlockBytes), blocks = ceil_div(row, block);
    const int64_t grain = std::max<int64_t>(1, kChunkBytes / block);
    parallel_for(x.outer * count * blocks, grain, [&](int64_t begin, int64_t end) {
      int64_t column = begin % blocks, place = begin / blocks % count;
      int64_t outer = begin / blocks / count;
      for (int64_t i = begin; i < end; ++i) {
        const int64_t start = column * block;
        copy(from + (outer * x.size + indices[place]) * row + start,
             to + (outer * count + place) * row + start,
             std::min(block, row - start));
        if (++column < blocks) continue;
        column = 0;
        if (++place < count) continue;
        place = 0;
        ++outer;
      }
    });
  }

  static void copy(const char* from, char* to, int64_t bytes) {
    // Single elements are not worth a call.
    if (bytes == 4)
      std::memcpy(to, from, 4);
    else if (bytes == 8)
      std::memcpy(to, from, 8);
    else
      std::memcpy(to, from, static_cast<size_t>(bytes));
  }
};

std::unique_ptr<HostKernel> make_gather(const Node& node) {
  const TensorType &x = node.inputs[0].type(), &indices = node.inputs[1].type();
  const AxisView view(x.shape, node.op_as<Gather>().axis);
  const GatherRows rows{
      view, indices.elements(), view.inner * static_cast<int64_t>(size_of(x.dtype))};
  return with_index(indices.dtype, [&]<typename Index>(const Index*) {
    return std::make_unique<HostKernel>([rows, shape = indices.shape](const KernelArgs& args) {
      const auto* places = static_cast<const Index*>(args.inputs[1]);
      check_range("gather", places, shape, rows.x.size);
      rows.run(
          static_cast<const char*>(args.inputs[0]), places, static_cast<char*>(args.outputs[0]));
    });
  });
}

// ---- scatter-add ----

// Adds updates (outer, count, inner) to `base` (zeros where it is null) of (outer, size, inner). A
// task owns some columns of one outer slice and adds to them in the order of the indices.
template <typename T>
struct ScatterRows {
  using Sum = ComputeType<T>;
  AxisView y;
  int64_t count;

  template <typename Index>
  void run(const T* updates, const Index* indices, const T* base, T* to, Sum* sums) const {
    const int64_t elements = y.outer * y.size * y.inner;
    if (static_cast<const void*>(base) != sums)
      parallel_for(elements, kChunkBytes, [&](int64_t begin, int64_t end) {
        if (base != nullptr)
          widen_row(base + begin, sums + begin, end - begin);
        else
          std::fill(sums + begin, sums + end, Sum{0});
      });
    add(updates, indices, sums);
    if constexpr (is_half<T>)
      parallel_for(elements, kChunkBytes, [&](int64_t begin, int64_t end) {
        narrow_row(sums + begin, to + begin, end - begin);
      });
  }

  template <typename Index>
  void add(const T* updates, const Index* indices, Sum* sums) const {
    const int64_t block = std::min<int64_t>(y.inner, 256 / static_cast<int64_t>(sizeof(Sum)));
    const int64_t blocks = ceil_div(y.inner, block);
    const int64_t grain = std::max<int64_t>(1, kChunkBytes / (block * count));
    parallel_for(y.outer * blocks, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t start = i % blocks * block, width = std::min(block, y.inner - start);
        const T* from = updates + i / blocks * count * y.inner + start;
        Sum* columns = sums + i / blocks * y.size * y.inner + start;
        for (int64_t k = 0; k < count; ++k)
          add_row(from + k * y.inner, columns + indices[k] * y.inner, width);
      }
    });
  }
};

std::unique_ptr<HostKernel> make_scatter_add(const Node& node) {
  const auto& op = node.op_as<ScatterAdd>();
  const TensorType &indices = node.inputs[1].type(), &y = node.outputs[0];
  return dispatch(y.dtype, [&]<typename T>(TypeTag<T>) -> std::unique_ptr<HostKernel> {
    if constexpr (std::is_same_v<T, bool>) {
      throw InternalError("[scatter_add] no kernel for dtype bool");
    } else {
      const ScatterRows<T> rows{AxisView(y.shape, op.axis), indices.elements()};
      const size_t workspace =
          is_half<T> ? static_cast<size_t>(y.elements()) * sizeof(ComputeType<T>) : 0;
      return with_index(indices.dtype, [&]<typename Index>(const Index*) {
        return std::make_unique<HostKernel>(
            [rows, shape = indices.shape](const KernelArgs& args) {
              const auto* places = static_cast<const Index*>(args.inputs[1]);
              check_range("scatter_add", places, shape, rows.y.size);
              void* sums = is_half<T> ? args.workspace : args.outputs[0];
              const void* base = args.inputs.size() == 3 ? args.inputs[2] : nullptr;
              rows.run(static_cast<const T*>(args.inputs[0]),
                       places,
                       static_cast<const T*>(base),
                       static_cast<T*>(args.outputs[0]),
                       static_cast<ComputeType<T>*>(sums));
            },
            workspace);
      });
    }
  });
}

// ---- one-hot ----

template <typename T, typename Index>
void write_one_hot(const Index* indices, T* to, int64_t count, int64_t depth) {
  const int64_t block = kChunkBytes / static_cast<int64_t>(sizeof(T));
  // Long vectors are cut, so that a few of them still make several chunks.
  const int64_t width = std::min(depth, block), blocks = ceil_div(depth, width);
  parallel_for(
      count * blocks, std::max<int64_t>(1, block / width), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t start = i % blocks * width, stop = std::min(depth, start + width);
          T* row = to + i / blocks * depth;
          std::fill(row + start, row + stop, convert<T>(int64_t{0}));
          const int64_t index = indices[i / blocks];
          if (index >= start && index < stop) row[index] = convert<T>(int64_t{1});
        }
      });
}

std::unique_ptr<HostKernel> make_one_hot(const Node& node) {
  const auto& op = node.op_as<OneHot>();
  const TensorType& indices = node.inputs[0].type();
  const int64_t count = indices.elements(), depth = op.depth;
  return dispatch(op.to, [&]<typename T>(TypeTag<T>) {
    return with_index(indices.dtype, [&]<typename Index>(const Index*) {
      return std::make_unique<HostKernel>([=](const KernelArgs& args) {
        write_one_hot(static_cast<const Index*>(args.inputs[0]),
                      static_cast<T*>(args.outputs[0]),
                      count,
                      depth);
      });
    });
  });
}

// ---- pick ----

std::unique_ptr<HostKernel> make_pick(const Node& node) {
  const TensorType &x = node.inputs[0].type(), &indices = node.inputs[1].type();
  const int64_t n = x.shape.back(), limit = node.op_as<Pick>().columns_of(n);
  const size_t size = size_of(x.dtype);
  return with_index(indices.dtype, [&]<typename Index>(const Index*) {
    return std::make_unique<HostKernel>(
        [n, limit, size, shape = indices.shape](const KernelArgs& args) {
          const auto* places = static_cast<const Index*>(args.inputs[1]);
          check_range("pick", places, shape, limit);
          const auto* from = static_cast<const char*>(args.inputs[0]);
          auto* to = static_cast<char*>(args.outputs[0]);
          for (int64_t r = 0; r < numel(shape); ++r)
            std::memcpy(to + static_cast<size_t>(r) * size,
                        from + static_cast<size_t>(r * n + places[r]) * size,
                        size);
        });
  });
}

}  // namespace

void add_gather_kernels(KernelTable& table) {
  // Rows are copied as bytes: a table of constants stays where it lies.
  const auto table_operand = [](const Node&) {
    return std::vector<PackedOperand>{
        {.input = 0, .layout = "bytes", .pack = nullptr, .only_constants = true}};
  };
  table.add("gather", {"copy_rows"}, make_gather, nullptr, {table_operand, make_gather});
  table.add("scatter_add", {"add_in_order"}, make_scatter_add);
  table.add("one_hot", {"fill"}, make_one_hot);
  table.add("pick", {"copy"}, make_pick);
}

}  // namespace ridge::cpu
