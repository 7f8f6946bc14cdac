#include "ridge/api/aten_random.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <tuple>

#include "ridge/run/backends.h"

namespace ridge {
namespace {

constexpr int64_t kMersenneWords = std::tuple_size_v<decltype(MersenneState::words)>;

// The state of at::CPUGeneratorImpl as a tensor of bytes has it, which has not changed since torch
// 1.0. Normal numbers that wait to be used lie behind these, and stay as they are.
struct AtenState {
  uint64_t seed;
  int32_t left;  ///< Words that are left, and one.
  int32_t is_seeded;
  uint64_t next;
  uint64_t words[kMersenneWords];
};
constexpr size_t kStateBytes = 5056;

bool is_known(const AtenState& state) {
  if (state.is_seeded != 1 || state.next > kMersenneWords) return false;
  // A generator that was seeded and has drawn nothing has no words yet.
  return state.left == 1 || state.left + static_cast<int64_t>(state.next) == kMersenneWords + 1;
}

}  // namespace

bool draw_bernoulli(std::span<std::byte> state, double p, std::span<uint8_t> elements) {
  AtenState aten;
  if (state.size() != kStateBytes || !(p >= 0 && p <= 1)) return false;
  std::memcpy(&aten, state.data(), sizeof(aten));
  if (!is_known(aten)) return false;
  if (elements.empty()) return true;
  MersenneState generator{};
  std::ranges::transform(aten.words, generator.words.begin(), [](uint64_t word) {
    return static_cast<uint32_t>(word);
  });
  generator.next = aten.left == 1 ? kMersenneWords : static_cast<int64_t>(aten.next);
  draw_mersenne(generator, p, elements);
  std::ranges::copy(generator.words, aten.words);
  aten.next = static_cast<uint64_t>(generator.next);
  aten.left = static_cast<int32_t>(kMersenneWords + 1 - generator.next);
  std::memcpy(state.data(), &aten, sizeof(aten));
  return true;
}

}  // namespace ridge
