// A stand-in for cuDNN: the functions that Ridge calls, as their published reference describes
// them. Plans are queued as kernels of the stand-in driver, so that they run when its streams do.
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>

#include "tests/backend/cuda/fake_dnn/fake_dnn.h"
#include "tests/backend/cuda/fake_dnn/fake_dnn_math.h"
#include "tests/backend/cuda/fake_dnn/fake_dnn_rules.h"

namespace {

using namespace ridge::test::dnn_reference;
using ridge::test::DnnData;
using ridge::test::DnnJob;
using ridge::test::DnnStep;
using ridge::test::FakeEngine;
using ridge::test::FakeLaunch;
using ridge::test::LibraryHandle;
using ridge::test::Objects;
using ridge::test::Refused;
using ridge::test::require;

struct Descriptor {
  int kind = 0;
  bool is_final = false;
  std::map<int, std::vector<std::byte>> attributes;
  std::unique_ptr<FakeEngine> engine;  // in engines, configurations and plans
  Descriptor* graph = nullptr;         // likewise

  template <typename T>
  std::vector<T> all(int attribute) const {
    const auto found = attributes.find(attribute);
    if (found == attributes.end()) return {};
    constexpr size_t kBytes = sizeof(T);  // NOLINT(bugprone-sizeof-expression): of a handle too
    std::vector<T> values(found->second.size() / kBytes);
    std::memcpy(values.data(), found->second.data(), values.size() * kBytes);
    return values;
  }
  template <typename T>
  T one(int attribute, T otherwise = {}) const {
    const std::vector<T> values = all<T>(attribute);
    return values.empty() ? otherwise : values[0];
  }
  Descriptor* child(int attribute) const { return one<Descriptor*>(attribute); }
  bool is_set(int attribute) const { return one<unsigned char>(attribute) != 0; }
};

class Machine final : public ridge::test::RecordedLibrary<ridge::test::FakeDnn> {
 public:
  Machine() : RecordedLibrary("cudnn", 1) {
    // The environment steers the stand-in in programs that no test steers.
    if (const char* const file = std::getenv("FAKE_CUDNN_DRIVER")) reset(file);
  }
  void reset(const std::string& file) override {
    const std::lock_guard lock(mutex_);
    forget(file);
    descriptors.clear(), handles.clear(), jobs.clear();
    best = {{}}, fallback = {};
    version = 92801, is_wrong = false;
  }
  void set_engines(std::vector<FakeEngine> first, std::vector<FakeEngine> second) override {
    best = std::move(first), fallback = std::move(second);
  }
  std::vector<std::string> live() const override {
    std::vector<std::string> all(handles.size(), "handle");
    for (const auto& [handle, each] : descriptors)
      all.push_back(fmt::format("descriptor {}", each->kind));
    return all;
  }

  /// A fault where it is not alive, or not of that kind (0: of any).
  Descriptor& find(const void* handle, int kind = 0) {
    const auto found = descriptors.find(handle);
    if (found == descriptors.end()) refuse("a descriptor that is not alive");
    if (kind != 0 && found->second->kind != kind)
      refuse(fmt::format("a descriptor {} for {}", found->second->kind, kind));
    return *found->second;
  }
  void require_finished(const void* handle) {
    if (!find(handle).is_final) refuse("a descriptor that is not finished", kNotFinalized);
  }
  LibraryHandle& find_handle(const void* handle) {
    const auto found = handles.find(handle);
    if (found == handles.end()) refuse("a handle that is not alive");
    return *found->second;
  }
  [[noreturn]] void refuse(const std::string& why, int status = kBadParam) {
    last_error = why;
    add_fault(why);
    throw Refused{status};
  }

  Objects<Descriptor> descriptors{"descriptor"};
  Objects<LibraryHandle> handles{"handle"};
  std::vector<std::unique_ptr<DnnJob>> jobs;
  std::vector<FakeEngine> best, fallback;
  static inline thread_local std::string last_error;  ///< Last error of this thread, as errno is.

 private:
  void begin_call(bool is_done) override { last_error = is_done ? "" : "what the library says"; }
};

Machine& machine() {
  static Machine made;
  return made;
}

[[noreturn]] void refuse(const std::string& why, int status = kBadParam) {
  machine().refuse(why, status);
}

// ---- jobs ----

// The tensors of a graph by their numbers. What passes between operations, and scalars, lie in the
// job; without one, nothing has a place.
class Tensors {
 public:
  Tensors(DnnJob* job, std::map<int64_t, void*> pointers)
      : job_(job), pointers_(std::move(pointers)) {}

  DnnData operator()(const Descriptor& tensor) {
    DnnData made{tensor.one<int>(901), tensor.all<int64_t>(902), tensor.all<int64_t>(903)};
    if (job_ == nullptr) return made;
    const int64_t id = tensor.one<int64_t>(906);
    const auto found = pointers_.find(id);
    if (tensor.is_set(907)) {
      made.data = virtual_[id];
      if (made.data != nullptr) return made;
      int64_t elements = 1;
      for (size_t i = 0; i < made.sizes.size(); ++i)
        elements += (made.sizes[i] - 1) * made.strides[i];
      virtual_[id] = made.data = memory(static_cast<size_t>(elements) * sizeof(float));
    } else if (found != pointers_.end()) {
      made.data = found->second;
      if (tensor.is_set(908))
        made.data = std::memcpy(memory(sizeof(float)), found->second, sizeof(float));
    }
    return made;
  }

 private:
  void* memory(size_t bytes) { return job_->memory.emplace_back(bytes).data(); }

  DnnJob* job_;
  std::map<int64_t, void*> pointers_, virtual_;
};

// A kind of operation, the attributes of its tensors, and the attribute of its descriptor, where it
// has one.
struct Operation {
  int kind;
  DnnStep::Kind step;
  std::map<std::string, int> tensors;
  int descriptor = 0;
};
const Operation kOperations[] = {
    {kForward, DnnStep::kForward, {{"x", 704}, {"w", 703}, {"y", 705}}, 702},
    {kGradInput, DnnStep::kGradInput, {{"x", 710}, {"w", 709}, {"y", 711}}, 708},
    {kGradWeight, DnnStep::kGradWeight, {{"x", 716}, {"w", 715}, {"y", 717}}, 714},
    {kPointwiseOperation,
     DnnStep::kPointwise,
     {{"x", 751}, {"b", 752}, {"t", 758}, {"y", 753}},
     750},
    {kMatmulOperation, DnnStep::kMatmul, {{"x", 1520}, {"b", 1521}, {"y", 1522}}},
    {kReductionOperation, DnnStep::kReduction, {{"x", 1610}, {"y", 1611}}, 1612},
    {kReshapeOperation, DnnStep::kReshape, {{"x", 2200}, {"y", 2201}}},
};
const Operation* operation_of(int kind) {
  const auto* const found = std::ranges::find(kOperations, kind, &Operation::kind);
  return found == std::end(kOperations) ? nullptr : found;
}

DnnStep step_of(const Descriptor& op, Tensors& tensors) {
  const Operation& operation = *operation_of(op.kind);
  DnnStep step;
  step.kind = operation.step;
  for (const auto& [name, attribute] : operation.tensors)
    if (op.child(attribute) != nullptr) step.tensors[name] = tensors(*op.child(attribute));
  if (operation.descriptor == 0) return step;
  const Descriptor& d = *op.child(operation.descriptor);
  if (d.kind == kPointwise) step.mode = d.one<int>(0), step.axis = d.one<int64_t>(9);
  if (d.kind == kReduction) step.mode = d.one<int>(1600);
  if (d.kind != kConvolution) return step;
  step.alpha = static_cast<double>(op.one<float>(operation.descriptor - 2));
  step.beta = static_cast<double>(op.one<float>(operation.descriptor - 1));
  step.strides = d.all<int64_t>(103), step.dilations = d.all<int64_t>(102);
  step.padding = d.all<int64_t>(105);
  return step;
}

// ---- finishing ----

// A tensor that passes between operations is computed once, before it is read.
void check_order(const Descriptor& graph) {
  std::set<int64_t> made;
  for (const Descriptor* op : graph.all<Descriptor*>(801)) {
    const std::map<std::string, int>& tensors = operation_of(op->kind)->tensors;
    for (const auto& [name, attribute] : tensors)
      if (const Descriptor* const x = op->child(attribute); x != nullptr && name != "y")
        if (x->is_set(907) && !made.contains(x->one<int64_t>(906)))
          refuse("a virtual tensor that nothing has made");
    if (!made.insert(op->child(tensors.at("y"))->one<int64_t>(906)).second)
      refuse("a tensor made twice");
  }
}

void finish_config(Descriptor& d) {
  const Descriptor* const engine = d.child(300);
  if (engine->engine == nullptr) refuse("an engine without kernels");
  d.engine = std::make_unique<FakeEngine>(*engine->engine);
  d.graph = engine->graph;
  d.engine->knobs.clear();
  for (const Descriptor* knob : d.all<Descriptor*>(302))
    d.engine->knobs[knob->one<int>(600)] = knob->one<int64_t>(601);
}

void finish(Descriptor& d, std::string& line) {
  Machine& dnn = machine();
  for (const Rule& rule : kRules) {
    if (rule.kind != d.kind) continue;
    for (const int attribute : rule.attributes) {
      if (rule.required && !d.attributes.contains(attribute))
        refuse(fmt::format("descriptor {} has no attribute {}", d.kind, attribute));
      if (rule.type == kDescriptor)
        for (Descriptor* child : d.all<Descriptor*>(attribute)) dnn.require_finished(child);
    }
  }
  if (operation_of(d.kind) != nullptr) {
    Tensors tensors(nullptr, {});
    if (const std::string misfit = step_of(d, tensors).misfit(); !misfit.empty()) refuse(misfit);
  }
  switch (d.kind) {
    case kTensor:
      if (d.all<int64_t>(902).size() != d.all<int64_t>(903).size()) refuse("strides");
      break;
    case kConvolution:
      for (const int list : {102, 103, 104, 105})
        if (d.all<int64_t>(list).size() != static_cast<size_t>(d.one<int64_t>(106)))
          refuse("dimensions of a convolution");
      require(d.all<int64_t>(104) == d.all<int64_t>(105), kNotSupported);
      if (d.one<int>(101) != 1) refuse("a convolution that is turned around");
      break;
    case kGraph:
      return check_order(d);
    case kEngine:
      for (const auto* list : {&dnn.best, &dnn.fallback})
        for (const FakeEngine& each : *list)
          if (each.index == d.one<int64_t>(1301) && d.engine == nullptr)
            d.engine = std::make_unique<FakeEngine>(each);
      d.graph = d.child(1300);
      break;
    case kConfig:
      return finish_config(d);
    case kPlan:
      d.engine = std::make_unique<FakeEngine>(*d.child(401)->engine);
      d.graph = d.child(401)->graph;
      line += fmt::format(" engine {}", d.engine->index);
      for (const auto& [knob, value] : d.engine->knobs) line += fmt::format(" {}={}", knob, value);
      if (d.engine->plan_status != 0) dnn.last_error = "no such plan";
      require(d.engine->plan_status == 0, d.engine->plan_status);
      break;
    default:
      break;
  }
}

// ---- reading ----

template <typename T>
void give(const std::vector<T>& values, int64_t most, int64_t* count, void* to) {
  *count = static_cast<int64_t>(values.size());
  const size_t filled = std::min(values.size(), static_cast<size_t>(most));
  if (filled > 0) std::memcpy(to, values.data(), filled * sizeof(T));
}

// Fills descriptors that the caller has made.
template <typename Fill>
void give_descriptors(size_t there, int kind, int64_t most, int64_t* count, void* to, Fill fill) {
  *count = static_cast<int64_t>(there);
  auto** const targets = static_cast<void**>(to);
  for (size_t i = 0; i < std::min(there, static_cast<size_t>(most)); ++i) {
    Descriptor& target = machine().find(targets[i], kind);
    fill(i, target);
    target.is_final = true;
  }
}

void read(const Descriptor& d, int attribute, int type, int64_t most, int64_t* count, void* to) {
  Machine& dnn = machine();
  const auto is = [&](int kind, int wanted, int wanted_type) {
    return d.kind == kind && attribute == wanted && type == wanted_type;
  };
  if (is(kHeuristics, 202, kDescriptor)) {
    const bool is_best = d.one<int>(200) == 3;
    if (!is_best && d.one<int>(200) != 2) refuse("another mode");
    const std::vector<FakeEngine>& engines = is_best ? dnn.best : dnn.fallback;
    return give_descriptors(
        engines.size(), kConfig, most, count, to, [&](size_t i, Descriptor& target) {
          target.engine = std::make_unique<FakeEngine>(engines[i]);
          target.graph = d.child(201);
        });
  }
  if (is(kKnob, 600, kKnobType)) return give(d.all<int>(600), most, count, to);
  if (is(kKnob, 601, kInt64)) return give(d.all<int64_t>(601), most, count, to);
  if (d.engine == nullptr) refuse("nothing to read");
  if (is(kConfig, 300, kDescriptor))
    return give_descriptors(1, kEngine, most, count, to, [&](size_t, Descriptor& target) {
      target.engine = std::make_unique<FakeEngine>(*d.engine);
      target.graph = d.graph;
    });
  if (is(kConfig, 302, kDescriptor)) {
    // Unlike configurations, they are not counted for who asks for none.
    if (most == 0) return void(*count = 0);
    std::vector<std::pair<int, int64_t>> knobs(d.engine->knobs.begin(), d.engine->knobs.end());
    return give_descriptors(
        knobs.size(), kKnob, most, count, to, [&](size_t i, Descriptor& target) {
          target.attributes[600].resize(4), target.attributes[601].resize(8);
          std::memcpy(target.attributes[600].data(), &knobs[i].first, 4);
          std::memcpy(target.attributes[601].data(), &knobs[i].second, 8);
        });
  }
  if (is(kEngine, 1301, kInt64)) return give<int64_t>({d.engine->index}, most, count, to);
  if (is(kEngine, 1303, kNumericalNote)) return give(d.engine->numerical_notes, most, count, to);
  if (is(kEngine, 1305, kBehaviorNote)) return give(d.engine->behavior_notes, most, count, to);
  if (is(kPlan, 402, kInt64))
    return give<int64_t>({static_cast<int64_t>(d.engine->workspace_bytes)}, most, count, to);
  refuse(fmt::format("attribute {} of descriptor {}", attribute, d.kind));
}

// Whatever a plan stands on must be alive, and every tensor in memory have a place.
void run(const LibraryHandle& handle, Descriptor& plan, Descriptor& pack) {
  Machine& dnn = machine();
  const Descriptor& graph = dnn.find(plan.graph, kGraph);
  dnn.find(plan.child(401), kConfig);
  const auto ids = pack.all<int64_t>(1000);
  const auto places = pack.all<void*>(1001);
  if (ids.size() != places.size()) refuse("pointers without names");
  std::map<int64_t, void*> pointers;
  for (size_t i = 0; i < ids.size(); ++i) pointers[ids[i]] = places[i];
  if (pointers.size() != ids.size()) refuse("a tensor twice");
  auto job = std::make_unique<DnnJob>();
  Tensors tensors(job.get(), pointers);
  for (Descriptor* op : graph.all<Descriptor*>(801)) {
    job->steps.push_back(step_of(dnn.find(op), tensors));
    for (const auto& [name, tensor] : job->steps.back().tensors)
      if (tensor.data == nullptr) refuse("no place for " + name);
  }
  job->workspace = pack.one<void*>(1003);
  job->workspace_bytes = plan.engine->workspace_bytes;
  job->wrong = dnn.is_wrong;
  if (job->workspace_bytes > 0 && job->workspace == nullptr) refuse("no workspace");
  if (reinterpret_cast<uintptr_t>(job->workspace) % 256 != 0) refuse("a workspace askew");
  const void* parameter = job.get();
  void* parameters[] = {&parameter};
  dnn.jobs.push_back(std::move(job));
  require(dnn.launch(handle, parameters), kExecutionFailed);
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): the names are those of the library.
extern "C" {

ridge::test::FakeDnn* fake_dnn() { return &machine(); }

size_t cudnnGetVersion() { return machine().version; }
size_t cudnnGetCudartVersion() { return 13000; }
const char* cudnnGetErrorString(int status) {
  return status == kExecutionFailed ? "CUDNN_STATUS_EXECUTION_FAILED"
         : status == kNotSupported  ? "CUDNN_STATUS_NOT_SUPPORTED"
         : status == kBadParam      ? "CUDNN_STATUS_BAD_PARAM"
                                    : "CUDNN_STATUS_OTHER";
}
void cudnnGetLastErrorString(char* to, size_t most) {
  std::strncpy(to, machine().last_error.c_str(), most);
}

int cudnnCreate(void** handle) {
  return machine().called(__func__, [&](std::string&) {
    LibraryHandle made;
    const auto run_job = [](const FakeLaunch& launch) {
      launch.pointer<DnnJob>(0)->run();
      return 0;
    };
    require(machine().load(run_job, made), 1001);
    *handle = machine().handles.make(made);
  });
}

int cudnnDestroy(void* handle) {
  return machine().destroys(__func__, [&](std::string&) {
    machine().unload(machine().find_handle(handle));
    machine().handles.erase(handle);
  });
}

int cudnnSetStream(void* handle, void* stream) {
  return machine().called(__func__,
                          [&](std::string&) { machine().find_handle(handle).stream = stream; });
}

int cudnnBackendCreateDescriptor(int kind, void** descriptor) {
  return machine().called(__func__, [&](std::string& line) {
    line += fmt::format(" {}", kind);
    Descriptor* const made = machine().descriptors.make();
    made->kind = kind;
    *descriptor = made;
  });
}

int cudnnBackendDestroyDescriptor(void* descriptor) {
  return machine().destroys(__func__, [&](std::string&) {
    machine().find(descriptor);
    machine().descriptors.erase(descriptor);
  });
}

int cudnnBackendSetAttribute(
    void* descriptor, int attribute, int type, int64_t count, const void* values) {
  return machine().called(__func__, [&](std::string& line) {
    line += fmt::format(" {}", attribute);
    Descriptor& d = machine().find(descriptor);
    require(count >= 0, kBadParam);
    if (d.is_final) refuse("a descriptor that is finished already");
    if (type_of(d.kind, attribute) != type)
      refuse(fmt::format("attribute {} of descriptor {} as type {}", attribute, d.kind, type),
             kAttributeType);
    std::vector<std::byte> bytes(static_cast<size_t>(count) * size_of(type));
    std::memcpy(bytes.data(), values, bytes.size());
    for (int64_t i = 0; i < count; ++i) {
      if (type == kDescriptor)
        machine().require_finished(static_cast<void* const*>(values)[i]);
      else if (type == kInt64 && count <= 4)
        line += fmt::format("{}{}", i == 0 ? '=' : ',', static_cast<const int64_t*>(values)[i]);
    }
    d.attributes[attribute] = std::move(bytes);
  });
}

int cudnnBackendGetAttribute(
    void* descriptor, int attribute, int type, int64_t most, int64_t* count, void* values) {
  return machine().called(__func__, [&](std::string& line) {
    line += fmt::format(" {}", attribute);
    const Descriptor& d = machine().find(descriptor);
    if (!d.is_final) refuse("a descriptor that is not finished");
    read(d, attribute, type, most, count, values);
  });
}

int cudnnBackendFinalize(void* descriptor) {
  return machine().called(__func__, [&](std::string& line) {
    Descriptor& d = machine().find(descriptor);
    line += fmt::format(" {}", d.kind);
    if (d.is_final) refuse("a descriptor that is finished already");
    finish(d, line);
    d.is_final = true;
  });
}

int cudnnBackendExecute(void* handle, void* plan, void* pack) {
  return machine().called(__func__, [&](std::string& line) {
    Machine& dnn = machine();
    LibraryHandle& state = dnn.find_handle(handle);
    Descriptor &p = dnn.find(plan, kPlan), &v = dnn.find(pack, kPack);
    if (!p.is_final || !v.is_final) refuse("a plan or pack that is not finished");
    line += fmt::format(" engine {}", p.engine->index);
    require(dnn.load_late(state, fmt::format("{}", plan)), kExecutionFailed);
    run(state, p, v);
  });
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
