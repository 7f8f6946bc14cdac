// Tests of products of bytes by each form of the instructions that the machine has.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "ridge/backend/cpu/cpu_isa.h"
#include "ridge/backend/cpu/gemm/gemm_i8.h"
#include "ridge/base/cpu/parallel.h"

namespace ridge::cpu {

/// Instruction set and threads are afterwards those of before.
class I8Test : public ::testing::Test {
 protected:
  void TearDown() override {
    set_isa(isa_);
    set_num_threads(threads_);
  }
  const Isa isa_ = isa();
  const int threads_ = num_threads();
};

inline std::vector<I8Form> i8_forms() {
  std::vector<I8Form> there;
  for (const I8Form form : kAllI8Forms)
    if (has_i8_form(form)) there.push_back(form);
  return there;
}

}  // namespace ridge::cpu
