// The gradient of attention by blocks of queries and keys: the weights of a block are computed
// again from the logsumexp of the forward pass, so that no more than a block of them exists.
//
// A task has one head and a range of its keys. It owns their dk and dv; where a head has several
// ranges, each adds up a dq of its own, and these are summed in order at the end.
#include "ridge/backend/cpu/attention/attention_operands.h"
#include "ridge/backend/cpu/cpu_kernels.h"
#include "ridge/backend/cpu/workspace.h"
#include "ridge/base/cpu/parallel.h"

namespace ridge::cpu {
namespace {

constexpr int64_t kPanels = 2;
constexpr int64_t kQueries = kPanels * kAttentionLanes;  // queries of one block
constexpr int64_t kKeys = kQueries;  // so that ranges of keys begin where blocks of queries do
constexpr int64_t kSlots = 32;       // workspaces: no more tasks than these run at a time
// Heads are cut into ranges of keys until there are so many tasks, but not into shorter ones.
constexpr int64_t kWishedTasks = 16;
constexpr int64_t kShortestRange = 512;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

template <typename T>
class BlockedAttentionGrad {
 public:
  explicit BlockedAttentionGrad(const AttentionShape& shape) : s_(shape), l_(shape.layout) {
    const int64_t wished = ceil_div(kWishedTasks, s_.heads());
    const int64_t ranges = std::min(wished, ceil_div(l_.keys, kShortestRange));
    range_ = ceil_div(ceil_div(l_.keys, ranges), kKeys) * kKeys;
    ranges_ = ceil_div(l_.keys, range_);
  }

  size_t workspace_bytes() const {
    Workspace space(nullptr);
    take_partials(space);
    for (int64_t slot = 0; slot < slots(); ++slot) take_slot(space);
    return space.used();
  }

  void run(const KernelArgs& args) const {
    parallel_for(slots(), 1, [&](int64_t slot, int64_t) {
      Workspace space(args.workspace);
      Sum* partials = take_partials(space);
      for (int64_t before = 0; before < slot; ++before) take_slot(space);
      const Slot buffers = take_slot(space);
      for (int64_t task = slot; task < tasks(); task += slots())
        run_range({args, buffers, partials, task / ranges_, task % ranges_});
    });
    if (ranges_ == 1) return;
    Workspace space(args.workspace);
    const Sum* partials = take_partials(space);
    parallel_for(s_.heads() * query_blocks(), 1, [&](int64_t block, int64_t) {
      sum_partials(args, partials, block / query_blocks(), block % query_blocks() * kQueries);
    });
  }

 private:
  using Sum = ComputeType<T>;
  using Product = AttentionProduct<Sum>;

  struct Slot {
    Sum *weights, *dscores;   // (kKeys, kQueries)
    Sum* q_panels[kPanels];   // (D, kAttentionLanes)
    Sum* dy_panels[kPanels];  // (E, kAttentionLanes)
    Sum* dq_panels[kPanels];  // (D, kAttentionLanes)
    Sum* y_panel;             // (E, kAttentionLanes)
    Sum *logsumexp, *delta;   // (kQueries)
    Sum *q, *dy, *y;          // (kQueries, D or E), where rows must be copied
    Sum *k, *v;               // (kKeys, D or E), where T is 16-bit
    Sum *dk, *dv;             // (range, D or E), where T is 16-bit
    Sum* panel;               // (kAttentionLanes, D or E)
  };

  struct Task {
    const KernelArgs& args;
    const Slot& slot;
    Sum* partials;
    int64_t head;
    int64_t range;
  };

  // Some queries of a task's head.
  struct Block {
    int64_t first;
    int64_t queries;
    HeadRows<const Sum> q, dy;

    int64_t panels() const { return ceil_div(queries, kAttentionLanes); }
    int64_t begin(int64_t panel) const { return panel * kAttentionLanes; }
    int64_t size(int64_t panel) const { return std::min(kAttentionLanes, queries - begin(panel)); }
  };

  // Some keys of it, and how many of them the queries of each panel may see.
  struct Keys {
    int64_t first;
    HeadRows<const Sum> k, v;
    HeadRows<Sum> dk, dv;
    int64_t seen[kPanels];
  };

  int64_t query_blocks() const { return ceil_div(l_.queries, kQueries); }
  int64_t tasks() const { return s_.heads() * ranges_; }
  int64_t slots() const { return std::min(tasks(), kSlots); }

  // One dq (T, D) for each head and range.
  Sum* take_partials(Workspace& space) const {
    return space.take<Sum>(ranges_ == 1 ? 0 : tasks() * l_.queries * l_.depth);
  }
  HeadRows<Sum> partial_rows(Sum* partials, int64_t head, int64_t range) const {
    return {partials + (head * ranges_ + range) * l_.queries * l_.depth, l_.depth};
  }

  Slot take_slot(Workspace& space) const {
    const int64_t depth = padded(l_.depth), width = padded(l_.width);
    const auto copies = [&](int64_t rows, int64_t n, bool needed) {
      return space.take<Sum>(needed ? rows * padded(n) : 0);
    };
    Slot slot{};
    slot.weights = space.take<Sum>(kKeys * kQueries);
    slot.dscores = space.take<Sum>(kKeys * kQueries);
    for (auto& each : slot.q_panels) each = space.take<Sum>(l_.depth * kAttentionLanes);
    for (auto& each : slot.dy_panels) each = space.take<Sum>(l_.width * kAttentionLanes);
    for (auto& each : slot.dq_panels) each = space.take<Sum>(l_.depth * kAttentionLanes);
    slot.y_panel = space.take<Sum>(l_.width * kAttentionLanes);
    slot.logsumexp = space.take<Sum>(kQueries);
    slot.delta = space.take<Sum>(kQueries);
    slot.q = copies(kQueries, l_.depth, needs_copy<T>(l_.depth));
    slot.dy = copies(kQueries, l_.width, needs_copy<T>(l_.width));
    slot.y = copies(kQueries, l_.width, is_half<T>);
    slot.k = copies(kKeys, l_.depth, is_half<T>);
    slot.v = copies(kKeys, l_.width, is_half<T>);
    slot.dk = copies(range_, l_.depth, is_half<T>);
    slot.dv = copies(range_, l_.width, is_half<T>);
    slot.panel = copies(kAttentionLanes, std::max(depth, width), is_half<T>);
    return slot;
  }

  // Rows of input or output i of q, k and v, or of qkv.
  HeadRows<const T> input(const Task& task, size_t i, const HeadLayout& layout) const {
    const auto* tensor = static_cast<const T*>(task.args.inputs[s_.is_packed ? 0 : i]);
    return {tensor, layout, l_.heads, task.head};
  }
  HeadRows<T> output(const KernelArgs& args,
                     int64_t head,
                     size_t i,
                     const HeadLayout& layout) const {
    return {static_cast<T*>(args.outputs[s_.is_packed ? 0 : i]), layout, l_.heads, head};
  }
  // y, logsumexp and dy follow.
  const void* result(const Task& task, size_t i) const {
    return task.args.inputs[(s_.is_packed ? 1 : 3) + i];
  }
  HeadRows<const T> result_rows(const Task& task, size_t i) const {
    return {static_cast<const T*>(result(task, i)), l_.y, l_.heads, task.head};
  }

  void run_range(const Task& task) const {
    const int64_t begin = task.range * range_, end = std::min(l_.keys, begin + range_);
    HeadRows<Sum> dk{task.slot.dk, padded(l_.depth)}, dv{task.slot.dv, padded(l_.width)};
    const HeadRows<T> dk_out = output(task.args, task.head, 1, l_.k).from(begin),
                      dv_out = output(task.args, task.head, 2, l_.v).from(begin);
    if constexpr (!is_half<T>) dk = dk_out, dv = dv_out;
    for (int64_t i = 0; i < end - begin; ++i) {
      std::fill_n(dk.row(i), l_.depth, Sum(0));
      std::fill_n(dv.row(i), l_.width, Sum(0));
    }
    for (int64_t query = s_.causal ? begin : 0; query < l_.queries; query += kQueries)
      run_queries(task, query, begin, end, dk, dv);
    if constexpr (is_half<T>)
      for (int64_t i = 0; i < end - begin; ++i) {
        narrow_row<T>(dk.row(i), dk_out.row(i), l_.depth);
        narrow_row<T>(dv.row(i), dv_out.row(i), l_.width);
      }
  }

  void run_queries(const Task& task,
                   int64_t query,
                   int64_t begin,
                   int64_t end,
                   HeadRows<Sum> dk,
                   HeadRows<Sum> dv) const {
    const Slot& slot = task.slot;
    const Block block = begin_block(task, query);
    end = std::min(end, s_.end_of_keys(query + block.queries));
    for (int64_t key = begin; key < end; key += kKeys) {
      const int64_t count = std::min(kKeys, end - key);
      if (s_.forbids(task.args, task.head, query, block.queries, key, count)) continue;
      Keys keys{.first = key,
                .k = wide_rows<T>(input(task, 1, l_.k).from(key), count, l_.depth, false, slot.k),
                .v = wide_rows<T>(input(task, 2, l_.v).from(key), count, l_.width, false, slot.v),
                .dk = dk.from(key - begin),
                .dv = dv.from(key - begin),
                .seen = {}};
      for (int64_t panel = 0; panel < block.panels(); ++panel) {
        const int64_t last = query + block.begin(panel) + block.size(panel);
        keys.seen[panel] = std::clamp<int64_t>(s_.end_of_keys(last) - key, 0, count);
        differentiate(task, block, keys, panel);
      }
      add_key_gradients(task, block, keys);
    }
    for (int64_t panel = 0; panel < block.panels(); ++panel) end_panel(task, block, panel);
  }

  Block begin_block(const Task& task, int64_t query) const {
    const Slot& slot = task.slot;
    const int64_t queries = std::min(kQueries, l_.queries - query);
    const Block block{
        .first = query,
        .queries = queries,
        .q = wide_rows<T>(input(task, 0, l_.q).from(query), queries, l_.depth, true, slot.q),
        .dy = wide_rows<T>(result_rows(task, 2).from(query), queries, l_.width, true, slot.dy)};
    const auto y = wide_rows<T>(result_rows(task, 0).from(query), queries, l_.width, false, slot.y);
    std::fill_n(slot.logsumexp, kQueries, Sum(0));
    std::copy_n(static_cast<const Sum*>(result(task, 1)) + task.head * l_.queries + query,
                queries,
                slot.logsumexp);
    for (int64_t panel = 0; panel < block.panels(); ++panel) {
      const int64_t from = block.begin(panel), size = block.size(panel);
      fill_panel(block.q.from(from), size, l_.depth, slot.q_panels[panel]);
      fill_panel(block.dy.from(from), size, l_.width, slot.dy_panels[panel]);
      fill_panel(y.from(from), size, l_.width, slot.y_panel);
      attention_kernels(Sum{}).column_products(
          slot.y_panel, slot.dy_panels[panel], l_.width, slot.delta + from);
      std::fill_n(slot.dq_panels[panel], l_.depth * kAttentionLanes, Sum(0));
    }
    return block;
  }

  // The weights of a panel and the gradients of its scores, and what they add to dq.
  void differentiate(const Task& task, const Block& block, const Keys& keys, int64_t panel) const {
    if (keys.seen[panel] == 0) return;
    const Slot& slot = task.slot;
    const auto& kernels = attention_kernels(Sum{});
    const int64_t lane = block.begin(panel);
    Product product{.a = keys.k.first,
                    .a_row = keys.k.stride,
                    .a_step = 1,
                    .b = slot.q_panels[panel],
                    .b_row = kAttentionLanes,
                    .c = slot.weights + lane,
                    .c_row = kQueries,
                    .rows = keys.seen[panel],
                    .cols = padded(block.size(panel)),
                    .depth = l_.depth,
                    .result = Product::kScale,
                    .scale = static_cast<Sum>(s_.scale),
                    .factors = nullptr};
    kernels.multiply(product);
    product.a = keys.v.first;
    product.a_row = keys.v.stride;
    product.b = slot.dy_panels[panel];
    product.c = slot.dscores + lane;
    product.depth = l_.width;
    product.scale = Sum(1);
    kernels.multiply(product);

    AttentionScores<Sum> scores =
        s_.template scores<Sum>(task.args, task.head, block.first + lane, keys.first);
    scores.scores = slot.weights + lane;
    scores.stride = kQueries;
    scores.keys = keys.seen[panel];
    scores.queries = block.size(panel);
    kernels.differentiate(scores,
                          slot.logsumexp + lane,
                          slot.delta + lane,
                          static_cast<Sum>(s_.scale),
                          slot.dscores + lane);

    product.a = keys.k.first;
    product.a_row = 1;
    product.a_step = keys.k.stride;
    product.b = slot.dscores + lane;
    product.b_row = kQueries;
    product.c = slot.dq_panels[panel];
    product.c_row = kAttentionLanes;
    product.rows = l_.depth;
    product.depth = keys.seen[panel];
    product.result = Product::kAdd;
    kernels.multiply(product);
  }

  // Adds the block's terms to dk and dv. The later panels of a block see more keys: keys that the
  // first panels do not see get their sums from the others alone.
  void add_key_gradients(const Task& task, const Block& block, const Keys& keys) const {
    int64_t row = 0;
    for (int64_t panel = 0; panel < block.panels(); ++panel) {
      const int64_t rows = keys.seen[panel] - row;
      if (rows <= 0) continue;
      const int64_t lane = block.begin(panel);
      Product product{.a = task.slot.weights + row * kQueries + lane,
                      .a_row = kQueries,
                      .a_step = 1,
                      .b = block.dy.row(lane),
                      .b_row = block.dy.stride,
                      .c = keys.dv.row(row),
                      .c_row = keys.dv.stride,
                      .rows = rows,
                      .cols = l_.width,
                      .depth = block.queries - lane,
                      .result = Product::kAdd,
                      .scale = Sum(1),
                      .factors = nullptr};
      attention_kernels(Sum{}).multiply(product);
      product.a = task.slot.dscores + row * kQueries + lane;
      product.b = block.q.row(lane);
      product.b_row = block.q.stride;
      product.c = keys.dk.row(row);
      product.c_row = keys.dk.stride;
      product.cols = l_.depth;
      attention_kernels(Sum{}).multiply(product);
      row = keys.seen[panel];
    }
  }

  void end_panel(const Task& task, const Block& block, int64_t panel) const {
    const int64_t query = block.first + block.begin(panel), size = block.size(panel);
    const Sum* dq = task.slot.dq_panels[panel];
    if (ranges_ == 1)
      store_panel<T>(
          dq, size, l_.depth, output(task.args, task.head, 0, l_.q).from(query), task.slot.panel);
    else
      store_panel<Sum>(dq,
                       size,
                       l_.depth,
                       partial_rows(task.partials, task.head, task.range).from(query),
                       nullptr);
  }

  void sum_partials(const KernelArgs& args,
                    const Sum* partials,
                    int64_t head,
                    int64_t query) const {
    const HeadRows<T> dq = output(args, head, 0, l_.q);
    const int64_t end = std::min(l_.queries, query + kQueries), n = l_.depth;
    const int64_t range_size = l_.queries * n;
    const int64_t ranges = s_.causal ? std::min(ranges_, query / range_ + 1) : ranges_;
    constexpr int64_t kPiece = 256;
    Sum sums[kPiece];
    for (; query < end; ++query)
      for (int64_t i = 0; i < n; i += kPiece) {
        const int64_t count = std::min(kPiece, n - i);
        const Sum* from = partials + head * ranges_ * range_size + query * n + i;
        std::copy_n(from, count, sums);
        for (int64_t range = 1; range < ranges; ++range)
          add_row<Sum>(from + range * range_size, sums, count);
        narrow_row<T>(sums, dq.row(query) + i, count);
      }
  }

  AttentionShape s_;
  AttentionLayout l_;
  int64_t range_ = 0;   // keys of a task
  int64_t ranges_ = 0;  // ranges of one head
};

std::unique_ptr<HostKernel> make_attention_grad(const Node& node) {
  const auto& op = node.op_as<AttentionGrad>();
  const AttentionShape shape(op, node, op.operands() + 3);
  return dispatch_float(node.outputs[0].dtype, "attention_grad", [&]<typename T>(TypeTag<T>) {
    const BlockedAttentionGrad<T> gradient(shape);
    const size_t bytes = gradient.workspace_bytes();
    return std::make_unique<HostKernel>([gradient](const KernelArgs& args) { gradient.run(args); },
                                        bytes);
  });
}

}  // namespace

void add_attention_grad_kernels(KernelTable& table) {
  table.add("attention_grad", {"blocked"}, make_attention_grad);
}

}  // namespace ridge::cpu
