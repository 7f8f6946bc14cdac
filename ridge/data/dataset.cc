// The code that all data sets share, and opening one by its kind.
#include "ridge/data/dataset.h"

#include "ridge/base/error.h"
#include "ridge/data/idx_dataset.h"
#include "ridge/data/image_dataset.h"
#include "ridge/data/random_dataset.h"
#include "ridge/data/table_dataset.h"
#include "ridge/data/text_dataset.h"

namespace ridge::data {
namespace {

struct Kind {
  const char* name;
  std::unique_ptr<Dataset> (*open)(const DataOptions&, Split);
};

constexpr Kind kKinds[] = {
    {"idx", open_idx_dataset},
    {"images", open_image_dataset},
    {"table", open_table_dataset},
    {"text", open_text_dataset},
    {"random", open_random_dataset},
};

}  // namespace

int64_t FieldType::elements() const {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  return count;
}

int64_t FieldType::bytes() const { return elements() * static_cast<int64_t>(size_of(dtype)); }

int64_t Dataset::length(int64_t) const { return 0; }

std::unique_ptr<Scratch> Dataset::make_scratch(const SampleCache*) const {
  return std::make_unique<Scratch>();
}

std::unique_ptr<Dataset> open_dataset(const DataOptions& options, Split split) {
  std::vector<std::string> known;
  for (const Kind& kind : kKinds) {
    if (options.kind == kind.name) return kind.open(options, split);
    known.emplace_back(kind.name);
  }
  throw UserError(fmt::format("there is no kind of data '{}'", options.kind),
                  did_you_mean(options.kind, known));
}

}  // namespace ridge::data
