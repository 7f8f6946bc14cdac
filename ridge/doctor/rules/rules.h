// The rules of the doctor, each in a file of its own: rules/rNN_name.cc. The table is rules.cc.
#pragma once

#include "ridge/doctor/findings/finding.h"

namespace ridge::doctor {

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
void r16_layout_copies(const Trace& trace, const Analysis& analysis, RuleOutput& output);
void r17_few_blocks(const Trace& trace, const Analysis& analysis, RuleOutput& output);
void r18_small_micro_batch(const Trace& trace, const Analysis& analysis, RuleOutput& output);
void r21_unfused_optimizer(const Trace& trace, const Analysis& analysis, RuleOutput& output);
void r22_blocking_communication(const Trace& trace, const Analysis& analysis, RuleOutput& output);
void r24_straggler(const Trace& trace, const Analysis& analysis, RuleOutput& output);
void r29_periodic_stalls(const Trace& trace, const Analysis& analysis, RuleOutput& output);
void r30_cpu_contention(const Trace& trace, const Analysis& analysis, RuleOutput& output);

}  // namespace ridge::doctor
