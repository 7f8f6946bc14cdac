// Programs with one thing wrong, each beside its healthy twin.
#include <algorithm>
#include <utility>

#include "tests/doctor/synthetic_trace.h"

namespace ridge::doctor::synthetic {
namespace {

using What = Action::What;

// Rates that programs reach on an H200.
constexpr double kBf16Flops = 660e12, kSimtFlops = 48e12, kBytesPerSecond = 4.1e12;
constexpr double kPinnedBytes = 50e9, kPageableBytes = 6e9;
constexpr int64_t kOperatorNs = 9'000;  // of the host, for an operator
constexpr int64_t kWidth = 4096;

constexpr int64_t us(int64_t number) { return number * 1000; }

int64_t ns_at(double amount, double per_second) {
  return static_cast<int64_t>(amount / per_second * 1e9);
}

std::string list_of(const std::vector<std::vector<int64_t>>& shapes) {
  std::string text = "[";
  for (const auto& shape : shapes) {
    text += text.size() > 1 ? ", [" : "[";
    for (size_t i = 0; i < shape.size(); ++i)
      text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
    text += "]";
  }
  return text + "]";
}

std::string types_of(size_t count, const std::string& type) {
  std::string text = "[";
  for (size_t i = 0; i < count; ++i) text += (i > 0 ? ", \"" : "\"") + type + "\"";
  return text + "]";
}

Launch launch_of(int64_t blocks, int32_t threads, int64_t shared = 0) {
  return {.grid = {static_cast<int32_t>(blocks), 1, 1},
          .block = {threads, 1, 1},
          .registers = shared > 0 ? 168 : 32,
          .shared_bytes = shared};
}

// Adds actions, an operator around each kernel.
class Step {
 public:
  explicit Step(Actions& actions) : actions_(actions) {}

  void add(Action action) { actions_.push_back(std::move(action)); }
  void end() { add({.what = What::kEnd}); }
  void range(const std::string& name) { add({.what = What::kBeginRange, .name = name}); }
  void operation(const std::string& name,
                 Action kernel,
                 std::string shapes = {},
                 std::string types = {},
                 int64_t host_ns = kOperatorNs) {
    add({.what = What::kBeginOperator,
         .name = name,
         .host_ns = host_ns,
         .shapes = std::move(shapes),
         .types = std::move(types)});
    add(std::move(kernel));
    end();
  }

  // C (m, n) = A (m, k) B (k, n), at `efficiency` of what the device reaches.
  void gemm(int64_t m, int64_t n, int64_t k, bool is_bf16 = true, double efficiency = 1) {
    const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(n * k);
    const double bytes = 2.0 * static_cast<double>(m * k + k * n + m * n);
    const int64_t ns =
        std::max(ns_at(flops, is_bf16 ? kBf16Flops : kSimtFlops), ns_at(bytes, kBytesPerSecond));
    const int64_t tiles = ((m + 127) / 128) * ((n + 127) / 128);
    operation(
        "aten::mm",
        {.what = What::kLaunch,
         .name = is_bf16 ? "nvjet_tst_128x128_64x4_2x1_v_bz_NNT_" : "ampere_sgemm_128x128_nn_",
         .device_ns = static_cast<int64_t>(static_cast<double>(ns) / efficiency),
         .launch = launch_of(tiles, is_bf16 ? 384 : 256, is_bf16 ? 200000 : 33792)},
        list_of({{m, k}, {k, n}}),
        types_of(2, is_bf16 ? "c10::BFloat16" : "float"));
  }

  // One pass over `bytes`, read and written.
  void elementwise(const std::string& operation_name,
                   const std::string& kernel,
                   int64_t bytes,
                   double efficiency = 1) {
    const int64_t ns = ns_at(static_cast<double>(bytes) / efficiency, kBytesPerSecond);
    operation(operation_name,
              {.what = What::kLaunch,
               .name = "void at::native::" + kernel + "<",
               .device_ns = std::max<int64_t>(ns, 2000),
               .launch = launch_of(std::max<int64_t>(1, bytes / 4096), 128)},
              list_of({{bytes / 4 / kWidth, kWidth}}),
              types_of(1, "c10::BFloat16"));
  }

 private:
  Actions& actions_;
};

// Differences from program to program.
struct Recipe {
  bool is_bf16 = true;
  int64_t layers = 4;
  bool prefetches = true;  // copies of the next batch, on a stream of their own
  int64_t batch_bytes = 4 << 20;
  bool fused_optimizer = true;
  bool fused_elementwise = true;
  bool overlapped_communication = false, communicates = false;
  std::function<void(Step&, int64_t layer)> after_layer = {};
  std::function<void(Step&, int64_t step)> at_start = {};
  std::function<void(Step&, int64_t step)> at_end = {};
};

constexpr int64_t kActivationBytes = 2 * kWidth * kWidth * 2;  // read and written

Action copy_in(int64_t bytes, int64_t stream, bool is_pinned) {
  return {.what = What::kCopy,
          .name = is_pinned ? "Memcpy HtoD (Pinned -> Device)" : "Memcpy HtoD (Pageable -> Device)",
          .device_ns = ns_at(static_cast<double>(bytes), is_pinned ? kPinnedBytes : kPageableBytes),
          .stream = stream,
          .blocks_host = !is_pinned,
          .cause = is_pinned ? HostCause::kOperators : HostCause::kPageable,
          .transfer = {.bytes = bytes,
                       .from = is_pinned ? MemoryKind::kPinned : MemoryKind::kPageable,
                       .to = MemoryKind::kDevice}};
}

void get_batch(Step& step, const Recipe& recipe, int64_t number) {
  step.add({.what = What::kNextBatch, .host_ns = us(20)});
  if (!recipe.prefetches) {
    step.operation("aten::copy_", copy_in(recipe.batch_bytes, kComputeStream, true));
    return;
  }
  // The batch of the next step; this one's was copied in the step before.
  const int64_t now = 10 + number % 2, next = 10 + (number + 1) % 2;
  if (number > 0) step.add({.what = What::kStreamWait, .stream = kComputeStream, .event = now});
  step.operation("aten::copy_", copy_in(recipe.batch_bytes, kCopyStream, true));
  step.add({.what = What::kRecord, .stream = kCopyStream, .event = next});
}

void activation(Step& step, const Recipe& recipe) {
  if (recipe.fused_elementwise) {
    step.elementwise("aten::gelu", "vectorized_elementwise_kernel_gelu", kActivationBytes);
    return;
  }
  for (const char* name : {"aten::mul",
                           "aten::add",
                           "aten::pow",
                           "aten::tanh",
                           "aten::mul",
                           "aten::add",
                           "aten::div",
                           "aten::mul"})
    step.elementwise(name, "vectorized_elementwise_kernel", kActivationBytes);
}

void all_reduce(Step& step, int64_t bytes) {
  step.add({.what = What::kBeginOperator,
            .name = "record_param_comms",
            .host_ns = us(12),
            .bytes = bytes});
  step.add({.what = What::kCollective,
            .name = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)_",
            .device_ns = ns_at(1.75 * static_cast<double>(bytes), 300e9),
            .stream = kCommunicationStream,
            .launch = launch_of(24, 544)});
  step.end();
}

void forward_and_backward(Step& step, const Recipe& recipe) {
  for (int64_t layer = 0; layer < recipe.layers; ++layer) {
    step.gemm(kWidth, kWidth, kWidth, recipe.is_bf16);
    activation(step, recipe);
    if (recipe.after_layer) recipe.after_layer(step, layer);
  }
  const int64_t bucket_bytes = 60 << 20, last_bytes = 4 << 20;
  for (int64_t layer = 0; layer < recipe.layers; ++layer) {
    step.gemm(kWidth, kWidth, kWidth, recipe.is_bf16);
    step.gemm(kWidth, kWidth, kWidth, recipe.is_bf16);
    activation(step, recipe);
    if (!recipe.overlapped_communication) continue;
    step.add({.what = What::kRecord, .stream = kComputeStream, .event = 20});
    step.add({.what = What::kStreamWait, .stream = kCommunicationStream, .event = 20});
    // The last bucket has nothing to hide behind, and is small for that.
    all_reduce(step, layer + 1 == recipe.layers ? last_bytes : bucket_bytes);
  }
  if (!recipe.communicates) return;
  if (!recipe.overlapped_communication) {
    step.add({.what = What::kRecord, .stream = kComputeStream, .event = 20});
    step.add({.what = What::kStreamWait, .stream = kCommunicationStream, .event = 20});
    all_reduce(step, bucket_bytes * (recipe.layers - 1) + last_bytes);
  }
  step.add({.what = What::kRecord, .stream = kCommunicationStream, .event = 21});
  step.add({.what = What::kStreamWait, .stream = kComputeStream, .event = 21});
}

void optimizer(Step& step, const Recipe& recipe) {
  step.range("Optimizer.step#AdamW.step");
  const int64_t parameters = kWidth * kWidth * recipe.layers;
  if (recipe.fused_optimizer) {
    for (int part = 0; part < 2; ++part)
      step.operation("aten::_fused_adamw_",
                     {.what = What::kLaunch,
                      .name = "void at::native::multi_tensor_apply_kernel_adamw<",
                      .device_ns = ns_at(14.0 * static_cast<double>(parameters), kBytesPerSecond),
                      .launch = launch_of(2048, 512)});
  } else {
    for (int tensor = 0; tensor < 40; ++tensor)
      for (const char* name : {"aten::mul_",
                               "aten::lerp_",
                               "aten::mul_",
                               "aten::addcmul_",
                               "aten::sqrt",
                               "aten::div_",
                               "aten::add_",
                               "aten::addcdiv_"})
        step.elementwise(name, "vectorized_elementwise_kernel_opt", parameters * 12 / 40);
  }
  step.end();
}

Actions training_step(const Recipe& recipe, int64_t number) {
  Actions actions;
  Step step(actions);
  // Keeps the host from running away, and costs nothing: it awaits the end of the step before last.
  if (number >= 2) step.add({.what = What::kAwaitEvent, .event = number % 2});
  get_batch(step, recipe, number);
  if (recipe.at_start) recipe.at_start(step, number);
  forward_and_backward(step, recipe);
  optimizer(step, recipe);
  if (recipe.at_end) recipe.at_end(step, number);
  step.add({.what = What::kRecord, .stream = kComputeStream, .event = number % 2});
  return actions;
}

Program program(const std::string& name, const std::string& rule, bool is_sick, Recipe recipe) {
  Program made{.name = name + (is_sick ? "" : " (healthy)"), .rule = rule, .is_sick = is_sick};
  made.step = [recipe = std::move(recipe)](int64_t step, int32_t) {
    return training_step(recipe, step);
  };
  return made;
}

using Programs = std::vector<Program>;

void add_pair(Programs& programs,
              const std::string& name,
              const std::string& rule,
              Recipe sick,
              Recipe healthy = {}) {
  programs.push_back(program(name, rule, true, std::move(sick)));
  programs.push_back(program(name, rule, false, std::move(healthy)));
}

void add_loaders(Programs& programs) {
  add_pair(programs, "input starved", "R01", {});
  programs[programs.size() - 2].loader = {.workers = 2, .batch_ns = us(14'000)};
  programs.back().loader = {.workers = 16, .batch_ns = us(14'000)};
  add_pair(programs, "loader that cannot scale", "R02", {});
  programs[programs.size() - 2].loader = {
      .workers = 8, .batch_ns = us(9'000), .locked_ns = us(6'500)};
  programs.back().loader = {.workers = 8, .batch_ns = us(9'000)};
}

// Many small kernels of a small model; as a graph they take one call.
Actions small_step(int64_t number, bool is_graph) {
  Actions actions;
  Step step(actions);
  if (number >= 2) step.add({.what = What::kAwaitEvent, .event = number % 2});
  step.add({.what = What::kNextBatch, .host_ns = us(20)});
  Action graph{.what = What::kGraph};
  for (int i = 0; i < 400; ++i) {
    Action kernel{.what = What::kLaunch,
                  .name = i % 3 == 0 ? "nvjet_tst_64x64_64x8_1x2_h_bz_TNT_"
                                     : "void at::native::vectorized_elementwise_kernel<",
                  .device_ns = i % 3 == 0 ? 6'000 : 2'500,
                  .launch = launch_of(264, 128)};
    if (is_graph) kernel.launch.graph = 3;
    if (is_graph)
      graph.nodes.push_back(std::move(kernel));
    else
      step.operation(i % 3 == 0 ? "aten::mm" : "aten::add", std::move(kernel), {}, {}, us(8));
  }
  if (is_graph) step.add(std::move(graph));
  step.add({.what = What::kRecord, .stream = kComputeStream, .event = number % 2});
  return actions;
}

void add_launches(Programs& programs) {
  for (const bool is_sick : {true, false}) {
    Program made{.name = is_sick ? "launch bound" : "launch bound (healthy)",
                 .rule = "R03",
                 .is_sick = is_sick};
    made.step = [is_sick](int64_t step, int32_t) { return small_step(step, !is_sick); };
    programs.push_back(std::move(made));
  }
  add_pair(programs, "fusable chains", "R04", {.fused_elementwise = false});
}

// The actions of `.item()`.
void read_scalar(Step& step) {
  step.add({.what = What::kBeginOperator, .name = "aten::item", .host_ns = us(4)});
  step.add({.what = What::kBeginOperator, .name = "aten::_local_scalar_dense", .host_ns = us(3)});
  step.add({.what = What::kCopy,
            .name = "Memcpy DtoH (Device -> Pageable)",
            .device_ns = 1'500,
            .cause = HostCause::kOperators,
            .transfer = {.bytes = 4, .from = MemoryKind::kDevice, .to = MemoryKind::kPageable}});
  step.add({.what = What::kAwaitStream, .stream = kComputeStream});
  step.end();
  step.end();
}

void add_host_stalls(Programs& programs) {
  add_pair(programs,
           "host reads a scalar in each layer",
           "R05",
           {.after_layer = [](Step& step, int64_t) {
             read_scalar(step);
             step.add({.what = What::kHost, .name = "train.py(88): log", .host_ns = us(240)});
           }});
  add_pair(programs, "allocator in the loop", "R10", {.after_layer = [](Step& step, int64_t) {
             step.add({.what = What::kCall,
                       .name = "cudaMalloc",
                       .host_ns = us(150),
                       .cause = HostCause::kAllocation});
             step.add({.what = What::kCall,
                       .name = "cudaFree",
                       .host_ns = us(180),
                       .blocks_host = true,
                       .cause = HostCause::kAllocation});
           }});
  const auto load = [](Step& step) {
    step.add({.what = What::kCall,
              .name = "cuLibraryLoadData",
              .host_ns = us(14'000),
              .cause = HostCause::kModule});
  };
  add_pair(programs,
           "modules loaded late",
           "R11",
           {.at_start =
                [load](Step& step, int64_t number) {
                  if (number == 0 || number >= 5) load(step);
                }},
           {.at_start = [load](Step& step, int64_t number) {
             if (number == 0) load(step);
           }});
}

void add_copies(Programs& programs) {
  constexpr int64_t kBytes = 16 << 20;
  add_pair(programs,
           "pageable copies",
           "R06",
           {.at_start =
                [](Step& step, int64_t) {
                  step.operation("aten::copy_", copy_in(kBytes, kComputeStream, false));
                }},
           {.batch_bytes = kBytes});
  add_pair(programs,
           "copies that block kernels",
           "R07",
           {.prefetches = false, .batch_bytes = 80 << 20},
           {.prefetches = true, .batch_bytes = 80 << 20});
}

void add_kernels(Programs& programs) {
  add_pair(programs, "tensor cores idle", "R13", {.is_bf16 = false});
  const auto head = [](bool is_bf16) {
    return [is_bf16](Step& step, int64_t layer) {
      if (layer == 0) step.gemm(kWidth, kWidth, kWidth, is_bf16);
    };
  };
  add_pair(programs,
           "a product that stayed in FP32",
           "R15",
           {.after_layer = head(false)},
           {.after_layer = head(true)});
  // A product over 64 numbers that should be bound by what it writes.
  const auto thin = [](double efficiency) {
    return [efficiency](Step& step, int64_t) { step.gemm(8192, 8192, 64, true, efficiency); };
  };
  add_pair(programs,
           "products far from their roof",
           "R14",
           {.after_layer = thin(.08)},
           {.after_layer = thin(.9)});
  add_pair(programs, "transposes and casts", "R16", {.after_layer = [](Step& step, int64_t) {
             step.elementwise("aten::clone",
                              "elementwise_kernel_with_index_transpose_copy",
                              kActivationBytes * 2,
                              .3);
             step.elementwise(
                 "aten::_to_copy", "unrolled_elementwise_kernel_copy_cast", kActivationBytes, .35);
           }});
  const auto few = [](int64_t blocks, int64_t ns) {
    return [blocks, ns](Step& step, int64_t) {
      step.operation("aten::cumsum",
                     {.what = What::kLaunch,
                      .name = "void at::native::tensor_kernel_scan_innermost_dim<",
                      .device_ns = ns,
                      .launch = launch_of(blocks, 256)});
    };
  };
  add_pair(programs,
           "few blocks",
           "R17",
           {.after_layer = few(8, us(900))},
           {.after_layer = few(2112, us(30))});
  add_pair(programs, "unfused optimizer", "R21", {.fused_optimizer = false});
}

void add_ranks(Programs& programs) {
  add_pair(programs,
           "communication that blocks",
           "R22",
           {.communicates = true},
           {.overlapped_communication = true, .communicates = true});
  for (size_t i = programs.size() - 2; i < programs.size(); ++i) programs[i].ranks = 2;
  add_pair(programs,
           "one slow rank",
           "R24",
           {.overlapped_communication = true, .communicates = true},
           {.overlapped_communication = true, .communicates = true});
  for (size_t i = programs.size() - 2; i < programs.size(); ++i) programs[i].ranks = 4;
  Program& slow = programs[programs.size() - 2];
  slow.step = [plain = slow.step](int64_t number, int32_t rank) {
    Actions actions = plain(number, rank);
    if (rank != 2) return actions;
    for (Action& each : actions)
      if (each.what == What::kLaunch) each.device_ns = each.device_ns * 8 / 5;
    return actions;
  };
}

void add_pauses(Programs& programs) {
  const auto save = [](bool is_waited_for) {
    return [is_waited_for](Step& step, int64_t number) {
      if (number % 5 != 4) return;
      if (is_waited_for) step.add({.what = What::kAwaitDevice});
      step.add({.what = What::kHost,
                .name = "torch/serialization.py(850): save",
                .host_ns = is_waited_for ? us(22'000) : us(60),
                .kind = EventKind::kPython,
                .cause = HostCause::kCheckpoint});
    };
  };
  add_pair(programs,
           "a checkpoint each fifth step",
           "R29",
           {.at_end = save(true)},
           {.at_end = save(false)});
  // The thread that launches is taken off its core for longer than the device has work.
  add_pair(programs,
           "too few cores",
           "R30",
           {.layers = 2,
            .after_layer =
                [](Step& step, int64_t) {
                  step.add({.what = What::kHost,
                            .name = "off-cpu (runnable)",
                            .host_ns = us(1'500),
                            .kind = EventKind::kHostWait,
                            .cause = HostCause::kOffCpu});
                }},
           {.layers = 2});
}

}  // namespace

std::vector<Program> all_programs() {
  Programs programs;
  add_loaders(programs);
  add_launches(programs);
  add_host_stalls(programs);
  add_copies(programs);
  add_kernels(programs);
  add_ranks(programs);
  add_pauses(programs);
  return programs;
}

}  // namespace ridge::doctor::synthetic
