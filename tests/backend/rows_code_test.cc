// Machine code over rows against scalar loops that take the rows one by one.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "ridge/backend/cpu/cpu_isa.h"
#include "ridge/backend/cpu/jit/compile_rows.h"
#include "ridge/backend/cpu/jit/lower.h"
#include "ridge/graph/ops/elementwise.h"

namespace ridge::cpu {
namespace {

constexpr int64_t kRows = 3;

// Sum and largest element s and m of a row; v = s + m; y = x v; all y of a column added up.
struct Loops {
  explicit Loops(DType dtype, bool streamed) {
    reduce.inputs = {{dtype, false}};
    reduce.results = {{0, LoopResult::kSum}, {0, LoopResult::kMax}};
    value.inputs = {{dtype, true}, {dtype, true}};
    value.ops = {{std::make_shared<Add>(), {0, 1}, dtype}};
    value.results = {{2}};
    scale.inputs = {{dtype, false, 256}, {dtype, true}, {dtype, false}};
    scale.ops = {{std::make_shared<Mul>(), {0, 1}, dtype},
                 {std::make_shared<Add>(), {2, 3}, dtype}};
    scale.results = {{3, LoopResult::kStore, streamed}, {4}};
  }
  Loop reduce, value, scale;
};

template <typename T>
struct Data {
  explicit Data(int64_t columns) : x(size(columns)), y(size(columns)), sums(size(columns)) {}
  static size_t size(int64_t columns) { return static_cast<size_t>(kRows * columns); }
  struct alignas(64) Line {
    T at[64 / sizeof(T)];
  };
  // Whole lines, so that rows of whole lines are aligned.
  struct Rows {
    explicit Rows(size_t n) : lines(n * sizeof(T) / 64 + 1), count(n) {}
    T* data() { return lines[0].at; }
    std::vector<Line> lines;
    size_t count;
  };
  Rows x, y, sums;
  T cells[3] = {};
};

template <typename T>
void run_scalar(const Loops& loops, Data<T>& data, int64_t columns) {
  const auto reduce = make_scalar_loop(loops.reduce), value = make_scalar_loop(loops.value),
             scale = make_scalar_loop(loops.scale);
  for (int64_t row = 0; row < kRows; ++row) {
    T *const x = data.x.data() + row * columns, *const y = data.y.data() + row * columns;
    T *const s = data.cells, *const m = s + 1, *const v = s + 2, *const sums = data.sums.data();
    const void* const read[] = {x, v, sums};
    const void* const values[] = {s, m};
    void* const reduced[] = {s, m};
    void* const made[] = {y, sums};
    void* const one[] = {v};
    reduce->run({read, reduced, columns});
    value->run({values, one, 1});
    scale->run({read, made, columns});
  }
}

template <typename T>
void run_code(
    const Loops& loops, Data<T>& data, int64_t columns, jit::Target target, bool streamed) {
  const bool scales = target == jit::Target::kAvx512;
  enum Pointer : uint8_t { kX, kS, kM, kV, kY, kSums };
  jit::RowsProgram rows;
  rows.parts.push_back({*jit::lower(loops.reduce, scales), true, {kX}, {kS, kM}});
  Loop value = loops.value;
  rows.parts.push_back({*jit::lower(value, scales), false, {kS, kM}, {kV}});
  rows.parts.push_back({*jit::lower(loops.scale, scales), true, {kX, kV, kSums}, {kY, kSums}});
  const auto step = static_cast<int32_t>(columns * static_cast<int64_t>(sizeof(T)));
  rows.steps = {step, 0, 0, 0, step, 0};
  rows.columns = static_cast<int>(columns);
  const auto code = jit::compile_rows(rows, target, streamed);
  ASSERT_NE(code, nullptr);
  alignas(64) std::byte work[jit::kWorkBytes];
  alignas(64) std::byte lanes[jit::kMostReductions * jit::kLaneBytes];
  void* const pointers[] = {
      data.x.data(), data.cells, data.cells + 1, data.cells + 2, data.y.data(), data.sums.data()};
  std::memcpy(work, pointers, sizeof pointers);
  code->run({work, lanes, kRows});
}

// NaN agrees with NaN, zeros of either sign do not agree.
template <typename T>
bool is_same(T a, T b) {
  return std::memcmp(&a, &b, sizeof a) == 0 || (std::isnan(a) && std::isnan(b));
}

template <typename T>
void expect_scalar_bits(DType dtype, jit::Target target, int64_t columns, uint32_t seed) {
  std::mt19937 random(seed);
  Data<T> wanted(columns);
  const T special[] = {T(0), T(-0.0), INFINITY, -INFINITY, NAN};
  for (size_t i = 0; i < wanted.x.count; ++i) {
    wanted.x.data()[i] = static_cast<T>(static_cast<double>(random() % 20001) * 1e-4 - 1.0);
    if (seed % 3 == 1 && random() % 40 == 0) wanted.x.data()[i] = special[random() % 5];
    if (seed % 3 == 2) wanted.x.data()[i] = special[random() % 2];
  }
  Data<T> plain = wanted, streamed = wanted;
  const Loops loops(dtype, true);
  run_scalar(loops, wanted, columns);
  run_code(loops, plain, columns, target, false);
  const bool is_aligned = columns * static_cast<int64_t>(sizeof(T)) % 64 == 0;
  run_code(loops, streamed, columns, target, is_aligned);
  for (size_t i = 0; i < wanted.y.count; ++i)
    for (Data<T>* got : {&plain, &streamed}) {
      ASSERT_TRUE(is_same(wanted.y.data()[i], got->y.data()[i]))
          << "element " << i << " of rows of " << columns << ", seed " << seed << ": "
          << got->y.data()[i] << ", not " << wanted.y.data()[i];
      ASSERT_TRUE(is_same(wanted.sums.data()[i], got->sums.data()[i])) << i << ' ' << columns;
    }
}

TEST(RowsCode, GivesTheBitsOfScalarLoops) {
  for (const jit::Target target : {jit::Target::kAvx2, jit::Target::kAvx512}) {
    if (target == jit::Target::kAvx512 && !has_isa(Isa::kAvx512)) continue;
    for (const int64_t columns : {1, 3, 8, 15, 16, 17, 32, 48, 63, 64, 65, 96, 128, 200, 1024})
      for (uint32_t seed = 0; seed < 6; ++seed) {
        expect_scalar_bits<float>(DType::kF32, target, columns, seed);
        expect_scalar_bits<double>(DType::kF64, target, columns, seed);
        if (HasFatalFailure()) return;
      }
  }
}

}  // namespace
}  // namespace ridge::cpu
