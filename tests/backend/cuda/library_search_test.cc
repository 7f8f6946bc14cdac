// Tests the places where libraries are looked for, and the errors for one that is missing and for
// one that cannot be used.
#include "ridge/backend/cuda/driver/library_search.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/has.h"
#include "tests/support/temp_folder.h"

namespace ridge::cuda {
namespace {

using test::has;
using test::lacks;

const auto kTakeAny = [](const OpenedLibrary&) { return std::string(); };

// The error of a library that is looked for in a folder; "missing: " where it is not there.
std::string refusal(const test::TempFolder& folder,
                    const std::function<std::string(const OpenedLibrary&)>& check) {
  const std::string path = folder.path().string();
  try {
    open_library({.variable = "RIDGE_TEST_LIBRARY",
                  .files = {"libridge-has-no-such.so.1"},
                  .folders = {path.c_str()},
                  .failed = "cannot open it in " + path,
                  .fix = "install it"},
                 check);
  } catch (const LibraryMissing& error) {
    return std::string("missing: ") + error.what();
  } catch (const UserError& error) {
    return error.message();
  }
  return "no error";
}

TEST(LibrarySearch, WhatIsNowhereIsMissing) {
  const test::TempFolder folder;
  EXPECT_THAT(refusal(folder, kTakeAny),
              has("missing: ", "looked for libridge-has-no-such.so.1, " + folder.path().string()));
}

TEST(LibrarySearch, WhatIsThereAndCannotBeOpenedIsNot) {
  const test::TempFolder folder;
  std::ofstream(folder / "libridge-has-no-such.so.1") << "no library";
  EXPECT_THAT(refusal(folder, kTakeAny), has("libridge-has-no-such.so.1: file too short"));
  EXPECT_THAT(refusal(folder, kTakeAny), lacks("missing: "));
}

TEST(LibrarySearch, WhatIsRefusedIsNotMissingEither) {
  const test::TempFolder folder;
  std::filesystem::create_symlink(RIDGE_FAKE_CUDA, folder / "libridge-has-no-such.so.1");
  EXPECT_EQ(refusal(folder, kTakeAny), "no error");
  const auto refuse = [](const OpenedLibrary&) { return std::string("it is too old"); };
  EXPECT_THAT(refusal(folder, refuse), has("it is too old"));
  EXPECT_THAT(refusal(folder, refuse), lacks("missing: "));
}

}  // namespace
}  // namespace ridge::cuda
