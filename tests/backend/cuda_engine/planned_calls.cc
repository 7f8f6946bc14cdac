#include "tests/backend/cuda_engine/planned_calls.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cctype>

#include "ridge/backend/cuda/blas_epilogue.h"
#include "ridge/backend/cuda/plain_nodes.h"
#include "ridge/base/alignment.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/fused_matmul.h"
#include "ridge/graph/ops/source.h"
#include "tests/backend/cuda_kernels/test_limits.h"

namespace ridge::test {
namespace {

// "memory5+0" is of memory5.
std::string memory_of(const std::string& place) { return place.substr(0, place.find('+')); }

std::string offset(const std::string& memory, int64_t bytes) {
  return fmt::format("{}+{}", memory, bytes);
}

// A data slot in the arena, and where it lies there: by it the arena's address is known.
const void* find_arena(const Program& program) {
  const Plan& plan = program.plan();
  for (size_t entry = 0; entry < plan.entries.size(); ++entry) {
    for (const PlanSlot& slot : plan.entries[entry].inputs)
      if (slot.place.region == Region::kArena)
        return static_cast<const std::byte*>(program.input(entry, slot.name).address) -
               slot.place.offset;
    for (const PlanSlot& slot : plan.entries[entry].outputs)
      if (slot.place.region == Region::kArena)
        return static_cast<const std::byte*>(program.output(entry, slot.name).address) -
               slot.place.offset;
  }
  return nullptr;
}

}  // namespace

PlannedCalls::PlannedCalls(Program& program, const FakeCuda& fake, Capture capture, Caller caller)
    : program_(program),
      fake_(fake),
      captures_(capture != Capture::kOff),
      calls_(caller == Caller::kPlannedCalls),
      runs_(program.entries().size()),
      state_(memory_of(fake.place_of(program.state().base()))),
      arena_base_(find_arena(program)) {
  arena_ = memory_of(fake.place_of(arena_base_));
  for (size_t entry = 0; entry < program.entries().size(); ++entry) {
    add_launches(entry);
    launches_.push_back(std::move(lines_));
    lines_.clear();
  }
}

std::string PlannedCalls::place(Region region, int64_t at) const {
  return offset(region == Region::kState ? state_ : arena_, at);
}

// ---- inputs and results ----

// To its place in the slot that is filled; the first waits until the slot was taken from.
void PlannedCalls::stage(DataSlot slot, const std::string& from) {
  if (pieces_.empty()) add(fmt::format("cuStreamWaitEvent $copies$ $taken{}$", slot_));
  const int64_t half = program_.plan().staging_bytes / 2;
  add(fmt::format("cuMemcpyHtoDAsync_v2 {} from {}, {} bytes, $copies$",
                  offset("$staging$", slot_ * half + slot.staging),
                  from,
                  slot.bytes));
  const std::string to = fake_.place_of(slot.address);
  const int64_t at = std::stoll(to.substr(to.find('+') + 1));
  const auto bytes = static_cast<int64_t>(slot.bytes);
  if (!pieces_.empty()) {
    Piece& last = pieces_.back();
    if (last.to == memory_of(to) && last.at + last.bytes == at &&
        last.staging + last.bytes == slot.staging) {
      last.bytes += bytes;
      return;
    }
  }
  pieces_.push_back({memory_of(to), at, slot.staging, bytes});
}

void PlannedCalls::write(DataSlot slot, const void* host) {
  if (calls_) program_.write(slot, host);
  stage(slot, fake_.place_of(host));
}

void PlannedCalls::write_scalars(DataSlot slot, const void* host) {
  if (calls_) program_.write_scalars(slot, host);
  stage(slot, fmt::format("$scalars{}$+{}", slot_, scalar_bytes_));
  scalar_bytes_ += aligned_bytes(slot.bytes);
}

void PlannedCalls::write_rows(DataSlot slot, const void* host, size_t row_bytes, size_t row_step) {
  if (calls_) program_.write_rows(slot, host, row_bytes, row_step);
  if (!has_packed_)  // once: the memory to pack into
    for (int i = 0; i < 2; ++i)
      add(fmt::format(
          "cuMemHostAlloc {} bytes = $packed{}$", program_.plan().staging_bytes / 2, i));
  has_packed_ = true;
  stage(slot, fmt::format("$packed{}$+{}", slot_, slot.staging));
}

// From the slot to the arena, once it is there and what is read from the arena was read.
void PlannedCalls::take() {
  if (is_reading_) {
    add("cuEventRecord $read$ $copies$");
    add("cuStreamWaitEvent $compute$ $read$");
    is_reading_ = false;
  }
  if (pieces_.empty()) return;
  add(fmt::format("cuEventRecord $copied{}$ $copies$", slot_));
  add(fmt::format("cuStreamWaitEvent $compute$ $copied{}$", slot_));
  const int64_t half = program_.plan().staging_bytes / 2;
  for (const Piece& piece : pieces_)
    add(fmt::format("cuMemcpyDtoDAsync_v2 {} from {}, {} bytes, $compute$",
                    offset(piece.to, piece.at),
                    offset("$staging$", slot_ * half + piece.staging),
                    piece.bytes));
  add(fmt::format("cuEventRecord $taken{}$ $compute$", slot_));
}

void PlannedCalls::run(size_t entry) {
  if (calls_) program_.run(entry);
  const int64_t before = runs_.at(entry)++;
  const bool is_recorded = captures_ && before == 1, is_replayed = captures_ && before > 1;
  take();
  const std::vector<std::string>& launches = launches_.at(entry);
  if (is_recorded) {
    // How much memory it takes is looked at.
    add("cuMemGetInfo_v2");
    add("cuStreamBeginCapture_v2 $compute$");
  }
  if (!is_replayed) lines_.insert(lines_.end(), launches.begin(), launches.end());
  if (is_recorded) {
    add(fmt::format("cuStreamEndCapture $compute$ = $graph{}$", entry));
    add("cuGraphGetNodes");
    add(fmt::format("cuGraphInstantiateWithFlags $graph{0}$ = $exec{0}$ of {1} nodes in a row",
                    entry,
                    launches.size()));
    add("cuCtxSetCurrent");
    add(fmt::format("cuGraphDestroy $graph{}$", entry));
  }
  if (is_recorded || is_replayed) add(fmt::format("cuGraphLaunch $exec{}$ $compute$", entry));
  if (is_recorded) add("cuMemGetInfo_v2");
  // The host goes no farther ahead than two runs.
  if (!copied_before_.empty()) add("cuEventSynchronize " + copied_before_);
  copied_before_.clear();
  if (pieces_.empty()) return;
  copied_before_ = fmt::format("$copied{}$", slot_);
  slot_ = 1 - slot_;
  pieces_.clear();
  scalar_bytes_ = 0;
}

void PlannedCalls::read_from(const std::string& from, size_t bytes, const std::string& to) {
  if (!is_reading_) {
    add("cuEventRecord $computed$ $compute$");
    add("cuStreamWaitEvent $copies$ $computed$");
    is_reading_ = true;
  }
  add(fmt::format("cuMemcpyDtoHAsync_v2 {} from {}, {} bytes, $copies$", to, from, bytes));
}

void PlannedCalls::read(DataSlot slot, const std::string& to, void* host) {
  if (calls_) program_.read(slot, host);
  read_from(fake_.place_of(slot.address), slot.bytes, to);
}

void PlannedCalls::read(const PlanSlot& state, const std::string& to, void* host) {
  if (calls_) program_.read(state, host);
  read_from(place(state.place), static_cast<size_t>(state.place.bytes), to);
}

// Both streams, and behind the work of each what kernels have found wrong.
void PlannedCalls::synchronize() {
  if (calls_) program_.synchronize();
  for (const char* stream : {"$compute$", "$copies$"}) {
    if (faults_ > 0)
      add(fmt::format(
          "cuMemcpyDtoHAsync_v2 $found$+0 from $faults$+0, {} bytes, {}", 16 * faults_, stream));
    add(fmt::format("cuStreamSynchronize {}", stream));
  }
  is_reading_ = false;
}

// ---- launches ----

void PlannedCalls::add_launches(size_t entry) {
  const EntryPlan& plan = program_.plan().entries[entry];
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const Node& node =
        *program_.entries()[entry].nodes().at(static_cast<size_t>(plan.steps[i].node));
    add_step(node, plan.steps[i], fmt::format("{}of{}", i, entry));
  }
}

void PlannedCalls::add_step(const Node& node, const PlanStep& step, const std::string& id) {
  std::vector<std::string> inputs, outputs;
  for (const Place& each : step.inputs) inputs.push_back(place(each));
  for (const Place& each : step.outputs) outputs.push_back(place(each));
  const int64_t bytes = step.outputs.at(0).bytes;
  if (step.choice_name.starts_with("printed")) {
    const std::string memory = step.workspace.region == Region::kState ? state_ : arena_;
    add_printed(step.choice_name == "printed_mma"      ? cuda::print_mma_kernel(node, kH200)
                : step.choice_name == "printed_approx" ? cuda::print_approx_kernel(node, kH200)
                                                       : cuda::print_kernel(node, kH200),
                inputs,
                outputs,
                memory,
                step.workspace.offset);
  } else if (step.choice_name == "copy") {
    if (inputs[0] == outputs[0]) return;  // it lies where it has to be
    add(fmt::format("cuMemcpyDtoDAsync_v2 {} from {}, {} bytes, $compute$",
                    outputs[0],
                    inputs[0],
                    node.outputs[0].bytes()));
  } else if (step.choice_name == "fill") {
    add(fmt::format("cuMemsetD8Async {} to {}, {} bytes, $compute$",
                    outputs[0],
                    cuda::byte_of_constant(node).value(),
                    bytes));
  } else if (step.choice_name == "stored") {
    add(fmt::format(
        "cuMemcpyDtoDAsync_v2 {} from $constant{}$+0, {} bytes, $compute$", outputs[0], id, bytes));
  } else if (step.choice_name.starts_with("cublaslt")) {
    add_product(node, step);
  } else {
    ADD_FAILURE() << step.site << ": what is launched for '" << step.choice_name << "'?";
  }
}

void PlannedCalls::add_printed(const cuda::Printing& printing,
                               const std::vector<std::string>& inputs,
                               const std::vector<std::string>& outputs,
                               const std::string& workspace,
                               int64_t workspace_at) {
  using cuda::KernelOperand;
  ASSERT_TRUE(printing.kernel.has_value()) << printing.refusal;
  bool checks_indices = false;
  for (const cuda::KernelLaunch& launch : printing.kernel->launches) {
    std::string line = fmt::format("cuLaunchKernel {} <<<{},1,1; {},1,1; {}>>>(",
                                   launch.entry,
                                   launch.blocks,
                                   launch.threads,
                                   launch.shared_bytes);
    for (size_t i = 0; i < launch.operands.size(); ++i) {
      const KernelOperand& operand = launch.operands[i];
      if (i > 0) line += ", ";
      if (operand.kind == KernelOperand::kInput) line += inputs.at(operand.at);
      if (operand.kind == KernelOperand::kOutput) line += outputs.at(operand.at);
      if (operand.kind == KernelOperand::kWorkspace)
        line += offset(workspace, workspace_at + static_cast<int64_t>(operand.at));
      if (operand.kind == KernelOperand::kFault) {
        // A record a kernel, in the order of the plan.
        line += offset("$faults$", 16 * static_cast<int64_t>(faults_));
        checks_indices = true;
      }
    }
    add(line + ") $compute$");
  }
  faults_ += checks_indices ? 1 : 0;
}

// By the stand-in's kernel. Factors that are rounded are cast into the workspace behind that of the
// algorithm, whose size is in no plan: of the product's, it is what they leave.
void PlannedCalls::add_product(const Node& node, const PlanStep& step) {
  if (node.is<FusedMatMul>()) return add_joint_product(node, step);
  const auto& op = node.op_as<MatMul>();
  std::string a = place(step.inputs[0]), b = place(step.inputs[1]);
  const TensorType types[] = {node.inputs[0].type(), node.inputs[1].type()};
  int64_t own = step.workspace.bytes;
  if (op.round_to != DType::kF32 && op.round_to != types[0].dtype) {
    const auto rounded = [&](const TensorType& type) {
      return static_cast<int64_t>(size_of(op.round_to)) * type.elements();
    };
    own -= aligned_bytes(rounded(types[0])) + rounded(types[1]);
    const int64_t at_a = step.workspace.offset + aligned_bytes(own);
    const std::string to[] = {
        place(step.workspace.region, at_a),
        place(step.workspace.region, at_a + aligned_bytes(rounded(types[0])))};
    const std::string from[] = {a, b};
    for (size_t i = 0; i < 2; ++i) {
      Graph graph("cast");
      const Node& made = *cast(input(graph, "x", types[i]), op.round_to).node;
      add_printed(cuda::print_kernel(made, kH200), {from[i]}, {to[i]}, "", 0);
    }
    a = to[0], b = to[1];
  }
  // Row-major C = A B is column-major C^T = B^T A^T.
  add(fmt::format("cuLaunchKernel cublaslt <<<1,1,1; 1,1,1; 0>>>($*$, {}, {}, {}, {}) $compute$",
                  b,
                  a,
                  place(step.outputs[0]),
                  own > 0 ? place(step.workspace) : "0"));
}

// A product with an epilogue: a bias is rounded into the workspace, behind that of the algorithm.
void PlannedCalls::add_joint_product(const Node& node, const PlanStep& step) {
  const std::optional<cuda::BlasEpilogue> epilogue = cuda::blas_epilogue(node);
  ASSERT_TRUE(epilogue.has_value()) << step.site;
  int64_t own = step.workspace.bytes;
  if (epilogue->bias >= 0) {
    const auto bias = static_cast<size_t>(epilogue->bias);
    const TensorType& type = node.inputs[bias].type();
    const DType to = node.outputs[static_cast<size_t>(epilogue->result)].dtype;
    own -= static_cast<int64_t>(size_of(to)) * type.elements();
    Graph graph("cast");
    const Node& made = *cast(input(graph, "x", type), to).node;
    add_printed(cuda::print_kernel(made, kH200),
                {place(step.inputs[bias])},
                {place(step.workspace.region, step.workspace.offset + own)},
                "",
                0);
  }
  add(fmt::format("cuLaunchKernel cublaslt <<<1,1,1; 1,1,1; 0>>>($*$, {}, {}, {}, {}) $compute$",
                  place(step.inputs[1]),
                  place(step.inputs[0]),
                  place(step.outputs[static_cast<size_t>(epilogue->result)]),
                  own > 0 ? place(step.workspace) : "0"));
}

// ---- the comparison ----

// What stands for a name is one word; the same for the same name, and another for another.
bool PlannedCalls::matches(const std::string& expected, const std::string& line) {
  size_t at = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (expected[i] != '$') {
      if (at >= line.size() || line[at++] != expected[i]) return false;
      continue;
    }
    const size_t end = expected.find('$', i + 1);
    const std::string name = expected.substr(i + 1, end - i - 1);
    const size_t from = at;
    while (at < line.size() && std::isalnum(static_cast<unsigned char>(line[at]))) ++at;
    const std::string word = line.substr(from, at - from);
    i = end;
    if (name == "*") continue;
    if (word.empty() || word == "host" || word == "nothing") return false;
    if (word == state_ || word == arena_) return false;
    const auto known = bound_.try_emplace(name, word).first;
    const auto owner = named_.try_emplace(word, name).first;
    if (known->second != word || owner->second != name) return false;
  }
  return at == line.size();
}

std::string PlannedCalls::difference(const std::vector<std::string>& log) {
  for (size_t i = 0; i < std::max(log.size(), lines_.size()); ++i) {
    const std::string expected = i < lines_.size() ? lines_[i] : "nothing more";
    const std::string line = i < log.size() ? log[i] : "nothing more";
    if (i < log.size() && i < lines_.size() && matches(expected, line)) continue;
    std::string text = fmt::format("call {} of {}:\n", i + 1, log.size());
    for (size_t k = i < 3 ? 0 : i - 3; k < i; ++k) text += fmt::format("  after  {}\n", log[k]);
    text += fmt::format("  is     {}\n  must be {}\n", line, expected);
    for (const auto& [name, word] : bound_)
      if (expected.find("$" + name + "$") != std::string::npos)
        text += fmt::format("  ${}$ is {}\n", name, word);
    return text;
  }
  return {};
}

}  // namespace ridge::test
