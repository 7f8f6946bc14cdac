#include "ridge/train/evaluate.h"

#include <cmath>

#include "ridge/base/clock.h"
#include "ridge/infer/trained_data.h"
#include "ridge/infer/weights.h"
#include "ridge/train/batch_input.h"
#include "ridge/train/task.h"

namespace ridge {

EvalResult evaluate_model(const TrainConfig& config,
                          const std::string& weights,
                          TrainObserver& observer) {
  check_has_eval_data(config);
  const auto backend = open_backend(config.train.device, observer);
  const OpenWeights opened = open_weights(config, weights, observer);
  if (!opened.data) observer.on_message(unchecked_note(opened.path, config.data.kind));
  const Task task = open_eval_task(config, opened.data ? &*opened.data : nullptr);
  for (const std::string& note : task.eval_data->notes()) observer.on_message(note);
  const auto& sizes = task.sizes.eval;
  std::vector<Graph> entries;
  for (const nn::BatchSize& size : sizes)
    entries.push_back(task.training->evaluation(size, nn::entry_name("eval", sizes, size)));
  ProgramGraphs graphs{.state = task.training->model_state(), .entries = std::move(entries)};
  State state(*backend);
  EvalResult result;
  result.model = name_of(config.model.kind);
  result.weights = opened.path;
  load_weights(state, graphs.state, opened);
  Program program(std::move(graphs), state, inference_options());
  const int64_t start = now_ns();
  const data::BatchPlan plan{.batch = sizes[0].samples, .shuffle = false, .repeat = false};
  data::Loader loader(*task.eval_data, plan, config.loader);
  double loss = 0, correct = 0, count = 0;
  for (;;) {
    const data::Batch& batch = loader.next();
    if (batch.count == 0) break;
    const nn::BatchSize size = sizes[nn::fitting_size(sizes, batch.count, batch.longest)];
    const size_t entry = program.entry(nn::entry_name("eval", sizes, size));
    const nn::SampleTypes& sample = task.training->model().sample();
    BatchInput(program.input(entry, "x"), size.samples, sample.x).write(program, batch.fields[0]);
    BatchInput(program.input(entry, "y"), size.samples, sample.y).write(program, batch.fields[1]);
    program.run(entry);
    const auto read = [&](const char* name) {
      Tensor scalar({task.training->accumulate(), {}});
      program.read(program.output(entry, name), scalar.data());
      program.synchronize();
      return scalar.at(0);
    };
    loss += read("loss");
    count += read("count");
    correct += task.eval_data->classes() > 0 ? read("correct") : NAN;
    result.report.samples += batch.count;
  }
  result.report.loss = loss / count;
  result.report.accuracy = correct / count;
  result.report.seconds = static_cast<double>(now_ns() - start) * 1e-9;
  return result;
}

}  // namespace ridge
