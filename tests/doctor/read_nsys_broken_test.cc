// nsys exports that are no such thing, or were so once.
#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "ridge/doctor/read/read_trace.h"
#include "tests/doctor/sqlite_database.h"
#include "tests/support/errors.h"
#include "tests/support/temp_folder.h"

namespace ridge::doctor {
namespace {

using test::SqliteDatabase;
using test::TempFolder;
using test::user_error;

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// `kernels` kernels and as many calls, in pages of 1 KiB.
std::string export_of(const TempFolder& folder, int64_t kernels) {
  const std::string path = folder / "whole.sqlite";
  SqliteDatabase database(path);
  database.run(
      "PRAGMA page_size = 1024;"
      "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT, end INT, globalTid INT, "
      "correlationId INT, nameId TEXT);"
      "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, deviceId INT, "
      "streamId INT, correlationId INT, globalPid INT, demangledName TEXT); BEGIN");
  const int64_t pid = int64_t{77} << 24;
  for (int64_t i = 1; i <= kernels; ++i) {
    database.insert("CUPTI_ACTIVITY_KIND_RUNTIME",
                    {i * 1000, i * 1000 + 5, pid | 5, i, std::string("cudaLaunchKernel")});
    database.insert(
        "CUPTI_ACTIVITY_KIND_KERNEL",
        {i * 1000 + 9, i * 1000 + 900, int64_t{0}, int64_t{7}, i, pid, std::string("kernel")});
  }
  database.run("COMMIT");
  return path;
}

TEST(BrokenNsys, IsRefusedWithItsReason) {
  TempFolder folder;
  const std::string path = folder / "a.sqlite";
  EXPECT_EQ(user_error([&] { read_nsys(path); }), "cannot open '" + path + "': no such file");
  EXPECT_EQ(user_error([&] { read_nsys(folder.path()); }),
            "cannot open '" + folder.path().string() + "': no such file");
  write(path, "");
  EXPECT_EQ(user_error([&] { read_nsys(path); }),
            "cannot read '" + path + "': it is empty or not readable");
  for (const std::string& text : {std::string("no database"),
                                  std::string("{\"traceEvents\": []}"),
                                  std::string("SQLite format 3\0", 16),
                                  std::string(5000, 'x')}) {
    write(path, text);
    EXPECT_EQ(user_error([&] { read_nsys(path); }),
              "cannot read '" + path + "': no SQLite database");
  }
  {
    SqliteDatabase(path).run(
        "CREATE TABLE foreign_table (x); INSERT INTO foreign_table VALUES (1)");
  }
  EXPECT_EQ(user_error([&] { read_nsys(path); }),
            "cannot read '" + path +
                "': it holds no events: none of its tables is one of an nsys export; export with: "
                "nsys export --type sqlite REPORT");
}

TEST(BrokenNsys, AnyNameOfAFileCanBeOpened) {
  TempFolder folder;
  const std::string whole = bytes_of(export_of(folder, 3));
  for (const std::string name :
       {"a b?c=1&mode=memory#x.sqlite", "100%41.sqlite", "\xc3\xa4'\".db"}) {
    const std::string path = folder / name;
    write(path, whole);
    EXPECT_EQ(read_nsys(path).size(), 6u) << name;
  }
}

TEST(BrokenNsys, WhatACutFileStillHoldsIsRead) {
  TempFolder folder;
  const std::string whole = bytes_of(export_of(folder, 300));
  const std::string path = folder / "cut.sqlite";
  size_t most = 0;
  int partial = 0;
  for (size_t size = 0; size < whole.size(); size += 509) {
    write(path, whole.substr(0, size));
    try {
      const Trace trace = read_nsys(path);
      EXPECT_TRUE(trace.is_truncated) << size;
      EXPECT_FALSE(trace.warnings.empty());
      EXPECT_LE(trace.size(), 600u);
      most = std::max(most, trace.size());
      if (trace.size() > 0 && trace.size() < 600) ++partial;
    } catch (const UserError&) {
      // Nothing could be read.
    }
  }
  EXPECT_GT(partial, 10);
  EXPECT_GT(most, 500u);
}

TEST(BrokenNsys, RandomBytesDoNoHarm) {
  TempFolder folder;
  const std::string whole = bytes_of(export_of(folder, 40));
  const std::string path = folder / "changed.sqlite";
  std::mt19937 random(20261122);
  int read = 0;
  for (int i = 0; i < 400; ++i) {
    std::string changed = whole;
    for (unsigned n = 1 + random() % 8; n > 0; --n)
      changed[random() % changed.size()] = static_cast<char>(random());
    write(path, changed);
    try {
      const Trace trace = read_nsys(path);
      for (size_t row = 0; row < trace.size(); ++row) {
        ASSERT_LT(trace.name[row], trace.names.size());
        ASSERT_LT(trace.lane[row], trace.lanes.size());
        ASSERT_GE(trace.duration_ns[row], 0);
      }
      ++read;
    } catch (const UserError&) {
      // A clear refusal is the other right answer.
    }
  }
  EXPECT_GT(read, 50);
}

// The tree of a table whose inner pages all point to one page: a file of a few KiB with millions of
// rows.
TEST(BrokenNsys, PagesUsedAgainAndAgainEndTheReading) {
  constexpr size_t kPage = 1024;
  TempFolder folder;
  std::string bytes = bytes_of(export_of(folder, 2000));
  const auto number = [&](size_t at, size_t size) {
    uint32_t value = 0;
    for (size_t i = 0; i < size; ++i)
      value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
    return value;
  };
  const auto point_all_to = [&](size_t page, uint32_t child) {
    const auto put = [&](size_t at) {
      for (int i = 3; i >= 0; --i, ++at) bytes[at] = static_cast<char>(child >> (8 * i));
    };
    const size_t start = (page - 1) * kPage;
    put(start + 8);
    for (size_t cell = 0; cell < number(start + 3, 2); ++cell)
      put(start + number(start + 12 + 2 * cell, 2));
  };
  // The first inner page of a table's tree is a root; its first child is an inner page or a leaf.
  size_t root = 2;
  while (bytes[(root - 1) * kPage] != 5) ++root;
  const size_t start = (root - 1) * kPage;
  ASSERT_GT(number(start + 3, 2), 40u);
  const uint32_t inner = number(start + number(start + 12, 2), 4);
  const uint32_t leaf = number(start + number(start + 14, 2), 4);
  for (size_t i = 0; i < kPage; ++i) bytes[(inner - 1) * kPage + i] = bytes[start + i];
  point_all_to(root, inner);
  point_all_to(inner, leaf);
  const std::string path = folder / "again.sqlite";
  write(path, bytes);
  const Trace trace = read_nsys(path);
  EXPECT_LT(trace.size(), 1000 + bytes.size() / 12);
  ASSERT_FALSE(trace.warnings.empty());
  bool is_told = false;
  for (const Warning& each : trace.warnings)
    is_told |= each.text.find("more rows than its bytes can hold") != std::string::npos;
  EXPECT_TRUE(is_told);
}

}  // namespace
}  // namespace ridge::doctor
