// Loops that make a byte of one byte: tables against the loop element by element, and the kernels
// that look bytes up against plain indexing, where neighbours must keep their bytes.
#include "ridge/backend/cpu/loops/loop_table.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "ridge/backend/cpu/isa/table/table_kernels.h"
#include "ridge/graph/ops/activation.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/source.h"
#include "tests/backend/cpu_runs.h"

namespace ridge::cpu {
namespace {

using Bytes = std::vector<uint8_t>;

template <typename T>
std::shared_ptr<const Op> op_of(T op = {}) {
  return std::make_shared<const T>(std::move(op));
}

// A chain of ops on one input of bytes.
class Chain {
 public:
  explicit Chain(DType input) { loop_.inputs.push_back({input}); }

  int op(std::shared_ptr<const Op> op, std::vector<int> operands, DType dtype) {
    loop_.ops.push_back({std::move(op), std::move(operands), dtype});
    return static_cast<int>(loop_.inputs.size() + loop_.ops.size()) - 1;
  }
  template <typename T>
  int f32(int a, int b = -1) {
    return op(op_of<T>(), b < 0 ? std::vector{a} : std::vector{a, b}, DType::kF32);
  }
  int number(double value) {
    Constant constant;
    constant.dtype = DType::kF32;
    constant.values = {double{static_cast<float>(value)}};
    return op(op_of(constant), {}, DType::kF32);
  }
  int cast_to(DType to, int x) {
    Cast cast;
    cast.to = to;
    return op(op_of(cast), {x}, to);
  }
  Loop storing(int value) {
    loop_.results = {{.value = value}};
    return loop_;
  }

 private:
  Loop loop_;
};

// x times sigmoid(x) of bytes, where the sigmoid is rounded to bytes, too.
Loop silu_of_bytes(DType from, DType to) {
  Chain c(from);
  const int x = c.f32<Mul>(c.f32<Sub>(c.cast_to(DType::kF32, 0), c.number(97)), c.number(0.0371));
  const int scaled = c.f32<Mul>(c.f32<Sigmoid>(x), c.number(255));
  const int gate = c.cast_to(DType::kU8, c.f32<Add>(scaled, c.number(0.5)));
  const int y = c.f32<Mul>(x, c.f32<Div>(c.cast_to(DType::kF32, gate), c.number(255)));
  const int most = c.f32<Minimum>(c.f32<Div>(y, c.number(0.05)), c.number(127));
  return c.storing(c.cast_to(to, c.f32<Maximum>(most, c.number(to == DType::kU8 ? 0 : -128))));
}

Bytes run(const LoopKernel& kernel, const Bytes& x) {
  Bytes y(x.size());
  const void* const inputs[] = {x.data()};
  void* const results[] = {y.data()};
  kernel.run({inputs, results, std::ssize(x)});
  return y;
}

TEST(TableLoop, HasTheBitsOfTheLoop) {
  const test::CpuSettings restore;
  Bytes all(256);
  std::iota(all.begin(), all.end(), uint8_t{0});
  for (const DType from : {DType::kI8, DType::kU8})
    for (const DType to : {DType::kI8, DType::kU8}) {
      const Loop loop = silu_of_bytes(from, to);
      ASSERT_TRUE(is_function_of_byte(loop));
      const Bytes want = run(*make_scalar_loop(loop), all);
      for (const Isa isa : kAllIsas) {
        if (!has_isa(isa)) continue;
        set_isa(isa);
        const auto table = make_table_loop(loop, make_block_loop);
        const auto jit = make_jit_loop(loop);
        ASSERT_TRUE(table != nullptr && jit != nullptr);
        EXPECT_EQ(run(*table, all), want) << name_of(from) << ", " << name_of(isa);
        EXPECT_EQ(run(*jit, all), want) << name_of(from) << ", " << name_of(isa);
      }
    }
}

TEST(TableLoop, TakesOneByteAlone) {
  const Loop loop = silu_of_bytes(DType::kU8, DType::kI8);
  Loop two = loop, uniform = loop, wide = loop, both = loop;
  two.inputs.push_back({DType::kU8});
  for (LoopOp& op : two.ops)
    for (int& operand : op.operands) operand += operand > 0 ? 1 : 0;
  uniform.inputs[0].uniform = true;
  wide.results[0].value = 1;
  both.results.push_back({.value = 1});
  for (const Loop& other : {two, uniform, wide, both}) EXPECT_FALSE(is_function_of_byte(other));
  EXPECT_FALSE(is_function_of_byte(silu_of_bytes(DType::kI16, DType::kI8)));
}

void expect_looked_up(LookUpKernel look_up, std::mt19937& random, const std::string& name) {
  SCOPED_TRACE(name);
  Bytes table(kTableBytes);
  for (uint8_t& each : table) each = static_cast<uint8_t>(random());
  for (int64_t n = 0; n < 300; ++n) {
    constexpr int64_t kBeside = 64;
    Bytes x(static_cast<size_t>(n + 2 * kBeside));
    for (uint8_t& each : x) each = static_cast<uint8_t>(random());
    Bytes want = x, y(x.size(), 0x5a), beside = y;
    for (int64_t i = kBeside; i < kBeside + n; ++i) {
      const auto at = static_cast<size_t>(i);
      want[at] = beside[at] = table[x[at]];
    }
    look_up(table.data(), x.data() + kBeside, y.data() + kBeside, n);
    ASSERT_EQ(y, beside) << n;
    look_up(table.data(), x.data() + kBeside, x.data() + kBeside, n);
    ASSERT_EQ(x, want) << n << ", in place";
  }
}

TEST(TableLoop, KernelsLookEveryByteUp) {
  std::mt19937 random(7);
  expect_looked_up(avx2::look_up, random, "avx2");
  if (cpu_info().avx512) expect_looked_up(avx512::look_up, random, "avx512");
  if (cpu_info().vbmi) expect_looked_up(avx512::look_up_by_vbmi, random, "vbmi");
}

}  // namespace
}  // namespace ridge::cpu
