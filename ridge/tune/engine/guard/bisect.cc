// Which modules must stay in f32: delta debugging (Zeller and Hildebrandt, 2002).
#include <algorithm>

#include "ridge/tune/engine/guard/guard.h"

namespace ridge {
namespace {

using Modules = std::vector<std::string>;

// Part `part` of `parts` of the list.
Modules slice_of(const Modules& all, size_t part, size_t parts) {
  const auto cut = [&](size_t i) { return static_cast<std::ptrdiff_t>(i * all.size() / parts); };
  return {all.begin() + cut(part), all.begin() + cut(part + 1)};
}

Modules without(const Modules& all, const Modules& some) {
  Modules rest;
  for (const std::string& module : all)
    if (std::find(some.begin(), some.end(), module) == some.end()) rest.push_back(module);
  return rest;
}

}  // namespace

GuardBisection bisect_modules(const std::vector<std::string>& modules,
                              const std::function<bool(const std::vector<std::string>&)>& passes,
                              int64_t most_trials) {
  GuardBisection result;
  // A trial builds a program: none is run twice, nor one of fewer modules than failed already.
  std::vector<Modules> failed;
  const auto tried = [&](const Modules& some) {
    const auto holds_some = [&](const Modules& all) { return without(some, all).empty(); };
    if (result.trials >= most_trials || std::any_of(failed.begin(), failed.end(), holds_some))
      return false;
    ++result.trials;
    if (passes(some)) return true;
    failed.push_back(some);
    return false;
  };
  if (modules.empty() || !tried(modules)) return result;
  result.mended = true;
  Modules kept = modules;
  size_t parts = 2;
  while (kept.size() > 1) {
    bool smaller = false;
    for (const bool complement : {false, true})
      for (size_t i = 0; i < parts && !smaller && !(complement && parts == 2); ++i) {
        const Modules part = slice_of(kept, i, parts);
        const Modules some = complement ? without(kept, part) : part;
        if (!tried(some)) continue;
        kept = some;
        parts = complement ? std::max<size_t>(2, parts - 1) : 2;
        smaller = true;
      }
    if (smaller) continue;
    if (parts >= kept.size()) break;
    parts = std::min(kept.size(), 2 * parts);
  }
  result.modules = kept;
  return result;
}

}  // namespace ridge
