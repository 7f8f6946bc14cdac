// The model that a configuration describes.
#pragma once

#include <memory>
#include <span>

#include "ridge/config/config.h"
#include "ridge/data/dataset.h"
#include "ridge/nn/model.h"

namespace ridge {

/// The model for samples of these fields, "x" and "y", of so many classes (or tokens; 0: y are
/// numbers): they decide what the configuration leaves open. UserError where the two do not fit.
std::unique_ptr<nn::Model> open_model(const TrainConfig& config,
                                      std::span<const data::FieldType> fields,
                                      int64_t classes);

}  // namespace ridge
