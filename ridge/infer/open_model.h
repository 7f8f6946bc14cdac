// The model that a configuration describes.
#pragma once

#include <memory>
#include <span>

#include "ridge/config/config.h"
#include "ridge/data/dataset.h"
#include "ridge/graph/model_source.h"
#include "ridge/infer/weights.h"
#include "ridge/nn/model.h"

namespace ridge {

/// The model for samples of these fields, "x" and "y", of so many classes (or tokens; 0: y are
/// numbers): they decide what the configuration leaves open. UserError where the two do not fit.
std::unique_ptr<nn::Model> open_model(const TrainConfig& config,
                                      std::span<const data::FieldType> fields,
                                      int64_t classes);

/// A model that predicts, and its weights where they lie.
struct TrainedModel {
  nn::ModelOptions options;  ///< Sizes that the configuration leaves open are those of the data.
  std::shared_ptr<const ModelSource> source;
  OpenWeights weights;  ///< They say which data the model was trained on.
};

/// The model of the configuration with its weights (open_weights()). The data say how large it is:
/// those that the weights describe, else the training data, which are opened.
TrainedModel open_trained_model(const TrainConfig& config,
                                const std::string& weights,
                                TrainObserver& observer);

/// The metadata of a file of the model: the description of the data that it was trained on, and the
/// names of their classes, a JSON list, where they have some.
TextMap metadata_of(const TrainedModel& model);

}  // namespace ridge
