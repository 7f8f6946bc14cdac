#include "ridge/cli/inspect/model_facts.h"

#include "ridge/base/cpu/parallel.h"
#include "ridge/graph/model_source.h"
#include "ridge/infer/input_sizes.h"
#include "ridge/infer/weights.h"
#include "ridge/run/state.h"
#include "ridge/run/tuning.h"

namespace ridge {
namespace {

class NoteKeeper final : public TrainObserver {
 public:
  explicit NoteKeeper(std::vector<std::string>& notes) : notes_(notes) {}
  void on_message(std::string_view text) override { notes_.emplace_back(text); }

 private:
  std::vector<std::string>& notes_;
};

// Sizes of 1 suit many a model. Where they do not, the error is that nobody gave others.
ProgramGraphs graphs_of(const ModelFacts& facts) {
  if (facts.assumed.empty()) return facts.model.source->bind(facts.binding);
  try {
    return facts.model.source->bind(facts.binding);
  } catch (const OutOfMemory&) {
    throw;
  } catch (const UserError&) {
    refuse_missing_sizes(facts.assumed);
  }
}

}  // namespace

ModelFacts inspect_model(const InspectOptions& options) {
  LoadOptions load{.weights = {}, .device = options.device, .set = {}};
  for (const std::string& text : options.set) load.set.push_back(parse_set(text));
  apply_onnx_options(options.file, load, settings());
  apply_threads();
  std::vector<std::string> notes;
  NoteKeeper observer(notes);
  ModelFacts facts{{}, load_onnx_model(options.file, load.device, observer)};
  facts.notes = std::move(notes);
  InputSizes sizes =
      input_sizes(facts.model.source->inputs(), parse_sizes(options.dims), /*samples=*/1);
  facts.binding = std::move(sizes.binding);
  facts.assumed = std::move(sizes.missing);
  for (const std::string& name : facts.assumed) facts.binding[name] = 1;
  Backend& backend = facts.model.state->backend();
  Tuning kept(backend, Tuning::Keeping::kReads);
  ProgramOptions program = inference_options(*facts.model.source);
  program.plan.choose = kept.choose(inference_range(backend));
  facts.program = compile_program(graphs_of(facts), backend, program);
  add_entries(facts, backend, nullptr);
  return facts;
}

}  // namespace ridge
