// The one place that names the backends.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/backend/backend.h"

namespace ridge {

/// "ref", "cpu", "cuda" (the same as "cuda:0"), "cuda:1" and so on. UserError for another name (the
/// nearest is named), or when the machine lacks what the backend needs. The backend keeps `note`.
std::unique_ptr<Backend> make_backend(std::string_view name,
                                      const NoteListener& note = ignore_note);

/// machine_fingerprint of the device, and what `backend`, which is of that name, says of its
/// hardware: what measurements are kept by.
std::string device_fingerprint(std::string_view name, const Backend& backend);
/// The same of a device that is opened for it. UserError as of make_backend.
std::string device_fingerprint(std::string_view name);

/// Bytes of the device's own memory that no process has now; nothing where it computes in the
/// host's. UserError as of make_backend.
std::optional<int64_t> free_device_memory(std::string_view name);

/// The names of backends that run programs.
std::vector<std::string> backend_names();

/// The state of a Mersenne Twister MT19937: its words, the first `next` of which were drawn.
struct MersenneState {
  std::array<uint32_t, 624> words;
  int64_t next;
};
/// Draws two words for each element by a kernel of the CPU, as torch.Tensor.bernoulli_(p) does
/// (backend/cpu/mersenne_twister.h): 1 with the probability `p`, otherwise 0.
void draw_mersenne(MersenneState& state, double p, std::span<uint8_t> elements);

}  // namespace ridge
