// The rules of the doctor. Each is in a file of its own, rules/rNN_name.cc; a new one gets a
// declaration and a row here, and a section in docs/findings.md.
#pragma once

#include <string_view>

#include "ridge/doctor/findings/finding.h"

namespace ridge::doctor {

struct Rule {
  std::string_view id;  ///< "R05"
  std::string_view title;
  bool needs_device = true;  ///< "not applicable" where the trace has no device work.
  /// Pure function of the trace and its analysis. It adds at least one row to the output.
  void (*apply)(const Trace&, const Analysis&, RuleOutput&);
};

void r00_unfit(const Trace& trace, const Analysis& analysis, RuleOutput& output);
void r01_input_starved(const Trace& trace, const Analysis& analysis, RuleOutput& output);
void r02_loader_limit(const Trace& trace, const Analysis& analysis, RuleOutput& output);
void r03_launch_bound(const Trace& trace, const Analysis& analysis, RuleOutput& output);
void r04_fusable_chains(const Trace& trace, const Analysis& analysis, RuleOutput& output);
void r05_host_sync(const Trace& trace, const Analysis& analysis, RuleOutput& output);
void r06_pageable_copies(const Trace& trace, const Analysis& analysis, RuleOutput& output);
void r07_blocking_copy(const Trace& trace, const Analysis& analysis, RuleOutput& output);
void r10_allocator(const Trace& trace, const Analysis& analysis, RuleOutput& output);
void r11_late_modules(const Trace& trace, const Analysis& analysis, RuleOutput& output);
void r13_tensor_cores(const Trace& trace, const Analysis& analysis, RuleOutput& output);
void r14_slow_products(const Trace& trace, const Analysis& analysis, RuleOutput& output);
void r15_mixed_precision(const Trace& trace, const Analysis& analysis, RuleOutput& output);
void r16_layout_copies(const Trace& trace, const Analysis& analysis, RuleOutput& output);
void r17_few_blocks(const Trace& trace, const Analysis& analysis, RuleOutput& output);
void r18_small_micro_batch(const Trace& trace, const Analysis& analysis, RuleOutput& output);
void r21_unfused_optimizer(const Trace& trace, const Analysis& analysis, RuleOutput& output);
void r22_blocking_communication(const Trace& trace, const Analysis& analysis, RuleOutput& output);
void r24_straggler(const Trace& trace, const Analysis& analysis, RuleOutput& output);
void r29_periodic_stalls(const Trace& trace, const Analysis& analysis, RuleOutput& output);
void r30_cpu_contention(const Trace& trace, const Analysis& analysis, RuleOutput& output);

/// All rules, by their id. The third column says whether a rule speaks of devices only.
inline constexpr Rule kRules[] = {
    {"R00", "trace not fit for a verdict", false, r00_unfit},
    {"R01", "input starved", false, r01_input_starved},
    {"R02", "loader cannot scale", false, r02_loader_limit},
    {"R03", "launch bound", false, r03_launch_bound},
    {"R04", "fusable chains of kernels", true, r04_fusable_chains},
    {"R05", "host waits for the device", true, r05_host_sync},
    {"R06", "pageable copies", true, r06_pageable_copies},
    {"R07", "blocking copies", true, r07_blocking_copy},
    {"R10", "allocator in the loop", true, r10_allocator},
    {"R11", "code loaded late", false, r11_late_modules},
    {"R13", "matrix units idle", false, r13_tensor_cores},
    {"R14", "slow matrix products", true, r14_slow_products},
    {"R15", "mixed precision falls short", false, r15_mixed_precision},
    {"R16", "layout copies and casts", false, r16_layout_copies},
    {"R17", "too few blocks", true, r17_few_blocks},
    {"R18", "small micro-batch", false, r18_small_micro_batch},
    {"R21", "unfused optimizer", true, r21_unfused_optimizer},
    {"R22", "blocking communication", true, r22_blocking_communication},
    {"R24", "straggler rank", true, r24_straggler},
    {"R29", "periodic stalls", false, r29_periodic_stalls},
    {"R30", "processor contention", false, r30_cpu_contention},
};

}  // namespace ridge::doctor
