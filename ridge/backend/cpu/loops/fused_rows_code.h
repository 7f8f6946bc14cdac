// Fused bodies over rows as machine code for all that is done to a row: rows that fit the
// first-level cache, one after another, sums over rows added on the way.
#pragma once

#include <memory>
#include <vector>

#include "ridge/backend/cpu/jit/compile_rows.h"
#include "ridge/backend/cpu/loops/fused_rows.h"

namespace ridge::cpu {

class RowCode {
 public:
  /// Null where the plan picks or marks elements, its rows are long, or something has no machine
  /// code.
  static std::unique_ptr<const RowCode> make(const RowPlan& plan);

  size_t scratch_bytes() const;
  /// Rows first to first + count. `scratch`: aligned to 64. `partial`: by sum over rows, what these
  /// rows are added to.
  void run(const KernelArgs& args,
           std::byte* scratch,
           void* const* partial,
           int64_t first,
           int64_t count) const;

 private:
  // The place that a pointer starts at.
  struct Pointer {
    RowPlace place;
    int sum = -1;  // number of a sum over rows whose partial results it points to
    int64_t step = 0;
  };
  class Builder;

  RowCode() = default;
  std::byte* address(const Pointer& pointer,
                     const KernelArgs& args,
                     std::byte* scratch,
                     void* const* partial,
                     int64_t first) const;
  bool streams(const KernelArgs& args, const std::byte* const* pointers) const;

  std::vector<Pointer> pointers_;
  std::vector<size_t> kept_offsets_;
  size_t values_bytes_ = 0, kept_bytes_ = 0;
  std::vector<size_t> streamed_;  // pointers of results that may be stored past the caches
  std::unique_ptr<jit::RowsCode> code_, streaming_;
};

}  // namespace ridge::cpu
