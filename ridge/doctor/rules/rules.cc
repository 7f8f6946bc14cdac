// The table of rules.
#include "ridge/doctor/rules/rules.h"

namespace ridge::doctor {
namespace {

// By id. The third column: it says something of devices only.
constexpr Rule kRules[] = {
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
    {"R13", "matrix units idle", true, r13_tensor_cores},
    {"R14", "slow matrix products", true, r14_slow_products},
    {"R16", "layout copies and casts", true, r16_layout_copies},
    {"R17", "too few blocks", true, r17_few_blocks},
    {"R18", "small micro-batch", false, r18_small_micro_batch},
    {"R21", "unfused optimizer", true, r21_unfused_optimizer},
    {"R22", "blocking communication", true, r22_blocking_communication},
    {"R24", "straggler rank", true, r24_straggler},
    {"R29", "periodic stalls", false, r29_periodic_stalls},
    {"R30", "processor contention", false, r30_cpu_contention},
};

}  // namespace

std::span<const Rule> rules() { return kRules; }

std::string_view name_of(Severity severity) {
  switch (severity) {
    case Severity::kInfo:
      return "info";
    case Severity::kWarning:
      return "warning";
    case Severity::kHigh:
      return "high";
  }
  return "info";
}

}  // namespace ridge::doctor
