// Loops as machine code made for them.
#include <vector>

#include "ridge/backend/cpu/cpu_isa.h"
#include "ridge/backend/cpu/isa/loop_kernels.h"
#include "ridge/backend/cpu/jit/compile.h"
#include "ridge/backend/cpu/jit/lower.h"
#include "ridge/backend/cpu/loop.h"
#include "ridge/backend/cpu/loops/loop_random.h"
#include "ridge/backend/cpu/loops/loop_table.h"
#include "ridge/base/settings.h"

namespace ridge::cpu {
namespace {

class JitLoop final : public LoopKernel {
 public:
  JitLoop(const jit::Program& program, jit::Target target) {
    code_ = jit::compile(program, target, false);
    for (const jit::Stored& each : program.stores)
      if (each.streamed) streamed_.push_back({each.result, size_of(each.dtype)});
    if (code_ != nullptr && !streamed_.empty()) streaming_ = jit::compile(program, target, true);
    for (const jit::Reduced& each : program.reductions)
      reductions_.push_back({each.result, each.is_max, each.lane == jit::Lane::kF64 ? 0 : 1});
  }

  bool is_complete() const {
    return code_ != nullptr && (streamed_.empty() || streaming_ != nullptr);
  }

  void run(const LoopArgs& args) const override {
    alignas(64) std::byte work[jit::kWorkBytes];
    alignas(64) std::byte lanes[jit::kMostReductions][jit::kLaneBytes];
    const LoopReductions& kernels = for_isa(avx2::loop_kernels, avx512::loop_kernels);
    for (size_t i = 0; i < reductions_.size(); ++i)
      kernel(kernels, reductions_[i]).start[reductions_[i].dtype](lanes[i]);
    const jit::Code& code = is_aligned(args) ? *streaming_ : *code_;
    code.run({args.inputs, args.results, args.n, lanes, work});
    for (size_t i = 0; i < reductions_.size(); ++i)
      kernel(kernels, reductions_[i])
          .finish[reductions_[i].dtype](lanes[i],
                                        args.results[static_cast<size_t>(reductions_[i].result)]);
  }

 private:
  struct Streamed {
    int result = 0;
    size_t size = 0;
  };
  struct Reduction {
    int result = 0;
    bool is_max = false;
    int dtype = 0;
  };

  static const LoopReduction& kernel(const LoopReductions& kernels, const Reduction& reduction) {
    return reduction.is_max ? kernels.max : kernels.sum;
  }

  // Whether the results that should be stored past the caches can be.
  bool is_aligned(const LoopArgs& args) const {
    if (streaming_ == nullptr) return false;
    for (const Streamed& each : streamed_)
      if (reinterpret_cast<uintptr_t>(args.results[static_cast<size_t>(each.result)]) %
              (each.size * static_cast<size_t>(code_->lanes())) !=
          0)
        return false;
    return true;
  }

  std::unique_ptr<jit::Code> code_, streaming_;
  std::vector<Streamed> streamed_;
  std::vector<Reduction> reductions_;
};

std::unique_ptr<LoopKernel> make_plain_loop(const Loop& loop) {
  const jit::Target target = has_avx512() ? jit::Target::kAvx512 : jit::Target::kAvx2;
  const auto program = jit::lower(loop, target == jit::Target::kAvx512);
  if (!program) return nullptr;
  auto made = std::make_unique<JitLoop>(*program, target);
  if (!made->is_complete()) return nullptr;
  return made;
}

}  // namespace

std::unique_ptr<LoopKernel> make_jit_loop(const Loop& loop) {
  if (has_dropout(loop)) return make_random_loop(loop, make_jit_loop);
  if (!settings().get_bool("cpu.jit")) return nullptr;
  if (is_function_of_byte(loop)) return make_table_loop(loop, make_plain_loop);
  return make_plain_loop(loop);
}

}  // namespace ridge::cpu
