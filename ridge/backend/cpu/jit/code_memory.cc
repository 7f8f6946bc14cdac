#include "ridge/backend/cpu/jit/code_memory.h"

#include <sys/mman.h>
#include <unistd.h>

namespace ridge::cpu::jit {
namespace {

size_t in_pages(size_t bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

}  // namespace

CodeMemory::CodeMemory(size_t bytes) : bytes_(in_pages(bytes)) {
  void* mapped = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped != MAP_FAILED) data_ = static_cast<std::byte*>(mapped);
}

CodeMemory::~CodeMemory() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

bool CodeMemory::seal(size_t used) {
  const size_t kept = in_pages(used);
  if (kept < bytes_ && munmap(data_ + kept, bytes_ - kept) == 0) bytes_ = kept;
  return mprotect(data_, bytes_, PROT_READ | PROT_EXEC) == 0;
}

}  // namespace ridge::cpu::jit
