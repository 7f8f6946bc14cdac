// Reductions of a loop, piece by piece.
#include "ridge/backend/cpu/isa/lanes.h"
#include "ridge/backend/cpu/isa/loop_kernels.h"

namespace ridge::cpu {
namespace {

template <class Op, typename A>
Turns<Op, A> load(const void* lanes) {
  Turns<Op, A> turns;
  for (int k = 0; k < turns.kTurns; ++k)
    turns.sum[k] = Lanes<A>::load(static_cast<const A*>(lanes) + k * kLanes);
  return turns;
}

template <class Op, typename A>
void store(const Turns<Op, A>& turns, void* lanes) {
  for (int k = 0; k < turns.kTurns; ++k) turns.sum[k].store(static_cast<A*>(lanes) + k * kLanes);
}

template <class Op, typename A>
void start(void* lanes) {
  store(Turns<Op, A>(), lanes);
}

template <class Op, typename A>
void add(void* lanes, const void* x, int64_t n) {
  Turns<Op, A> turns = load<Op, A>(lanes);
  turns.add(n, [from = static_cast<const A*>(x)](int64_t i, int count) {
    return lanes_at<A>(from, i, count, Op::template kNeutral<A>);
  });
  store(turns, lanes);
}

template <class Op, typename A>
void finish(const void* lanes, void* y) {
  *static_cast<A*>(y) = load<Op, A>(lanes).result();
}

template <class Op>
inline constexpr LoopReduction kReduction = {{start<Op, double>, start<Op, float>},
                                             {add<Op, double>, add<Op, float>},
                                             {finish<Op, double>, finish<Op, float>}};

static_assert(Turns<Plus, float>::kStep == kTurnLanes);

}  // namespace

namespace RIDGE_ISA {
extern const LoopReductions loop_kernels = {kReduction<Plus>, kReduction<Larger>};
}

}  // namespace ridge::cpu
