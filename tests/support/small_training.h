// A small program that trains, and the steps of a run: for devices that work beside the host.
#pragma once

#include <algorithm>
#include <vector>

#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/source.h"
#include "ridge/run/program.h"
#include "tests/support/own_program.h"

namespace ridge::test {

inline constexpr int64_t kWidth = 16;
inline const TensorType kRow{DType::kF32, {kWidth}};
inline const TensorType kRows{DType::kF32, {kWidth, kWidth}};

/// The entries of a training: micro-batches that add up, an update with a small input, an
/// evaluation; and an entry without data, whose results nothing but the wait for a read keeps.
inline ProgramGraphs small_training() {
  ProgramGraphs graphs;
  for (const char* name : {"p", "sum", "ticks"})
    graphs.state.push_back({name, kRow, StateRole::kParameter});
  const auto open = [&](const char* name) -> Graph& { return graphs.entries.emplace_back(name); };
  {
    Graph& g = open("micro");
    const Value x = input(g, "x", kRows), p = input(g, "p", kRow), sum = input(g, "sum", kRow);
    const Value part = input(g, "part", kRow);
    const Value y = matmul(exp(matmul(x, x) * 0.01), x);
    g.add_output("sum.new", sum + part * p + reduce_sum(y, {0}), "sum");
    g.add_output("y", y);
  }
  {
    Graph& g = open("apply");
    const Value p = input(g, "p", kRow), sum = input(g, "sum", kRow);
    const Value next = p - sum * input(g, "hyper", kRow);
    g.add_output("p.new", next, "p");
    g.add_output("sum.new", sum * 0.5, "sum");
    g.add_output("norm", exp(next * -0.01));
  }
  {
    Graph& g = open("eval");
    const Value x = input(g, "x", kRow);
    g.add_output("loss", x * input(g, "p", kRow) + exp(x));
  }
  {
    Graph& g = open("tick");
    const Value ticks = input(g, "ticks", kRow), p = input(g, "p", kRow);
    g.add_output("ticks.new", ticks + 1.0, "ticks");
    g.add_output("seen", exp(ticks * 0.1) + p);
  }
  return graphs;
}

/// Values of step `step` that no other step has.
inline void fill(Tensor& tensor, int64_t step) {
  for (int64_t i = 0; i < tensor.elements(); ++i)
    tensor.set(i, 0.001 * static_cast<double>((i * 7 + step * 13) % 101) - 0.03);
}

/// Everything that is read while the program runs, and the state that it leaves.
struct Seen {
  std::vector<Tensor> results;
  bool operator==(const Seen& other) const {
    return results.size() == other.results.size() &&
           std::equal(results.begin(),
                      results.end(),
                      other.results.begin(),
                      [](const Tensor& a, const Tensor& b) { return a.same_bits(b); });
  }
};

/// Steps of it.
class Loop {
 public:
  Loop(Backend& backend, const ProgramOptions& options, int64_t steps)
      : program_(small_training(), backend, options), steps_(steps) {
    for (const char* name : {"p", "sum", "ticks"}) {
      Tensor first(kRow);
      fill(first, name[0]);
      program_.state().write(name, first);
    }
    seen_.results.reserve(static_cast<size_t>(steps * 8));
  }
  Program& program() { return program_; }

  Seen run() {
    for (int64_t step = 0; step < steps_; ++step) run_step(step);
    program_.synchronize();
    for (const char* name : {"p", "sum", "ticks"})
      seen_.results.push_back(program_.state().read(name));
    return std::move(seen_);
  }

  // Runs a step as training does: host memory of a batch is used again as soon as it may be,
  // scalars at once, and reads are not waited for.
  void run_step(int64_t step) {
    for (int64_t part = 0; part < 2; ++part) {
      Tensor& x = batches_[part];
      fill(x, 2 * step + part);
      if (step % 6 == 5) {  // the same numbers as the first of longer rows, which change at once
        for (int64_t i = 0; i < kRows.elements(); ++i)
          longer_.set(i / kWidth * (kWidth + 3) + i % kWidth, x.at(i));
        constexpr size_t kBytes = kWidth * sizeof(float);
        program_.write_rows(
            input("micro", "x"), longer_.data(), kBytes, kBytes + 3 * sizeof(float));
        fill(longer_, step);
      } else {
        program_.write(input("micro", "x"), x.data());
      }
      write_scalars("micro", "part", 2 * step + part + 50);
      program_.run(program_.entry("micro"));
    }
    write_scalars("apply", "hyper", step + 70);
    program_.run(program_.entry("apply"));
    if (step % 3 == 1) read("apply", "norm");
    if (step % 4 == 2)
      for (int i = 0; i < 3; ++i) {
        program_.run(program_.entry("tick"));
        read("tick", "seen");
      }
    if (step % 5 == 3) {
      write_scalars("eval", "x", step + 90);
      program_.run(program_.entry("eval"));
      read("eval", "loss");
    }
    if (step % 7 == 6) program_.synchronize();
  }

 private:
  DataSlot input(const char* entry, const char* name) {
    return program_.input(program_.entry(entry), name);
  }
  void write_scalars(const char* entry, const char* name, int64_t step) {
    fill(scalars_, step);
    program_.write_scalars(input(entry, name), scalars_.data());
  }
  void read(const char* entry, const char* name) {
    Tensor& to = seen_.results.emplace_back(kRow);
    program_.read(program_.output(program_.entry(entry), name), to.data());
  }

  // Before the program, which still reads and writes them when it goes.
  Tensor batches_[2] = {Tensor(kRows), Tensor(kRows)};
  Tensor scalars_{kRow}, longer_{TensorType{DType::kF32, {kWidth, kWidth + 3}}};
  Seen seen_;
  OwnProgram program_;
  int64_t steps_;
};

inline constexpr int64_t kSteps = 24;

/// All steps, from the start.
inline Seen run_on(Backend& backend, Capture capture = Capture::kAuto) {
  ProgramOptions options;
  options.capture = capture;
  return Loop(backend, options, kSteps).run();
}

}  // namespace ridge::test
