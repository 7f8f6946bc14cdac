// The source of a compiled program: the buffers that live from run to run, and the graphs that read
// and update them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ridge/graph/graph.h"
#include "ridge/graph/initializer.h"

namespace ridge {

/// The purpose of a buffer of the state.
enum class StateRole : uint8_t {
  kParameter,
  kOptimizer,  ///< Moments and the like.
  kGradient,   ///< Sums over micro-batches; zero between steps, so never saved.
  kStatistic,  ///< Running statistics of a model.
  kPacked,     ///< A parameter laid out for a kernel.
  kScaler,     ///< Scalars that steer the step: the halt flag, a loss scale.
};

constexpr std::string_view name_of(StateRole role) {
  constexpr std::string_view kNames[] = {
      "parameter", "optimizer", "gradient", "statistic", "packed", "scaler"};
  return kNames[static_cast<size_t>(role)];
}

/// Elements in memory that `owner` keeps. They may be unaligned.
struct StateConstant {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
  /// Unless it is empty, a tensor of the shape `lying` lies there, and the constant has its axis
  /// perm[i] as axis i.
  std::vector<int64_t> perm = {};
  Shape lying = {};
  /// Unless it is empty, each element is its own times the number of its place on the last axis,
  /// rounded once.
  std::vector<double> scale = {};
  /// Its readers on the host take bytes at any address, which need no alignment.
  bool is_bytes = false;

  /// Whether they are those of the constant as they lie.
  bool is_as_it_lies() const { return perm.empty() && scale.empty(); }
  /// Whether both have the same elements: memory that is the same is not looked at.
  bool is_same(const StateConstant& other) const {
    return perm == other.perm && lying == other.lying && is_bytes == other.is_bytes &&
           is_same(std::as_bytes(std::span(scale)), std::as_bytes(std::span(other.scale))) &&
           is_same(bytes, other.bytes);
  }

 private:
  static bool is_same(std::span<const std::byte> a, std::span<const std::byte> b) {
    return a.size() == b.size() &&
           (a.data() == b.data() || std::memcmp(a.data(), b.data(), a.size()) == 0);
  }
};

struct StateEntry {
  std::string name;
  TensorType type;
  StateRole role = StateRole::kParameter;
  Initializer init = {};  ///< Its first value, where no file gives another.
  /// If it is not null, the entry is made from others: the graph reads entries that stand before
  /// this one, and its only output updates this one. It runs before the entry is read, where
  /// something it reads was written since; nothing else writes the entry.
  std::shared_ptr<const Graph> derivation = nullptr;
  /// If it is not null, the entry always has these elements, and nothing writes it.
  std::shared_ptr<const StateConstant> constant = nullptr;
};

/// The entry graphs of a program (their names are the graphs' names) over one state. An input of a
/// graph with the name of a state entry is that buffer, and only such inputs may be updated; every
/// other input is data that the caller writes before each run.
struct ProgramGraphs {
  std::vector<StateEntry> state;
  std::vector<Graph> entries;
};

/// A program of one entry, to which others add the state.
inline ProgramGraphs only_entry(Graph graph) {
  ProgramGraphs graphs;
  graphs.entries.push_back(std::move(graph));
  return graphs;
}

}  // namespace ridge
