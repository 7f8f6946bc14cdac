#include "ridge/run/backends.h"

#include <charconv>
#include <optional>

#include "ridge/backend/cpu/cpu_backend.h"
#include "ridge/backend/cpu/mersenne_twister.h"
#include "ridge/backend/cuda/open_backend.h"
#include "ridge/backend/ref/ref_backend.h"
#include "ridge/base/html/markup.h"
#include "ridge/base/machine/machine.h"

namespace ridge {
namespace {

/// N of "cuda:N", 0 of "cuda"; none for a name of another device.
std::optional<int> cuda_number(std::string_view name) {
  constexpr std::string_view kCuda = "cuda";
  if (name == kCuda) return 0;
  if (!name.starts_with("cuda:")) return std::nullopt;
  const std::string_view digits = name.substr(kCuda.size() + 1);
  int number = -1;
  const auto [end, error] = std::from_chars(digits.begin(), digits.end(), number);
  if (error != std::errc() || end != digits.end() || number < 0)
    throw UserError(fmt::format("device '{}' names no GPU", shortened(name, 60)),
                    "write it as cuda:0, by the number of the GPU");
  return number;
}

}  // namespace

std::vector<std::string> backend_names() { return {"cpu", "cuda", "ref"}; }

std::string device_fingerprint(std::string_view name, const Backend& backend) {
  const std::string hardware = backend.hardware();
  return hardware.empty() ? machine_fingerprint(name)
                          : fmt::format("{}; {}", machine_fingerprint(name), hardware);
}

std::string device_fingerprint(std::string_view name) {
  return device_fingerprint(name, *make_backend(name));
}

std::optional<int64_t> free_device_memory(std::string_view name) {
  const std::optional<int> number = cuda_number(name);
  return number ? std::optional(cuda::free_memory(*number)) : std::nullopt;
}

std::unique_ptr<Backend> make_backend(std::string_view name, const NoteListener& note) {
  if (name == "cpu") return make_cpu_backend();
  if (name == "ref") return make_ref_backend();
  if (const std::optional<int> number = cuda_number(name)) return cuda::open_backend(*number, note);
  throw UserError(fmt::format("unknown device '{}'", name), did_you_mean(name, backend_names()));
}

void draw_mersenne(MersenneState& state, double p, std::span<uint8_t> elements) {
  cpu::MersenneTwister twister(state.words, state.next);
  twister.draw_bernoulli(p, elements);
  state = {twister.words(), twister.next()};
}

}  // namespace ridge
