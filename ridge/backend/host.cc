#include "ridge/backend/host.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "ridge/base/cpu/touch_pages.h"

namespace ridge {

void HostKernel::launch(Stream& stream, const KernelArgs& args) const {
  enqueue_host(stream, [this, args] { run_(args); });
}

void KernelTable::add(
    std::string_view op, Choice choice, Make make, Accepts accepts, PackedForm packed) {
  rows_[std::string(op)].push_back(
      {std::move(choice), std::move(make), std::move(accepts), std::move(packed)});
}

std::vector<const KernelTable::Row*> KernelTable::rows(const Node& node) const {
  std::vector<const Row*> found;
  const auto of_op = rows_.find(node.op->name());
  if (of_op == rows_.end()) return found;
  for (const Row& row : of_op->second)
    if (row.accepts == nullptr || row.accepts(node)) found.push_back(&row);
  return found;
}

std::vector<Choice> KernelTable::candidates(const Node& node) const {
  std::vector<Choice> choices;
  for (const Row* row : rows(node)) choices.push_back(row->choice);
  return choices;
}

const KernelTable::Row& KernelTable::row(const Node& node, size_t choice) const {
  const auto of_op = rows_.find(node.op->name());
  size_t accepted = 0;
  if (of_op != rows_.end())
    for (const Row& row : of_op->second)
      if ((row.accepts == nullptr || row.accepts(node)) && accepted++ == choice) return row;
  throw InternalError(
      fmt::format("choice {} of {} for node '{}'", choice, accepted, node.site.name));
}

std::unique_ptr<HostKernel> KernelTable::instantiate(const Node& node, size_t choice) const {
  return row(node, choice).make(node);
}

std::vector<PackedOperand> KernelTable::packed_operands(const Node& node, size_t choice) const {
  const Row& found = row(node, choice);
  if (found.packed.operands == nullptr) return {};
  return found.packed.operands(node);
}

std::unique_ptr<HostKernel> KernelTable::instantiate_packed(const Node& node, size_t choice) const {
  const Row& found = row(node, choice);
  check_internal(found.packed.make != nullptr,
                 "choice '{}' packs nothing for node '{}'",
                 found.choice.name,
                 node.site.name);
  return found.packed.make(node);
}

namespace {

constexpr size_t kAlignment = 64;
// From this size on memory comes as pages of its own: what a plan takes is what the system counts,
// not what the heap happened to have left.
constexpr size_t kMappedBytes = size_t{1} << 20;
constexpr size_t kPage = 4096, kHugePage = size_t{2} << 20;

// Whole pages from the system; null when it has none. Large ones start where a huge page does and
// ask for huge pages: what is planned is touched at once, so they cost nothing that 4 KiB would
// not.
void* map_pages(size_t bytes) {
  constexpr int kKind = MAP_PRIVATE | MAP_ANONYMOUS;
  const size_t slack = bytes >= 2 * kHugePage ? kHugePage : 0;
  void* mapped = mmap(nullptr, bytes + slack, PROT_READ | PROT_WRITE, kKind, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  if (slack == 0) return mapped;
  char* begin = static_cast<char*>(mapped);
  const size_t before = (kHugePage - reinterpret_cast<uintptr_t>(begin) % kHugePage) % kHugePage;
  if (before > 0) munmap(begin, before);
  if (slack > before) munmap(begin + before + bytes, slack - before);
  madvise(begin + before, bytes, MADV_HUGEPAGE);  // a wish: the system may have none
  return begin + before;
}

}  // namespace

// In front of the memory lies how much of it is mapped; 0 says that it is of the heap.
void* HostBackend::allocate(size_t bytes) {
  const size_t size = (bytes / kAlignment + 2) * kAlignment;
  void* block = nullptr;
  size_t mapped = 0;
  if (size >= kMappedBytes) {
    mapped = (size + kPage - 1) / kPage * kPage;
    block = map_pages(mapped);
  } else if (size > bytes) {  // it is less where the sum is too large for size_t
    block = std::aligned_alloc(kAlignment, size);
  }
  if (block == nullptr)
    throw OutOfMemory(fmt::format("no memory for {} bytes on device '{}'", bytes, name()));
  std::memcpy(block, &mapped, sizeof mapped);
  return static_cast<char*>(block) + kAlignment;
}

namespace {

// The bytes that are mapped from `block` on; 0: it is of the heap.
size_t mapped_bytes(const char* block) {
  size_t mapped = 0;
  std::memcpy(&mapped, block, sizeof mapped);
  return mapped;
}

}  // namespace

void* HostBackend::allocate_zeros(size_t bytes) {
  void* const memory = allocate(bytes);
  char* const block = static_cast<char*>(memory) - kAlignment;
  if (const size_t mapped = mapped_bytes(block); mapped > 0)
    touch_pages(block, mapped);  // zeros of the system: nobody writes them a second time
  else
    std::memset(memory, 0, bytes);
  return memory;
}

void HostBackend::deallocate(void* memory) noexcept {
  if (memory == nullptr) return;
  char* block = static_cast<char*>(memory) - kAlignment;
  const size_t mapped = mapped_bytes(block);
  if (mapped > 0)
    munmap(block, mapped);
  else
    std::free(block);
}

void HostBackend::copy_to_device(Stream& stream, void* device, const void* host, size_t bytes) {
  enqueue_host(stream, [=] { std::memcpy(device, host, bytes); });
}

void HostBackend::copy_to_host(Stream& stream, void* host, const void* device, size_t bytes) {
  enqueue_host(stream, [=] { std::memcpy(host, device, bytes); });
}

void HostBackend::copy_on_device(Stream& stream, void* to, const void* from, size_t bytes) {
  enqueue_host(stream, [=] { std::memcpy(to, from, bytes); });
}

}  // namespace ridge
