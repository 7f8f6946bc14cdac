#include "ridge/export/onnx/data_file.h"

#include <fmt/format.h>

#include <string_view>

#include "ridge/export/onnx/messages.h"
#include "ridge/io/checksum.h"

namespace ridge::onnx {
namespace {

namespace fs = std::filesystem;

constexpr size_t kPageBytes = 4096;
constexpr std::string_view kDataEnd = ".data";

// True for a name that DataFile gives a file beside the model.
bool is_data_of(std::string_view name, const fs::path& model) {
  constexpr size_t kDigits = 16;
  const std::string begin = model.filename().string() + ".";
  if (name.size() != begin.size() + kDigits + kDataEnd.size() || !name.starts_with(begin) ||
      !name.ends_with(kDataEnd))
    return false;
  const std::string_view digits = name.substr(begin.size(), kDigits);
  return digits.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// Removes the data of models that had this name before, and of exports that were killed. Those that
// cannot be removed are in nobody's way.
void remove_old_data(const fs::path& model, const fs::path& kept) {
  const fs::path folder = model.has_parent_path() ? model.parent_path() : ".";
  std::error_code error;
  std::vector<fs::path> old;
  for (fs::directory_iterator each(folder, error); !error && each != fs::directory_iterator();
       each.increment(error))
    if (const fs::path name = each->path().filename();
        is_data_of(name.string(), model) && name != kept.filename())
      old.push_back(each->path());
  for (const fs::path& path : old) fs::remove(path, error);
}

}  // namespace

size_t DataFile::add(Bytes elements) {
  const size_t offset = (end_ + kPageBytes - 1) / kPageBytes * kPageBytes;
  parts_.push_back({offset, elements});
  end_ = offset + elements.size();
  return offset;
}

void DataFile::give_to(ByteSink sink) const {
  const std::string zeros(kPageBytes, '\0');
  size_t end = 0;
  for (const Part& part : parts_) {
    sink(as_bytes(std::string_view(zeros).substr(0, part.offset - end)));
    give(sink, part.elements);
    end = part.offset + part.elements.size();
  }
}

std::string DataFile::name_beside(const fs::path& model) const {
  Checksum sum;
  give_to([&](Bytes bytes) { sum.update(bytes); });
  return fmt::format("{}.{}{}", model.filename().string(), checksum_text(sum.value()), kDataEnd);
}

std::string write_with_data(const fs::path& path,
                            const DataFile& outside,
                            FunctionRef<void(const std::string& data, ByteSink sink)> give_model) {
  const auto write = [&](const std::string& data) {
    stream_file_atomically(path, [&](ByteSink sink) { give_model(data, sink); });
  };
  if (outside.is_empty()) {
    write({});
    remove_old_data(path, {});
    return {};
  }
  const fs::path data = path.parent_path() / outside.name_beside(path);
  std::error_code ignored;
  const bool was_there = fs::exists(data, ignored);
  stream_file_atomically(data, [&](ByteSink sink) { outside.give_to(sink); });
  try {
    write(data.filename().string());
  } catch (...) {
    if (!was_there) fs::remove(data, ignored);
    throw;
  }
  remove_old_data(path, data);
  return data.string();
}

}  // namespace ridge::onnx
