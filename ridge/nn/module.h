// How a model is built: layers add nodes to a graph through a context that names every parameter
// and node by the scopes that are open, and collects what was declared.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/base/tensor.h"
#include "ridge/graph/graph.h"
#include "ridge/graph/initializer.h"

namespace ridge::nn {

struct ParameterSpec {
  std::string name;  ///< Such as "layers.0.weight".
  TensorType type;
  Initializer init;
  bool decay = false;  ///< Weight decay applies: weights do, biases and norms do not.
};

/// A running statistic: part of the state, but not trained.
struct StatisticSpec {
  std::string name;
  TensorType type;
  double initial = 0.0;
};

/// The new value that a statistic takes at the end of a training graph.
struct StatisticUpdate {
  std::string name;
  Value old_value, new_value;
};

/// The buffer of what a step has changed so far of a statistic.
std::string pending_name(const std::string& statistic);

/// A parameter's first value: a function of the seed, its name and its type alone.
Tensor initial_value(const ParameterSpec& spec, uint64_t seed);

/// The purpose and the batch that a graph is built for.
struct BuildMode {
  bool training = false;  ///< Dropout drops, batch norm uses the batch and updates statistics.
  int64_t samples = 1;    ///< The batch on axis 0 of every activation.
  /// A statistic is the sum of NAME and NAME.pending: changes by earlier micro-batches are kept
  /// apart until the step is known to count.
  bool pending = false;
};

class ModuleContext {
 public:
  ModuleContext(Graph& graph, DType dtype, BuildMode mode)
      : graph_(graph), dtype_(dtype), mode_(mode) {}
  ModuleContext(const ModuleContext&) = delete;
  ModuleContext& operator=(const ModuleContext&) = delete;

  Graph& graph() { return graph_; }
  DType dtype() const { return dtype_; }
  bool training() const { return mode_.training; }
  int64_t samples() const { return mode_.samples; }

  /// While it lives, nodes, parameters and statistics are named below `name`.
  class Scope {
   public:
    Scope(ModuleContext& context, std::string_view name);
    ~Scope() { context_.path_.resize(length_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    ModuleContext& context_;
    size_t length_;
    SiteScope sites_;
  };

  /// Declares a parameter of the context's dtype and returns its input, named PATH.name. Decay
  /// applies to those of two dimensions and more. UserError when the name is taken.
  Value parameter(std::string_view name, Shape shape, Initializer init);
  /// The same for a statistic; the value is it as it is so far.
  Value statistic(std::string_view name, Shape shape, double initial);
  /// The statistic's value after this graph has run.
  void update_statistic(Value statistic, Value new_value);
  /// The input "rng" (i64[3] = {seed, step, first sample}); it exists once something has asked.
  Value rng();

  const std::vector<ParameterSpec>& parameters() const { return parameters_; }
  const std::vector<Value>& parameter_values() const { return parameter_values_; }
  const std::vector<StatisticSpec>& statistics() const { return statistics_; }
  const std::vector<StatisticUpdate>& statistic_updates() const { return updates_; }

 private:
  std::string full_name(std::string_view name) const;

  Graph& graph_;
  DType dtype_;
  BuildMode mode_;
  std::string path_;
  Value rng_;
  std::vector<ParameterSpec> parameters_;
  std::vector<Value> parameter_values_;
  std::vector<StatisticSpec> statistics_;
  std::vector<StatisticUpdate> updates_;
};

}  // namespace ridge::nn
