// A cubin is an ELF file. `.nv.info` holds attributes of kernels, each {format, attribute, size,
// payload}; those read here have a payload of {symbol, number}. `.text.NAME` is the code of a
// kernel, `.nv.shared.NAME` its shared memory.
#include "tests/backend/cuda_kernels/printed_cubin.h"

#include <elf.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>

#include "ridge/base/error.h"

namespace ridge::test {
namespace {

// The formats and attributes that `cuobjdump -elf` prints as EIFMT_SVAL, EIATTR_...
constexpr uint8_t kSizedValue = 0x04;
constexpr uint8_t kFrameSize = 0x11;
constexpr uint8_t kMinStackSize = 0x12;
constexpr uint8_t kRegisterCount = 0x2f;
constexpr std::string_view kText = ".text.", kShared = ".nv.shared.";

class Bytes {
 public:
  explicit Bytes(std::string_view all) : all_(all) {}

  template <typename T>
  T at(uint64_t offset) const {
    T value;
    std::memcpy(&value, part(offset, sizeof value).data(), sizeof value);
    return value;
  }
  std::string_view part(uint64_t offset, uint64_t size) const {
    check(offset <= all_.size() && all_.size() - offset >= size,
          "[cubin] ends early: {} bytes at {} of {}",
          size,
          offset,
          all_.size());
    return all_.substr(offset, size);
  }
  std::string_view text(uint64_t offset) const {
    const std::string_view rest =
        part(offset, all_.size() - std::min<uint64_t>(offset, all_.size()));
    return rest.substr(0, rest.find('\0'));
  }

 private:
  std::string_view all_;
};

struct Section : Elf64_Shdr {
  std::string_view name;
};

std::vector<Section> sections_of(const Bytes& file) {
  const auto head = file.at<Elf64_Ehdr>(0);
  check(head.e_shentsize >= sizeof(Elf64_Shdr) && head.e_shstrndx < head.e_shnum,
        "[cubin] has no table of sections");
  std::vector<Section> sections;
  for (uint64_t i = 0; i < head.e_shnum; ++i)
    sections.push_back({file.at<Elf64_Shdr>(head.e_shoff + i * head.e_shentsize), {}});
  for (Section& each : sections)
    each.name = file.text(sections[head.e_shstrndx].sh_offset + each.sh_name);
  return sections;
}

// Names of the symbols, by number.
std::vector<std::string_view> symbols_of(const Bytes& file, const std::vector<Section>& sections) {
  std::vector<std::string_view> names;
  for (const Section& section : sections) {
    if (section.sh_type != SHT_SYMTAB) continue;
    check(section.sh_link < sections.size(), "[cubin] has symbols without names");
    const Bytes table(file.part(section.sh_offset, section.sh_size));
    for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= section.sh_size; at += sizeof(Elf64_Sym))
      names.push_back(
          file.text(sections[section.sh_link].sh_offset + table.at<Elf64_Sym>(at).st_name));
  }
  return names;
}

struct Attributes {
  std::map<std::string_view, int> registers, frame, stack;
};

void read_attributes(const Bytes& info,
                     uint64_t size,
                     const std::vector<std::string_view>& symbols,
                     Attributes& found) {
  for (uint64_t at = 0; at + 4 <= size;) {
    const auto format = info.at<uint8_t>(at), attribute = info.at<uint8_t>(at + 1);
    const auto bytes = info.at<uint16_t>(at + 2);
    const uint64_t payload = at + 4;
    at = payload + (format == kSizedValue ? bytes : 0);
    if (format != kSizedValue || bytes != 8) continue;
    const auto symbol = info.at<uint32_t>(payload);
    const int number = info.at<int32_t>(payload + 4);
    if (symbol >= symbols.size()) continue;
    if (attribute == kRegisterCount) found.registers[symbols[symbol]] = number;
    if (attribute == kFrameSize) found.frame[symbols[symbol]] = number;
    if (attribute == kMinStackSize) found.stack[symbols[symbol]] = number;
  }
}

}  // namespace

std::vector<KernelUse> read_cubin(std::string_view cubin) {
  check(cubin.starts_with("\177ELF\2\1"), "[cubin] is no ELF file of 64 bits");
  const Bytes file(cubin);
  const std::vector<Section> sections = sections_of(file);
  const std::vector<std::string_view> symbols = symbols_of(file, sections);
  Attributes found;
  std::map<std::string_view, int> shared;
  for (const Section& section : sections) {
    if (section.name == ".nv.info")
      read_attributes(
          Bytes(file.part(section.sh_offset, section.sh_size)), section.sh_size, symbols, found);
    if (section.name.starts_with(kShared))
      shared[section.name.substr(kShared.size())] = static_cast<int>(section.sh_size);
  }
  std::vector<KernelUse> kernels;
  for (const Section& section : sections) {
    if (!section.name.starts_with(kText)) continue;
    const std::string_view entry = section.name.substr(kText.size());
    // Without its registers nothing is known of it: a cubin of a form that this does not read.
    check(found.registers.contains(entry), "[cubin] says nothing of kernel '{}'", entry);
    kernels.push_back({.entry = std::string(entry),
                       .registers = found.registers[entry],
                       .local_bytes = std::max(found.frame[entry], found.stack[entry]),
                       .shared_bytes = shared[entry]});
  }
  check(!kernels.empty(), "[cubin] holds no kernel");
  return kernels;
}

size_t count_instructions(std::string_view cubin,
                          FunctionRef<bool(uint64_t low, uint64_t high)> counts) {
  const Bytes file(cubin);
  size_t found = 0;
  for (const Section& section : sections_of(file)) {
    if (!section.name.starts_with(kText)) continue;
    for (uint64_t at = section.sh_offset; at + 16 <= section.sh_offset + section.sh_size; at += 16)
      found += counts(file.at<uint64_t>(at), file.at<uint64_t>(at + 8)) ? 1 : 0;
  }
  return found;
}

}  // namespace ridge::test
