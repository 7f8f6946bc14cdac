// Samples in files as the training had them: rows of a table, pictures, images.
#pragma once

#include <memory>
#include <string>

#include "ridge/data/description.h"
#include "ridge/data/options.h"
#include "ridge/infer/predict.h"
#include "ridge/infer/preprocess.h"
#include "ridge/run/observer.h"

namespace ridge {

/// The "x" of the samples in a file or folder, for a model trained on `trained`: rows of a table,
/// columns by name; pictures, a file or all of a folder by path, cropped as `crop` says; an IDX
/// file. They are normalised as in training. Null for arrays: any .npz, and an .npy unless the
/// training's data were a table in NPY. Where `trained` is null there are arrays alone. Notes go to
/// `observer`. UserError for files of another kind, and for what they lack.
std::unique_ptr<InputRows> open_samples(const std::string& path,
                                        const data::DataDescription* trained,
                                        data::Crop crop,
                                        TrainObserver& observer);

/// Pictures, a file or all of a folder by path, as `input` takes them: prepared as `how` says, in
/// its dtype. Null for arrays. UserError where they are not of its shape, and for files that are no
/// pictures.
std::unique_ptr<InputRows> open_pictures(const std::string& path,
                                         const DataSpec& input,
                                         const Preprocess& how);

/// A line for the user about a file of arrays, where the training normalised its data; else
/// nothing.
std::string array_note(const std::string& path, const data::DataDescription* trained);

}  // namespace ridge
