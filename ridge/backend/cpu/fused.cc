// Fused nodes: bodies without rows in one loop, those with rows pass by pass, and what neither can
// op by op.
#include "ridge/graph/ops/fused.h"

#include "ridge/backend/cpu/cpu_kernels.h"
#include "ridge/backend/cpu/fused_flat.h"
#include "ridge/backend/cpu/fused_rows.h"
#include "ridge/backend/cpu/fused_rows_code.h"

namespace ridge::cpu {
namespace {

template <class Program>
std::unique_ptr<HostKernel> kernel_of(std::shared_ptr<const Program> program) {
  if (!program->is_complete()) return nullptr;
  const size_t bytes = program->workspace_bytes();
  return std::make_unique<HostKernel>(
      [program = std::move(program)](const KernelArgs& args) { program->run(args); }, bytes);
}

// Null where the body has no such kernel.
std::unique_ptr<HostKernel> make_fused(const Node& node, MakeLoop make_loop) {
  const FusedBody& body = read_body(node.op_as<Fused>());
  if (body.domain.columns == 0)
    return kernel_of(std::make_shared<const FlatProgram>(body, make_loop));
  std::optional<RowPlan> plan = plan_rows(body, make_loop);
  if (!plan) return nullptr;
  auto code = make_loop == make_jit_loop ? RowCode::make(*plan) : nullptr;
  return kernel_of(std::make_shared<const RowProgram>(std::move(*plan), std::move(code)));
}

void add_loops(KernelTable& table, std::string name, MakeLoop make_loop) {
  table.add(
      Fused::kTraits.name,
      {std::move(name)},
      [make_loop](const Node& node) { return make_fused(node, make_loop); },
      [make_loop](const Node& node) { return make_fused(node, make_loop) != nullptr; });
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
