// Plans of cuDNN for the nodes of a graph, made side by side.
#pragma once

#include <exception>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "ridge/backend/cuda/dnn/nodes.h"

namespace ridge::cuda {

/// Makes plans before they are asked for: some engines are compiled for a second each, and who asks
/// asks node by node. For one thread at a time.
class DnnPlanner {
 public:
  /// Null: there is no library, and no choice.
  explicit DnnPlanner(std::shared_ptr<const Dnn> dnn, NoteListener note = ignore_note)
      : states_{std::move(dnn)}, note_(std::move(note)) {}

  /// dnn_choices() of the node. Beside them, over the threads, those of all nodes of its graph that
  /// no call has asked for yet are made, and kept for the call that does. Where the library fails
  /// to plan a node there are none, with a note, the first time that it fails so. Other errors are
  /// thrown. Both happen only in the call that asks for the node: reports do not depend on the
  /// threads.
  std::vector<DnnChoice> choices(const Node& node);

 private:
  struct Planned {
    std::vector<DnnChoice> choices = {};
    std::exception_ptr error = nullptr;
  };
  void report(const Node& node, const DnnError& error);
  void plan_all(const Node& first);
  void plan(const Node& node, const std::shared_ptr<const Dnn>& state, Planned& planned) const;

  // The first is the one that launches. No handle of the library serves two threads at a time.
  std::vector<std::shared_ptr<const Dnn>> states_;
  std::map<std::string, Planned> waiting_;  // by signature: made, and not asked for
  std::set<std::string> asked_, reported_;
  NoteListener note_;
};

}  // namespace ridge::cuda
