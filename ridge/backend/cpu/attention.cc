// Attention by blocks of queries and keys with a running softmax: no more than a block of scores
// exists at a time.
#include "ridge/graph/ops/attention.h"

#include <algorithm>
#include <limits>

#include "ridge/backend/cpu/cpu_kernels.h"
#include "ridge/backend/cpu/gemm.h"
#include "ridge/backend/cpu/half_rows.h"
#include "ridge/backend/cpu/isa/attention_kernels.h"
#include "ridge/backend/cpu/workspace.h"
#include "ridge/base/parallel.h"

namespace ridge::cpu {
namespace {

constexpr int64_t kQueries = 64;
constexpr int64_t kKeys = 128;  // a multiple of kAttentionLanes
constexpr int64_t kSlots = 32;  // workspaces: no more tasks than these run at a time

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

const auto& kernels(float) { return for_isa(avx2::attention_f32, avx512::attention_f32); }
const auto& kernels(double) { return for_isa(avx2::attention_f64, avx512::attention_f64); }

// Where the mask of (batch, head, query) lies, in elements; 0 along an axis that is repeated.
struct MaskStrides {
  int64_t batch = 0, head = 0, query = 0;
};

MaskStrides mask_strides(const Shape& mask) {
  const auto stride = [&](size_t axis, int64_t elements) { return mask[axis] == 1 ? 0 : elements; };
  return {stride(0, mask[1] * mask[2] * mask[3]), stride(1, mask[2] * mask[3]), stride(2, mask[3])};
}

struct AttentionShape {
  int64_t heads;  // of all batches, H of them in each
  int64_t heads_of_batch;
  int64_t queries, keys;  // T, S
  int64_t depth, width;   // D, E
  double scale;
  bool causal;
  bool has_mask;
  MaskStrides mask;
};

template <typename T>
class BlockedAttention {
 public:
  explicit BlockedAttention(const AttentionShape& shape) : s_(shape) {}

  size_t workspace_bytes() const {
    Workspace space(nullptr);
    for (int64_t slot = 0; slot < slots(); ++slot) take_slot(space);
    return space.used();
  }

  void run(const KernelArgs& args) const {
    // Tasks are dealt out in turn, as under a causal mask the later ones have more to do.
    parallel_for(slots(), 1, [&](int64_t slot, int64_t) {
      Workspace space(args.workspace);
      for (int64_t before = 0; before < slot; ++before) take_slot(space);
      const Slot buffers = take_slot(space);
      for (int64_t task = slot; task < tasks(); task += slots()) {
        const int64_t head = task / query_blocks(), first = task % query_blocks() * kQueries;
        run_block(args, buffers, head, first, std::min(kQueries, s_.queries - first));
      }
    });
  }

 private:
  using Sum = ComputeType<T>;

  struct Slot {
    Sum* scores;  // (kQueries, kKeys)
    AttentionRow<Sum>* states;
    Sum *q, *k, *v, *results;  // blocks in f32, where T is 16-bit
    void* gemm_space;
  };

  int64_t query_blocks() const { return ceil_div(s_.queries, kQueries); }
  int64_t tasks() const { return s_.heads * query_blocks(); }
  int64_t slots() const { return std::min(tasks(), kSlots); }

  GemmShape score_shape(int64_t rows, int64_t keys) const {
    return {.m = rows,
            .n = keys,
            .k = s_.depth,
            .transpose_b = true,
            .lda = s_.depth,
            .ldb = s_.depth,
            .ldc = kKeys};
  }
  GemmShape result_shape(int64_t rows, int64_t keys) const {
    return {.m = rows, .n = s_.width, .k = keys, .lda = kKeys, .ldb = s_.width, .ldc = s_.width};
  }

  Slot take_slot(Workspace& space) const {
    const auto halves = [&](int64_t elements) {
      return space.take<Sum>(is_half<T> ? elements : 0);
    };
    const int64_t rows = std::min(kQueries, s_.queries), keys = std::min(kKeys, s_.keys);
    const size_t gemm_bytes =
        std::max(gemm_workspace_bytes(score_shape(rows, keys), dtype_of<Sum>()),
                 gemm_workspace_bytes(result_shape(rows, keys), dtype_of<Sum>()));
    Slot slot{};
    slot.scores = space.take<Sum>(kQueries * kKeys);
    slot.states = space.take<AttentionRow<Sum>>(kQueries);
    slot.q = halves(kQueries * s_.depth);
    slot.k = halves(kKeys * s_.depth);
    slot.v = halves(kKeys * s_.width);
    slot.results = halves(kQueries * s_.width);
    slot.gemm_space = space.take<char>(static_cast<int64_t>(gemm_bytes));
    return slot;
  }

  // The elements in the type of the sums: in place, or widened into the buffer.
  static const Sum* wide(const T* from, Sum* buffer, int64_t elements) {
    if constexpr (is_half<T>) {
      widen_row(from, buffer, elements);
      return buffer;
    } else {
      return from;
    }
  }

  void run_block(
      const KernelArgs& args, const Slot& slot, int64_t head, int64_t first, int64_t rows) const {
    const T* q = static_cast<const T*>(args.inputs[0]) + (head * s_.queries + first) * s_.depth;
    const T* k = static_cast<const T*>(args.inputs[1]) + head * s_.keys * s_.depth;
    const T* v = static_cast<const T*>(args.inputs[2]) + head * s_.keys * s_.width;
    T* y = static_cast<T*>(args.outputs[0]) + (head * s_.queries + first) * s_.width;

    const Sum* queries = wide(q, slot.q, rows * s_.depth);
    Sum* results = is_half<T> ? slot.results : reinterpret_cast<Sum*>(y);
    std::fill_n(
        slot.states, rows, AttentionRow<Sum>{-std::numeric_limits<Sum>::infinity(), 0, false});
    // Under a causal mask the last query sees most.
    const int64_t end = s_.causal ? std::min(s_.keys, first + rows) : s_.keys;
    for (int64_t key = 0; key < end; key += kKeys) {
      const int64_t keys = std::min(kKeys, end - key);
      gemm(score_shape(rows, keys),
           queries,
           wide(k + key * s_.depth, slot.k, keys * s_.depth),
           slot.scores,
           false,
           slot.gemm_space);
      kernels(Sum{}).softmax({.scores = slot.scores,
                              .stride = kKeys,
                              .rows = rows,
                              .keys = keys,
                              .scale = static_cast<Sum>(s_.scale),
                              .mask = mask_of(args, head, first, key),
                              .mask_stride = s_.mask.query,
                              .open_keys = s_.causal ? first + 1 - key : s_.keys,
                              .states = slot.states,
                              .results = results,
                              .width = s_.width});
      gemm(result_shape(rows, keys),
           slot.scores,
           wide(v + key * s_.width, slot.v, keys * s_.width),
           results,
           key > 0,
           slot.gemm_space);
    }
    kernels(Sum{}).finish(results, slot.states, rows, s_.width);
    if constexpr (is_half<T>) narrow_row(results, y, rows * s_.width);
  }

  const uint8_t* mask_of(const KernelArgs& args, int64_t head, int64_t query, int64_t key) const {
    if (!s_.has_mask) return nullptr;
    return static_cast<const uint8_t*>(args.inputs[3]) + head / s_.heads_of_batch * s_.mask.batch +
           head % s_.heads_of_batch * s_.mask.head + query * s_.mask.query + key;
  }

  AttentionShape s_;
};

std::unique_ptr<HostKernel> make_attention(const Node& node) {
  const auto& op = node.op_as<Attention>();
  const Shape &q = node.inputs[0].shape(), &v = node.inputs[2].shape();
  const bool has_mask = node.inputs.size() == 4;
  const AttentionShape shape{
      .heads = q[0] * q[1],
      .heads_of_batch = q[1],
      .queries = q[2],
      .keys = v[2],
      .depth = q[3],
      .width = v[3],
      .scale = op.scale,
      .causal = op.causal,
      .has_mask = has_mask,
      .mask = has_mask ? mask_strides(node.inputs[3].shape()) : MaskStrides{}};
  return dispatch_float(node.outputs[0].dtype, "attention", [&]<typename T>(TypeTag<T>) {
    const BlockedAttention<T> attention(shape);
    const size_t bytes = attention.workspace_bytes();
    return std::make_unique<HostKernel>(
        [attention](const KernelArgs& args) { attention.run(args); }, bytes);
  });
}

}  // namespace

void add_attention_kernels(KernelTable& table) {
  table.add("attention", {"blocked"}, make_attention);
}

}  // namespace ridge::cpu
