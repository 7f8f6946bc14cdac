// The "args" of a Kineto event, by the names that recorders have for them.
#pragma once

#include "ridge/doctor/read/json_scanner.h"
#include "ridge/doctor/trace/trace.h"

namespace ridge::doctor {

/// The values of an event; those that it has not are not given.
struct KinetoArgs {
  JsonSpan correlation, device, stream;
  JsonSpan grid, block, registers, shared_bytes, graph;
  JsonSpan bytes, size, flops;
  JsonSpan shapes, types, strides, stack, caller;
  JsonSpan sync_kind, waits_on_stream, waits_on_correlation, event;
  JsonSpan elements_in, elements_out, dtype;
  JsonSpan name;

  bool has_launch() const { return grid.is_given() || block.is_given() || registers.is_given(); }
};

/// Fields of an object that is none of these, or is broken behind some, are not given.
KinetoArgs parse_args(const JsonSpan& object);

Launch launch_of(const KinetoArgs& args);
Sync sync_of(const KinetoArgs& args);
/// Bytes that a collective moves in or out, the larger; 0: it is none.
int64_t collective_bytes(const KinetoArgs& args);

/// The number that a value says, or `otherwise` where it says none or one outside of [low, high].
int64_t number_in(const JsonSpan& value, int64_t low, int64_t high, int64_t otherwise);

/// A list as JSON with one blank after each comma and no other outside of texts.
std::string tidy_list(const JsonSpan& value);

}  // namespace ridge::doctor
