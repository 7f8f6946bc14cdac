#include "tests/backend/cuda/simulation/compile.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "ridge/base/hash.h"

namespace ridge::test {
namespace {

namespace fs = std::filesystem;
using Headers = std::map<std::string, std::string>;

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// One address, but for a list of them by value, "Addresses<N> NAME".
size_t addresses_in(const std::string& parameter) {
  constexpr std::string_view kList = "Addresses<";
  const size_t at = parameter.find(kList);
  return at == std::string::npos ? 1
                                 : std::strtoul(parameter.c_str() + at + kList.size(), nullptr, 10);
}

// Types of a template have commas too.
std::vector<size_t> parameters_in(const std::string& text) {
  std::vector<size_t> found;
  if (text.find_first_not_of(" \n") == std::string::npos) return found;
  int depth = 0;
  for (size_t i = 0, first = 0; i <= text.size(); ++i) {
    const char each = i < text.size() ? text[i] : ',';
    if (each == '<' || each == '(') ++depth;
    if (each == '>' || each == ')') --depth;
    if (each != ',' || depth != 0) continue;
    found.push_back(addresses_in(text.substr(first, i - first)));
    first = i + 1;
  }
  return found;
}

std::string text_to_compile(const std::vector<std::string>& sources) {
  std::string text = "#include \"simt.h\"\n#include \"simulated_image.h\"\n", table;
  for (const std::string& source : sources) {
    text += source;
    for (const SimulatedEntry& entry : entries_of(source))
      table += fmt::format(
          "  {{\"{0}\", simt::count_parameters(ridge::cuda::{0}), "
          "simt::sizes_of(ridge::cuda::{0}), simt::run<ridge::cuda::{0}>}},\n",
          entry.name);
  }
  return text + fmt::format(
                    "extern \"C\" const ridge::test::SimulatedKernel {}[] = {{\n{}  "
                    "{{nullptr, 0, nullptr, nullptr}}}};\n",
                    kSimulatedKernels,
                    table);
}

// Those of `all` that the text includes, and what they include.
void add_included(const std::string& text, const Headers& all, Headers& found) {
  constexpr std::string_view kInclude = "#include \"";
  for (size_t at = text.find(kInclude); at != std::string::npos; at = text.find(kInclude, at)) {
    at += kInclude.size();
    const auto header = all.find(text.substr(at, text.find('"', at) - at));
    if (header != all.end() && found.insert(*header).second)
      add_included(header->second, all, found);
  }
}

// A folder of this process that goes with the object.
struct Scratch {
  Scratch() : path((fs::temp_directory_path() / "simulated-XXXXXX").string()) {
    if (::mkdtemp(path.data()) == nullptr) throw std::runtime_error("no folder to compile in");
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  std::string path;
};

void compile(const std::string& text,
             const Headers& headers,
             const std::string& compiler,
             const fs::path& library) {
  const Scratch folder;
  for (const auto& [name, header] : headers) {
    const fs::path path = fs::path(folder.path) / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << header;
  }
  std::ofstream(folder.path + "/kernels.cc") << text;
  const std::string command =
      fmt::format("{1} -shared -I '" RIDGE_SIMULATION
                  "' -I '{0}' '{0}/kernels.cc' -o '{0}/kernels.so' 2> '{0}/log'",
                  folder.path,
                  compiler);
  if (std::system(command.c_str()) != 0)
    throw std::runtime_error(text_of(folder.path + "/log").substr(0, 4000));
  // Another process finds all of it or nothing, and the folders may be of two file systems.
  fs::create_directories(library.parent_path());
  const fs::path beside =
      fmt::format("{}.{}", library.string(), folder.path.substr(folder.path.size() - 6));
  fs::copy_file(folder.path + "/kernels.so", beside, fs::copy_options::overwrite_existing);
  fs::rename(beside, library);
}

}  // namespace

// Finds the kernels of a source. In "extern "C" __global__ void __launch_bounds__(256, 1)
// NAME(PARAMETERS) {", NAME stands before the last parenthesis that opens outside of another.
std::vector<SimulatedEntry> entries_of(const std::string& source) {
  std::vector<SimulatedEntry> found;
  constexpr std::string_view kGlobal = "__global__";
  for (size_t at = source.find(kGlobal); at != std::string::npos; at = source.find(kGlobal, at)) {
    at += kGlobal.size();
    const size_t end = source.find('{', at);
    if (end == std::string::npos) break;
    const size_t close = source.rfind(')', end);
    size_t open = close;
    for (int depth = 1; depth > 0 && open > at;) {
      --open;
      if (source[open] == ')') ++depth;
      if (source[open] == '(') --depth;
    }
    const size_t last = source.find_last_not_of(" \n", open - 1) + 1;
    const size_t first = source.find_last_of(" \n)", last - 1) + 1;
    found.push_back({source.substr(first, last - first),
                     parameters_in(source.substr(open + 1, close - open - 1))});
    at = end;
  }
  return found;
}

fs::path compile_simulated(const std::vector<std::string>& sources,
                           const Headers& headers,
                           bool is_sanitized) {
  const std::string compiler = is_sanitized ? RIDGE_CXX " " RIDGE_SIMULATION_FLAGS
                                                        " -fsanitize=address"
                                            : RIDGE_GXX " " RIDGE_SIMULATION_FLAGS;
  const std::string text = text_to_compile(sources);
  Headers used;
  add_included(text, headers, used);
  uint64_t key = hash64(text, hash64(compiler));
  for (const char* const header : {"/simt.h", "/simulated_image.h"})
    key = hash64(text_of(std::string(RIDGE_SIMULATION) + header), key);
  for (const auto& [name, header] : used) key = hash64(header, hash64(name, key));
  fs::path kept = fs::path(RIDGE_SIMULATED_KERNELS) / fmt::format("{:016x}.so", key);
  std::error_code missing;
  fs::last_write_time(kept, fs::file_time_type::clock::now(), missing);  // ./dev keeps what is used
  if (missing) compile(text, used, compiler, kept);
  return kept;
}

}  // namespace ridge::test
