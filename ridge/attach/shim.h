// The shim makes the steps of a PyTorch program visible: sitecustomize.py and the files that it
// loads with torch (ridge/attach/shim/), in a folder of ours that comes first on PYTHONPATH.
//
// Every process of the program that imports torch writes into that folder, and nowhere else:
//   facts_PID.json   one object (ProcessFacts below), replaced as a whole when it has changed and
//                    twice a second while steps go on
//   spans_PID.json   a Chrome trace that grows (closed only at the program's own end): a range a
//                    step and what cost time in it, for little: "Step#N", "DataLoader.__next__"
//                    and "DataLoader.__next__ (workers)", "DataLoader.__iter__",
//                    "DataLoader.__init__", "torch.save", "gc.collect", "ridge profiling"
//   trace_PID.json   what torch's profiler recorded of some steady steps, there when it is whole;
//                    step N is "ProfilerStep#N" there and "Step#N" above
//   imports_PID.json  the packages that were imported by the first step (ridge_imports.py), where
//                    the program is probed
//   stacks_PID.json  two more such steps with the stacks of Python, whose times are inflated
//
// Spans and trace are apart because a profiler slows small operators down: the spans of all steps
// say how long steps take, how often they stall and how long they wait for data; the trace says
// where time goes within a step. A step ends with step() of the optimizer that steps first; in a
// program without optimizers it is a call of the outermost module.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ridge/attach/folders/private_folder.h"
#include "ridge/base/semantic_class.h"

namespace ridge::attach {

struct ShimOptions {
  int profiled_steps = 8;  ///< 0: only spans and facts.
  bool keeps_spans = true;
  /// Steps before the recording: so many at least, and so many seconds of them unless `most`
  /// seconds have gone by since the first one.
  int warm_steps = 10;
  double warm_seconds = 5, most_seconds = 40;

  // Options for `ridge optimize` and `ridge run`; each turns on a part of the shim.
  std::string recipe{};      ///< JSON of what is applied (ridge_knobs.py); empty: nothing.
  bool probes = false;       ///< Finds out what could be applied (ridge_probe.py).
  int64_t record_steps = 0;  ///< Number of first steps whose numbers are kept (ridge_record.py).
  int64_t reseed = 0;  ///< Added to each seed that the program sets, where steps are recorded.
  /// A recorded run is a control: parameters, and gradients before each step, are moved by this
  /// share of themselves, and at least by a unit in the last place (ridge_nudge.py); 0: they are
  /// not.
  double nudge = 0;
  /// JSON of what a process imports and is then forked, in place of running the program
  /// (ridge_parent.py): imports_PID.json of a run that probed. Empty: the program runs.
  std::string imports{};
  bool gate = false;            ///< Steps are held and let go through step_gate.h (ridge_gate.py).
  bool watches_losses = false;  ///< Losses without gradients are kept (ridge_losses.py).
  /// Some batches are inspected as they are made (ridge_batches.py).
  bool watches_batches = false;
};

/// Some of the program's own batches were inspected while they were made.
struct BatchFacts {
  /// Class of a change of the workers; nothing: no batch was seen.
  std::optional<SemanticClass> workers_class{};
  std::string reason{};  ///< "samples draw random numbers (torch)"; empty: the bits stay.
  double seconds = 0;    ///< Seconds in which one batch is made, by the process that makes it.
  int64_t bytes = 0;     ///< Bytes of one batch.

  /// The list that json_fields.h describes, with the least value of a number where that is not 0.
  static void fields(auto& self, auto&& visit) {
    visit("workers_class", self.workers_class);
    visit("reason", self.reason);
    visit("seconds", self.seconds);
    visit("bytes", self.bytes);
  }
};

struct LoaderFacts {
  int64_t batch = 0;    ///< 0: not known, as where the program makes batches itself.
  int64_t workers = 0;  ///< Processes; 0: on the thread that iterates.
  int64_t prefetch = 0;
  int64_t samples = -1;  ///< -1: not known.
  bool pins_memory = false, is_persistent = false, shuffles = false;
  std::string dataset{};  ///< Its class.

  static void fields(auto& self, auto&& visit) {
    visit("batch", self.batch);
    visit("workers", self.workers);
    visit("prefetch", self.prefetch);
    visit("samples", self.samples, -1);
    visit("pins_memory", self.pins_memory);
    visit("is_persistent", self.is_persistent);
    visit("shuffles", self.shuffles);
    visit("dataset", self.dataset);
  }
};

/// The probe's result for one knob (tune/pytorch/recipe.h): a value to try, or why there is none.
struct KnobOffer {
  std::string key{}, value{};
  SemanticClass semantic_class =
      SemanticClass::kBitIdentical;  ///< The class of the change in this program.
  std::string text{};                ///< Why it could gain: "3 convolutions, in NCHW".
  std::string refusal{};             ///< Not empty: why it is not to be tried; no value then.
  int64_t work = 1;                  ///< Samples of a step with it over those of a step without.

  static void fields(auto& self, auto&& visit) {
    visit("key", self.key);
    visit("value", self.value);
    visit("class", self.semantic_class);
    visit("text", self.text);
    visit("refusal", self.refusal);
    visit("work", self.work, 1);
  }
};

/// The outcome of one knob of a recipe.
struct KnobFacts {
  std::string key{}, value{};
  std::string state{};  ///< "applied", "refused", or "waiting": what it is for has not come.
  std::string text{};   ///< Says what was done, or why nothing was.
  std::string site{};   ///< "path:line" of the call in the program that it is about, where known.
  double seconds = 0;   ///< One-time cost: to fill a cache, to compile.
  int64_t work = 1;     ///< KnobOffer::work of a knob that was applied.

  static void fields(auto& self, auto&& visit) {
    visit("key", self.key);
    visit("value", self.value);
    visit("state", self.state);
    visit("text", self.text);
    visit("site", self.site);
    visit("seconds", self.seconds);
    visit("work", self.work, 1);
  }
};

/// The program computed losses without gradients between two of its steps.
struct EvaluationFacts {
  int64_t step = 0;    ///< Steps before it.
  std::string loss{};  ///< Mean over its samples, as Python writes it: "0.25", "nan".
  int64_t samples = 0;
  bool is_open = false;  ///< No step came behind it: it is whole where the program has ended.

  static void fields(auto& self, auto&& visit) {
    visit("step", self.step);
    visit("loss", self.loss);
    visit("samples", self.samples);
    visit("is_open", self.is_open);
  }
};

/// Facts that one process of the program reports about itself.
struct ProcessFacts {
  pid_t pid = 0;
  std::string program{};  ///< "train.py"
  std::string python{}, torch{};
  int64_t threads = 0, interop_threads = 0;  ///< Threads of torch.
  bool has_cuda = false;
  std::string gpu{};  ///< The driver's name of the GPU that it computes on; empty: unknown.
  int64_t gpu_peak_bytes = 0;  ///< Most memory of GPUs that torch has reserved; 0: not known.
  int64_t rank = -1, world = 0;
  std::string step_source{};  ///< "optimizer", "module", or empty: no step was seen.
  int64_t steps = 0;
  int64_t last_step_wall_ns = 0, first_step_wall_ns = 0;  ///< Since 1970.
  double step_seconds = 0;                                ///< Median of those lately.
  double loader_seconds = 0;                              ///< Waited for data since the first step.
  std::vector<LoaderFacts> loaders{};
  BatchFacts batches{};  ///< Filled where ShimOptions::watches_batches was set.
  /// "waiting", "recording", "writing", "written", "off", or "failed: why".
  std::string profile{};
  std::vector<KnobOffer> offers{};  ///< Results of the probe; complete if `is_probed`.
  bool is_probed = false;           ///< All that is to be found out was.
  std::vector<KnobFacts> knobs{};   ///< One for each knob of the given recipe.
  /// Filled where ShimOptions::watches_losses was set: the last evaluations, and how many there
  /// were.
  std::vector<EvaluationFacts> evaluations{};
  int64_t evaluated = 0;
  std::vector<std::string> notes{};  ///< Further remarks, in sentences.
  /// Empty where there is no such file.
  std::string spans_path{}, trace_path{}, stacks_path{};

  static void fields(auto& self, auto&& visit) {
    visit("program", self.program);
    visit("python", self.python);
    visit("torch", self.torch);
    visit("threads", self.threads);
    visit("interop_threads", self.interop_threads);
    visit("has_cuda", self.has_cuda);
    visit("gpu", self.gpu);
    visit("gpu_peak_bytes", self.gpu_peak_bytes);
    visit("rank", self.rank, -1);
    visit("world", self.world);
    visit("step_source", self.step_source);
    visit("steps", self.steps);
    visit("first_step_wall_ns", self.first_step_wall_ns);
    visit("last_step_wall_ns", self.last_step_wall_ns);
    visit("step_seconds", self.step_seconds);
    visit("loader_seconds", self.loader_seconds);
    visit("loaders", self.loaders);
    visit("batches", self.batches);
    visit("offers", self.offers);
    visit("is_probed", self.is_probed);
    visit("knobs", self.knobs);
    visit("profile", self.profile);
    visit("evaluations", self.evaluations);
    visit("evaluated", self.evaluated);
    visit("notes", self.notes);
  }
};

class ShimFolder {
 public:
  /// Makes the folder (private, beneath TMPDIR or /tmp, named after this process) and removes those
  /// of our processes that are gone. UserError where it cannot.
  explicit ShimFolder(const ShimOptions& options);
  ShimFolder(const ShimFolder&) = delete;
  ShimFolder& operator=(const ShimFolder&) = delete;

  const std::string& path() const { return folder_->path(); }
  /// Variables that the program's environment needs: PYTHONPATH with ours first, and the shim's
  /// options.
  std::vector<std::pair<std::string, std::string>> environment() const;
  /// Whether any Python has loaded the shim, torch or no torch.
  bool was_loaded() const;
  /// Facts of all processes that imported torch, by their pid. Broken ones are left out: the files
  /// are written by a program that may do anything to them.
  std::vector<ProcessFacts> facts() const;

 private:
  ShimOptions options_;
  std::optional<PrivateFolder> folder_;
};

/// Names and texts of the files that the folder begins with.
const std::vector<std::pair<std::string_view, std::string_view>>& shim_files();
/// The text of one of them. InternalError where there is none of that name.
std::string_view shim_file(std::string_view name);

}  // namespace ridge::attach
