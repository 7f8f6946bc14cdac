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
  EXPECT_NE(message.find("looked for libridge-has-no-such.so.1, " + path), std::string::npos)
      << message;
}

TEST(LibrarySearch, WhatIsThereAndCannotBeOpenedIsNot) {
  const test::TempFolder folder;
  const std::string path = folder.path().string();
  std::ofstream(folder / "libridge-has-no-such.so.1") << "no library";
  try {
    open_library(search(folder, path), kTakeAny);
    ADD_FAILURE() << "a text was opened";
  } catch (const LibraryMissing& error) {
    ADD_FAILURE() << error.what();
  } catch (const UserError& error) {
    EXPECT_THAT(error.message(), has("libridge-has-no-such.so.1: file too short"));
  }
}

TEST(LibrarySearch, WhatIsRefusedIsNotMissingEither) {
  const test::TempFolder folder;
  const std::string path = folder.path().string();
  std::filesystem::create_symlink(RIDGE_FAKE_CUDA, folder / "libridge-has-no-such.so.1");
  EXPECT_NE(open_library(search(folder, path), kTakeAny).handle, nullptr);
  const auto refuse = [](const OpenedLibrary&) { return std::string("it is too old"); };
  try {
    open_library(search(folder, path), refuse);
    ADD_FAILURE() << "it was taken";
  } catch (const LibraryMissing& error) {
    ADD_FAILURE() << error.what();
  } catch (const UserError& error) {
    EXPECT_THAT(error.message(), has("it is too old"));
  }
}

}  // namespace
}  // namespace ridge::cuda
