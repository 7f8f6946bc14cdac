// Fused nodes: bodies without rows in one loop, those with rows pass by pass, and what neither can
// op by op.
#include "ridge/graph/ops/fused.h"

#include <functional>
#include <mutex>
#include <utility>

#include "ridge/backend/cpu/cpu_isa.h"
#include "ridge/backend/cpu/cpu_kernels.h"
#include "ridge/backend/cpu/fused_flat.h"
#include "ridge/backend/cpu/fused_rows.h"
#include "ridge/backend/cpu/fused_rows_code.h"
#include "ridge/base/settings.h"

namespace ridge::cpu {
namespace {

// What runs a node; no `run` where its body has no such kernel.
struct Made {
  std::function<void(const KernelArgs&)> run = nullptr;
  size_t workspace_bytes = 0;
};

template <class Program>
Made made_of(std::shared_ptr<const Program> program) {
  if (!program->is_complete()) return {};
  const size_t bytes = program->workspace_bytes();
  return {[program = std::move(program)](const KernelArgs& args) { program->run(args); }, bytes};
}

Made make_fused(const Node& node, MakeLoop make_loop) {
  const FusedBody& body = read_body(node.op_as<Fused>());
  if (body.domain.columns == 0)
    return made_of(std::make_shared<const FlatProgram>(body, make_loop));
  std::optional<RowPlan> plan = plan_rows(body, make_loop);
  if (!plan) return {};
  auto code = make_loop == make_jit_loop ? RowCode::make(*plan) : nullptr;
  return made_of(std::make_shared<const RowProgram>(std::move(*plan), std::move(code)));
}

// Keeps what it made last: a plan asks whether a node has a kernel, then how many bytes that works
// in, and machine code takes a while to make.
class Maker {
 public:
  explicit Maker(MakeLoop make_loop) : make_loop_(make_loop) {}

  Made make(const Node& node) {
    const std::lock_guard lock(mutex_);
    const std::pair now{isa(), settings().get_bool("cpu.jit")};
    if (op_.lock() != node.op || made_under_ != now) {
      made_ = make_fused(node, make_loop_);
      op_ = node.op;
      made_under_ = now;
    }
    return made_;
  }

 private:
  MakeLoop make_loop_;
  std::mutex mutex_;
  std::weak_ptr<const Op> op_;
  std::pair<Isa, bool> made_under_;
  Made made_;
};

void add_loops(KernelTable& table, std::string name, MakeLoop make_loop) {
  const auto maker = std::make_shared<Maker>(make_loop);
  table.add(
      Fused::kTraits.name,
      {std::move(name)},
      [maker](const Node& node) {
        Made made = maker->make(node);
        check_internal(made.run != nullptr, "no kernel for node '{}'", node.site.name);
        return std::make_unique<HostKernel>(std::move(made.run), made.workspace_bytes);
      },
      [maker](const Node& node) { return maker->make(node).run != nullptr; });
}

}  // namespace

void add_fused_kernels(KernelTable& table, const KernelTable& (*plain)()) {
  add_loops(table, "jit", make_jit_loop);
  add_loops(table, "blocks", make_block_loop);
  table.add(Fused::kTraits.name, {std::string(kExpandedChoice)}, [plain](const Node& node) {
    return make_expanded(node, plain());
  });
}

}  // namespace ridge::cpu
