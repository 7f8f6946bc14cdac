// The report of `ridge train` at the end.
#pragma once

#include <string>

#include "ridge/train/train.h"

namespace ridge {

/// A few aligned lines for people; what was not measured is left out.
std::string train_summary(const TrainResult& result);

/// One line: the object "ridge.train/1".
std::string train_json(const TrainResult& result);

}  // namespace ridge
