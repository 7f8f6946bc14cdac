#include "ridge/backend/cpu/loops/loop_table.h"

#include <array>
#include <numeric>

#include "ridge/backend/cpu/cpu_isa.h"
#include "ridge/backend/cpu/isa/table/table_kernels.h"

namespace ridge::cpu {
namespace {

class TableLoop final : public LoopKernel {
 public:
  explicit TableLoop(const LoopKernel& kernel) {
    std::array<uint8_t, kTableBytes> bytes;
    std::iota(bytes.begin(), bytes.end(), uint8_t{0});
    const void* const inputs[] = {bytes.data()};
    void* const results[] = {table_.data()};
    kernel.run({inputs, results, kTableBytes});
  }

  void run(const LoopArgs& args) const override {
    const bool has_vbmi = has_avx512() && cpu_info().vbmi;
    const LookUpKernel look_up =
        has_vbmi ? avx512::look_up_by_vbmi : for_isa(avx2::look_up, avx512::look_up);
    look_up(table_.data(),
            static_cast<const uint8_t*>(args.inputs[0]),
            static_cast<uint8_t*>(args.results[0]),
            args.n);
  }

 private:
  alignas(64) std::array<uint8_t, kTableBytes> table_{};
};

}  // namespace

bool is_function_of_byte(const Loop& loop) {
  if (loop.inputs.size() != 1 || loop.results.size() != 1 || loop.ops.empty()) return false;
  const LoopInput& input = loop.inputs[0];
  const LoopResult& result = loop.results[0];
  return !input.uniform && (input.dtype == DType::kI8 || input.dtype == DType::kU8) &&
         result.kind == LoopResult::kStore && size_of(loop.dtype_of(result.value)) == 1;
}

std::unique_ptr<LoopKernel> make_table_loop(const Loop& loop,
                                            std::unique_ptr<LoopKernel> (*make)(const Loop&)) {
  const auto kernel = make(loop);
  if (kernel == nullptr) return nullptr;
  return std::make_unique<TableLoop>(*kernel);
}

}  // namespace ridge::cpu
