// Fused nodes: bodies without rows in one loop, those with rows pass by pass, and what neither can
// op by op.
#include "ridge/graph/ops/fused.h"

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

#include "ridge/backend/cpu/cpu_isa.h"
#include "ridge/backend/cpu/cpu_kernels.h"
#include "ridge/backend/cpu/loops/fused_flat.h"
#include "ridge/backend/cpu/loops/fused_rows.h"
#include "ridge/backend/cpu/loops/fused_rows_code.h"
#include "ridge/base/settings.h"
#include "ridge/graph/ops/fused_conv.h"
#include "ridge/graph/ops/fused_each.h"
#include "ridge/graph/ops/fused_matmul.h"
#include "ridge/graph/ops/pointwise_depthwise.h"

namespace ridge::cpu {
namespace {

// The code that runs a node; no `run` where its body has no such kernel.
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

// All that a kernel depends on: the body without the sites of its nodes, which layers of a model do
// not share, its rows and columns, and what the machine code may use.
std::string made_from(const Fused& op) {
  std::string key = fmt::format(
      "{} {} {} {}\n", op.rows, op.columns, name_of(isa()), settings().get_bool("cpu.jit"));
  std::string_view rest = op.body;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    key += line.substr(0, line.find(" @ \""));
    key += '\n';
  }
  return key;
}

// Keeps what was made of a body: a plan asks whether a node has a kernel, then how many bytes that
// works in, then for it, layer by layer, and machine code takes a while to make.
template <typename T>
class KeptByBody {
 public:
  template <typename Make>
  T find(const Fused& op, Make make) {
    const std::lock_guard lock(mutex_);
    std::string key = made_from(op);
    const auto known = made_.find(key);
    if (known != made_.end()) return known->second;
    if (made_.size() >= kMostKept) made_.clear();
    return made_.emplace(std::move(key), make()).first->second;
  }

 private:
  static constexpr size_t kMostKept = 256;  // some kilobytes each

  std::mutex mutex_;
  std::map<std::string, T> made_;
};

class Maker {
 public:
  explicit Maker(MakeLoop make_loop) : make_loop_(make_loop) {}
  Made make(const Node& node) {
    return made_.find(node.op_as<Fused>(), [&] { return make_fused(node, make_loop_); });
  }

 private:
  MakeLoop make_loop_;
  KeptByBody<Made> made_;
};

std::shared_ptr<const FlatProgram> make_flat_program(const Fused& op) {
  const FusedBody& body = read_body(op);
  if (body.domain.columns != 0) return nullptr;
  for (const MakeLoop make_loop : {make_jit_loop, make_block_loop}) {
    auto program = std::make_shared<const FlatProgram>(body, make_loop);
    if (program->is_complete()) return program;
  }
  return nullptr;
}

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

std::shared_ptr<const FlatProgram> find_flat_program(const Fused& op) {
  static KeptByBody<std::shared_ptr<const FlatProgram>> programs;
  return programs.find(op, [&] { return make_flat_program(op); });
}

void add_fused_kernels(KernelTable& table, const KernelTable& (*plain)()) {
  add_loops(table, "jit", make_jit_loop);
  add_loops(table, "blocks", make_block_loop);
  for (const std::string_view op : {Fused::kTraits.name,
                                    FusedEach::kTraits.name,
                                    FusedConv2d::kTraits.name,
                                    FusedMatMul::kTraits.name,
                                    PointwiseDepthwise::kTraits.name})
    table.add(op, {std::string(kExpandedChoice)}, [plain](const Node& node) {
      return make_expanded(node, plain());
    });
}

}  // namespace ridge::cpu
