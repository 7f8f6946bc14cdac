#include "ridge/backend/host.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace ridge {

void HostKernel::launch(Stream& stream, const KernelArgs& args) const {
  enqueue_host(stream, [this, args] { run_(args); });
}

void KernelTable::add(std::string_view op, Choice choice, Make make, Accepts accepts) {
  rows_[std::string(op)].push_back({std::move(choice), std::move(make), std::move(accepts)});
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

std::unique_ptr<NodeKernel> KernelTable::instantiate(const Node& node, size_t choice) const {
  const auto found = rows(node);
  check_internal(
      choice < found.size(), "choice {} of {} for node '{}'", choice, found.size(), node.site.name);
  return found[choice]->make(node);
}

void* HostBackend::allocate(size_t bytes) {
  constexpr size_t kAlignment = 64;
  const size_t size = std::max(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  void* memory = size >= bytes ? std::aligned_alloc(kAlignment, size) : nullptr;
  check(memory != nullptr, "no memory for {} bytes on device '{}'", bytes, name());
  return memory;
}

void HostBackend::deallocate(void* memory) noexcept { std::free(memory); }

void HostBackend::copy_to_device(Stream& stream, void* device, const void* host, size_t bytes) {
  enqueue_host(stream, [=] { std::memcpy(device, host, bytes); });
}

void HostBackend::copy_to_host(Stream& stream, void* host, const void* device, size_t bytes) {
  enqueue_host(stream, [=] { std::memcpy(host, device, bytes); });
}

}  // namespace ridge
