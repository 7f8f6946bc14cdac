// The transforms of Winograd's 3x3 convolution: sums and differences of vectors of channels.
#include "ridge/backend/cpu/isa/vectors.h"
#include "ridge/backend/cpu/isa/winograd_kernels.h"

namespace ridge::cpu {
namespace {

using V = Vector<float>;
using Reg = V::Reg;

// Rows of B^T.
void spread(Reg a, Reg b, Reg c, Reg d, Reg (&to)[4]) {
  to[0] = a - c;
  to[1] = b + c;
  to[2] = c - b;
  to[3] = b - d;
}

void transform_input(const WinogradInput& t) {
  for (int64_t c = 0; c < t.channels; c += V::kLanes) {
    Reg columns[4][4];  // [column][row]
    for (int j = 0; j < 4; ++j)
      spread(V::load(t.pixels[j] + c),
             V::load(t.pixels[4 + j] + c),
             V::load(t.pixels[8 + j] + c),
             V::load(t.pixels[12 + j] + c),
             columns[j]);
    float* to = t.to + c;
    for (int i = 0; i < 4; ++i) {
      Reg row[4];
      spread(columns[0][i], columns[1][i], columns[2][i], columns[3][i], row);
      for (int j = 0; j < 4; ++j, to += t.step) V::store(to, row[j]);
    }
  }
}

void transform_output(const WinogradOutput& t) {
  for (int64_t c = 0; c < t.channels; c += V::kLanes) {
    Reg rows[2][4];
    const float* from = t.from + c;
    for (int j = 0; j < 4; ++j, from += t.step) {
      const Reg a = V::load(from), b = V::load(from + 4 * t.step), d = V::load(from + 8 * t.step),
                e = V::load(from + 12 * t.step);
      rows[0][j] = a + b + d;
      rows[1][j] = b - d - e;
    }
    for (int i = 0; i < 2; ++i) {
      const Reg(&r)[4] = rows[i];
      if (t.pixels[2 * i] != nullptr) V::store(t.pixels[2 * i] + c, r[0] + r[1] + r[2]);
      if (t.pixels[2 * i + 1] != nullptr) V::store(t.pixels[2 * i + 1] + c, r[1] - r[2] - r[3]);
    }
  }
}

// Rows of G.
void spread_taps(Reg a, Reg b, Reg c, Reg (&to)[4]) {
  const Reg half = V::set(0.5f), ends = a + c;
  to[0] = a;
  to[1] = (ends + b) * half;
  to[2] = (ends - b) * half;
  to[3] = c;
}

void transform_weights(const WinogradWeights& t) {
  for (int64_t c = 0; c < t.channels; c += V::kLanes) {
    Reg columns[3][4];
    for (int j = 0; j < 3; ++j)
      spread_taps(V::load(t.taps[j] + c),
                  V::load(t.taps[3 + j] + c),
                  V::load(t.taps[6 + j] + c),
                  columns[j]);
    float* to = t.to + c / t.width * t.panel + c % t.width;
    for (int i = 0; i < 4; ++i) {
      Reg row[4];
      spread_taps(columns[0][i], columns[1][i], columns[2][i], row);
      for (int j = 0; j < 4; ++j, to += t.step) V::store(to, row[j]);
    }
  }
}

}  // namespace

namespace RIDGE_ISA {
extern const WinogradKernels winograd_kernels = {
    transform_input, transform_output, transform_weights};
}

}  // namespace ridge::cpu
