// Random numbers of PyTorch's generator on a CPU, drawn by the engine's kernels: the same numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ridge {

/// Draws as torch.Tensor.bernoulli_(p) does: 1 with the probability `p`, in [0, 1], otherwise 0.
/// `state` is that of torch.Generator.get_state(), and afterwards the one that the generator has to
/// be set to. False where `state` is none that is known; then nothing was drawn.
bool draw_bernoulli(std::span<std::byte> state, double p, std::span<uint8_t> elements);

}  // namespace ridge
