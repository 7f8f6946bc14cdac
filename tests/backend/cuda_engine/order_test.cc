// Launches, copies, events and their order are what the plan says, call by call: the log of the
// driver's stand-in against lines that are written down from the plan alone (planned_calls.h). All
// calls are held, from the first step on: an additional one, a wait or an allocation, is a
// difference too.
#include <algorithm>

#include "ridge/data/batch_planner.h"
#include "tests/backend/cuda/fake_blas/fake_blas.h"
#include "tests/backend/cuda_engine/mirrored_session.h"
#include "tests/backend/cuda_engine/simulated_gpu.h"
#include "tests/backend/cuda_engine/small_program.h"
#include "tests/support/scale.h"
#include "tests/train/train_runs.h"

namespace ridge::test {
namespace {

class CudaOrder : public SimulatedGpu {
 protected:
  CudaOrder() {
    // What kernels compute is not looked at here.
    compiler().makes_empty = true;
    fake_.set_schedule(Schedule::kAtOnce);
  }
  ~CudaOrder() override { compiler().makes_empty = false; }

  // The log since the last call is what the mirror says; both start anew.
  void expect_planned(PlannedCalls& planned, const std::string& what) {
    ASSERT_GT(planned.lines().size(), 0u) << what;
    ASSERT_EQ(planned.difference(fake_.log()), "") << what;
    planned.clear();
    fake_.clear_log();
  }
  void train(const TrainConfig& config, Backend& gpu);
};

// ---- a program by itself ----

TEST_F(CudaOrder, AProgramAsksForWhatItsPlanSays) {
  for (const Capture capture : {Capture::kOff, Capture::kAuto}) {
    const auto gpu = make_backend_cuda();
    ProgramOptions options;
    options.capture = capture;
    Program program(small_program(), *gpu, options);
    PlannedCalls planned(program, fake_, capture, Caller::kPlannedCalls);
    const HostMemory host(*gpu, 16384);
    std::fill_n(host.get(), 16384, std::byte{});
    const size_t micro = program.entry("micro"), apply = program.entry("apply");
    const auto read = [&](const auto& slot, int64_t at) {
      planned.read(slot, fake_.place_of(host.get() + at), host.get() + at);
    };
    ASSERT_GT(program.plan().staging_bytes, 0);
    ASSERT_GT(planned.nodes(micro), 3u);
    fake_.clear_log();
    for (int64_t step = 0; step < 12; ++step) {
      // The rows of x are longer on the host in some steps.
      for (int64_t part = 0; part < 2; ++part) {
        constexpr size_t kRow = kFeatures * sizeof(float);
        if (step % 4 == 3)
          planned.write_rows(program.input(micro, "x"), host.get(), kRow, kRow + 12);
        else
          planned.write(program.input(micro, "x"), host.get() + part * 1024);
        planned.write(program.input(micro, "y"), host.get() + 4096 + part * 512);
        planned.run(micro);
      }
      planned.write_scalars(program.input(apply, "hyper"), host.get());
      planned.run(apply);
      expect_planned(planned, fmt::format("step {}", step));
      if (HasFatalFailure()) return;
      // Results that nobody waits for, of the state too, and a wait.
      if (step % 3 == 1) read(program.output(apply, "norm"), 8192);
      if (step % 3 == 1) read(program.output(micro, "loss"), 8256);
      if (step % 4 == 2) read(*find_slot(program.plan().state, "w"), 8320);
      if (step % 5 == 4) planned.synchronize();
      if (planned.lines().empty()) continue;
      expect_planned(planned, fmt::format("reading after step {}", step));
      if (HasFatalFailure()) return;
    }
  }
}

// What lies side by side, where it waits and where it goes, is one copy.
TEST_F(CudaOrder, InputsSideBySideAreTakenTogether) {
  ProgramGraphs graphs;
  Graph& graph = graphs.entries.emplace_back("main");
  const TensorType type{DType::kF32, {1024}};
  const std::vector<std::string> names = {"a", "b", "c", "d"};
  Value sum;
  for (const std::string& name : names)
    sum = name == "a" ? exp(input(graph, name, type)) : add(exp(sum), input(graph, name, type));
  graph.add_output("sum", sum);
  const auto gpu = make_backend_cuda();
  Program program(std::move(graphs), *gpu);
  PlannedCalls planned(program, fake_, Capture::kAuto, Caller::kPlannedCalls);
  const HostMemory host(*gpu, type.bytes());
  fake_.clear_log();
  for (int run = 0; run < 4; ++run) {
    for (const std::string& name : names) planned.write(program.input(0, name), host.get());
    planned.run(0);
    EXPECT_LT(lines({"cuMemcpyDtoDAsync_v2"}).size(), names.size());
    expect_planned(planned, fmt::format("run {}", run));
    if (HasFatalFailure()) return;
  }
}

// ---- training sessions ----

void CudaOrder::train(const TrainConfig& config, Backend& gpu) {
  const Task task = open_task(config);
  // The samples of the last batch of an epoch, which are an entry of their own.
  const int64_t rest = data::BatchPlanner(*task.train_data, batch_plan(config)).rest();
  MirroredSession both(task, config, gpu, fake_);
  fake_.clear_log();
  // Long enough that the number of skipped steps is asked for while nobody waits.
  for (int64_t step = 0; step < 80; ++step) {
    both.run_step(rest > 0 && (step == 9 || step == 11) ? rest : config.train.batch, step);
    if (step == 2 || step == 13) both.read_result();
    if (step >= 4 && step < 8) both.evaluate(task.sizes.eval.at(0).samples);
    if (step == 10) both.read_halted();
    expect_planned(both.planned(), fmt::format("step {}", step));
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(both.session().program().is_recorded(0), config.train.capture == "auto");
}

std::string name_of(const TrainConfig& config) {
  return fmt::format("{} {} micro {} capture {}",
                     config.model.kind,
                     config.train.precision,
                     config.train.micro,
                     config.train.capture);
}

// In the short form every fifth: of each kind, precision, micro and capture some.
std::vector<TrainConfig> configs() {
  std::vector<TrainConfig> all;
  for (const char* kind : {"mlp", "gpt", "cnn"})
    for (const char* precision : {"f32", "fp16"})
      for (const int64_t micro : {1, 2})
        for (const char* capture : {"auto", "off"}) {
          TrainConfig& config = all.emplace_back(small_config(kind));
          config.train.precision = precision;
          config.train.micro = micro;
          config.train.capture = capture;
        }
  if (!is_short_scale()) return all;
  std::vector<TrainConfig> some;
  for (size_t i = 0; i < all.size(); i += 5) some.push_back(std::move(all[i]));
  return some;
}

TEST_F(CudaOrder, ATrainingSessionAsksForWhatItsPlanSays) {
  for (const TrainConfig& config : configs()) {
    SCOPED_TRACE(name_of(config));
    fake_.reset();
    fake_.set_schedule(Schedule::kAtOnce);
    const auto gpu = make_backend_cuda();
    train(config, *gpu);
    if (HasFailure()) return;
  }
}

TEST_F(CudaOrder, ProductsOfALibraryAreWhereThePlanHasThem) {
  FakeBlas& blas = fake_blas();
  for (const size_t workspace : {size_t{0}, size_t{4112}})
    for (const TrainConfig& config : configs()) {
      SCOPED_TRACE(fmt::format("{} with {} bytes", name_of(config), workspace));
      fake_.reset();
      fake_.set_schedule(Schedule::kAtOnce);
      blas.reset(RIDGE_FAKE_CUDA);
      blas.set_algorithms({{.workspace_bytes = workspace}});
      {
        const auto gpu = make_backend_with_blas();
        train(config, *gpu);
      }
      EXPECT_EQ(blas.live(), std::vector<std::string>{});
      EXPECT_EQ(blas.faults(), std::vector<std::string>{});
      if (HasFailure()) return;
    }
}

}  // namespace
}  // namespace ridge::test
