// The data that a model was trained on, as its checkpoint or its file of weights describes them.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "ridge/data/description.h"
#include "ridge/io/checkpoint.h"

namespace ridge {

/// The description in the texts of a file `path`; nothing where an older version of Ridge or
/// another program wrote them. UserError with `fix` where it is damaged.
std::optional<data::DataDescription> trained_data(const std::map<std::string, std::string>& texts,
                                                  const std::string& path,
                                                  const std::string& fix);
std::optional<data::DataDescription> trained_data(const OpenCheckpoint& checkpoint);

/// A line for the user about weights at `path` that do not say what they were trained on: which of
/// the properties of data of that kind cannot be checked.
std::string unchecked_note(const std::string& path, data::DataKind kind);

}  // namespace ridge
