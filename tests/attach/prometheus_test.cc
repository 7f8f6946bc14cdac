// The text for Prometheus, read by a strict reader of the text format 0.0.4, and the server.
#include "ridge/attach/watch/prometheus.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmath>
#include <map>
#include <regex>
#include <set>

#include "ridge/attach/watch/prometheus_server.h"
#include "ridge/base/utf8.h"
#include "tests/support/errors.h"
#include "tests/support/watch_inputs.h"

namespace ridge::attach {
namespace {

using test::full_input_at;
using test::input_at;
using test::kHostile;
using test::state_after;

// Values by "name{labels}" as they stand, and all that breaks the format.
struct Exposition {
  std::map<std::string, double> values{};
  std::map<std::string, std::string> types{};
  std::vector<std::string> faults{};
};

// After the format's description: HELP and TYPE once a metric and before its samples, all lines of
// a metric together, no sample twice, names and labels well-formed, a line's end at the end.
class Reader {
 public:
  explicit Reader(const std::string& text) {
    if (text.empty() || text.back() != '\n') fault("no line's end at the end");
    if (valid_utf8(text) != text) fault("not UTF-8");
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find('\n', at), text.size());
      line(text.substr(at, end - at));
      at = end + 1;
    }
  }
  Exposition take() { return std::move(found_); }

 private:
  void fault(const std::string& what) { found_.faults.push_back(what); }

  void line(const std::string& text) {
    static const std::regex help("# HELP ([a-zA-Z_:][a-zA-Z0-9_:]*) (.+)");
    static const std::regex type("# TYPE ([a-zA-Z_:][a-zA-Z0-9_:]*) (counter|gauge)");
    static const std::regex sample(
        R"re(([a-zA-Z_:][a-zA-Z0-9_:]*)(\{[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\]|\\[\\"n])*"(?:,[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\]|\\[\\"n])*")*\})? ([-+0-9.e]+))re");
    for (char c : text)
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) fault("a control character: " + text);
    std::smatch match;
    if (std::regex_match(text, match, help)) {
      if (!helped_.insert(match[1]).second) fault("two HELP: " + text);
      current_ = match[1];
    } else if (std::regex_match(text, match, type)) {
      if (current_ != match[1]) fault("TYPE without HELP before it: " + text);
      if (!found_.types.emplace(match[1], match[2]).second) fault("two TYPE: " + text);
      const bool is_total = current_.ends_with("_total");
      if (current_.find("DCGM_") != 0 && is_total != (match[2] == "counter"))
        fault("only counters end in _total: " + text);
    } else if (std::regex_match(text, match, sample)) {
      if (current_ != match[1] || !found_.types.contains(match[1]))
        fault("not below its TYPE: " + text);
      const double value = std::stod(match[3]);
      if (!std::isfinite(value)) fault("no number: " + text);
      if (!found_.values.emplace(match[1].str() + match[2].str(), value).second)
        fault("twice: " + text);
    } else {
      fault("neither comment nor sample: " + text);
    }
  }

  Exposition found_;
  std::set<std::string> helped_;
  std::string current_;
};

Exposition read(const WatchState& state) { return Reader(prometheus_text(state)).take(); }

TEST(Prometheus, TheReaderFindsFaults) {
  const auto faults = [](const std::string& text) { return Reader(text).take().faults.size(); };
  const std::string head = "# HELP a_total b\n# TYPE a_total counter\n";
  EXPECT_EQ(faults(head + "a_total 1\n"), 0u);
  EXPECT_EQ(faults(head + "a_total{b=\"\\\\\\\"\\n\",c=\"{}\"} 1.5e-3\n"), 0u);
  for (const char* wrong : {"a_total 1",
                            "a_total x\n",
                            "a_total{b=\"\"\"} 1\n",
                            "b 1\n",
                            "a_total{b=\"\\x\"} 1\n",
                            "a_total{1b=\"\"} 1\n",
                            "a_total 1\na_total 2\n",
                            "a_total 1\n# TYPE a_total counter\n",
                            "a_total nan\n",
                            "\n"})
    EXPECT_GT(faults(head + wrong), 0u) << wrong;
  EXPECT_GT(faults("# HELP a b\n# TYPE a counter\na 1\n"), 0u);
}

TEST(Prometheus, DevicesHaveTheNamesAndUnitsOfDcgm) {
  const Exposition found = read(state_after(20, full_input_at));
  EXPECT_TRUE(found.faults.empty()) << found.faults[0];
  const std::map<std::string, double> expected = {
      {"DCGM_FI_DEV_GPU_UTIL", 87},
      {"DCGM_FI_DEV_MEM_COPY_UTIL", 25},
      {"DCGM_FI_DEV_FB_USED", 12 * 1024},
      {"DCGM_FI_DEV_FB_FREE", 128 * 1024},
      {"DCGM_FI_DEV_POWER_USAGE", 412},
      {"DCGM_FI_DEV_SM_CLOCK", 1755},
      {"DCGM_FI_DEV_GPU_TEMP", 61},
      {"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 1234500}};
  for (const auto& [name, value] : expected)
    for (const char* number : {"0", "1"}) {
      const std::string labels = std::string("{gpu=\"") + number + "\",UUID=\"GPU-" + number +
                                 "\",device=\"nvidia" + number + "\",modelName=\"NVIDIA H200\"}";
      ASSERT_TRUE(found.values.contains(name + labels)) << name + labels;
      EXPECT_NEAR(found.values.at(name + labels), value, 1e-6) << name;
    }
  EXPECT_EQ(found.types.at("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"), "counter");
}

TEST(Prometheus, StepsAndProcesses) {
  const Exposition found = read(state_after(31, full_input_at));
  const std::map<std::string, double> expected = {{"ridge_steps_total", 59},
                                                  {"ridge_step_seconds", 0.5},
                                                  {"ridge_loader_wait_seconds_total", 7.25},
                                                  {"process_cpu_seconds_total", 90},
                                                  {"process_resident_memory_bytes", 600 << 20},
                                                  {"process_start_time_seconds", 1.7e9},
                                                  {"process_threads", 4},
                                                  {"ridge_cpu_energy_joules_total", 4500},
                                                  {"ridge_cpu_limit_cpus", 4},
                                                  {"ridge_cost_total", 0.03}};
  for (const auto& [name, value] : expected) {
    ASSERT_TRUE(found.values.contains(name)) << name;
    EXPECT_NEAR(found.values.at(name), value, 1e-6 * std::max(1.0, value)) << name;
  }
}

TEST(Prometheus, WhatIsNotKnownIsAbsent) {
  const auto bare = [](double at) {
    WatchInput input = input_at(at);
    input.gpus = {GpuSample()};
    input.started_wall_ns = 0;
    for (ProcessSample& process : input.tree.processes)
      process.read_bytes = process.written_bytes = -1;
    return input;
  };
  WatchState state = state_after(5, bare);
  state.price_per_hour = -1;
  const Exposition found = read(state);
  EXPECT_TRUE(found.faults.empty()) << found.faults[0];
  EXPECT_TRUE(found.values.contains("process_threads"));
  for (const auto& [name, value] : found.values)
    for (const char* unknown :
         {"DCGM", "ridge_step", "loader", "joules", "cost", "disk", "start_time", "cgroup"})
      EXPECT_EQ(name.find(unknown), std::string::npos) << name;
}

TEST(Prometheus, HostileNamesStayWithinTheirQuotes) {
  const auto hostile = [](double at) {
    WatchInput input = full_input_at(at);
    input.facts[0].program = kHostile;
    for (GpuSample& gpu : input.gpus) {
      gpu.name = kHostile;
      gpu.held_by = {kHostile};
    }
    return input;
  };
  const Exposition found = read(state_after(20, hostile));
  EXPECT_TRUE(found.faults.empty()) << found.faults[0];
  EXPECT_FALSE(found.values.contains("x"));
  EXPECT_FALSE(found.types.contains("x"));
}

// A connection as a client has it.
class Connection {
 public:
  explicit Connection(int port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    is_open_ = ::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() { ::close(socket_); }
  bool is_open() const { return is_open_; }
  void send(std::string_view text) const {
    while (!text.empty()) {
      const ssize_t sent = ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;
      text.remove_prefix(static_cast<size_t>(sent));
    }
  }
  /// All that comes until the other side closes.
  std::string rest() const {
    std::string text;
    char buffer[4096];
    for (ssize_t size; (size = ::recv(socket_, buffer, sizeof buffer, 0)) > 0;)
      text.append(buffer, static_cast<size_t>(size));
    return text;
  }

 private:
  int socket_;
  bool is_open_ = false;
};

class PrometheusServerTest : public ::testing::Test {
 protected:
  PrometheusServerTest() {
    server_.publish("# HELP a b\n# TYPE a gauge\na 1\n");
    server_.serve();
  }
  std::string answer(const std::string& request) const {
    const Connection connection(server_.port());
    connection.send(request);
    return connection.rest();
  }
  static std::string status(const std::string& answer) {
    return answer.substr(0, answer.find("\r\n"));
  }

  PrometheusServer server_{"127.0.0.1", 0};
};

TEST_F(PrometheusServerTest, AnswersMetrics) {
  const std::string found = answer("GET /metrics HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n");
  EXPECT_EQ(status(found), "HTTP/1.1 200 OK");
  EXPECT_NE(found.find("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"), found.npos);
  EXPECT_NE(found.find("Content-Length: 30\r\n"), found.npos);
  EXPECT_EQ(found.substr(found.find("\r\n\r\n") + 4), "# HELP a b\n# TYPE a gauge\na 1\n");
  server_.publish(std::string(3 << 20, '#') + "\n");
  EXPECT_GT(answer("GET /metrics?x=1 HTTP/1.0\r\n\r\n").size(), size_t{3} << 20);
}

TEST_F(PrometheusServerTest, RefusesAllElse) {
  EXPECT_EQ(status(answer("GET / HTTP/1.1\r\n\r\n")), "HTTP/1.1 404 Not Found");
  EXPECT_EQ(status(answer("GET /metrics/../x HTTP/1.1\r\n\r\n")), "HTTP/1.1 404 Not Found");
  for (const char* method : {"POST", "HEAD", "PUT", "DELETE", "OPTIONS", "get"})
    EXPECT_EQ(
        status(answer(std::string(method) + " /metrics HTTP/1.1\r\nContent-Length: 9\r\n\r\n")),
        "HTTP/1.1 405 Method Not Allowed");
  for (const char* wrong : {"\r\n\r\n",
                            "GET\r\n\r\n",
                            "GET /metrics\r\n\r\n",
                            "GET /metrics SMTP\r\n\r\n",
                            "\x16\x03\x01\x02\n\n"})
    EXPECT_EQ(status(answer(wrong)), "HTTP/1.1 400 Bad Request");
  EXPECT_EQ(status(answer("GET /metrics HTTP/1.1\r\nA: " + std::string(100000, 'x'))),
            "HTTP/1.1 431 Request Header Fields Too Large");
  EXPECT_EQ(status(answer("GET /metrics HTTP/1.1\r\n\r\n")), "HTTP/1.1 200 OK");
}

TEST_F(PrometheusServerTest, OneThatIsSlowHoldsUpNobody) {
  std::vector<std::unique_ptr<Connection>> silent;
  for (size_t i = 0; i + 2 < kMostClients; ++i)
    silent.push_back(std::make_unique<Connection>(server_.port()));
  const Connection slow(server_.port());
  const std::string request = "GET /metrics HTTP/1.1\r\n\r\n";
  for (char c : request.substr(0, 10)) slow.send(std::string(1, c));
  EXPECT_EQ(status(answer(request)), "HTTP/1.1 200 OK");
  for (char c : request.substr(10)) slow.send(std::string(1, c));
  EXPECT_EQ(status(slow.rest()), "HTTP/1.1 200 OK");
}

TEST_F(PrometheusServerTest, ClientsThatHangUpAreForgotten) {
  for (size_t i = 0; i < 4 * kMostClients; ++i) {
    const Connection gone(server_.port());
    if (i % 2 == 0) gone.send("GET /met");
  }
  EXPECT_EQ(status(answer("GET /metrics HTTP/1.1\r\n\r\n")), "HTTP/1.1 200 OK");
}

TEST_F(PrometheusServerTest, SaysWhyItCannotListen) {
  const auto listen = [](const std::string& address, int port) {
    return test::user_error([&] { const PrometheusServer server(address, port); });
  };
  EXPECT_NE(listen("127.0.0.1", server_.port()).find("another program has this port"),
            std::string::npos);
  EXPECT_NE(listen("192.0.2.1", 0).find("cannot listen at 192.0.2.1"), std::string::npos);
  EXPECT_NE(listen("no address", 0).find("cannot listen at 'no address'"), std::string::npos);
}

TEST_F(PrometheusServerTest, IsHeardOnItsAddressOnly) {
  // All of 127/8 is this machine; the server has 127.0.0.1 alone.
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(server_.port()));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
  EXPECT_NE(::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ::close(socket);
}

}  // namespace
}  // namespace ridge::attach
