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

class MirroredProgram {
 public:
  MirroredProgram(Backend& gpu, Capture capture, const FakeCuda& fake)
      : captures_(capture != Capture::kOff),
        program_(small_program(), gpu, options(capture)),
        planned_(program_, fake),
        runs_(program_.entries().size()),
        host_(gpu, kHostBytes),
        fake_(fake) {
    std::fill_n(host_.get(), kHostBytes, std::byte{});
  }
  PlannedCalls& planned() { return planned_; }
  Program& program() { return program_; }

  // The rows of x are longer on the host in some steps.
  void step(int64_t number) {
    for (int64_t part = 0; part < 2; ++part) {
      if (number % 4 == 3)
        write_rows("micro", "x");
      else
        write("micro", "x", part * 1024);
      write("micro", "y", 4096 + part * 512);
      run("micro");
    }
    write_scalars("apply", "hyper");
    run("apply");
  }
  void read(const char* entry, const char* name, int64_t at) {
    const DataSlot slot = program_.output(program_.entry(entry), name);
    program_.read(slot, host_.get() + at);
    planned_.read(slot, fake_.place_of(host_.get() + at));
  }
  void read_state(const char* name, int64_t at) {
    const PlanSlot& slot = *find_slot(program_.plan().state, name);
    program_.read(slot, host_.get() + at);
    planned_.read(slot, fake_.place_of(host_.get() + at));
  }
  void synchronize() {
    program_.synchronize();
    planned_.synchronize();
  }

 private:
  static constexpr size_t kHostBytes = 16384;

  static ProgramOptions options(Capture capture) {
    ProgramOptions made;
    made.capture = capture;
    return made;
  }
  DataSlot input(const char* entry, const char* name) const {
    return program_.input(program_.entry(entry), name);
  }
  void write(const char* entry, const char* name, int64_t at) {
    program_.write(input(entry, name), host_.get() + at);
    planned_.write(input(entry, name), host_.get() + at);
  }
  void write_scalars(const char* entry, const char* name) {
    program_.write_scalars(input(entry, name), host_.get());
    planned_.write_scalars(input(entry, name));
  }
  void write_rows(const char* entry, const char* name) {
    constexpr size_t kRow = kFeatures * sizeof(float);
    program_.write_rows(input(entry, name), host_.get(), kRow, kRow + 12);
    planned_.write_rows(input(entry, name));
  }
  void run(const char* name) {
    const size_t entry = program_.entry(name);
    program_.run(entry);
    const int64_t before = runs_[entry]++;
    planned_.run(entry,
                 !captures_ || before == 0 ? Launching::kOneByOne
                 : before == 1             ? Launching::kRecorded
                                           : Launching::kReplayed);
  }

  bool captures_;
  Program program_;
  PlannedCalls planned_;
  std::vector<int64_t> runs_;
  HostMemory host_;
  const FakeCuda& fake_;
};

TEST_F(CudaOrder, AProgramAsksForWhatItsPlanSays) {
  for (const Capture capture : {Capture::kOff, Capture::kAuto}) {
    const auto gpu = make_backend_cuda();
    MirroredProgram both(*gpu, capture, fake_);
    ASSERT_GT(both.program().plan().staging_bytes, 0);
    ASSERT_GT(both.planned().nodes(0), 3u);
    fake_.clear_log();
    for (int64_t step = 0; step < 12; ++step) {
      both.step(step);
      expect_planned(both.planned(), fmt::format("step {}", step));
      if (HasFatalFailure()) return;
      // Results that nobody waits for, of the state too, and a wait.
      if (step % 3 == 1) both.read("apply", "norm", 8192);
      if (step % 3 == 1) both.read("micro", "loss", 8256);
      if (step % 4 == 2) both.read_state("w", 8320);
      if (step % 5 == 4) both.synchronize();
      if (both.planned().lines().empty()) continue;
      expect_planned(both.planned(), fmt::format("reading after step {}", step));
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
  PlannedCalls planned(program, fake_);
  const HostMemory host(*gpu, type.bytes());
  fake_.clear_log();
  for (int run = 0; run < 4; ++run) {
    for (const std::string& name : names) {
      program.write(program.input(0, name), host.get());
      planned.write(program.input(0, name), host.get());
    }
    program.run(0);
    planned.run(0,
                run == 0   ? Launching::kOneByOne
                : run == 1 ? Launching::kRecorded
                           : Launching::kReplayed);
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
  if (cases(10) == 10 || is_full_scale()) return all;
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
