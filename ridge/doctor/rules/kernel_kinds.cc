#include "ridge/doctor/rules/kernel_kinds.h"

#include <algorithm>

#include "ridge/doctor/analysis/event_names.h"
#include "ridge/doctor/trace/name_words.h"

namespace ridge::doctor {
namespace {

constexpr std::string_view kOptimizerParts[] = {"multi_tensor_apply",
                                                "fused_adam",
                                                "fusedadam",
                                                "fused_sgd",
                                                "multitensorapply",
                                                "fusedoptimizer"};
constexpr std::string_view kLayoutParts[] = {"transpose",
                                             "nchwtonhwc",
                                             "nhwctonchw",
                                             "permute",
                                             "contiguous",
                                             "direct_copy_kernel",
                                             "catarraybatchedcopy",
                                             "unrolled_copy"};
constexpr std::string_view kCastParts[] = {"bfloat16_copy_kernel",
                                           "float16_copy_kernel",
                                           "float8_copy_kernel",
                                           "cast_kernel",
                                           "copy_cast",
                                           "convert_kernel",
                                           "castkernel"};
constexpr std::string_view kNormParts[] = {"layer_norm",
                                           "layernorm",
                                           "rms_norm",
                                           "rmsnorm",
                                           "groupnorm",
                                           "group_norm",
                                           "batch_norm",
                                           "batchnorm",
                                           "softmax",
                                           "bn_fw",
                                           "bn_bw"};
constexpr std::string_view kMatrixParts[] = {"gemm",
                                             "cijk_",
                                             "xmma",
                                             "nvjet",
                                             "winograd",
                                             "convolve",
                                             "conv2d",
                                             "fprop",
                                             "dgrad",
                                             "wgrad",
                                             "cutlass",
                                             "gemv",
                                             "fft2d",
                                             "flash",
                                             "fmha",
                                             "attention"};
constexpr std::string_view kElementwiseParts[] = {"elementwise", "pointwise", "triton_poi"};
// Parts of names of kernels that run on matrix units; any of these in a name says so.
constexpr std::string_view kTensorParts[] = {"tensorop",
                                             "tf32",
                                             "s1688",
                                             "s16816",
                                             "884",
                                             "16816",
                                             "hmma",
                                             "gmma",
                                             "nvjet",
                                             "bf16",
                                             "f16",
                                             "half",
                                             "i8",
                                             "fp8",
                                             "e4m3",
                                             "_mi16x16",
                                             "_mi32x32",
                                             "wmma"};
constexpr std::string_view kFp32Parts[] = {"sgemm", "scudnn", "simt", "ffma", "s_gemm"};

}  // namespace

KernelKind kind_of_kernel(std::string_view name) {
  if (is_communication(name)) return KernelKind::kCommunication;
  if (holds_any(name, kOptimizerParts)) return KernelKind::kOptimizer;
  if (holds_any(name, kCastParts)) return KernelKind::kCast;
  if (holds_any(name, kLayoutParts)) return KernelKind::kLayout;
  if (holds_any(name, kNormParts)) return KernelKind::kNorm;
  if (holds_any(name, kMatrixParts)) return KernelKind::kMatrix;
  if (holds_any(name, kElementwiseParts)) return KernelKind::kElementwise;
  return KernelKind::kOther;
}

bool is_plain_fp32_matrix(std::string_view name) {
  if (kind_of_kernel(name) != KernelKind::kMatrix) return false;
  return holds_any(name, kFp32Parts) && !holds_any(name, kTensorParts);
}

size_t call_of(const Trace& trace, const Analysis& analysis, size_t row) {
  const std::vector<size_t>& calls = analysis.launched_by;
  return row < calls.size() ? std::min(calls[row], trace.size()) : trace.size();
}

std::vector<Intervals> optimizer_ranges(const Trace& trace) {
  std::vector<std::vector<Interval>> updates(trace.lanes.size());
  ByName is_update(trace, is_optimizer_step);
  for (size_t row = 0; row < trace.size(); ++row)
    if (trace.kind[row] == EventKind::kRange && is_update(row))
      updates[trace.lane[row]].push_back({trace.start_ns[row], trace.end_ns(row)});
  for (auto& stretches : updates) stretches = union_of(std::move(stretches));
  return updates;
}

std::vector<size_t> optimizer_kernels(const Trace& trace,
                                      const Analysis& analysis,
                                      const std::vector<size_t>& kernels) {
  const std::vector<Intervals> updates = optimizer_ranges(trace);
  ByName kind_of(trace, kind_of_kernel);
  std::vector<size_t> found;
  for (size_t row : kernels) {
    const size_t call = call_of(trace, analysis, row);
    const bool within =
        call < trace.size() &&
        !clipped(updates[trace.lane[call]], {trace.start_ns[call], trace.start_ns[call] + 1})
             .empty();
    if (within || kind_of(row) == KernelKind::kOptimizer) found.push_back(row);
  }
  return found;
}

double ms_a_step(const Trace& trace, const Analysis& analysis, const std::vector<size_t>& rows) {
  if (analysis.steps.windows.empty()) return 0;
  int64_t ns = 0;
  for (size_t row : rows) ns += trace.duration_ns[row];
  return static_cast<double>(ns) * 1e-6 / static_cast<double>(analysis.steps.windows.size());
}

Intervals stretches_of(const Trace& trace, const std::vector<size_t>& rows) {
  std::vector<Interval> stretches;
  for (size_t row : rows) stretches.push_back({trace.start_ns[row], trace.end_ns(row)});
  return union_of(std::move(stretches));
}

std::vector<size_t> longest_of(const Trace& trace, std::vector<size_t> rows, size_t count) {
  std::sort(rows.begin(), rows.end(), [&trace](size_t a, size_t b) {
    return std::pair(-trace.duration_ns[a], a) < std::pair(-trace.duration_ns[b], b);
  });
  if (rows.size() > count) rows.resize(count);
  return rows;
}

std::string short_name(std::string_view name) {
  constexpr size_t kLongest = 60;
  if (name.starts_with("void ")) name.remove_prefix(5);
  std::string text(name);
  // Its parenthesis begins no arguments.
  constexpr std::string_view kUnnamed = "(anonymous namespace)::";
  for (size_t at = text.find(kUnnamed); at != std::string::npos; at = text.find(kUnnamed, at))
    text.erase(at, kUnnamed.size());
  const size_t end = std::min(text.find('<'), text.find('('));
  if (end != std::string::npos && end > 0) text.resize(end);
  text.resize(std::min(text.size(), kLongest));
  return text;
}

}  // namespace ridge::doctor
