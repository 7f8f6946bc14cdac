// Random loops by every executor: the same bits from scalar code, blocks and machine code, with
// AVX2 and AVX-512, on pages whose neighbours cannot be touched.
#include "ridge/backend/cpu/loop.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <random>
#include <string>

#include "ridge/base/settings.h"
#include "ridge/graph/ops/activation.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/random.h"
#include "ridge/graph/ops/source.h"
#include "tests/backend/cpu_runs.h"
#include "tests/support/scale.h"

namespace ridge::cpu {
namespace {

constexpr int64_t kMostElements = 1100;
constexpr int kMostSamples = 5;
constexpr int kMostDropouts = 4;

// Memory between two pages that fault.
class Region {
 public:
  Region() : page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))) {
    inside_ = (kMostElements * sizeof(double) + page_ - 1) / page_ * page_;
    void* mapped =
        mmap(nullptr, inside_ + 2 * page_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(mapped, MAP_FAILED);
    begin_ = static_cast<std::byte*>(mapped) + page_;
    EXPECT_EQ(mprotect(begin_, inside_, PROT_READ | PROT_WRITE), 0);
  }
  ~Region() { munmap(begin_ - page_, inside_ + 2 * page_); }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  // The last bytes before the page behind, or the first after the page before.
  std::byte* place(size_t bytes, bool at_end) const {
    return at_end ? begin_ + inside_ - bytes : begin_;
  }
  std::vector<std::byte> all() const { return {begin_, begin_ + inside_}; }
  void set(std::byte value) const { std::memset(begin_, static_cast<int>(value), inside_); }

 private:
  size_t page_, inside_ = 0;
  std::byte* begin_ = nullptr;
};

constexpr DType kDTypes[] = {DType::kF32,
                             DType::kF32,
                             DType::kF32,
                             DType::kF64,
                             DType::kF16,
                             DType::kBF16,
                             DType::kBool,
                             DType::kI32,
                             DType::kU8,
                             DType::kI8,
                             DType::kI64};

template <typename T>
std::shared_ptr<const Op> op_of(T op = {}) {
  return std::make_shared<const T>(std::move(op));
}

std::vector<std::shared_ptr<const Op>> all_ops() {
  Gelu by_tanh;
  by_tanh.tanh = true;
  return {op_of<Neg>(),        op_of<Abs>(),       op_of<Sign>(),     op_of<Exp>(),
          op_of<Log>(),        op_of<Tanh>(),      op_of<Erf>(),      op_of<Sqrt>(),
          op_of<Rsqrt>(),      op_of<Sigmoid>(),   op_of<Relu>(),     op_of<Silu>(),
          op_of<Gelu>(),       op_of(by_tanh),     op_of<IsFinite>(), op_of<LogicalNot>(),
          op_of<Cast>(),       op_of<Cast>(),      op_of<Add>(),      op_of<Sub>(),
          op_of<Mul>(),        op_of<Add>(),       op_of<Mul>(),      op_of<Div>(),
          op_of<Maximum>(),    op_of<Minimum>(),   op_of<Equal>(),    op_of<NotEqual>(),
          op_of<Less>(),       op_of<LessEqual>(), op_of<Greater>(),  op_of<GreaterEqual>(),
          op_of<LogicalAnd>(), op_of<LogicalOr>(), op_of<Where>(),    op_of<Where>(),
          op_of<Dropout>(),    op_of<Dropout>(),   op_of<Constant>()};
}

// A loop, and where its results lie.
struct RandomLoop {
  Loop loop;
  int64_t n = 1;
  std::vector<int> over;  // by result: the input it lies over, or -1
  bool at_end = true;
  int64_t first = 0;
  int rng = -1;  // the input with {seed, step, first sample}
};

DType dtype_of_value(const Loop& loop, int value) {
  const auto at = static_cast<size_t>(value);
  return at < loop.inputs.size() ? loop.inputs[at].dtype : loop.ops[at - loop.inputs.size()].dtype;
}

class Generator {
 public:
  explicit Generator(uint32_t seed) : random_(seed) {}

  RandomLoop make() {
    RandomLoop made;
    Loop& loop = made.loop;
    // Every other loop is of few types, so that values meet.
    constexpr int kTypes = std::size(kDTypes);
    const int types = below(2) == 0 ? 2 : kTypes;
    const int first = below(kTypes - 1);
    const int inputs = 1 + below(6);
    for (int i = 0; i < inputs; ++i)
      loop.inputs.push_back({kDTypes[(first + below(types)) % kTypes], below(4) == 0});
    if (below(2) == 0) {
      made.rng = static_cast<int>(loop.inputs.size());
      loop.inputs.push_back({DType::kI64, true});
      loop.elements = (int64_t{1} << (14 + below(26))) * kMostSamples;
      made.first = loop.elements / (1 + below(7));
    }
    rng_ = made.rng;
    const int ops = below(14);
    for (int tries = 0; static_cast<int>(loop.ops.size()) < ops && tries < 200; ++tries)
      add_op(loop);
    add_results(made);
    made.n = below(3) == 0 ? 1 + below(70) : 1 + below(kMostElements);
    made.at_end = below(3) != 0;
    return made;
  }

  int below(int64_t limit) {
    return static_cast<int>(std::uniform_int_distribution<int64_t>(0, limit - 1)(random_));
  }

  // Ordinary numbers and every kind of special one.
  double number() {
    static constexpr double kSpecial[] = {
        0.0,          -0.0,          1.0,    -1.0,    INFINITY, -INFINITY, NAN,   1e-45,
        -1e-45,       1e-40,         -3e-39, 1.2e-38, 3.4e38,   -3.4e38,   1e300, -1e-310,
        2147483648.0, -2147483648.0, 88.5,   -103.5,  65520.0,  6e-8};
    const int kind = below(8);
    if (kind == 0) return kSpecial[below(std::size(kSpecial))];
    if (kind == 1)
      return std::ldexp(std::uniform_real_distribution<double>(-1, 1)(random_), below(300) - 150);
    if (kind == 2) return below(21) - 10;
    return std::uniform_real_distribution<double>(-6, 6)(random_);
  }

  void fill(DType dtype, std::byte* to, int64_t n) {
    dispatch(dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (int64_t i = 0; i < n; ++i) {
        T value = convert<T>(number());
        if constexpr (std::is_same_v<T, int64_t>)
          if (below(4) == 0) value = static_cast<T>(random_() * uint64_t{0x100000001});
        if constexpr (sizeof(T) == 1 && !std::is_same_v<T, bool>)
          if (below(2) == 0) value = static_cast<T>(random_());
        std::memcpy(to + static_cast<size_t>(i) * sizeof(T), &value, sizeof value);
      }
    });
  }

 private:
  int pick(const Loop& loop, DType dtype) {
    std::vector<int> found;
    const int values = static_cast<int>(loop.inputs.size() + loop.ops.size());
    for (int value = 0; value < values; ++value)
      if (dtype_of_value(loop, value) == dtype) found.push_back(value);
    if (found.empty()) return -1;
    // Late values more often, so that chains form.
    const int a = below(static_cast<int64_t>(found.size()));
    const int b = below(static_cast<int64_t>(found.size()));
    return found[static_cast<size_t>(std::max(a, b))];
  }

  void add_op(Loop& loop) {
    static const auto ops = all_ops();
    std::shared_ptr<const Op> op =
        ops[static_cast<size_t>(below(static_cast<int64_t>(ops.size())))];
    if (dynamic_cast<const Constant*>(op.get()) != nullptr) return add_constant(loop);
    const int values = static_cast<int>(loop.inputs.size() + loop.ops.size());
    const DType dtype = dtype_of_value(loop, values - 1 - below(std::min(values, 4)));
    if (const auto* where = dynamic_cast<const Where*>(op.get()); where != nullptr) {
      const int condition = pick(loop, DType::kBool);
      if (condition >= 0)
        loop.ops.push_back({op, {condition, pick(loop, dtype), pick(loop, dtype)}, dtype});
      return;
    }
    if (!op->traits().dtypes.has(dtype)) return;
    if (dynamic_cast<const Dropout*>(op.get()) != nullptr) return add_dropout(loop, dtype);
    LoopOp each{op, {pick(loop, dtype)}, dtype};
    if (op->traits().min_inputs == 2) each.operands.push_back(pick(loop, dtype));
    if (dynamic_cast<const Cast*>(op.get()) != nullptr) {
      Cast cast;
      cast.to = each.dtype = kDTypes[below(std::size(kDTypes))];
      each.op = op_of(cast);
    } else {
      std::vector<TensorType> types(each.operands.size(), TensorType{dtype, {1}});
      each.dtype = op->infer(types)[0].dtype;
    }
    loop.ops.push_back(std::move(each));
  }

  void add_dropout(Loop& loop, DType dtype) {
    const auto count = std::count_if(loop.ops.begin(), loop.ops.end(), [](const LoopOp& each) {
      return dynamic_cast<const Dropout*>(each.op.get()) != nullptr;
    });
    if (rng_ < 0 || count == kMostDropouts) return;
    static constexpr double kChances[] = {0.0, 0.1, 0.5, 0.9, 1.0 - 0x1p-40};
    Dropout dropout;
    dropout.p = kChances[below(std::size(kChances))];
    dropout.key = fmt::format("drop.{}", below(3));
    dropout.samples = 1 + below(kMostSamples);
    loop.ops.push_back({op_of(dropout), {pick(loop, dtype), rng_}, dtype});
  }

  void add_constant(Loop& loop) {
    Constant constant;
    constant.dtype = kDTypes[below(std::size(kDTypes))];
    const double value = number();
    if (is_float(constant.dtype))
      dispatch_float(constant.dtype, "test", [&](auto tag) {
        constant.values = {convert<double>(convert<typename decltype(tag)::type>(value))};
      });
    else
      constant.ints = {constant.dtype == DType::kBool ? below(2)
                       : constant.dtype == DType::kU8 ? below(256)
                                                      : below(100) - 50};
    loop.ops.push_back({op_of(constant), {}, constant.dtype});
  }

  void add_results(RandomLoop& made) {
    Loop& loop = made.loop;
    const int values = static_cast<int>(loop.inputs.size() + loop.ops.size());
    const int results = 1 + below(3);
    std::vector<bool> taken(loop.inputs.size(), false);
    for (int i = 0; i < results; ++i) {
      LoopResult result{.value = values - 1 - below(std::min(values, 5))};
      const DType dtype = dtype_of_value(loop, result.value);
      if (dtype == DType::kF32 || dtype == DType::kF64) {
        const int kind = below(4);
        result.kind = kind == 0   ? LoopResult::kSum
                      : kind == 1 ? LoopResult::kMax
                                  : LoopResult::kStore;
      }
      result.streamed = below(4) == 0;
      int over = -1;
      const int input = below(static_cast<int64_t>(loop.inputs.size()));
      const auto at = static_cast<size_t>(input);
      if (result.kind == LoopResult::kStore && below(3) == 0 && !taken[at] &&
          !loop.inputs[at].uniform && size_of(loop.inputs[at].dtype) == size_of(dtype))
        over = input, taken[at] = true;
      loop.results.push_back(result);
      made.over.push_back(over);
    }
  }

  std::mt19937 random_;
  int rng_ = -1;
};

std::string text_of(const RandomLoop& made) {
  const Loop& loop = made.loop;
  std::string text = fmt::format("n = {}, at {}\n", made.n, made.at_end ? "end" : "begin");
  int value = 0;
  for (const LoopInput& each : loop.inputs)
    text +=
        fmt::format("%{} = {}{}\n", value++, each.uniform ? "uniform " : "", name_of(each.dtype));
  for (const LoopOp& each : loop.ops) {
    text += fmt::format(
        "%{} = {} {}({}) of", value++, name_of(each.dtype), each.op->name(), fields_text(*each.op));
    for (const int operand : each.operands) text += fmt::format(" %{}", operand);
    text += '\n';
  }
  for (size_t i = 0; i < loop.results.size(); ++i)
    text += fmt::format("result %{} kind {} over {}\n",
                        loop.results[i].value,
                        static_cast<int>(loop.results[i].kind),
                        made.over[i]);
  return text;
}

// The first element that differs; -1 where none does. NaN equals NaN.
int64_t first_difference(DType dtype, const std::byte* a, const std::byte* b, int64_t n) {
  return dispatch(dtype, [&](auto tag) -> int64_t {
    using T = typename decltype(tag)::type;
    for (int64_t i = 0; i < n; ++i) {
      T x, y;
      std::memcpy(&x, a + static_cast<size_t>(i) * sizeof(T), sizeof x);
      std::memcpy(&y, b + static_cast<size_t>(i) * sizeof(T), sizeof y);
      if (std::memcmp(&x, &y, sizeof x) == 0) continue;
      if constexpr (is_float_type<T>) {
        const double left = convert<double>(x), right = convert<double>(y);
        if (std::isnan(left) && std::isnan(right)) continue;
      }
      return i;
    }
    return -1;
  });
}

// One loop on guarded memory.
class Case {
 public:
  Case(const RandomLoop& made, Generator& random) : made_(made) {
    for (size_t i = 0; i < made.loop.inputs.size(); ++i) {
      const LoopInput& each = made.loop.inputs[i];
      const int64_t n = static_cast<int>(i) == made.rng ? 3 : each.uniform ? 1 : made.n;
      inputs_.emplace_back(size_of(each.dtype) * static_cast<size_t>(n));
      random.fill(each.dtype, inputs_.back().data(), n);
    }
  }

  size_t result_bytes(size_t i) const {
    const LoopResult& result = made_.loop.results[i];
    const size_t n = result.kind == LoopResult::kStore ? static_cast<size_t>(made_.n) : 1;
    return n * size_of(dtype_of_value(made_.loop, result.value));
  }

  std::vector<std::vector<std::byte>> run(const LoopKernel& kernel) const {
    static const std::vector<Region> regions(16);
    std::vector<const void*> inputs;
    std::vector<void*> results;
    size_t region = 0;
    for (const auto& each : inputs_) {
      std::byte* at = regions[region++].place(each.size(), made_.at_end);
      std::memcpy(at, each.data(), each.size());
      inputs.push_back(at);
    }
    const size_t first = region;
    for (size_t i = 0; i < made_.loop.results.size(); ++i) {
      const Region& own = regions[region++];
      own.set(std::byte{0x5a});
      results.push_back(made_.over[i] >= 0
                            ? const_cast<void*>(inputs[static_cast<size_t>(made_.over[i])])
                            : own.place(result_bytes(i), made_.at_end));
    }
    kernel.run({inputs.data(), results.data(), made_.n, made_.first});
    std::vector<std::vector<std::byte>> made;
    for (size_t i = 0; i < results.size(); ++i) {
      const auto* at = static_cast<const std::byte*>(results[i]);
      made.emplace_back(at, at + result_bytes(i));
      if (made_.over[i] < 0) expect_untouched(regions[first + i], result_bytes(i));
    }
    return made;
  }

 private:
  void expect_untouched(const Region& region, size_t written) const {
    std::vector<std::byte> all = region.all();
    const auto begin =
        made_.at_end ? all.begin() : all.begin() + static_cast<std::ptrdiff_t>(written);
    const auto end = made_.at_end ? all.end() - static_cast<std::ptrdiff_t>(written) : all.end();
    EXPECT_TRUE(std::all_of(begin, end, [](std::byte each) { return each == std::byte{0x5a}; }))
        << "written beside the result";
  }

  const RandomLoop& made_;
  std::vector<std::vector<std::byte>> inputs_;
};

struct Counted {
  int blocks = 0, jit = 0;
  std::vector<double> jit_microseconds;
};

void expect_same(const RandomLoop& made, Generator& random, Counted& counted) {
  SCOPED_TRACE(text_of(made));
  const Case each(made, random);
  const auto scalar = make_scalar_loop(made.loop);
  ASSERT_NE(scalar, nullptr);
  const auto want = each.run(*scalar);
  for (const Isa isa : kAllIsas) {
    if (!has_isa(isa)) continue;
    set_isa(isa);
    const auto start = std::chrono::steady_clock::now();
    const auto jit = make_jit_loop(made.loop);
    const std::chrono::duration<double, std::micro> taken =
        std::chrono::steady_clock::now() - start;
    const auto blocks = make_block_loop(made.loop);
    counted.blocks += blocks != nullptr;
    counted.jit += jit != nullptr;
    if (jit != nullptr) counted.jit_microseconds.push_back(taken.count());
    for (const LoopKernel* kernel : {blocks.get(), jit.get()}) {
      if (kernel == nullptr) continue;
      const auto got = each.run(*kernel);
      for (size_t i = 0; i < got.size(); ++i) {
        const DType dtype = dtype_of_value(made.loop, made.loop.results[i].value);
        const int64_t at = first_difference(dtype,
                                            got[i].data(),
                                            want[i].data(),
                                            static_cast<int64_t>(got[i].size() / size_of(dtype)));
        EXPECT_EQ(at, -1) << "result " << i << " of " << (kernel == jit.get() ? "jit" : "blocks")
                          << " with " << name_of(isa);
      }
    }
  }
}

// Loops that quantized models have: bytes, less a zero point and multiplied by a scale, become
// numbers, and some function of them bytes again.
class QuantizedLoop {
 public:
  explicit QuantizedLoop(Generator& random) : random_(random) {}

  RandomLoop make() {
    made_.n = 1 + random_.below(kMostElements);
    Loop& loop = made_.loop;
    const int inputs = 1 + random_.below(3);
    for (int i = 0; i < inputs; ++i) {
      const DType dtype = kInputs[random_.below(std::size(kInputs))];
      loop.inputs.push_back({dtype, random_.below(8) == 0});
    }
    std::vector<int> numbers;
    for (int i = 0; i < inputs; ++i) numbers.push_back(number_of(i));
    int x = numbers[0];
    for (size_t i = 1; i < numbers.size(); ++i)
      x = random_.below(5) == 0   ? add<Mul>(x, numbers[i])
          : random_.below(5) == 0 ? add<Sub>(x, numbers[i])
                                  : add<Add>(x, numbers[i]);
    if (random_.below(2) == 0) x = add<Relu>(x);
    const int quotient = add<Div>(x, constant(scale()));
    if (random_.below(2) == 0) loop.results.push_back({.value = quotient});
    loop.results.push_back({.value = bytes_of(quotient)});
    made_.over.assign(loop.results.size(), -1);
    return made_;
  }

 private:
  static constexpr DType kInputs[] = {DType::kU8, DType::kU8, DType::kI8, DType::kF32};

  double scale() {
    const double scale = std::ldexp(1.0 + random_.below(1 << 23) * 0x1p-23, random_.below(24) - 20);
    return random_.below(16) == 0 ? -scale : scale;
  }
  int added(LoopOp op) {
    made_.loop.ops.push_back(std::move(op));
    return static_cast<int>(made_.loop.inputs.size() + made_.loop.ops.size()) - 1;
  }
  template <typename T>
  int add(int a, int b = -1) {
    LoopOp op{op_of<T>(), {a}, DType::kF32};
    if (b >= 0) op.operands.push_back(b);
    return added(std::move(op));
  }
  int constant(double value) {
    Constant constant;
    constant.dtype = DType::kF32;
    constant.values = {double{static_cast<float>(value)}};
    return added({op_of(constant), {}, DType::kF32});
  }
  int cast_to(DType dtype, int x) {
    Cast cast;
    cast.to = dtype;
    return added({op_of(cast), {x}, dtype});
  }
  int number_of(int input) {
    if (made_.loop.inputs[static_cast<size_t>(input)].dtype == DType::kF32) return input;
    Constant zero;
    zero.dtype = DType::kI32;
    zero.ints = {random_.below(3) == 0 ? 0 : random_.below(256) - 128};
    const int whole = cast_to(DType::kI32, input);
    const int at = added({op_of(zero), {}, DType::kI32});
    const int difference = added({op_of<Sub>(), {whole, at}, DType::kI32});
    return add<Mul>(cast_to(DType::kF32, difference), constant(scale()));
  }
  // Rounds as rounded_to_integers() of import/builders/quantized.h, or rounded towards zero.
  int bytes_of(int x) {
    constexpr double kWhole = 12582912.0;
    const bool is_signed = random_.below(3) == 0;
    const DType to = is_signed ? DType::kI8 : DType::kU8;
    const double least = is_signed ? -128 : 0;
    const double zero = random_.below(2) == 0 ? 0 : least + random_.below(256);
    x = add<Minimum>(add<Maximum>(x, constant(least - zero)), constant(least + 255 - zero));
    if (random_.below(4) == 0) return cast_to(to, x);
    x = add<Sub>(add<Add>(x, constant(kWhole)), constant(kWhole));
    x = add<Add>(x, constant(zero));
    const int half = is_signed ? add<Mul>(add<Sign>(x), constant(0.5)) : constant(0.5);
    return cast_to(to, random_.below(8) == 0 ? x : add<Add>(x, half));
  }

  Generator& random_;
  RandomLoop made_;
};

TEST(Loop, ExecutorsAgreeOnQuantizedLoops) {
  const test::CpuSettings restore;
  Counted counted;
  const int loops = test::cases(400);
  for (int i = 0; i < loops && !HasFailure(); ++i) {
    SCOPED_TRACE(fmt::format("seed {}", i));
    Generator random(static_cast<uint32_t>(i));
    const RandomLoop made = QuantizedLoop(random).make();
    expect_same(made, random, counted);
  }
  EXPECT_EQ(counted.jit, counted.blocks);
}

TEST(Loop, ExecutorsAgreeOnRandomLoops) {
  const test::CpuSettings restore;
  Counted counted;
  const int loops = test::cases(2000);
  for (int i = 0; i < loops && !HasFailure(); ++i) {
    SCOPED_TRACE(fmt::format("seed {}", i));
    Generator random(static_cast<uint32_t>(i));
    const RandomLoop made = random.make();
    expect_same(made, random, counted);
  }
  const int ways = 1 + static_cast<int>(has_isa(Isa::kAvx512));
  EXPECT_EQ(counted.blocks, ways * loops);
  // The others have f64 functions of libm, or casts without an instruction.
  EXPECT_GT(counted.jit, ways * loops / 2);
  std::sort(counted.jit_microseconds.begin(), counted.jit_microseconds.end());
  const size_t made = counted.jit_microseconds.size();
  RecordProperty("jit_kernels", static_cast<int>(made));
  RecordProperty("jit_microseconds_median",
                 fmt::format("{:.1f}", counted.jit_microseconds[made / 2]));
  RecordProperty("jit_microseconds_p99",
                 fmt::format("{:.1f}", counted.jit_microseconds[made * 99 / 100]));
}

Loop exp_loop() {
  return {.inputs = {{DType::kF32}},
          .ops = {{op_of<Exp>(), {0}, DType::kF32}},
          .results = {{.value = 1}}};
}

// Maps of this process whose line in the kernel's table has `mode`.
std::vector<std::string> maps_with(std::string_view mode) {
  std::ifstream maps("/proc/self/maps");
  std::vector<std::string> found;
  for (std::string line; std::getline(maps, line);)
    if (line.find(mode) != std::string::npos) found.push_back(line);
  return found;
}

// Other libraries of the test program may have such pages.
TEST(Loop, NoPageIsBothWrittenAndExecuted) {
  const auto before = maps_with("rwxp");
  const size_t code = maps_with("r-xp").size();
  const auto kernel = make_jit_loop(exp_loop());
  ASSERT_NE(kernel, nullptr);
  EXPECT_EQ(maps_with("rwxp"), before);
  EXPECT_GT(maps_with("r-xp").size(), code);
}

TEST(Loop, ASettingTurnsMachineCodeOff) {
  settings().set("cpu.jit", "false", Source::kFlag);
  EXPECT_EQ(make_jit_loop(exp_loop()), nullptr);
  settings().set("cpu.jit", "true", Source::kFlag);
  EXPECT_NE(make_jit_loop(exp_loop()), nullptr);
}

}  // namespace
}  // namespace ridge::cpu
