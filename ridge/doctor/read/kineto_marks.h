// Pairs the beginnings and ends of events that a Kineto trace has in two halves.
#pragma once

#include <cstdint>
#include <vector>

#include "ridge/base/function_ref.h"

namespace ridge::doctor {

/// A beginning or an end on a thread.
struct KinetoMark {
  static constexpr uint32_t kEnd = 0xffffffff;
  int64_t process = 0, thread = 0, time_ns = 0;
  uint32_t row = kEnd;  ///< The row that a beginning made in the trace; kEnd: an end.
  uint32_t name = 0;    ///< Number of its text; 0: it has none, as ends may.
};

/// Calls `close` with the row of each beginning and how long it lasted, -1 where it does not end.
/// Returns how many ends no beginning belongs to.
///
/// `marks` are in the order of the file. An end closes the innermost that is open of its name, else
/// the innermost of all. Where all ends of one time have names, the order of the file does not
/// matter: they close what began earlier before they close what began at that very time. Ends
/// without names only the order of the file can tell apart.
int64_t pair_marks(std::vector<KinetoMark> marks,
                   FunctionRef<void(uint32_t row, int64_t duration_ns)> close);

}  // namespace ridge::doctor
