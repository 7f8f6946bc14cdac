// The files that outputs of a model go to.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ridge/base/tensor.h"
#include "ridge/graph/data_spec.h"

namespace ridge {

/// FILE.npy for one output, FILE.npz for any number, or a folder with NAME.npy for each.
class OutputFiles {
 public:
  /// UserError, before work is done that would be lost, where `path` ends in another suffix, cannot
  /// hold these outputs, or cannot be written.
  OutputFiles(std::string path, const std::vector<DataSpec>& outputs);

  /// Replaces the files, each of them whole.
  void write(const NamedTensors& outputs) const;

  /// The file that an output goes to.
  std::string file_of(const std::string& output) const;

 private:
  enum class Form { kNpy, kNpz, kFolder };
  void check_folder(const std::vector<DataSpec>& outputs) const;

  std::string path_;
  Form form_ = Form::kFolder;
};

}  // namespace ridge
