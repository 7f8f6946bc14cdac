#include "ridge/base/dtype.h"

#include <gtest/gtest.h>

namespace ridge {
namespace {

TEST(DType, NamesParseBack) {
  for (DType dtype : kAllDTypes) EXPECT_EQ(parse_dtype(name_of(dtype)), dtype);
  EXPECT_FALSE(parse_dtype("f8"));
}

}  // namespace
}  // namespace ridge
