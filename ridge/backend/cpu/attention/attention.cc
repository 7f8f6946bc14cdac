// Attention by blocks of queries and keys with a running softmax: no more than a block of scores
// exists at a time. Scores lie transposed, with one query in each lane, so that the bits do not
// depend on the width of a register.
#include "ridge/graph/ops/attention.h"

#include <limits>
#include <utility>

#include "ridge/backend/cpu/attention/attention_operands.h"
#include "ridge/backend/cpu/cpu_kernels.h"
#include "ridge/backend/cpu/workspace.h"
#include "ridge/base/cpu/parallel.h"

namespace ridge::cpu {
namespace {

constexpr int64_t kPanels = 2;  // panels of one task
constexpr int64_t kQueries = kPanels * kAttentionLanes;
constexpr int64_t kKeys = 128;
constexpr int64_t kSlots = 32;  // workspaces: no more tasks than these run at a time

template <typename T>
class BlockedAttention {
 public:
  explicit BlockedAttention(const AttentionShape& shape) : s_(shape), l_(shape.layout) {}

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
      for (int64_t task = slot; task < tasks(); task += slots())
        run_block(args, buffers, task / query_blocks(), task % query_blocks() * kQueries);
    });
  }

 private:
  using Sum = ComputeType<T>;

  struct Slot {
    Sum* scores;                  // (kKeys, kAttentionLanes)
    Sum* queries[kPanels];        // (D, kAttentionLanes)
    Sum* results[kPanels];        // (E, kAttentionLanes)
    AttentionPanel<Sum>* panels;  // (kPanels)
    bool* has_results;            // (kPanels): a block of keys was added
    Sum *rows, *keys, *values;    // rows in f32, where T is 16-bit
    Sum* bias;                    // (kKeys, kAttentionLanes), where there is one
    Sum* bias_rows;               // (kAttentionLanes, kKeys), where T is 16-bit besides
  };

  // The constants of a task: they stay the same over its blocks of keys.
  struct Task {
    const KernelArgs& args;
    const Slot& slot;
    int64_t head;
    int64_t first;  // query

    int64_t query(int64_t panel) const { return first + panel * kAttentionLanes; }
  };

  int64_t query_blocks() const { return (l_.queries + kQueries - 1) / kQueries; }
  int64_t tasks() const { return s_.heads() * query_blocks(); }
  int64_t slots() const { return std::min(tasks(), kSlots); }

  Slot take_slot(Workspace& space) const {
    const auto halves = [&](int64_t elements) {
      return space.take<Sum>(is_half<T> ? elements : 0);
    };
    Slot slot{};
    slot.scores = space.take<Sum>(kKeys * kAttentionLanes);
    for (auto& each : slot.queries) each = space.take<Sum>(l_.depth * kAttentionLanes);
    for (auto& each : slot.results) each = space.take<Sum>(l_.width * kAttentionLanes);
    slot.panels = space.take<AttentionPanel<Sum>>(kPanels);
    slot.has_results = space.take<bool>(kPanels);
    slot.rows = halves(kAttentionLanes * padded(std::max(l_.depth, l_.width)));
    slot.keys = halves(kKeys * padded(l_.depth));
    slot.values = halves(kKeys * padded(l_.width));
    const int64_t bias = s_.bias_input != 0 ? kKeys * kAttentionLanes : 0;
    slot.bias = space.take<Sum>(bias);
    slot.bias_rows = halves(bias);
    return slot;
  }

  HeadRows<const T> rows(const KernelArgs& args,
                         size_t i,
                         const HeadLayout& layout,
                         int64_t head) const {
    const size_t input = s_.is_packed ? 0 : i;
    return {static_cast<const T*>(args.inputs[input]), layout, l_.heads, head};
  }

  int64_t queries_of(const Task& task, int64_t panel) const {
    return std::min(kAttentionLanes, l_.queries - task.query(panel));
  }

  void run_block(const KernelArgs& args, const Slot& slot, int64_t head, int64_t first) const {
    const Task task{args, slot, head, first};
    const HeadRows<const T> q = rows(args, 0, l_.q, head), k = rows(args, 1, l_.k, head),
                            v = rows(args, 2, l_.v, head);
    int64_t panels = 0;
    for (; panels < kPanels && task.query(panels) < l_.queries; ++panels)
      begin_panel(task, q, panels);
    const int64_t end = s_.end_of_keys(std::min(l_.queries, task.query(panels)));
    for (int64_t key = 0; key < end; key += kKeys) {
      const int64_t keys = std::min(kKeys, end - key);
      const auto key_rows = wide_rows<T>(k.from(key), keys, l_.depth, false, slot.keys);
      const auto value_rows = wide_rows<T>(v.from(key), keys, l_.width, false, slot.values);
      for (int64_t panel = 0; panel < panels; ++panel)
        attend(task, panel, key, key_rows, value_rows);
    }
    for (int64_t panel = 0; panel < panels; ++panel) end_panel(task, panel);
  }

  void begin_panel(const Task& task, HeadRows<const T> q, int64_t panel) const {
    const int64_t queries = queries_of(task, panel);
    fill_panel(wide_rows<T>(q.from(task.query(panel)), queries, l_.depth, false, task.slot.rows),
               queries,
               l_.depth,
               task.slot.queries[panel]);
    AttentionPanel<Sum>& state = task.slot.panels[panel];
    std::fill_n(state.max, kAttentionLanes, -std::numeric_limits<Sum>::infinity());
    std::fill_n(state.sum, kAttentionLanes, Sum(0));
    std::fill_n(state.has_key, kAttentionLanes, s_.mask_input == 0);
    task.slot.has_results[panel] = false;
  }

  // Adds a block of keys to what a panel has seen.
  void attend(const Task& task,
              int64_t panel,
              int64_t key,
              HeadRows<const Sum> key_rows,
              HeadRows<const Sum> value_rows) const {
    const Slot& slot = task.slot;
    const int64_t query = task.query(panel), queries = queries_of(task, panel);
    const int64_t keys = std::min(kKeys, s_.end_of_keys(query + queries) - key);
    if (keys <= 0 || s_.forbids(task.args, task.head, query, queries, key, keys)) return;
    const auto& kernels = attention_kernels(Sum{});
    AttentionProduct<Sum> product{.a = key_rows.first,
                                  .a_row = key_rows.stride,
                                  .a_step = 1,
                                  .b = slot.queries[panel],
                                  .b_row = kAttentionLanes,
                                  .c = slot.scores,
                                  .c_row = kAttentionLanes,
                                  .rows = keys,
                                  .cols = padded(queries),
                                  .depth = l_.depth,
                                  .result = AttentionProduct<Sum>::kScale,
                                  .scale = static_cast<Sum>(s_.scale),
                                  .factors = nullptr};
    kernels.multiply(product);

    AttentionScores<Sum> scores = s_.template scores<Sum>(task.args, task.head, query, key);
    scores.scores = slot.scores;
    scores.stride = kAttentionLanes;
    scores.keys = keys;
    scores.queries = queries;
    if (s_.bias_input != 0) scores.bias = fill_bias(task, query, queries, key, keys);
    kernels.softmax(scores, slot.panels[panel]);

    product.a = value_rows.first;
    product.a_row = 1;
    product.a_step = value_rows.stride;
    product.b = slot.scores;
    product.c = slot.results[panel];
    product.rows = l_.width;
    product.depth = keys;
    product.result = std::exchange(slot.has_results[panel], true) ? AttentionProduct<Sum>::kRescale
                                                                  : AttentionProduct<Sum>::kScale;
    product.scale = Sum(1);
    product.factors = slot.panels[panel].shrink;
    kernels.multiply(product);
  }

  // The bias of a panel's queries for a block of keys, laid out as their scores are.
  const Sum* fill_bias(
      const Task& task, int64_t query, int64_t queries, int64_t key, int64_t keys) const {
    const HeadRows<const T> rows(static_cast<const T*>(task.args.inputs[s_.bias_input]) +
                                     s_.mask_offset(task.head, query, key),
                                 s_.mask_query);
    fill_panel(wide_rows<T>(rows, queries, keys, false, task.slot.bias_rows),
               queries,
               keys,
               task.slot.bias);
    return task.slot.bias;
  }

  void end_panel(const Task& task, int64_t panel) const {
    const int64_t query = task.query(panel), queries = queries_of(task, panel);
    Sum* results = task.slot.results[panel];
    if (!task.slot.has_results[panel]) std::fill_n(results, l_.width * kAttentionLanes, Sum(0));
    alignas(64) Sum logsumexp[kAttentionLanes];
    attention_kernels(Sum{}).finish(task.slot.panels[panel], results, l_.width, logsumexp);
    const HeadRows<T> y(static_cast<T*>(task.args.outputs[0]), l_.y, l_.heads, task.head);
    store_panel<T>(results, queries, l_.width, y.from(query), task.slot.rows);
    std::copy_n(logsumexp,
                queries,
                static_cast<Sum*>(task.args.outputs[1]) + task.head * l_.queries + query);
  }

  AttentionShape s_;
  AttentionLayout l_;
};

std::unique_ptr<HostKernel> make_attention(const Node& node) {
  const auto& op = node.op_as<Attention>();
  const AttentionShape shape(op, node, op.operands());
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
