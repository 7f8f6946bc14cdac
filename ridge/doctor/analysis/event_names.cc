#include "ridge/doctor/analysis/event_names.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>

#include "ridge/doctor/trace/name_words.h"

namespace ridge::doctor {
namespace {

std::string lowered(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

template <size_t n>
bool starts_with_any(std::string_view text, const std::array<std::string_view, n>& parts) {
  return std::any_of(
      parts.begin(), parts.end(), [text](std::string_view part) { return text.starts_with(part); });
}

template <size_t n>
bool is_any(std::string_view text, const std::array<std::string_view, n>& whole) {
  return std::find(whole.begin(), whole.end(), text) != whole.end();
}

// All in lower case.
constexpr std::array<std::string_view, 16> kLoaderParts = {"dataloader",
                                                           "loader wait",
                                                           "wait for batch",
                                                           "wait_for_batch",
                                                           "load_batch",
                                                           "load batch",
                                                           "next_batch",
                                                           "next batch",
                                                           "get_batch",
                                                           "fetch_batch",
                                                           "data_loading",
                                                           "data loading",
                                                           "loader_wait",
                                                           "iteratorget",
                                                           "torch/utils/data",
                                                           "__next__"};
constexpr std::array<std::string_view, 4> kLoaderNames = {"data", "dataload", "input", "data wait"};
// Parts of names of ranges and frames that write files. "Checkpointing" of activations computes,
// and is no file.
constexpr std::array<std::string_view, 8> kFileParts = {"torch.save",
                                                        "torch/serialization.py",
                                                        "save_checkpoint",
                                                        "save checkpoint",
                                                        "log_metrics",
                                                        "metrics:publish",
                                                        "tensorboard",
                                                        "wandb"};
constexpr std::array<std::string_view, 4> kFileNames = {
    "checkpoint", "telling", "logging", "checkpointing"};
constexpr std::array<std::string_view, 9> kWriteCalls = {
    "fsync", "fdatasync", "write", "pwrite", "pwrite64", "writev", "fwrite", "fflush", "syncfs"};
constexpr std::array<std::string_view, 13> kModuleStarts = {"cumoduleload",
                                                            "cudamoduleload",
                                                            "culibraryload",
                                                            "cudalibraryload",
                                                            "hipmoduleload",
                                                            "hiplibraryload",
                                                            "culink",
                                                            "hiplink",
                                                            "nvrtc",
                                                            "hiprtc",
                                                            "cumodulegetloadingmode",
                                                            "cudnnfind",
                                                            "miopenfind"};
constexpr std::array<std::string_view, 10> kModuleParts = {"module loading",
                                                           "lazy function loading",
                                                           "compile_inner",
                                                           "compile_fx",
                                                           "codegen_and_compile",
                                                           "triton/compiler",
                                                           "jit compile",
                                                           "jit_compile",
                                                           "autotun",
                                                           "algorithm search"};
constexpr std::array<std::string_view, 16> kAllocationStarts = {"cudamalloc",
                                                                "cudafree",
                                                                "cudahostalloc",
                                                                "cudahostregister",
                                                                "cudahostunreg",
                                                                "cumemalloc",
                                                                "cumemfree",
                                                                "cumemhostalloc",
                                                                "cumemcreate",
                                                                "cumemmap",
                                                                "cumemunmap",
                                                                "cumemsetaccess",
                                                                "cumemrelease",
                                                                "hipmalloc",
                                                                "hipfree",
                                                                "hiphostmalloc"};
constexpr std::array<std::string_view, 3> kMoreAllocations = {
    "hiphostfree", "hiphostregister", "cumemhostregister"};
constexpr std::array<std::string_view, 5> kCollectorNames = {
    "gc", "gc.collect", "python gc", "garbage collection", "gc collect"};

HostCause cause_of_call(std::string_view name) {
  if (starts_with_any(name, kModuleStarts)) return HostCause::kModule;
  if (starts_with_any(name, kAllocationStarts) || starts_with_any(name, kMoreAllocations))
    return HostCause::kAllocation;
  if (holds(name, "synchronize")) return HostCause::kSync;
  if (holds(name, "memcpy") && !holds(name, "async") && !holds(name, "peer"))
    return HostCause::kSync;
  return HostCause::kOperators;
}

bool is_file_work(std::string_view name) {
  if (holds(name, "utils/checkpoint")) return false;
  return holds_any(name, kFileParts) || is_any(name, kFileNames);
}

HostCause cause_of_marked(EventKind kind, std::string_view name) {
  if (holds_any(name, kLoaderParts)) return HostCause::kLoader;
  if (kind == EventKind::kRange && is_any(name, kLoaderNames)) return HostCause::kLoader;
  if (is_file_work(name)) return HostCause::kCheckpoint;
  if (holds_any(name, kModuleParts) || starts_with_any(name, kModuleStarts))
    return HostCause::kModule;
  if (is_any(name, kCollectorNames) || holds(name, "gc.collect")) return HostCause::kInterpreter;
  return HostCause::kUnknown;
}

}  // namespace

std::string_view name_of(HostCause cause) {
  constexpr std::array<std::string_view, kHostCauses> kNames = {"waits for data",
                                                                "relaunches late after a wait",
                                                                "allocates memory",
                                                                "loads or compiles code",
                                                                "copies pageable memory",
                                                                "writes files",
                                                                "interpreter",
                                                                "does not run",
                                                                "issues operators",
                                                                "not known"};
  return kNames[static_cast<size_t>(cause)];
}

HostCause cause_of(EventKind kind, std::string_view name) {
  const std::string lower = lowered(name);
  if (kind == EventKind::kRuntime) return cause_of_call(lower);
  if (kind == EventKind::kHostWait && is_any(lower, kWriteCalls)) return HostCause::kCheckpoint;
  const HostCause marked = cause_of_marked(kind, lower);
  if (marked != HostCause::kUnknown) return marked;
  if (kind == EventKind::kHostWait) return HostCause::kOffCpu;
  if (kind == EventKind::kOperator) return HostCause::kOperators;
  if (kind == EventKind::kPython) return HostCause::kInterpreter;
  return HostCause::kUnknown;
}

std::vector<HostCause> causes_of(const Trace& trace) {
  constexpr size_t kKinds = static_cast<size_t>(EventKind::kOther) + 1;
  std::vector<std::optional<HostCause>> known(kKinds * trace.names.size());
  std::vector<HostCause> causes(trace.size(), HostCause::kUnknown);
  for (size_t row = 0; row < trace.size(); ++row) {
    if (trace.lane_of(row).is_device()) continue;
    std::optional<HostCause>& cause =
        known[kKinds * trace.name[row] + static_cast<size_t>(trace.kind[row])];
    if (!cause) cause = cause_of(trace.kind[row], trace.name_text(row));
    causes[row] = *cause;
  }
  return causes;
}

bool is_communication(std::string_view kernel_name) {
  constexpr std::array<std::string_view, 16> kParts = {"nccl",
                                                       "rccl",
                                                       "nvshmem",
                                                       "mscclkernel",
                                                       "deep_ep",
                                                       "deepep",
                                                       "all_reduce",
                                                       "allreduce",
                                                       "all_gather",
                                                       "allgather",
                                                       "reducescatter",
                                                       "reduce_scatter",
                                                       "alltoall",
                                                       "all_to_all",
                                                       "cross_device_reduce",
                                                       "onecclcollective"};
  const std::string lower = lowered(kernel_name);
  return holds_any(lower, kParts) || lower.starts_with("mpi_");
}

std::string without_numbers(std::string_view name) {
  std::string text;
  for (char c : name) {
    const bool is_digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    if (!is_digit)
      text += c;
    else if (text.empty() || text.back() != '#')
      text += '#';
  }
  return text;
}

int step_mark_rank(std::string_view name) {
  if (name.starts_with("ProfilerStep")) return 1;
  constexpr std::array<std::string_view, 14> kMarks = {"iteration",
                                                       "iter",
                                                       "train iteration",
                                                       "train_iteration",
                                                       "step",
                                                       "train step",
                                                       "train_step",
                                                       "training step",
                                                       "training_step",
                                                       "global step",
                                                       "global_step",
                                                       "batch",
                                                       "train batch",
                                                       "train_batch"};
  std::string words = lowered(name);
  const auto is_filler = [](char c) {
    return std::isdigit(static_cast<unsigned char>(c)) != 0 ||
           std::string_view(" #:_-=/()[].").find(c) != std::string_view::npos;
  };
  while (!words.empty() && is_filler(words.back())) words.pop_back();
  const size_t begin = words.find_first_not_of("# ");
  if (begin == std::string::npos) return 0;
  const auto it = std::find(kMarks.begin(), kMarks.end(), words.substr(begin));
  return it == kMarks.end() ? 0 : 2 + static_cast<int>(it - kMarks.begin());
}

bool is_optimizer_step(std::string_view name) {
  const std::string lower = lowered(name);
  return lower.starts_with("optimizer.step") || lower == "optimizer" ||
         lower == "## optimizer ##" || lower == "optimizer step" || lower == "optimizer_step";
}

}  // namespace ridge::doctor
