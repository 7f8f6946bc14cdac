// Recorded traces against an independent reading of them (tools/make_trace_goldens.py), and what
// must hold of any file: whole, shuffled, cut, or read in pieces.
#include "ridge/doctor/read/read_kineto.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "ridge/base/error.h"
#include "ridge/doctor/read/read_trace.h"
#include "ridge/io/gzip.h"
#include "tests/doctor/kineto_text.h"
#include "tests/doctor/trace_rows.h"
#include "tests/support/temp_folder.h"

namespace ridge::doctor {
namespace {

using nlohmann::json;

const std::string kFolder = "tests/data/traces/";
const std::vector<std::string> kSmall = {
    "alexnet_inference", "event_sync_multi_stream", "mi250_minitoy_train", "simple_add"};

std::string file_of(const std::string& name) { return kFolder + name + ".json.gz"; }

std::string text_of(const std::string& name) {
  return gunzip(as_bytes(read_file(file_of(name))), size_t{1} << 30, name);
}

json kinds_of(const Trace& trace) {
  json kinds = json::object();
  for (size_t row = 0; row < trace.size(); ++row) {
    json& kind = kinds[std::string(name_of(trace.kind[row]))];
    if (kind.is_null()) kind = {{"count", 0}, {"duration_ns", 0}, {"start_sum", 0}};
    kind["count"] = kind["count"].get<int64_t>() + 1;
    kind["duration_ns"] = kind["duration_ns"].get<int64_t>() + trace.duration_ns[row];
    kind["start_sum"] = kind["start_sum"].get<int64_t>() + trace.start_ns[row];
  }
  return kinds;
}

json streams_of(const Trace& trace) {
  json streams = json::object();
  for (size_t row = 0; row < trace.size(); ++row) {
    if (trace.kind[row] != EventKind::kKernel) continue;
    const Lane& lane = trace.lane_of(row);
    json& stream = streams[fmt::format("{}/{}", lane.device, lane.thread)];
    if (stream.is_null()) stream = {{"count", 0}, {"duration_ns", 0}};
    stream["count"] = stream["count"].get<int64_t>() + 1;
    stream["duration_ns"] = stream["duration_ns"].get<int64_t>() + trace.duration_ns[row];
  }
  return streams;
}

std::map<std::string, int64_t> sums_of(const Trace& trace) {
  std::map<std::string, int64_t> sums;
  for (size_t row = 0; row < trace.size(); ++row) {
    sums["correlations"] += trace.correlation[row];
    sums["name_bytes"] += static_cast<int64_t>(trace.name_text(row).size());
  }
  for (const Launch& launch : trace.launches) {
    for (int i = 0; i < 3; ++i) sums["grid"] += (i + 1) * int64_t{launch.grid[i]};
    for (int i = 0; i < 3; ++i) sums["block"] += (i + 1) * int64_t{launch.block[i]};
    sums["registers"] += launch.registers;
    sums["shared"] += launch.shared_bytes;
  }
  for (const Transfer& transfer : trace.transfers) {
    sums["bytes"] += transfer.bytes;
    sums["pageable"] += transfer.from == MemoryKind::kPageable;
  }
  for (const Sync& sync : trace.syncs) sums["waits"] += sync.waits_on_correlation;
  for (const Details& details : trace.details) {
    sums["collective"] += details.collective;
    sums["shaped"] += details.shapes != 0;
  }
  return sums;
}

/// The sync rows of each kind by their column, named as the recorder does.
json syncs_of(const Trace& trace) {
  constexpr std::array kNames = {
      "?", "Stream Wait Event", "Event Sync", "Stream Sync", "Context Sync"};
  std::map<std::string, int64_t> syncs;
  for (const Sync& sync : trace.syncs) ++syncs[kNames.at(static_cast<size_t>(sync.what))];
  return syncs;
}

TEST(ReadKineto, RecordedTracesSayWhatAnIndependentReadingSays) {
  const json goldens = json::parse(std::ifstream(kFolder + "goldens.json"));
  ASSERT_EQ(goldens.size(), 7u);
  for (const auto& [name, golden] : goldens.items()) {
    SCOPED_TRACE(name);
    const Trace trace = read_kineto(file_of(name));
    EXPECT_EQ(kinds_of(trace), golden["kinds"]);
    EXPECT_EQ(streams_of(trace), golden["kernel_streams"]);
    EXPECT_EQ(syncs_of(trace), golden["syncs"]);
    EXPECT_EQ(trace.base_ns, golden["base_ns"].get<int64_t>());
    EXPECT_EQ(trace.rank, golden["rank"].get<int32_t>());
    EXPECT_EQ(trace.world, golden["world"].get<int32_t>());
    EXPECT_EQ(trace.devices.size(), golden["devices"].get<size_t>());
    int64_t multiprocessors = 0;
    for (const Device& device : trace.devices) multiprocessors += device.multiprocessors;
    EXPECT_EQ(multiprocessors, golden["multiprocessors"].get<int64_t>());
    std::map<std::string, int64_t> sums = sums_of(trace);
    for (const auto& [key, sum] : golden["sums"].items())
      EXPECT_EQ(sums[key], sum.get<int64_t>()) << key;
    EXPECT_TRUE(trace.warnings.empty()) << trace.warnings[0].text;
    EXPECT_FALSE(trace.is_truncated);
    EXPECT_EQ(trace.recorder, "kineto");
    EXPECT_EQ(trace.source, file_of(name));
  }
}

TEST(ReadKineto, LanesAreNamed) {
  const Trace trace = read_kineto(file_of("mi250_minitoy_train"));
  std::vector<std::string> names;
  for (const Lane& lane : trace.lanes) names.push_back(lane.name);
  EXPECT_EQ(names,
            (std::vector<std::string>{
                "thread 597913 (python3)", "thread 598009 (pt_autograd_0)", "stream 0"}));
}

TEST(ReadKineto, WhatAmdSaysOfTheCallGoesToTheWork) {
  const Trace trace = read_kineto(file_of("mi250_minitoy_train"));
  EXPECT_EQ(trace.launches.size(), 14u);
  for (const Launch& launch : trace.launches) {
    EXPECT_GT(launch.blocks(), 0);
    EXPECT_GT(launch.threads(), 0);
  }
  ASSERT_EQ(trace.transfers.size(), 2u);
  for (const Transfer& transfer : trace.transfers) {
    EXPECT_EQ(transfer.bytes, 2560);
    EXPECT_FALSE(transfer.is_async);  // hipMemcpyWithStream
    EXPECT_EQ(transfer.to, MemoryKind::kDevice);
  }
}

TEST(ReadKineto, ShuffledEventsGiveEqualTables) {
  std::mt19937 random(5);
  for (const std::string& name : kSmall) {
    SCOPED_TRACE(name);
    json file = json::parse(text_of(name));
    const Trace first = read_text(text_of(name));
    for (int i = 0; i < 5; ++i) {
      std::shuffle(file["traceEvents"].begin(), file["traceEvents"].end(), random);
      const Trace other = read_text(i % 2 == 0 ? file.dump() : file.dump(1));
      ASSERT_EQ(lines_of(other), lines_of(first));
      ASSERT_EQ(other.names, first.names);
      ASSERT_EQ(other.lanes, first.lanes);
      ASSERT_EQ(other.base_ns, first.base_ns);
    }
  }
}

TEST(ReadKineto, ArrayOfEventsIsATraceToo) {
  const json file = json::parse(text_of("simple_add"));
  const Trace whole = read_text(file.dump());
  const Trace bare = read_text(file["traceEvents"].dump());
  EXPECT_EQ(lines_of(bare), lines_of(whole));
  EXPECT_FALSE(bare.is_truncated);
}

size_t occurrences(std::string_view text, std::string_view part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

/// All rows but those of the last events that a cut text has.
void expect_most_rows(const Trace& trace, std::string_view text) {
  EXPECT_TRUE(trace.is_truncated);
  EXPECT_FALSE(trace.warnings.empty());
  const size_t begun = occurrences(text, "\"ph\": \"X\"");
  EXPECT_LE(trace.size(), begun);
  EXPECT_GE(trace.size() + 2, begun);  // the one that was cut, and the span of the recorder
}

TEST(ReadKineto, CutFilesGiveWhatComesBeforeTheCut) {
  std::mt19937 random(17);
  for (const std::string& name : kSmall) {
    const std::string text = text_of(name);
    for (int i = 0; i < 200; ++i) {
      const size_t cut = random() % (text.size() - 2);
      SCOPED_TRACE(fmt::format("{} at {}", name, cut));
      const std::string_view part = std::string_view(text).substr(0, cut);
      try {
        expect_most_rows(read_text(part), part);
      } catch (const UserError&) {
        EXPECT_EQ(occurrences(part, "\"ph\": \"X\"") > 1, false);
      }
    }
  }
}

/// The bytes inflated by zlib, however early they end.
std::string inflated(std::string_view bytes) {
  std::string out(size_t{4} << 20, '\0');
  z_stream z = {};
  EXPECT_EQ(inflateInit2(&z, 31), Z_OK);
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  z.avail_in = static_cast<uInt>(bytes.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  inflate(&z, Z_SYNC_FLUSH);
  out.resize(out.size() - z.avail_out);
  inflateEnd(&z);
  return out;
}

TEST(ReadKineto, CutGzipFilesGiveWhatTheyHold) {
  const test::TempFolder folder;
  std::mt19937 random(23);
  for (const std::string& name : {kSmall[0], kSmall[2]}) {
    const std::string packed = read_file(file_of(name));
    for (int i = 0; i < 200; ++i) {
      const size_t cut = 2 + random() % (packed.size() - 11);  // within the data, not its trailer
      SCOPED_TRACE(fmt::format("{} at {}", name, cut));
      const auto path = folder.path() / "cut.gz";
      std::ofstream(path, std::ios::binary) << packed.substr(0, cut);
      const std::string part = inflated(std::string_view(packed).substr(0, cut));
      try {
        const Trace trace = read_kineto(path);
        if (part.size() + 2 < text_of(name).size()) expect_most_rows(trace, part);
        EXPECT_FALSE(trace.warnings.empty());
      } catch (const UserError&) {
        EXPECT_LE(occurrences(part, "\"ph\": \"X\""), 1u);
      }
    }
  }
}

TEST(ReadKineto, MembersOfAGzipFileFollowEachOther) {
  const test::TempFolder folder;
  const std::string text = text_of("event_sync_multi_stream");
  std::string packed;
  for (std::string_view part :
       {std::string_view(text).substr(0, 9000), std::string_view(text).substr(9000)}) {
    z_stream z = {};
    ASSERT_EQ(deflateInit2(&z, 6, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY), Z_OK);
    std::string out(part.size() + 100, '\0');
    z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(part.data()));
    z.avail_in = static_cast<uInt>(part.size());
    z.next_out = reinterpret_cast<Bytef*>(out.data());
    z.avail_out = static_cast<uInt>(out.size());
    ASSERT_EQ(deflate(&z, Z_FINISH), Z_STREAM_END);
    packed += out.substr(0, z.total_out);
    deflateEnd(&z);
  }
  const auto path = folder.path() / "two.gz";
  std::ofstream(path, std::ios::binary) << packed;
  EXPECT_EQ(lines_of(read_kineto(path)), lines_of(read_text(text)));
  std::ofstream(path, std::ios::binary) << packed << "rest";
  EXPECT_EQ(read_kineto(path).warnings.size(), 1u);
}

TEST(ReadKineto, PiecesOfAnySizeGiveTheSame) {
  const std::string text = text_of("event_sync_multi_stream");
  const std::vector<std::string> whole = lines_of(read_text(text));
  for (size_t piece : {1, 2, 3, 7, 100, 4096})
    EXPECT_EQ(lines_of(read_pieces(text, 0, piece)), whole);
}

}  // namespace
}  // namespace ridge::doctor
