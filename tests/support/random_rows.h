// Random graphs that are one loop over rows.
#pragma once

#include <vector>

#include "ridge/graph/ops/activation.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/gather.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "tests/support/case_builder.h"

namespace ridge::test {

/// Loops over rows with reductions, values of rows, picks, marks, sums over rows and totals: what
/// fusion makes one node of.
class RandomRows {
 public:
  RandomRows(DType dtype, uint64_t seed) : b_(dtype, seed), random_(seed + 77) {
    const int64_t widths[] = {2, 3, 17, 64, 300, 2048, 2049, 5000};
    columns_ = widths[random_.integer(0, 7)];
    outer_ = random_.integer(1, 3);
    inner_ = columns_ > 1000 ? random_.integer(2, 6) : random_.integer(2, 90);
    whole_ = {b_.input(domain()), b_.input(domain())};
    whole_.push_back(broadcast(b_.input({columns_}), domain()));
    whole_.push_back(broadcast(b_.input({inner_, columns_}), domain()));
    whole_.push_back(broadcast(b_.input({1}), domain()));
    rows_ = {b_.input({outer_, inner_, 1})};
    index_ = b_.indices(DType::kI64, {outer_, inner_}, 0, columns_ - 1);
  }

  CaseBuilder& build() {
    const int64_t steps = random_.integer(6, 18);
    for (int64_t i = 0; i < steps; ++i) add();
    outputs_.push_back(tanh(whole_.back()));
    outputs_.push_back(rows_.back() + rows_.front());
    b_.finish(outputs_);
    return b_;
  }

 private:
  Shape domain() const { return {outer_, inner_, columns_}; }
  Value any(const std::vector<Value>& from) {
    return from[static_cast<size_t>(random_.integer(0, static_cast<int64_t>(from.size()) - 1))];
  }
  void keep(std::vector<Value>& list, Value value) {
    list.push_back(value);
    if (random_.chance(0.2)) outputs_.push_back(value);
  }

  void add() {
    const Value x = any(whole_), y = any(whole_), r = any(rows_);
    switch (random_.integer(0, 13)) {
      case 0:
        return keep(whole_, tanh(x));
      case 1:
        return keep(whole_, x * y);
      case 2:
        return keep(whole_, x - broadcast(r, domain()));
      case 3:
        return keep(whole_, exp(minimum(x, constant_like(x, 1.0))));
      case 4:
        return keep(whole_, where(gt(x, y), x, broadcast(r, domain())));
      case 5:
        return keep(rows_, reduce_sum(x, {2}, true));
      case 6:
        return keep(rows_, reduce_mean(x, {2}, true));
      case 7:
        return keep(rows_, reduce_max(x, {2}, true));
      case 8:
        return keep(rows_, r * 0.25 + any(rows_));
      case 9:
        return keep(rows_, reshape(pick(whole_[0], index_), {outer_, inner_, 1}));
      case 10:
        return outputs_.push_back(reduce_sum(x, {0, 1}));
      case 11:
        return outputs_.push_back(reduce_mean(reshape(r, {outer_ * inner_})));
      case 12:
        return outputs_.push_back(x * one_hot(index_, columns_, x.dtype()));
      default:
        return keep(whole_, sigmoid(x) + y);
    }
  }

  CaseBuilder b_;
  Random random_;
  int64_t outer_, inner_, columns_;
  std::vector<Value> whole_, rows_, outputs_;
  Value index_;
};

}  // namespace ridge::test
