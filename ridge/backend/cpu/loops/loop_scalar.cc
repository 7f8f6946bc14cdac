// Loops element by element, in plain C++: the oracle of the other executors of loops. Its ops are
// the forms of isa/forms.h, which other tests compare with the reference backend, and functions
// with longer arithmetic (tests/backend/math_test.cc).
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <type_traits>

#include "ridge/backend/cpu/block_kernel.h"
#include "ridge/backend/cpu/isa/forms.h"
#include "ridge/backend/cpu/loop.h"
#include "ridge/base/dtype.h"
#include "ridge/base/hash.h"
#include "ridge/base/philox.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/random.h"
#include "ridge/graph/ops/source.h"

namespace ridge::cpu {
namespace {

constexpr size_t kTurnLanes = 64;

using Cell = std::array<std::byte, sizeof(double)>;

template <typename T>
T get(const Cell& cell) {
  T value;
  std::memcpy(&value, cell.data(), sizeof value);
  return value;
}

template <typename T>
Cell cell_of(T value) {
  Cell cell{};
  std::memcpy(cell.data(), &value, sizeof value);
  return cell;
}

template <typename T>
inline constexpr bool kIs16Bit = std::is_same_v<T, F16> || std::is_same_v<T, BF16>;

// T in what it is computed in.
template <typename T>
auto computed(T x) {
  if constexpr (kIs16Bit<T>)
    return static_cast<float>(x);
  else
    return x;
}

// True when the form takes elements of T.
template <class Form, typename T>
constexpr bool takes() {
  if (Form::kTakes == Takes::kBools) return std::is_same_v<T, bool>;
  return is_float_type<T> || (Form::kTakes == Takes::kNumbers && !std::is_same_v<T, bool>);
}

// The result of the form. Where integers wrap, they do so in the widest unsigned type.
template <class Form, typename T, typename... Stored>
Cell form_cell(Stored... stored) {
  if constexpr (Form::kWraps && !is_float_type<T>) {
    return cell_of(static_cast<T>(Form::of(static_cast<uint64_t>(stored)...)));
  } else {
    const auto y = Form::of(computed(stored)...);
    if constexpr (std::is_same_v<decltype(y), const bool>)
      return cell_of(y);
    else
      return cell_of(T(y));
  }
}

// The result of the form with the number `op`.
template <class Forms, typename T, typename... Stored>
Cell cell_by(int op, Stored... stored) {
  std::optional<Cell> cell;
  Forms::for_each([&](int number, auto form) {
    using Form = decltype(form);
    if constexpr (takes<Form, T>())
      if (number == op) cell = form_cell<Form, T>(stored...);
  });
  if (!cell) throw InternalError("[loop] no such op of this dtype");
  return *cell;
}

Cell cast_cell(DType from, DType to, const Cell& x) {
  return dispatch(from, [&](auto source) {
    const auto value = get<typename decltype(source)::type>(x);
    return dispatch(
        to, [&](auto target) { return cell_of(convert<typename decltype(target)::type>(value)); });
  });
}

// The sums or maxima of 64 lanes, combined as Turns in isa/lanes.h does.
struct Accumulator {
  LoopResult::Kind kind;
  DType dtype;
  std::array<double, kTurnLanes> lanes{};

  Accumulator(LoopResult::Kind kind_of, DType type) : kind(kind_of), dtype(type) {
    if (kind == LoopResult::kMax) lanes.fill(-std::numeric_limits<double>::infinity());
  }
  // f32 values are exact in double; each sum is rounded to f32. Of equal maxima, zeros of either
  // sign, whole lanes keep the second and the fold within them the first.
  double combine(double a, double b, bool in_fold = false) const {
    if (kind == LoopResult::kMax) return !in_fold && a == b ? b : larger_of(a, b);
    if (dtype == DType::kF64) return a + b;
    return static_cast<double>(static_cast<float>(a) + static_cast<float>(b));
  }
  void add(int64_t i, double x) {
    double& lane = lanes[static_cast<size_t>(i) % kTurnLanes];
    lane = combine(lane, x);
  }
  double result() const {
    std::array<double, kTurnLanes> all = lanes;
    for (size_t i = 0; i < 16; ++i)
      all[i] = combine(combine(all[i], all[i + 16]), combine(all[i + 32], all[i + 48]));
    for (size_t half = 8; half > 0; half /= 2)
      for (size_t i = 0; i < half; ++i) all[i] = combine(all[i], all[i + half], true);
    return all[0];
  }
};

class ScalarLoop final : public LoopKernel {
 public:
  explicit ScalarLoop(const Loop& loop) : loop_(loop) {}

  static bool accepts(const Loop& loop) {
    for (const LoopOp& each : loop.ops) {
      const Op& op = *each.op;
      const auto* constant = dynamic_cast<const Constant*>(&op);
      const bool is_known = constant != nullptr ? constant->is_splat()
                                                : unary_op(op) || binary_op(op) ||
                                                      dynamic_cast<const Cast*>(&op) != nullptr ||
                                                      dynamic_cast<const Where*>(&op) != nullptr ||
                                                      dynamic_cast<const Dropout*>(&op) != nullptr;
      if (!is_known) return false;
    }
    for (const LoopResult& result : loop.results)
      if (result.kind != LoopResult::kStore && loop.dtype_of(result.value) != DType::kF64 &&
          loop.dtype_of(result.value) != DType::kF32)
        return false;
    return true;
  }

  void run(const LoopArgs& args) const override {
    std::vector<Cell> cells(loop_.inputs.size() + loop_.ops.size());
    std::vector<Accumulator> sums;
    for (const LoopResult& result : loop_.results)
      sums.emplace_back(result.kind, dtype(result.value));
    // Results may lie over inputs, uniform ones too: those are read first.
    for (size_t i = 0; i < loop_.inputs.size(); ++i)
      if (loop_.inputs[i].uniform) load(args.inputs[i], 0, static_cast<int>(i), cells);
    const std::vector<Draw> draws = draws_of(args);
    for (int64_t i = 0; i < args.n; ++i) {
      load_streams(args, i, cells);
      for (size_t k = 0; k < loop_.ops.size(); ++k)
        cells[loop_.inputs.size() + k] = draws[k].op != nullptr
                                             ? dropout_cell(draws[k], i, loop_.ops[k], cells)
                                             : evaluate(loop_.ops[k], cells);
      keep_results(args, i, cells, sums);
    }
    for (size_t r = 0; r < sums.size(); ++r) {
      if (sums[r].kind == LoopResult::kStore) continue;
      if (sums[r].dtype == DType::kF64)
        *static_cast<double*>(args.results[r]) = sums[r].result();
      else
        *static_cast<float*>(args.results[r]) = static_cast<float>(sums[r].result());
    }
  }

 private:
  DType dtype(int value) const { return loop_.dtype_of(value); }

  void load(const void* from, int64_t i, int value, std::vector<Cell>& cells) const {
    const size_t size = size_of(dtype(value));
    std::memcpy(cells[static_cast<size_t>(value)].data(),
                static_cast<const std::byte*>(from) + static_cast<size_t>(i) * size,
                size);
  }

  // A dropout of one run; of other ops, nothing.
  struct Draw {
    const Dropout* op = nullptr;
    RngKey key;
    uint64_t first = 0;  // element at which the pass begins
  };

  std::vector<Draw> draws_of(const LoopArgs& args) const {
    std::vector<Draw> draws(loop_.ops.size());
    for (size_t k = 0; k < draws.size(); ++k) {
      const auto* op = dynamic_cast<const Dropout*>(loop_.ops[k].op.get());
      if (op == nullptr) continue;
      std::array<uint64_t, 3> rng;  // seed, step, first sample
      std::memcpy(
          rng.data(), args.inputs[static_cast<size_t>(loop_.ops[k].operands[1])], sizeof rng);
      const auto per_sample = static_cast<uint64_t>(loop_.elements / op->samples);
      draws[k] = {op,
                  {.seed = rng[0], .step = rng[1], .site = hash64(op->key)},
                  rng[2] * per_sample + static_cast<uint64_t>(args.first)};
    }
    return draws;
  }

  static Cell dropout_cell(const Draw& draw,
                           int64_t i,
                           const LoopOp& op,
                           const std::vector<Cell>& cells) {
    const bool kept = static_cast<double>(random_f32(
                          draw.key, draw.first + static_cast<uint64_t>(i))) >= draw.op->p;
    const Cell& x = cells[static_cast<size_t>(op.operands[0])];
    return dispatch_float(op.dtype, "dropout", [&](auto tag) {
      using T = typename decltype(tag)::type;
      const auto value = computed(get<T>(x));
      return cell_of(
          kept ? T(value * static_cast<decltype(computed(T()))>(1.0 / (1.0 - draw.op->p))) : T(0));
    });
  }

  void load_streams(const LoopArgs& args, int64_t i, std::vector<Cell>& cells) const {
    for (size_t k = 0; k < loop_.inputs.size(); ++k)
      if (!loop_.inputs[k].uniform) load(args.inputs[k], i, static_cast<int>(k), cells);
  }

  void keep_results(const LoopArgs& args,
                    int64_t i,
                    const std::vector<Cell>& cells,
                    std::vector<Accumulator>& sums) const {
    for (size_t r = 0; r < sums.size(); ++r) {
      const int value = loop_.results[r].value;
      const Cell& cell = cells[static_cast<size_t>(value)];
      const size_t size = size_of(dtype(value));
      if (sums[r].kind == LoopResult::kStore)
        std::memcpy(static_cast<std::byte*>(args.results[r]) + static_cast<size_t>(i) * size,
                    cell.data(),
                    size);
      else
        sums[r].add(i,
                    sums[r].dtype == DType::kF64 ? get<double>(cell)
                                                 : static_cast<double>(get<float>(cell)));
    }
  }

  Cell evaluate(const LoopOp& each, const std::vector<Cell>& cells) const {
    const Op& op = *each.op;
    const auto operand = [&](size_t k) -> const Cell& {
      return cells[static_cast<size_t>(each.operands[k])];
    };
    if (const auto* constant = dynamic_cast<const Constant*>(&op)) return constant_cell(*constant);
    const DType type = dtype(each.operands[0]);
    if (dynamic_cast<const Cast*>(&op) != nullptr) return cast_cell(type, each.dtype, operand(0));
    if (dynamic_cast<const Where*>(&op) != nullptr)
      return get<bool>(operand(0)) ? operand(1) : operand(2);
    return dispatch(type, [&](auto tag) {
      using T = typename decltype(tag)::type;
      if (const auto unary = unary_op(op))
        return cell_by<UnaryForms, T>(static_cast<int>(*unary), get<T>(operand(0)));
      return cell_by<BinaryForms, T>(
          static_cast<int>(*binary_op(op)), get<T>(operand(0)), get<T>(operand(1)));
    });
  }

  static Cell constant_cell(const Constant& constant) {
    return dispatch(constant.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      return cell_of(constant.values.empty() ? convert<T>(constant.ints[0])
                                             : convert<T>(constant.values[0]));
    });
  }

  const Loop loop_;
};

}  // namespace

std::unique_ptr<LoopKernel> make_scalar_loop(const Loop& loop) {
  if (!ScalarLoop::accepts(loop)) return nullptr;
  return std::make_unique<ScalarLoop>(loop);
}

}  // namespace ridge::cpu
