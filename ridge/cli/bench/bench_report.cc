#include "ridge/cli/bench/bench_report.h"

#include "ridge/base/error.h"
#include "ridge/base/json_writer.h"
#include "ridge/cli/common/output.h"

namespace ridge {
namespace {

void write_bytes(JsonWriter& json, std::string_view key, const std::optional<int64_t>& bytes) {
  if (bytes) json.field(key, *bytes);
}

void write_side(JsonWriter& json, const BenchSide& side) {
  json.key("latency_ms").begin_object().field("median", side.latency.median_ms);
  json.field("p99", side.latency.p99_ms).field("runs", side.latency.runs).end_object();
  json.field("first_ms", side.first_ms).key("memory").begin_object();
  write_bytes(json, "planned_bytes", side.memory.planned);
  write_bytes(json, "state_bytes", side.memory.state);
  write_bytes(json, "arena_bytes", side.memory.arena);
  write_bytes(json, "resident_bytes", side.memory.resident);
  json.end_object();
}

void write_peer(JsonWriter& json, const BenchPeer& peer) {
  json.key(peer.runtime).begin_object().field("version", peer.version);
  write_side(json, peer.side);
  json.end_object().key("times_as_fast").begin_object().field("ratio", peer.ratio);
  if (peer.interval) {
    json.field("low", peer.interval->low).field("high", peer.interval->high);
    json.field("confidence", peer.interval->confidence);
  }
  json.field("pairs", peer.pairs).end_object().field("output_difference", peer.difference);
}

// "12.3 ms", "850 us".
std::string ms_text(double ms) {
  if (ms < 1) return fmt::format("{:.3g} us", ms * 1e3);
  return ms < 1000 ? fmt::format("{:.3g} ms", ms) : fmt::format("{:.0f} ms", ms);
}

std::string bytes_or_none(const std::optional<int64_t>& bytes) {
  return bytes ? bytes_text(*bytes) : "-";
}

std::string row(std::string_view batch, std::string_view threads, const BenchSide& side) {
  return fmt::format("{:>5} {:>7} {:>10} {:>10} {:>10} {:>11} {:>11}",
                     batch,
                     threads,
                     ms_text(side.latency.median_ms),
                     ms_text(side.latency.p99_ms),
                     ms_text(side.first_ms),
                     bytes_or_none(side.memory.planned),
                     bytes_or_none(side.memory.resident));
}

std::string peer_text(const BenchPeer& peer) {
  std::string text = fmt::format("{}  {} {}\n", row("", "", peer.side), peer.runtime, peer.version);
  text += fmt::format("{:13} {:.2f}", "", peer.ratio);
  if (peer.interval)
    text += fmt::format(" ({:.2f} to {:.2f})", peer.interval->low, peer.interval->high);
  return text + fmt::format(" times as fast in {} pairs; outputs differ by {:.1e} at most\n",
                            peer.pairs,
                            peer.difference);
}

}  // namespace

Latency latency_of(const std::vector<double>& seconds) {
  return {.runs = std::ssize(seconds),
          .median_ms = median(seconds) * 1e3,
          .p99_ms = quantile(seconds, 0.99) * 1e3};
}

std::string bench_text(const BenchReport& report) {
  std::string text = fmt::format("{} on {}\n", report.model, report.device);
  if (!report.results.empty())
    for (const auto& [name, size] : report.results[0].dims)
      if (size == report.results.back().dims.at(name))
        text += fmt::format("  {} = {}\n", name, size);
  text += fmt::format("\n{:>5} {:>7} {:>10} {:>10} {:>10} {:>11} {:>11}\n",
                      "batch",
                      "threads",
                      "median",
                      "p99",
                      "first",
                      "planned",
                      "resident");
  for (const BenchResult& result : report.results) {
    text += row(fmt::format("{}", result.batch), fmt::format("{}", result.threads), result.ridge);
    text += "\n";
    if (result.picks.kept + result.picks.timed > 0)
      text += fmt::format("{:13} {} nodes have kernels picked by time, {} were timed now\n",
                          "",
                          result.picks.kept,
                          result.picks.timed);
    if (result.instances > 1) text += fmt::format("{:13} {} runs at once\n", "", result.instances);
    if (result.peer) text += peer_text(*result.peer);
  }
  return text;
}

std::string bench_json(const BenchReport& report) {
  std::string text;
  JsonWriter json(text);
  json.begin_object().field("schema", "ridge.bench/1").field("model", report.model);
  json.field("device", report.device).field("seconds", report.seconds);
  json.key("inputs").begin_array();
  for (const BenchInput& input : report.inputs) {
    json.begin_object().field("name", input.name).field("type", input.type);
    json.field("elements", input.elements).end_object();
  }
  json.end_array().key("results").begin_array();
  for (const BenchResult& result : report.results) {
    json.begin_object().field("batch", result.batch).field("threads", result.threads);
    json.field("instances", result.instances);
    json.key("dims").begin_object();
    for (const auto& [name, size] : result.dims) json.field(name, size);
    json.end_object();
    json.key("picks").begin_object().field("timed", result.picks.timed);
    json.field("kept", result.picks.kept).end_object();
    write_side(json, result.ridge);
    if (result.peer) write_peer(json, *result.peer);
    json.end_object();
  }
  json.end_array().end_object().finish();
  return text + "\n";
}

}  // namespace ridge
