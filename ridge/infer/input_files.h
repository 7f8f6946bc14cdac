// The inputs of a model, read from files of arrays and of samples.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ridge/base/function_ref.h"
#include "ridge/graph/data_spec.h"
#include "ridge/infer/predict.h"
#include "ridge/run/observer.h"

namespace ridge {

struct InputFile {
  std::string input;  ///< Empty: the arrays of an NPZ are for the inputs of their names.
  std::string path;
};

/// The files that texts as "NAME=FILE" name, or "FILE" where the model has one input or the file is
/// an NPZ. UserError for a name that no input has, and where no name is given or two are the same.
std::vector<InputFile> parse_input_files(const std::vector<std::string>& texts,
                                         const std::vector<DataSpec>& specs);

/// Opens a file or folder of samples; null for an array.
using OpenSamples =
    FunctionRef<std::unique_ptr<InputRows>(const DataSpec& spec, const std::string& path)>;

/// Reads arrays (.npy, .npz) whole; `open_samples` says which other files are none. An array has
/// the dtype that the model wants, or another float in place of a float, which is rounded, or
/// another integer in place of an integer, where all its values are in range; its numbers are
/// finite. UserError, with the file and what the model wants, for any other, for a wrong shape, and
/// for a file that cannot be read. Arrays of an NPZ that are for no input are left out, with a note
/// to `observer`.
NamedRows read_inputs(const std::vector<InputFile>& files,
                      const std::vector<DataSpec>& specs,
                      OpenSamples open_samples,
                      TrainObserver& observer);

}  // namespace ridge
