// Elementwise arithmetic, functions, comparison, logic, selection and casts.
#include "ridge/graph/ops/elementwise.h"

#include <cmath>
#include <cstring>

#include "ridge/backend/ref/kernel.h"
#include "ridge/backend/ref/ref_kernels.h"

namespace ridge::ref {
namespace {

// Adds op T as f of each element; f takes and gives a number of either kind.
template <typename T, typename F>
void add_unary(KernelTable& table, F f) {
  add_kernel<T>(table, [f](const T&, const Call& call) {
    dispatch_number<T>(call.inputs[0].dtype, [&]<typename V>(TypeTag<V>) {
      const std::vector<V> x = call.read<V>(0);
      std::vector<decltype(f(V{}))> y(x.size());
      for (size_t i = 0; i < x.size(); ++i) y[i] = f(x[i]);
      call.write(0, y);
    });
  });
}

template <typename T, typename F>
void add_binary(KernelTable& table, F f) {
  add_kernel<T>(table, [f](const T&, const Call& call) {
    dispatch_number<T>(call.inputs[0].dtype, [&]<typename V>(TypeTag<V>) {
      const std::vector<V> a = call.read<V>(0), b = call.read<V>(1);
      std::vector<decltype(f(V{}, V{}))> y(a.size());
      for (size_t i = 0; i < a.size(); ++i) y[i] = f(a[i], b[i]);
      call.write(0, y);
    });
  });
}

double absolute(double x) { return std::fabs(x); }
int64_t absolute(int64_t x) { return x < 0 ? minus(int64_t{0}, x) : x; }
double negative(double x) { return -x; }
int64_t negative(int64_t x) { return minus(int64_t{0}, x); }

template <typename V>
V sign_of(V x) {
  if (is_nan(x)) return x;
  return static_cast<V>((x > V{0}) - (x < V{0}));
}

void add_unary_kernels(KernelTable& table) {
  add_unary<Neg>(table, [](auto x) { return negative(x); });
  add_unary<Abs>(table, [](auto x) { return absolute(x); });
  add_unary<Sign>(table, [](auto x) { return sign_of(x); });
  add_unary<Exp>(table, [](double x) { return std::exp(x); });
  add_unary<Log>(table, [](double x) { return std::log(x); });
  add_unary<Sin>(table, [](double x) { return std::sin(x); });
  add_unary<Cos>(table, [](double x) { return std::cos(x); });
  add_unary<Tanh>(table, [](double x) { return std::tanh(x); });
  add_unary<Erf>(table, [](double x) { return std::erf(x); });
  add_unary<Sqrt>(table, [](double x) { return std::sqrt(x); });
  add_unary<Rsqrt>(table, [](double x) { return 1.0 / std::sqrt(x); });
  add_unary<IsFinite>(table, [](double x) { return int64_t{std::isfinite(x)}; });
  add_unary<LogicalNot>(table, [](int64_t x) { return int64_t{x == 0}; });
}

void add_binary_kernels(KernelTable& table) {
  add_binary<Add>(table, [](auto a, auto b) { return plus(a, b); });
  add_binary<Sub>(table, [](auto a, auto b) { return minus(a, b); });
  add_binary<Mul>(table, [](auto a, auto b) { return times(a, b); });
  add_binary<Div>(table, [](double a, double b) { return a / b; });
  add_binary<Fmod>(table, [](double a, double b) { return std::fmod(a, b); });
  add_binary<Pow>(table, [](double a, double b) { return std::pow(a, b); });
  add_binary<Maximum>(table, [](auto a, auto b) { return is_larger(b, a) ? b : a; });
  add_binary<Minimum>(table, [](auto a, auto b) { return is_nan(b) || b < a ? b : a; });
  add_binary<Equal>(table, [](auto a, auto b) { return int64_t{a == b}; });
  add_binary<NotEqual>(table, [](auto a, auto b) { return int64_t{a != b}; });
  add_binary<Less>(table, [](auto a, auto b) { return int64_t{a < b}; });
  add_binary<LessEqual>(table, [](auto a, auto b) { return int64_t{a <= b}; });
  add_binary<Greater>(table, [](auto a, auto b) { return int64_t{a > b}; });
  add_binary<GreaterEqual>(table, [](auto a, auto b) { return int64_t{a >= b}; });
  add_binary<LogicalAnd>(table, [](int64_t a, int64_t b) { return a & b; });
  add_binary<LogicalOr>(table, [](int64_t a, int64_t b) { return a | b; });
}

// Reading and writing convert, so a cast is just those.
void cast(const Cast&, const Call& call) {
  dispatch_number<Cast>(call.inputs[0].dtype,
                        [&]<typename V>(TypeTag<V>) { call.write(0, call.read<V>(0)); });
}

// Copies bits, so that any dtype will do.
void where(const Where&, const Call& call) {
  const std::vector<int64_t> condition = call.read<int64_t>(0);
  const size_t size = size_of(call.outputs[0].dtype);
  for (size_t i = 0; i < condition.size(); ++i) {
    const std::byte* from = call.input_bytes(condition[i] != 0 ? 1 : 2);
    std::memcpy(call.output_bytes(0) + i * size, from + i * size, size);
  }
}

}  // namespace

void add_elementwise_kernels(KernelTable& table) {
  add_unary_kernels(table);
  add_binary_kernels(table);
  add_kernel<Cast>(table, cast);
  add_kernel<Where>(table, where);
}

}  // namespace ridge::ref
