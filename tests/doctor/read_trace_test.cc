// Formats are told apart by what a file holds, whatever it is called.
#include "ridge/doctor/read/read_trace.h"

#include <gtest/gtest.h>

#include <fstream>

#include "ridge/io/gzip.h"
#include "tests/doctor/sqlite_database.h"
#include "tests/doctor/trace_rows.h"
#include "tests/support/errors.h"
#include "tests/support/temp_folder.h"

namespace ridge::doctor {
namespace {

const std::string kRecorded = "tests/data/traces/event_sync_multi_stream.json.gz";

TEST(ReadTrace, JsonAndGzipByTheirContents) {
  const test::TempFolder folder;
  const Trace packed = read_trace(kRecorded);
  EXPECT_GT(packed.size(), 50u);
  const std::string path = folder / "plain.sqlite";
  std::ofstream(path) << gunzip(as_bytes(read_file(kRecorded)), size_t{1} << 20, "recorded");
  const Trace plain = read_trace(path);
  EXPECT_EQ(lines_of(plain), lines_of(packed));
  EXPECT_EQ(plain.source, path);
}

TEST(ReadTrace, SqliteByItsContents) {
  const test::TempFolder folder;
  const std::string path = folder / "export.json";
  {
    test::SqliteDatabase database(path);
    database.run("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL)");
    database.run(
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, "
        "streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER)");
    database.insert("StringIds", {int64_t{1}, "k"});
    database.insert(
        "CUPTI_ACTIVITY_KIND_KERNEL",
        {int64_t{5}, int64_t{9}, int64_t{0}, int64_t{7}, int64_t{3}, int64_t{0}, int64_t{1}});
  }
  const Trace trace = read_trace(path);
  ASSERT_EQ(trace.size(), 1u);
  EXPECT_EQ(trace.recorder, "nsys");
  EXPECT_EQ(trace.name_text(0), "k");
  EXPECT_EQ(trace.duration_ns[0], 4);
}

TEST(ReadTrace, OthersAreRefused) {
  const test::TempFolder folder;
  for (const char* content : {"",
                              "SQLite",
                              "\x1f\x8b",
                              "\x7f"
                              "ELF",
                              "name,time\n"}) {
    const std::string path = folder / "file";
    std::ofstream(path) << content;
    EXPECT_NE(test::user_error([&] { read_trace(path); }), "no error") << content;
  }
  EXPECT_NE(test::user_error([&] { read_trace(folder / "none"); }), "no error");
  EXPECT_NE(test::user_error([&] { read_trace(folder.path()); }), "no error");
}

}  // namespace
}  // namespace ridge::doctor
