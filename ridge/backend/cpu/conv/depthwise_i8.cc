#include "ridge/backend/cpu/conv/depthwise_i8.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "ridge/backend/cpu/gemm/gemm_plan.h"
#include "ridge/backend/cpu/isa/conv/depthwise_i8_kernels.h"
#include "ridge/base/alignment.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/base/error.h"

namespace ridge::cpu {
namespace {

constexpr int64_t kMostLines = 32;                 // of a window, filled up to whole groups
constexpr int64_t kMostGroup = 4;                  // lines that are multiplied at once
constexpr int64_t kWorkOfTask = int64_t{1} << 18;  // products

// Kernels of wide blocks, and those of narrow ones where few channels are left; they may be the
// same.
struct KernelPair {
  const DepthwiseI8Kernels &wide, &narrow;
};

KernelPair kernels_of(I8Form form, bool has_zeros) {
  if (has_zeros || form == I8Form::kAvx2)
    return {avx2::depthwise_i8_kernels, avx2::depthwise_i8_kernels};
  if (form == I8Form::kAvxVnni)
    return {avx2::depthwise_i8_vnni_kernels, avx2::depthwise_i8_vnni_kernels};
  return {avx512::depthwise_i8_vnni_kernels, avx512::depthwise_i8_vnni_narrow_kernels};
}

DepthwiseI8Result result_of(DType dtype) {
  switch (dtype) {
    case DType::kI32:
      return DepthwiseI8Result::kI32;
    case DType::kF32:
      return DepthwiseI8Result::kF32;
    case DType::kI8:
      return DepthwiseI8Result::kI8;
    case DType::kU8:
      return DepthwiseI8Result::kU8;
    default:
      throw InternalError(fmt::format("[depthwise_i8] results of {}", name_of(dtype)));
  }
}

}  // namespace

// The blocks of channels, and where all that a call makes lies in the workspace.
struct DepthwiseI8::Layout {
  struct Block {
    int64_t channel;
    const DepthwiseI8Kernels* kernels;
    size_t prepared;
  };

  // Fewer channels than those of a narrow block are filled up to it, in copies of the operands.
  Layout(const ConvGeometry& g, const KernelPair& kernels)
      : channels(std::max(g.channels, kernels.narrow.channels)),
        is_padded(channels > g.channels),
        beyond(take(g.in[1] * channels)),
        zeros(take(channels)),
        x(take(is_padded ? g.images * g.in[0] * g.in[1] * channels : 0)),
        w(take(is_padded ? g.taps() * channels : 0)) {
    add_blocks(g, kernels);
  }

  size_t take(int64_t count) {
    const size_t at = bytes;
    bytes += aligned_bytes(static_cast<size_t>(count));
    return at;
  }
  void add_block(const ConvGeometry& g, int64_t channel, const DepthwiseI8Kernels& kernels) {
    blocks.push_back({channel, &kernels, take(kernels.prepared_bytes(g.kernel[0], g.kernel[1]))});
  }
  // The last ones may overlap.
  void add_blocks(const ConvGeometry& g, const KernelPair& kernels) {
    const int64_t wide = kernels.wide.channels, narrow = kernels.narrow.channels;
    int64_t c = 0;
    for (; c + wide <= channels; c += wide) add_block(g, c, kernels.wide);
    if (channels - c > narrow && channels >= wide)
      return add_block(g, channels - wide, kernels.wide);
    for (; c < channels; c += narrow) add_block(g, std::min(c, channels - narrow), kernels.narrow);
  }

  size_t bytes = 0;
  int64_t channels;  // of a pixel as the kernels see it
  bool is_padded;
  size_t beyond, zeros, x, w;  // x and w where is_padded
  std::vector<Block> blocks;
};

// One call.
class DepthwiseI8::Run {
 public:
  Run(const DepthwiseI8& c, const I8Operands& operands, const I8Results& results, char* workspace)
      : c_(c),
        g_(c.g_),
        operands_(operands),
        results_(results),
        layout_(finds_zeros() ? *c.layout_with_zeros_ : *c.layout_),
        channels_(layout_.channels),
        workspace_(workspace),
        beyond_(bytes_at(layout_.beyond)),
        zeros_(bytes_at(layout_.zeros)),
        x_(layout_.is_padded ? bytes_at(layout_.x) : static_cast<const uint8_t*>(operands.a)),
        w_(layout_.is_padded ? bytes_at(layout_.w) : static_cast<const uint8_t*>(operands.b)) {}

  void run() const {
    std::fill_n(beyond_, g_.in[1] * channels_, x_zero());
    std::fill_n(zeros_, channels_, w_zero(0));
    for (int64_t c = 0; c < g_.channels; ++c) zeros_[c] = w_zero(c);
    if (layout_.is_padded) pad();
    for (const Layout::Block& block : layout_.blocks) prepare(block);
    const int64_t lines = g_.images * g_.out[0], work = g_.out[1] * channels_ * g_.taps();
    parallel_for(lines, std::max<int64_t>(1, kWorkOfTask / work), [&](int64_t begin, int64_t end) {
      for (int64_t line = begin; line < end; ++line) run_line(line);
    });
  }

 private:
  uint8_t* bytes_at(size_t place) const { return reinterpret_cast<uint8_t*>(workspace_ + place); }
  uint8_t x_zero() const { return *static_cast<const uint8_t*>(operands_.a_zero.data); }
  uint8_t w_zero(int64_t c) const {
    return static_cast<const uint8_t*>(operands_.b_zero.data)[operands_.b_zero.each ? c : 0];
  }
  // Whether a weight has a zero point that is not the i8 0.
  bool finds_zeros() const {
    const uint8_t none = c_.w_is_signed_ ? 0 : 128;
    for (int64_t c = 0; c < (operands_.b_zero.each ? g_.channels : 1); ++c)
      if (w_zero(c) != none) return true;
    return false;
  }

  void pad() const {
    const auto copy = [&](const void* from, int64_t begin, int64_t end, uint8_t* to) {
      const auto* const pixels = static_cast<const uint8_t*>(from);
      for (int64_t i = begin; i < end; ++i) {
        std::memcpy(to + i * channels_, pixels + i * g_.channels, static_cast<size_t>(g_.channels));
        std::memset(
            to + i * channels_ + g_.channels, 0, static_cast<size_t>(channels_ - g_.channels));
      }
    };
    copy(operands_.b, 0, g_.taps(), bytes_at(layout_.w));
    parallel_for(g_.images * g_.in[0] * g_.in[1], 4096, [&](int64_t begin, int64_t end) {
      copy(operands_.a, begin, end, bytes_at(layout_.x));
    });
  }

  void prepare(const Layout::Block& block) const {
    const int64_t c = block.channel;
    const bool takes_signed = !block.kernels->has_zeros;
    const float* const scales = results_.column_scale;
    block.kernels->prepare(
        {.weights = w_ + c,
         .kernel = {g_.kernel[0], g_.kernel[1]},
         .pitch = channels_,
         .zeros = zeros_ + c,
         .flip = static_cast<uint8_t>(takes_signed == c_.w_is_signed_ ? 0 : 0x80),
         .x_zero = x_zero() ^ flip_of_x(),
         .count = std::min(block.kernels->channels, g_.channels - c),
         .scales = scales != nullptr && results_.has_scale_each_column ? scales + c : scales,
         .has_scale_each = results_.has_scale_each_column,
         .bias = results_.bias == nullptr ? nullptr : results_.bias + c,
         .sum_bias = results_.sum_bias == nullptr ? nullptr : results_.sum_bias + c,
         .to = workspace_ + block.prepared});
  }
  uint8_t flip_of_x() const { return c_.x_is_signed_ ? 0x80 : 0; }

  void run_line(int64_t line) const {
    const int64_t row = line % g_.out[0] * g_.stride[0] - g_.padding[0];
    const uint8_t* const image = x_ + line / g_.out[0] * g_.in[0] * g_.in[1] * channels_;
    std::array<const uint8_t*, kMostLines> seen, beyond;
    for (int64_t i = 0; i < round_up(g_.kernel[0], kMostGroup); ++i) {
      const int64_t y = row + i * g_.dilation[0];
      const bool is_inside = i < g_.kernel[0] && y >= 0 && y < g_.in[0];
      seen[static_cast<size_t>(i)] = is_inside ? image + y * g_.in[1] * channels_ : beyond_;
    }
    const auto bytes = static_cast<int64_t>(size_of(results_.dtype));
    char* const to = static_cast<char*>(results_.c) + line * g_.out[1] * g_.channels * bytes;
    int64_t channel = 0;
    beyond.fill(beyond_);
    const auto used = static_cast<size_t>(round_up(g_.kernel[0], kMostGroup));
    for (const Layout::Block& block : layout_.blocks) {
      for (size_t i = 0; i < used; ++i) {
        seen[i] += block.channel - channel;
        beyond[i] += block.channel - channel;
      }
      channel = block.channel;
      block.kernels->line({.lines = seen.data(),
                           .beyond = beyond.data(),
                           .pixel = channels_,
                           .width = g_.in[1],
                           .kernel = {g_.kernel[0], g_.kernel[1]},
                           .stride = g_.stride[1],
                           .padding = g_.padding[1],
                           .dilation = g_.dilation[1],
                           .flip = flip_of_x(),
                           .prepared = workspace_ + block.prepared,
                           .result = result_of(results_.dtype),
                           .zero = results_.zero,
                           .low = results_.least(),
                           .high = results_.most(),
                           .to = to + channel * bytes,
                           .to_pixel = g_.channels,
                           .count = std::min(block.kernels->channels, g_.channels - channel),
                           .columns = g_.out[1]});
    }
  }

  const DepthwiseI8& c_;
  const ConvGeometry& g_;
  const I8Operands& operands_;
  const I8Results& results_;
  const Layout& layout_;
  int64_t channels_;
  char* workspace_;
  uint8_t *beyond_, *zeros_;  // a line of pixels beyond the image, and zero points of the weights
  const uint8_t *x_, *w_;
};

bool DepthwiseI8::accepts(const ConvGeometry& g) {
  return g.groups == g.channels && g.out_channels == g.channels &&
         g.kernel[0] <= kMostLines - kMostGroup;
}

DepthwiseI8::DepthwiseI8(const ConvGeometry& g, bool x_is_signed, bool w_is_signed, I8Form form)
    : g_(g),
      x_is_signed_(x_is_signed),
      w_is_signed_(w_is_signed),
      layout_(std::make_shared<const Layout>(g, kernels_of(form, false))),
      layout_with_zeros_(std::make_shared<const Layout>(g, kernels_of(form, true))) {
  check_internal(has_i8_form(form), "[depthwise_i8] there is no {} here", name_of(form));
}

size_t DepthwiseI8::workspace_bytes() const {
  return std::max(layout_->bytes, layout_with_zeros_->bytes) + kBufferAlignment - 1;
}

void DepthwiseI8::run(const I8Operands& operands, const I8Results& results, void* workspace) const {
  const uintptr_t aligned = aligned_bytes(reinterpret_cast<uintptr_t>(workspace));
  Run(*this, operands, results, reinterpret_cast<char*>(aligned)).run();
}

}  // namespace ridge::cpu
