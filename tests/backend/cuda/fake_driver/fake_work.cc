// The part of the stand-in that queues work: copies, fills, modules and kernels.
#include <dlfcn.h>
#include <elf.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "ridge/base/hash.h"
#include "tests/backend/cuda/fake_driver/fake_calls.h"

// NOLINTBEGIN(readability-identifier-naming): the names are those of the driver.
using namespace ridge::test;

namespace {

// When it runs, not when it is queued: the memory may have gone by then.
void touch(FakeMachine& fake, const void* address, size_t bytes, bool is_pinned) {
  const Block* const block = fake.block_of(address, bytes);
  if (block != nullptr && block->is_pinned == is_pinned) return;
  fake.add_fault(fmt::format(
      "work on {} bytes that are no {} memory", bytes, is_pinned ? "page-locked" : "device"));
  throw Refused{kIllegalAddress};
}

bool is_pinned(const FakeMachine& fake, const void* address) {
  const Block* const block = fake.block_of(address, 0);
  return block != nullptr && block->is_pinned;
}

// PTX's types of parameters, by their last digits; an array says its length behind the name.
size_t parameter_bytes(const std::string& declaration) {
  size_t bytes = 0;
  for (const auto& [type, size] : {std::pair{"64 ", 8}, {"32 ", 4}, {"16 ", 2}, {"8 ", 1}})
    for (const char* kind : {".b", ".u", ".s", ".f"})
      if (bytes == 0 && declaration.find(std::string(kind) + type) != std::string::npos)
        bytes = static_cast<size_t>(size);
  if (const size_t at = declaration.find('['); at != std::string::npos)
    bytes *= std::strtoul(declaration.c_str() + at + 1, nullptr, 10);
  return bytes;
}

// Name and parameters of each `.entry`.
void read_ptx(const std::string& text, FakeModule& module) {
  for (size_t at = text.find(".entry "); at != std::string::npos; at = text.find(".entry ", at)) {
    at += 7;
    const size_t open = text.find('(', at), close = text.find(')', at);
    if (open == std::string::npos || close == std::string::npos) return;
    std::vector<size_t>& sizes = module.entries[text.substr(at, open - at)];
    for (size_t next = open; (next = text.find(".param ", next)) < close; next += 7)
      sizes.push_back(parameter_bytes(text.substr(next, text.find_first_of(",)", next) - next)));
  }
}

// An image of fake_nvrtc is a shared object of this machine, and as long as its headers say. The
// same image is opened once: what it holds never changes, and it stays open.
bool read_simulated(const char* image, FakeModule& module) {
  Elf64_Ehdr head;
  std::memcpy(&head, image, sizeof head);
  module.is_for_gpus = head.e_machine == EM_CUDA;
  if (head.e_machine != EM_X86_64 || head.e_type != ET_DYN) return false;
  const size_t bytes = head.e_shoff + size_t{head.e_shnum} * head.e_shentsize;
  static std::map<uint64_t, void*> opened;
  void*& library = opened[ridge::hash64({image, bytes})];
  if (library == nullptr) {
    // All kernels find the functions that they ask of the GPU in this library.
    if (::dlopen(RIDGE_SIMULATED_GPU, RTLD_NOW | RTLD_GLOBAL) == nullptr) return false;
    // Each in a file of its own name: the loader opens no name twice.
    std::string path = (std::filesystem::temp_directory_path() / "simulated-XXXXXX").string();
    const int file = ::mkstemp(path.data());
    if (::write(file, image, bytes) == static_cast<ssize_t>(bytes))
      library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    ::unlink(path.c_str());
    ::close(file);
  }
  if (library == nullptr) return false;
  const auto* kernel = static_cast<const SimulatedKernel*>(::dlsym(library, kSimulatedKernels));
  if (kernel == nullptr) return false;
  for (; kernel->name != nullptr; ++kernel) {
    module.entries[kernel->name].assign(kernel->sizes, kernel->sizes + kernel->parameters);
    module.simulated[kernel->name] = kernel;
  }
  return true;
}

#ifndef FAKE_CUDA_LACKS_LAUNCH
// Runs it on the operands of a launch, all of which have to be memory of the device.
void run_simulated(FakeMachine& fake, const SimulatedKernel& kernel, const FakeLaunch& launch) {
  std::vector<void*> operands;
  for (const std::vector<std::byte>& parameter : launch.parameters) {
    std::vector<void*> held(parameter.size() / sizeof(void*));
    std::memcpy(held.data(), parameter.data(), parameter.size());
    for (void* const each : held) touch(fake, each, 1, false);
    operands.push_back(held.size() == 1 ? held[0] : const_cast<std::byte*>(parameter.data()));
  }
  kernel.run(operands.data(), launch.grid[0], launch.block[0], launch.shared_bytes);
}
#endif

void write_log(const char* text, unsigned count, const int* options, void** values) {
  char* log = nullptr;
  size_t room = 0;
  for (unsigned i = 0; i < count; ++i) {
    if (options[i] == 5) log = static_cast<char*>(values[i]);
    if (options[i] == 6) room = reinterpret_cast<size_t>(values[i]);
  }
  if (log != nullptr && room > 0) std::strncpy(log, text, room - 1);
}

// A side of a copy: memory of the device, page-locked memory, or any other of the host.
struct Side {
  void* at;
  bool is_device, is_locked;

  static Side device(const FakeMachine& fake, Address address, size_t bytes) {
    require(fake.block_of(pointer(address), bytes) != nullptr, kInvalidValue);
    return {pointer(address), true, false};
  }
  static Side host(const FakeMachine& fake, const void* address) {
    return {const_cast<void*>(address), false, is_pinned(fake, address)};
  }
  void touch(FakeMachine& fake, size_t bytes) const {
    if (is_device || is_locked) ::touch(fake, at, bytes, is_locked);
  }
};

// Queues it; memory of the host that is not page-locked is read or written within the call.
int copy(FakeMachine& fake, std::string& line, Side to, Side from, size_t bytes, void* handle) {
  line += fmt::format(" {} from {}, {} bytes,", fake.place(to.at), fake.place(from.at), bytes);
  FakeStream& stream = fake.find(fake.streams, handle, line);
  const auto is_pageable = [](const Side& side) { return !side.is_device && !side.is_locked; };
  std::vector<std::byte> kept;
  if (is_pageable(from)) {
    const auto* const start = static_cast<const std::byte*>(from.at);
    kept.assign(start, start + bytes);
  }
  fake.queue(stream, [&fake, to, from, bytes, kept = std::move(kept)] {
    for (const Side& side : {to, from}) side.touch(fake, bytes);
    std::memmove(to.at, kept.empty() ? from.at : kept.data(), bytes);
  });
  if (is_pageable(to) || is_pageable(from)) line += ", pageable";
  if (!is_pageable(to) || stream.capture != nullptr) return kSuccess;
  fake.drain(stream);
  return fake.lost;
}

}  // namespace

extern "C" {

int cuMemcpyHtoDAsync_v2(Address to, const void* from, size_t bytes, void* stream) {
  return usual(__func__, [&](FakeMachine& fake, std::string& line) {
    return copy(fake, line, Side::device(fake, to, bytes), Side::host(fake, from), bytes, stream);
  });
}

int cuMemcpyDtoHAsync_v2(void* to, Address from, size_t bytes, void* stream) {
  return usual(__func__, [&](FakeMachine& fake, std::string& line) {
    return copy(fake, line, Side::host(fake, to), Side::device(fake, from, bytes), bytes, stream);
  });
}

int cuMemcpyDtoDAsync_v2(Address to, Address from, size_t bytes, void* stream) {
  return usual(__func__, [&](FakeMachine& fake, std::string& line) {
    const Side target = Side::device(fake, to, bytes);
    return copy(fake, line, target, Side::device(fake, from, bytes), bytes, stream);
  });
}

int cuMemsetD8Async(Address to, unsigned char value, size_t bytes, void* stream) {
  return usual(__func__, [&](FakeMachine& fake, std::string& line) {
    line += fmt::format(" {} to {}, {} bytes,", fake.place(pointer(to)), value, bytes);
    const Side target = Side::device(fake, to, bytes);
    fake.queue(fake.find(fake.streams, stream, line), [&fake, target, value, bytes] {
      target.touch(fake, bytes);
      std::memset(target.at, value, bytes);
    });
  });
}

int cuModuleLoadDataEx(
    void** module, const void* image, unsigned count, int* options, void** values) {
  return usual(__func__, [&](FakeMachine& fake, std::string& line) {
    const auto* const text = static_cast<const char*>(image);
    const bool is_cubin = std::strncmp(text, "\177ELF", 4) == 0;
    if (!is_cubin && std::strstr(text, ".entry ") == nullptr) {
      write_log("ptxas fatal   : no entry in the text", count, options, values);
      throw Refused{kInvalidPtx};
    }
    require(fake.has_room(kModuleBytes), kOutOfMemory);
    FakeModule* const made = fake.make(fake.modules, line);
    if (is_cubin)
      read_simulated(text, *made);
    else
      read_ptx(text, *made);
    *module = made;
  });
}

int cuModuleUnload(void* module) { return destroys(__func__, &FakeMachine::modules, module); }

int cuModuleGetFunction(void** function, void* handle, const char* name) {
  return usual(__func__, [&](FakeMachine& fake, std::string& line) {
    FakeModule& module = fake.find(fake.modules, handle, line);
    line += fmt::format(" {}", name);
    const auto entry = module.entries.find(name);
    require(module.is_for_gpus || entry != module.entries.end(), kNotFound);
    std::unique_ptr<FakeFunction>& made = module.functions[name];
    if (made == nullptr) made = std::make_unique<FakeFunction>();
    made->name = name;
    if (!module.is_for_gpus) made->sizes = entry->second;
    if (const auto simulated = module.simulated.find(name); simulated != module.simulated.end())
      made->simulated = simulated->second;
    *function = made.get();
  });
}

int cuFuncGetAttribute(int* value, int attribute, void* function) {
  return usual(__func__, [&](FakeMachine&, std::string&) {
    const std::map<int, int> values = {{0, 1024}, {1, 0}, {3, 0}, {4, 32}};
    const auto found = values.find(attribute);
    require(function != nullptr && found != values.end(), kInvalidValue);
    *value = found->second;
  });
}

int cuFuncSetAttribute(void* handle, int attribute, int value) {
  return usual(__func__, [&](FakeMachine&, std::string& line) {
    auto* const function = static_cast<FakeFunction*>(handle);
    line += fmt::format(" {} {}={}", function->name, attribute, value);
    require(attribute == 8 && value >= 0 && value <= 227 << 10, kInvalidValue);
    function->most_dynamic_shared = static_cast<unsigned>(value);
  });
}

#ifndef FAKE_CUDA_LACKS_LAUNCH
int cuLaunchKernel(void* handle,
                   unsigned grid_x,
                   unsigned grid_y,
                   unsigned grid_z,
                   unsigned block_x,
                   unsigned block_y,
                   unsigned block_z,
                   unsigned shared_bytes,
                   void* stream,
                   void** parameters,
                   void** extra) {
  return usual(__func__, [&](FakeMachine& fake, std::string& line) {
    FakeFunction* function = nullptr;
    for (const auto& [module_handle, module] : fake.modules)
      for (const auto& [name, each] : module->functions)
        if (each.get() == handle) function = each.get();
    if (function == nullptr) fake.add_fault("a kernel of a module that is gone");
    require(function != nullptr, kInvalidHandle);
    FakeLaunch launch{.kernel = function->name,
                      .grid = {grid_x, grid_y, grid_z},
                      .block = {block_x, block_y, block_z},
                      .shared_bytes = shared_bytes,
                      .parameters = {}};
    line += fmt::format(" {} <<<{}; {}; {}>>>(",
                        function->name,
                        fmt::join(launch.grid, ","),
                        fmt::join(launch.block, ","),
                        shared_bytes);
    std::vector<std::string> texts;
    for (size_t i = 0; i < function->sizes.size(); ++i) {
      const auto* const value = static_cast<const std::byte*>(parameters[i]);
      launch.parameters.emplace_back(value, value + function->sizes[i]);
      // A parameter of several addresses is written one address after the other.
      for (size_t at = 0; at < function->sizes[i]; at += sizeof(Address)) {
        uint64_t number = 0;
        const size_t bytes = std::min(function->sizes[i] - at, sizeof number);
        std::memcpy(&number, value + at, bytes);
        const bool is_place = bytes == 8 && fake.block_of(pointer(number), 0) != nullptr;
        texts.push_back(is_place ? fake.place(pointer(number)) : std::to_string(number));
      }
    }
    line += fmt::format("{})", fmt::join(texts, ", "));
    FakeStream& queue = fake.find(fake.streams, stream, line);
    const uint64_t threads = uint64_t{block_x} * block_y * block_z;
    require(extra == nullptr && grid_x * grid_y * grid_z > 0 && threads > 0 && threads <= 1024 &&
                shared_bytes <= function->most_dynamic_shared,
            kInvalidValue);
    const auto registered = fake.kernels.find(function->name);
    FakeCuda::Body body = registered == fake.kernels.end() ? nullptr : registered->second;
    if (!body && function->simulated != nullptr) {
      // Printed kernels have one dimension, and the harness this much shared memory.
      require(grid_y * grid_z * block_y * block_z == 1 && shared_bytes <= 227 << 10, kInvalidValue);
      body = [&fake, kernel = function->simulated](const FakeLaunch& each) {
        run_simulated(fake, *kernel, each);
        return kSuccess;
      };
    }
    fake.queue(queue,
               [body, launch = std::move(launch)] { return body ? body(launch) : kSuccess; });
  });
}
#endif

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
