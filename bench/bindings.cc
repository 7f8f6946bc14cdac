// The cost of another address for an input or output than in the run before.
//
//   bench_bindings [--rounds N]
//
// Runs a program of 32 inputs and as many outputs of 16 floats each, with addresses that are bound
// once, with the same ones bound before each run, and with other ones bound before each run, in
// turn. Prints nanoseconds a run, and a tensor: the median of the differences.
#include <fmt/core.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bench/exit_code.h"
#include "ridge/base/clock.h"
#include "ridge/base/error.h"
#include "ridge/base/stats.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/source.h"
#include "ridge/run/backends.h"
#include "ridge/run/program.h"

namespace {

using namespace ridge;

constexpr size_t kInputs = 32, kTensors = 2 * kInputs;
constexpr int64_t kElements = 16;
constexpr int kRuns = 2000;  // between two looks at the clock

// Outputs are independent: the program does little beside being called.
ProgramGraphs graphs() {
  Graph graph("sums");
  for (size_t i = 0; i < kInputs; ++i)
    graph.add_output(fmt::format("y{}", i),
                     input(graph, fmt::format("x{}", i), {DType::kF32, {kElements}}) + 1.0);
  ProgramGraphs made;
  made.entries.push_back(std::move(graph));
  return made;
}

class Bound {
 public:
  Bound() : backend_(make_backend("cpu")), state_(*backend_), program_(graphs(), state_) {
    for (Tensor& memory : memory_) memory = Tensor({DType::kF32, {kTensors, kElements}});
    for (size_t i = 0; i < kInputs; ++i) {
      inputs_.push_back(program_.input(0, fmt::format("x{}", i)));
      outputs_.push_back(program_.output(0, fmt::format("y{}", i)));
    }
    bind(0);
  }

  enum class Binding : uint8_t { kOnce, kSame, kOther };

  /// Nanoseconds a run.
  double run(Binding binding) {
    const int64_t start = now_ns();
    for (int i = 0; i < kRuns; ++i) {
      if (binding != Binding::kOnce) bind(binding == Binding::kOther ? i % 2 : 0);
      program_.run(0);
    }
    return static_cast<double>(now_ns() - start) / kRuns;
  }

 private:
  void bind(size_t place) {
    auto* const floats = memory_[place].span<float>().data();
    for (size_t i = 0; i < kInputs; ++i) {
      const std::string_view why[] = {
          program_.bind_input(inputs_[i], floats + i * kElements),
          program_.bind_output(outputs_[i], floats + (kInputs + i) * kElements)};
      for (const std::string_view each : why) check(each.empty(), "a tensor is copied: {}", each);
    }
  }

  std::unique_ptr<Backend> backend_;
  State state_;
  Program program_;
  Tensor memory_[2];
  std::vector<DataSlot> inputs_, outputs_;
};

void measure(int rounds) {
  Bound bound;
  std::vector<double> once, same, other;
  for (int round = 0; round < rounds; ++round) {
    const double nanoseconds = bound.run(Bound::Binding::kOnce);
    once.push_back(nanoseconds);
    same.push_back((bound.run(Bound::Binding::kSame) - nanoseconds) / kTensors);
    other.push_back((bound.run(Bound::Binding::kOther) - nanoseconds) / kTensors);
  }
  fmt::print("{:.0f} ns a run of {} tensors; the same address {:.1f} ns a tensor, another {:.1f}\n",
             median(once),
             kTensors,
             median(same),
             median(other));
}

}  // namespace

int main(int argc, char** argv) {
  const bool is_plain = argc == 1, has_rounds = argc == 3 && std::string(argv[1]) == "--rounds";
  const int rounds = has_rounds ? std::atoi(argv[2]) : 15;
  if ((!is_plain && !has_rounds) || rounds < 1) {
    fmt::print(stderr, "usage: bench_bindings [--rounds N]\n");
    return 2;
  }
  return ridge::bench::exit_code([&] { measure(rounds); });
}
