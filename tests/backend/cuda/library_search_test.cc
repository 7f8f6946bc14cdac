// Where libraries are looked for, and how one that is missing is told from one that is no good.
#include "ridge/backend/cuda/library_search.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "tests/support/errors.h"
#include "tests/support/has.h"
#include "tests/support/temp_folder.h"

namespace ridge::cuda {
namespace {

using test::has;
using test::lacks;

const auto kTakeAny = [](const OpenedLibrary&) { return std::string(); };

LibrarySearch search(const test::TempFolder& folder, const std::string& path) {
  return {.variable = "RIDGE_TEST_LIBRARY",
          .files = {"libridge-has-no-such.so.1"},
          .folders = {path.c_str()},
          .failed = "cannot open it in " + folder.path().string(),
          .fix = "install it"};
}

TEST(LibrarySearch, WhatIsNowhereIsMissing) {
  const test::TempFolder folder;
  const std::string path = folder.path().string();
  EXPECT_THROW(open_library(search(folder, path), kTakeAny), LibraryMissing);
  const std::string message =
      test::user_error([&] { open_library(search(folder, path), kTakeAny); });
  EXPECT_THAT(message, has("looked for libridge-has-no-such.so.1, " + path));
}

// The error of a library that is there and no good.
std::string refusal(const test::TempFolder& folder,
                    const std::function<std::string(const OpenedLibrary&)>& check) {
  try {
    open_library(search(folder, folder.path().string()), check);
  } catch (const LibraryMissing& error) {
    return std::string("missing: ") + error.what();
  } catch (const UserError& error) {
    return error.message();
  }
  return "no error";
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
