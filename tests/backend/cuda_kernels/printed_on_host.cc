#include "tests/backend/cuda_kernels/printed_on_host.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "ridge/base/hash.h"
#include "tests/support/temp_folder.h"

namespace ridge::test {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The hash of all that a compilation depends on, beside the text: the compiler with its version and
// flags, and the headers that may be included.
uint64_t hash_of_compilation(const std::string& compiler) {
  uint64_t key = hash64(compiler, hash64(__VERSION__));
  for (const char* const header : {"simt.h", "simt_approx.h", "simt_mma.h"})
    key = hash64(text_of(fs::path(RIDGE_SIMULATION) / header), key);
  for (const auto& [name, text] : cuda::device_headers()) key = hash64(text, hash64(name, key));
  return key;
}

}  // namespace

PrintedOnHost::~PrintedOnHost() {
  if (library_ != nullptr) dlclose(library_);
}

void PrintedOnHost::add(const cuda::PrintedKernel& kernel) {
  if (std::find(names_.begin(), names_.end(), kernel.name) != names_.end()) return;
  names_.push_back(kernel.name);
  sources_.push_back(kernel.source);
  for (const cuda::KernelLaunch& launch : kernel.launches) entries_.push_back(launch.entry);
}

std::string PrintedOnHost::text_to_compile() const {
  std::string text = "#include \"simt.h\"\n";
  for (const std::string& source : sources_) text += source;
  for (const std::string& entry : entries_)
    text += fmt::format(
        "static void call_{0}(void* const* operands) {{ simt::call(ridge::cuda::{0}, operands); "
        "}}\n"
        "extern \"C\" void on_host_{0}(void* const* operands, unsigned blocks, unsigned threads, "
        "size_t shared) {{\n"
        "  simt::dynamic_shared_bytes = shared;\n"
        "  simt::launch(call_{0}, operands, blocks, threads);\n}}\n",
        entry);
  return text + "extern \"C\" size_t bank_conflicts_on_host() { return simt::bank_conflicts; }\n";
}

void PrintedOnHost::build() {
  // Where this process has the runtime of AddressSanitizer, linked or preloaded, kernels use it.
  const char* const sanitizer = dlsym(RTLD_DEFAULT, "__asan_init") != nullptr
                                    ? "-fsanitize=address -D__SANITIZE_ADDRESS__"
                                    : "";
  const std::string text = text_to_compile();
  const std::string compiler =
      fmt::format(RIDGE_CXX " " RIDGE_SIMULATION_FLAGS " {} -shared", sanitizer);
  const fs::path kept = fs::path(RIDGE_SIMULATED_KERNELS) /
                        fmt::format("{:016x}.so", hash64(text, hash_of_compilation(compiler)));
  std::error_code missing;
  fs::last_write_time(kept, fs::file_time_type::clock::now(), missing);  // ./dev keeps what is used
  if (missing) compile(text, compiler, kept);
  library_ = dlopen(kept.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library_ == nullptr) throw std::runtime_error(dlerror());
  conflicts_before_ = counted_conflicts();
}

void PrintedOnHost::compile(const std::string& text,
                            const std::string& compiler,
                            const fs::path& library) const {
  const TempFolder folder;
  std::ofstream(folder / "kernels.cc") << text;
  const std::string command = fmt::format("{1} -I . -I '" RIDGE_SIMULATION
                                          "' '{0}/kernels.cc' -o '{0}/kernels.so' 2> '{0}/log'",
                                          folder.path().string(),
                                          compiler);
  if (std::system(command.c_str()) != 0)
    throw std::runtime_error("a printed kernel does not compile:\n" +
                             text_of(folder / "log").substr(0, 4000));
  // Another process finds all of it or nothing, and the folders may be of two file systems.
  const fs::path other = fmt::format("{}.{}", library.string(), ::getpid());
  fs::create_directories(library.parent_path());
  fs::copy_file(folder / "kernels.so", other, fs::copy_options::overwrite_existing);
  fs::rename(other, library);
}

HostFault PrintedOnHost::run(const cuda::PrintedKernel& kernel,
                             const std::vector<const void*>& inputs,
                             const std::vector<void*>& outputs,
                             bool one_block) const {
  HostFault fault;
  // What no launch has written must not look like something.
  std::vector<std::byte> memory(kernel.workspace_bytes + 64, std::byte{0x5a});
  auto* workspace = memory.data();
  while (reinterpret_cast<uintptr_t>(workspace) % 64 != 0) ++workspace;
  for (const cuda::KernelLaunch& launch : kernel.launches) {
    std::vector<void*> operands;
    for (const cuda::KernelOperand& operand : launch.operands) switch (operand.kind) {
        case cuda::KernelOperand::kInput:
          operands.push_back(const_cast<void*>(inputs.at(operand.at)));
          break;
        case cuda::KernelOperand::kOutput:
          operands.push_back(outputs.at(operand.at));
          break;
        case cuda::KernelOperand::kWorkspace:
          operands.push_back(workspace + operand.at);
          break;
        case cuda::KernelOperand::kFault:
          operands.push_back(&fault);
          break;
      }
    // The last ones may be one parameter, which is handed over by its address.
    const std::vector<void*> list(operands.end() - static_cast<ptrdiff_t>(launch.listed),
                                  operands.end());
    operands.resize(operands.size() - launch.listed);
    if (!list.empty()) operands.push_back(const_cast<void**>(list.data()));
    Entry entry = nullptr;
    void* found = dlsym(library_, ("on_host_" + launch.entry).c_str());
    std::memcpy(&entry, &found, sizeof found);
    if (entry == nullptr) throw std::runtime_error("no kernel " + launch.entry);
    entry(operands.data(), one_block ? 1 : launch.blocks, launch.threads, launch.shared_bytes);
  }
  return fault;
}

// One variable for all libraries that a process has open.
size_t PrintedOnHost::counted_conflicts() const {
  size_t (*count)() = nullptr;
  void* found = dlsym(library_, "bank_conflicts_on_host");
  std::memcpy(&count, &found, sizeof found);
  return count();
}

}  // namespace ridge::test
