// The one list of ops. Every table elsewhere is derived from it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/graph/op.h"

namespace ridge {

class OpRegistry {
 public:
  /// Adds T, which must be default-constructible; InternalError when the name is taken.
  template <typename T>
  void add() {
    insert(T::kTraits.name, [] { return std::make_shared<T>(); });
  }

  /// A new op of that name with default fields; UserError naming the nearest when unknown.
  std::shared_ptr<Op> create(std::string_view name) const;

  /// All names, sorted.
  std::vector<std::string> names() const;

 private:
  using Factory = std::function<std::shared_ptr<Op>()>;
  void insert(std::string_view name, Factory factory);

  std::map<std::string, Factory, std::less<>> factories_;
};

/// The registry of all ops in ops/.
const OpRegistry& registry();

}  // namespace ridge
