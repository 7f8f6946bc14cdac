#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <random>

#include "ridge/doctor/read/read_trace.h"
#include "tests/doctor/nsys_tables.h"
#include "tests/doctor/sqlite_database.h"
#include "tests/doctor/trace_rows.h"
#include "tests/support/errors.h"
#include "tests/support/temp_folder.h"

namespace ridge::doctor {
namespace {

using test::kNsysTables;
using test::SqliteDatabase;
using test::TempFolder;
using test::user_error;

constexpr int64_t kPid = 1234, kTid = 1240;
constexpr int64_t kGlobal = kPid << 24 | kTid;

// Lines of what `fill` puts into a new file.
std::vector<std::string> lines_after(const std::function<void(SqliteDatabase&)>& fill) {
  TempFolder folder;
  const std::string path = folder / "a.sqlite";
  {
    SqliteDatabase database(path);
    fill(database);
  }
  return lines_of(read_nsys(path));
}

std::string sql(std::string text) {
  const auto replace = [&](const std::string& from, int64_t number) {
    for (size_t at; (at = text.find(from)) != std::string::npos;)
      text.replace(at, from.size(), std::to_string(number));
  };
  replace("$tid", kGlobal);
  replace("$pid", kPid << 24);
  return text;
}

using Lines = std::vector<std::string>;

TEST(ReadNsys, ReadsWhatANewExportHolds) {
  const Lines lines = lines_after([](SqliteDatabase& database) {
    database.run(kNsysTables);
    database.run(sql(R"(
      INSERT INTO StringIds VALUES (1, 'cudaLaunchKernel_v7000'), (2, 'gemm<float, 4>'),
          (3, 'gemm'),
          (4, 'cudaMemcpy_v3020'), (5, 'cudaMemcpyAsync_v3020'), (6, 'poll'), (7, 'python'),
          (8, 'ProfilerStep#3'), (9, 'cudaMemsetAsync_v3020'), (10, 'cuMemcpyHtoD_v2');
      INSERT INTO ThreadNames VALUES (7, 20, $tid);
      INSERT INTO NVTX_EVENTS VALUES (100, 900, 59, NULL, NULL, $tid, 8),
          (110, 190, 60, 5, 'loader', $tid, NULL),
          (120, 180, 59, NULL, 'aten::mm, seq = 9, sizes = [[1, 2], [2, 3]]', $tid, NULL),
          (130, NULL, 34, NULL, 'a mark', $tid, NULL), (1, NULL, 75, NULL, 'a domain', $tid, NULL),
          (140, NULL, 59, NULL, 'never closed', $tid, NULL);
      INSERT INTO OSRT_API VALUES (115, 150, 27, $tid, 6);
      INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (200, 210, 0, $tid, 11, 1, 0, NULL),
          (220, 260, 0, $tid, 12, 4, 0, NULL), (270, 280, 0, $tid, 13, 5, 0, NULL),
          (290, 300, 0, $tid, 14, 9, 0, NULL), (301, 310, 1, $tid, 15, 10, 0, NULL);
      INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (400, 500, 0, 1, NULL, 7, 11, $pid, 2, 3, NULL,
          64, 10, 20, 30, 128, 2, 1, 100, 1024, NULL, NULL),
          (510, 520, 0, 1, NULL, 7, 16, $pid, 2, 3, NULL, 0, 1, 1, 1, 1, 1, 1, 0, 0, 77, 5);
      INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (230, 250, 0, 1, 7, 12, $pid, 4096, 1, 0, 2),
          (530, 540, 0, 1, 13, 13, $pid, 8, 2, 2, 1);
      INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES (550, 560, 0, 1, 7, 14, $pid, 0, 16, 2);
      INSERT INTO CUPTI_ACTIVITY_KIND_CUDA_EVENT VALUES (0, 0, 1, 13, 20, $pid, 4, 1001),
          (0, 0, 1, 13, 30, $pid, 4, 1002), (0, 0, 1, 7, 28, $pid, 4, 1003);
      INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION VALUES
          (600, 610, 0, 1, 7, 31, $pid, 2, 4, 1001),
          (620, 630, 0, 1, 4294967295, 32, $pid, 4, 0, 0),
          (640, 650, 0, 1, 13, 33, $pid, 3, 0, 0);
    )"));
  });
  EXPECT_EQ(
      lines,
      (Lines{
          "range 'ProfilerStep#3' 0 1234/1240/-1 'python' 100+800 #-1",
          "range 'loader' 0 1234/1240/-1 'python' 110+80 #-1",
          "host wait 'poll' 0 1234/1240/-1 'python' 115+35 #-1",
          "operator 'aten::mm' 0 1234/1240/-1 'python' 120+60 #-1",
          "runtime 'cudaLaunchKernel' 0 1234/1240/-1 'python' 200+10 #11",
          "runtime 'cudaMemcpy' 0 1234/1240/-1 'python' 220+40 #12",
          "copy 'Memcpy HtoD (Pageable -> Device)' 2 1234/7/0 '' 230+20 #12 4096 B 1->3 blocking",
          "runtime 'cudaMemcpyAsync' 0 1234/1240/-1 'python' 270+10 #13",
          "runtime 'cudaMemsetAsync' 0 1234/1240/-1 'python' 290+10 #14",
          "runtime 'cuMemcpyHtoD_v2' 0 1234/1240/-1 'python' 301+9 #15",
          "kernel 'gemm<float, 4>' 2 1234/7/0 '' 400+100 #11 grid 10,20,30 block 128,2,1 64 "
          "registers 1124 shared graph 0",
          "kernel 'gemm<float, 4>' 2 1234/7/0 '' 510+10 #16 grid 1,1,1 block 1,1,1 0 registers 0 "
          "shared graph 5",
          "copy 'Memcpy DtoH (Device -> Pinned)' 3 1234/13/0 '' 530+10 #13 8 B 3->2 async",
          "set 'Memset (Device)' 2 1234/7/0 '' 550+10 #14 16 B 0->3 async",
          "synchronization 'Stream Wait Event' 2 1234/7/0 '' 600+10 #31 sync 1 13 20 4",
          "synchronization 'Context Sync' 1 1234/-1/0 '' 620+10 #32 sync 4 -1 -1 -1",
          "synchronization 'Stream Sync' 3 1234/13/0 '' 640+10 #33 sync 3 -1 -1 -1",
          "1 x NVTX_EVENTS: ranges that are still open at the end",
      }));
}

// Exports of 2021 and before: no process with the work of devices, no enumerations, events by a
// number that is used again.
TEST(ReadNsys, ReadsWhatAnOldExportHolds) {
  const Lines lines = lines_after([](SqliteDatabase& database) {
    database.run(sql(R"(
      CREATE TABLE StringIds (id INT NOT NULL PRIMARY KEY, value TEXT NOT NULL);
      CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT NOT NULL, end INT NOT NULL,
          globalTid INT NOT NULL, correlationId INT NOT NULL, nameId INT NOT NULL);
      CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, deviceId INT, streamId INT,
          correlationId INT, shortName INT, gridX INT, blockX INT, graphNodeId INT);
      CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INT, end INT, deviceId INT, streamId INT,
          correlationId INT, bytes INT, copyKind INT, srcKind INT, dstKind INT);
      CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (start INT, end INT, deviceId INT,
          streamId INT, correlationId INT, syncType INT, eventId INT);
      CREATE TABLE CUPTI_ACTIVITY_KIND_CUDA_EVENT (deviceId INT, streamId INT, correlationId INT,
          eventId INT);
      INSERT INTO StringIds VALUES (1, 'cudaLaunchKernel'), (2, 'add');
      INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (10, 20, $tid, 1, 1);
      INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (30, 40, 1, 7, 1, 2, 9, 32, 12884901890);
      INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (50, 60, 1, 7, 2, 64, 2, 2, 0);
      INSERT INTO CUPTI_ACTIVITY_KIND_CUDA_EVENT VALUES (1, 7, 5, 3), (1, 8, 15, 3), (1, 9, 25, 3);
      INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION VALUES (70, 71, 1, 13, 20, 2, 3),
          (80, 81, 1, 13, 4, 2, 3), (90, 91, 1, 13, 21, 2, 99);
    )"));
  });
  EXPECT_EQ(lines,
            (Lines{
                "runtime 'cudaLaunchKernel' 0 1234/1240/-1 '' 10+10 #1",
                "kernel 'add' 1 1234/7/1 '' 30+10 #1 grid 9,0,0 block 32,0,0 0 registers 0 shared "
                "graph 3",
                "copy 'Memcpy DtoH (Device -> Pageable)' 1 1234/7/1 '' 50+10 #2 64 B 3->1 async",
                "synchronization 'Stream Wait Event' 2 1234/13/1 '' 70+1 #20 sync 1 8 15 3",
                "synchronization 'Stream Wait Event' 2 1234/13/1 '' 80+1 #4 sync 1 -1 -1 3",
                "synchronization 'Stream Wait Event' 2 1234/13/1 '' 90+1 #21 sync 1 -1 -1 99",
            }));
}

TEST(ReadNsys, NeedsNoMoreThanTimes) {
  const Lines lines = lines_after([](SqliteDatabase& database) {
    database.run(
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (\"end\" INT, start INT);"
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (9, 2)");
  });
  EXPECT_EQ(lines,
            Lines{"kernel '' 0 0/-1/0 '' 2+7 #-1 grid 0,0,0 block 0,0,0 0 registers 0 shared "
                  "graph 0"});
}

TEST(ReadNsys, KnowsClockDevicesRankAndLosses) {
  TempFolder folder;
  const std::string path = folder / "a.sqlite";
  {
    SqliteDatabase database(path);
    database.run(kNsysTables);
    database.run(R"(
      INSERT INTO MPI_RANKS VALUES (1, 3), (2, 3);
      INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1700000000123456789, 'x', 'y');
      INSERT INTO TARGET_INFO_GPU VALUES (0, 1, 'GPU one', 85899345920, 9, 0, 132),
          (0, 0, 'GPU nought', 1, 8, 6, -5);
      INSERT INTO OSRT_API VALUES (1, 2, 27, NULL, NULL);
      INSERT INTO DIAGNOSTIC_EVENT VALUES (1, 1, 1, 'Profiling has started, 0 events were lost.'),
          (2, 1, 2, '1200 CUDA events were dropped.'),
          (3, 1, 3, 'Not all NVTX events might have been collected.'),
          (4, 1, 2, 'CPU sampling is off.');
    )");
  }
  const Trace trace = read_nsys(path);
  EXPECT_EQ(trace.base_ns, 1700000000123456789);
  EXPECT_EQ(trace.rank, 3);
  EXPECT_EQ(trace.recorder, "nsys");
  EXPECT_EQ(trace.source, path);
  EXPECT_EQ(trace.dropped, 1201);
  const std::vector<Device> devices = {
      {.number = 0, .name = "GPU nought", .major = 8, .minor = 6, .memory_bytes = 1},
      {.number = 1,
       .name = "GPU one",
       .multiprocessors = 132,
       .major = 9,
       .memory_bytes = 85899345920}};
  EXPECT_EQ(trace.devices, devices);
  EXPECT_EQ(lines_of(trace),
            (Lines{"host wait 'wait' 0 0/0/-1 '' 1+1 #-1",
                   "1 x nsys: 1200 CUDA events were dropped.",
                   "1 x nsys: CPU sampling is off.",
                   "1 x nsys: Not all NVTX events might have been collected."}));
}

// Each process counts calls and devices from its own start.
TEST(ReadNsys, KeepsProcessesApart) {
  const Lines lines = lines_after([](SqliteDatabase& database) {
    database.run(R"(
      CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INTEGER, cudaId INTEGER, pid INTEGER);
      INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (5, 0, 100), (6, 0, 200);
      CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT, end INT, globalTid INT,
          correlationId INT, nameId TEXT);
      CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, deviceId INT, streamId INT,
          correlationId INT, globalPid INT, name TEXT);
    )");
    for (const int64_t pid : {200, 100}) {
      database.insert("CUPTI_ACTIVITY_KIND_RUNTIME",
                      {pid, pid + 5, pid << 24 | 9, int64_t{1}, std::string("cudaLaunchKernel")});
      database.insert("CUPTI_ACTIVITY_KIND_KERNEL",
                      {pid + 10, pid + 20, int64_t{0}, int64_t{7}, int64_t{1}, pid << 24, {}});
    }
  });
  const std::string rest = " grid 0,0,0 block 0,0,0 0 registers 0 shared graph 0";
  EXPECT_EQ(lines,
            (Lines{"runtime 'cudaLaunchKernel' 0 100/9/-1 '' 100+5 #1",
                   "kernel '' 2 100/7/5 '' 110+10 #1" + rest,
                   "runtime 'cudaLaunchKernel' 1 200/9/-1 '' 200+5 #4294967297",
                   "kernel '' 3 200/7/6 '' 210+10 #4294967297" + rest}));
}

// Only of threads that call CUDA, and only where they could have run.
TEST(ReadNsys, TellsWhenAThreadHadNoProcessor) {
  const Lines lines = lines_after([](SqliteDatabase& database) {
    database.run(sql(R"(
      CREATE TABLE ENUM_SAMPLING_THREAD_STATE (id INTEGER, name TEXT, label TEXT);
      INSERT INTO ENUM_SAMPLING_THREAD_STATE VALUES (1, 'Running', 'Running'),
          (2, 'Interruptible', 'Interruptible');
      CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT, end INT, globalTid INT, nameId TEXT);
      INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (10, 20, $tid, 'cudaLaunchKernel');
      CREATE TABLE SCHED_EVENTS (start INT, cpu INT, isSchedIn INT, globalTid INT, threadState INT);
      INSERT INTO SCHED_EVENTS VALUES (60, 0, 1, $tid, NULL), (50, 0, 0, $tid, 1),
          (70, 0, 0, $tid, 2), (90, 0, 1, $tid, NULL), (95, 0, 0, $tid, 1),
          (10, 0, 0, 99, 1), (20, 0, 1, 99, NULL), ('a', 0, 0, $tid, 1), (96, 0, 0, $tid, 7);
    )"));
  });
  EXPECT_EQ(lines,
            (Lines{"runtime 'cudaLaunchKernel' 0 1234/1240/-1 '' 10+10 #-1",
                   "host wait 'off-cpu (runnable)' 0 1234/1240/-1 '' 50+10 #-1",
                   "1 x SCHED_EVENTS: rows without a start and an end that could be times"}));
}

TEST(ReadNsys, SaysThatGraphsWereRecordedWhole) {
  const Lines lines = lines_after([](SqliteDatabase& database) {
    database.run(
        "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INT, end INT, deviceId INT, "
        "streamId INT, correlationId INT, globalPid INT, graphId INT, graphExecId INT);"
        "INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (5, 9, 0, 7, 3, 0, 4, 1), "
        "(15, 19, 0, 7, 4, 0, 4, 1)");
  });
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0],
            "kernel 'CUDA graph 4' 0 0/7/0 '' 5+4 #3 grid 0,0,0 block 0,0,0 0 registers 0 shared "
            "graph 4");
  EXPECT_EQ(lines[2].substr(0, 23), "2 x graphs were recorde");
}

TEST(ReadNsys, HostileValuesAreWarnings) {
  const Lines lines = lines_after([](SqliteDatabase& database) {
    database.run(kNsysTables);
    const std::string rest =
        ", NULL, 7, 1, 'x', 'name', 2, NULL, -1, 'a', 99999999999, 3, -3, "
        "1e300, 4.0, -1, -1, NULL, -7)";
    for (const std::string times : {"'text', 5",
                                    "5, NULL",
                                    "-9223372036854775808, 9223372036854775807",
                                    "9223372036854775807, -9223372036854775808",
                                    "0, 0",
                                    "1.5, 2.5",
                                    "x'00', x'01'",
                                    "1e300, 1e301"})
      database.run("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (" + times + ", 0, 0" + rest);
    for (const std::string device : {"-1", "'zero'", "9223372036854775807", "4096", "1e300"})
      database.run("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (3, 4, " + device + ", 0" + rest);
    database.run("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (10, 4, 0, 0" + rest);
    database.run("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (-8, -4, NULL, 0" + rest);
    database.run(
        "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (20, 30, 0, 0, 'seven', "
        "-5, NULL, -64, 1234567, 'pinned', 9223372036854775807)");
    database.run(
        "INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION VALUES (40, 50, 0, 0, 7, "
        "9223372036854775807, 0, 'kind', -1, -1), (60, 70, 0, 0, 7, 1, 0, 2, -1, -1)");
    database.run(
        "INSERT INTO CUPTI_ACTIVITY_KIND_CUDA_EVENT VALUES ('a', 'b', 'c', 'd', 'e', 'f', "
        "'g', 'h'), (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)");
  });
  const std::string kernel = " grid 0,0,3 block 0,0,4 0 registers 0 shared graph 0";
  EXPECT_EQ(lines,
            (Lines{"kernel 'name' 1 0/7/0 '' -8+4 #1" + kernel,
                   "kernel 'name' 1 0/7/0 '' 10+0 #1" + kernel,
                   "copy 'Memcpy ?to? (Unknown -> Unknown)' 0 0/-1/0 '' 20+10 #-1 -1 B 0->0 async",
                   "synchronization 'Sync' 1 0/7/0 '' 40+10 #-1 sync 0 -1 -1 -1",
                   "synchronization 'Stream Wait Event' 1 0/7/0 '' 60+10 #1 sync 1 -1 -1 -1",
                   "5 x CUPTI_ACTIVITY_KIND_KERNEL: rows with a device that cannot be",
                   "8 x CUPTI_ACTIVITY_KIND_KERNEL: rows without a start and an end that could be "
                   "times",
                   "1 x events end before they begin; their duration counts as 0"}));
}

TEST(ReadNsys, NeitherViewsNorTriggersNorGeneratedColumnsRun) {
  TempFolder folder;
  const std::string path = folder / "a.sqlite";
  {
    SqliteDatabase database(path);
    // Reading any of these would not end.
    const std::string endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) ";
    database.run("CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS " + endless +
                 "SELECT x AS start, x + 1 AS end FROM n;"
                 "CREATE VIEW harmful AS " +
                 endless +
                 "SELECT count(*) FROM n;"
                 "CREATE TABLE OSRT_API (start INT, end INT, globalTid INT "
                 "AS (length(zeroblob(1000000000))), nameId TEXT);"
                 "INSERT INTO OSRT_API (start, end, nameId) VALUES (1, 2, 'read');"
                 "CREATE TABLE log (x);"
                 "CREATE TRIGGER harm AFTER INSERT ON OSRT_API BEGIN INSERT INTO log VALUES (1); "
                 "END;"
                 "CREATE VIRTUAL TABLE NVTX_EVENTS USING fts5(start, end, text)");
  }
  std::ifstream before_file(path, std::ios::binary);
  const std::string before(std::istreambuf_iterator<char>(before_file), {});
  EXPECT_EQ(lines_of(read_nsys(path)),
            (Lines{"host wait 'read' 0 0/0/-1 '' 1+1 #-1",
                   "1 x 'CUPTI_ACTIVITY_KIND_KERNEL' is a view or a virtual table: not read",
                   "1 x 'NVTX_EVENTS' is a view or a virtual table: not read",
                   "1 x 'harmful' is a view or a virtual table: not read"}));
  std::ifstream after_file(path, std::ios::binary);
  EXPECT_EQ(before, std::string(std::istreambuf_iterator<char>(after_file), {}));
  EXPECT_EQ(folder.names(), Lines{"a.sqlite"}) << "journals and the like";
}

}  // namespace
}  // namespace ridge::doctor
