// A test that hangs ends its program and names itself instead of using up the time of all.
#pragma once

namespace ridge::test {

/// Ends the program when one test runs longer than RIDGE_TEST_LIMIT seconds (300 where it is unset,
/// no limit at 0): stderr gets a line `hung: SUITE.CASE ...` and the stack of each thread. Called
/// once, before RUN_ALL_TESTS().
void guard_against_hangs();

}  // namespace ridge::test
