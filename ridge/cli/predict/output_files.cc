#include "ridge/cli/predict/output_files.h"

#include <algorithm>
#include <filesystem>

#include "ridge/base/error.h"
#include "ridge/base/utf8.h"
#include "ridge/cli/common/output.h"
#include "ridge/infer/bind_inputs.h"
#include "ridge/io/npy.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

constexpr const char* kForms = "name a FILE.npy, a FILE.npz or a folder";

// Whether NAME.npy is a file of a folder, whatever the folder.
bool can_name_file(const std::string& name) {
  constexpr size_t kMostBytes = 255 - std::string_view(".npy").size();
  return !name.empty() && name.size() <= kMostBytes && name[0] != '.' &&
         name.find_first_of(std::string_view("/\0", 2)) == std::string::npos;
}

}  // namespace

OutputFiles::OutputFiles(std::string path, const std::vector<DataSpec>& outputs)
    : path_(std::move(path)) {
  std::error_code ignored;
  const bool is_folder = path_.ends_with('/') || fs::is_directory(path_, ignored);
  while (path_.size() > 1 && path_.ends_with('/')) path_.pop_back();
  const std::string end = is_folder ? std::string() : fs::path(path_).extension().string();
  if (end.empty()) {
    check_folder(outputs);
    return;
  }
  if (end != ".npy" && end != ".npz")
    throw UserError(fmt::format("--output '{}': Ridge writes no '{}'", path_, shown_text(end)),
                    kForms);
  form_ = end == ".npy" ? Form::kNpy : Form::kNpz;
  if (form_ == Form::kNpy && outputs.size() != 1)
    throw UserError(fmt::format("--output '{}': the model gives {}, and an .npy holds one array",
                                path_,
                                listed(outputs)),
                    "name a FILE.npz or a folder");
  check_place(path_);
}

void OutputFiles::check_folder(const std::vector<DataSpec>& outputs) const {
  std::error_code ignored;
  if (fs::exists(path_, ignored) && !fs::is_directory(path_, ignored))
    throw UserError(fmt::format("--output '{}' is a file of no known suffix", path_), kForms);
  for (const DataSpec& output : outputs)
    if (!can_name_file(output.name))
      throw UserError(fmt::format("--output '{}': output '{}' cannot be the name of a file",
                                  path_,
                                  shown_text(output.name)),
                      "name a FILE.npz");
  if (!fs::exists(path_, ignored)) return check_place(path_);
  for (const DataSpec& output : outputs) check_place(file_of(output.name));
}

std::string OutputFiles::file_of(const std::string& output) const {
  return form_ == Form::kFolder ? (fs::path(path_) / (output + ".npy")).string() : path_;
}

void OutputFiles::write(const NamedTensors& outputs) const {
  if (form_ == Form::kNpz) return write_npz(path_, outputs);
  if (form_ == Form::kFolder) {
    std::error_code error;
    fs::create_directory(path_, error);
    check(!error, "cannot make the folder '{}': {}", path_, error.message());
  }
  for (const auto& [name, tensor] : outputs) write_npy(file_of(name), tensor);
}

}  // namespace ridge
