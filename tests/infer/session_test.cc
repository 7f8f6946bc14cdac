// The library's Session: the results of a ModelSession, in memory that outlives it; what callers
// get wrong; children of a fork.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include "ridge/infer/model_session.h"
#include "ridge/ridge.h"
#include "tests/support/errors.h"
#include "tests/support/has.h"
#include "tests/support/temp_folder.h"

namespace ridge::test {
namespace {

using testing::HasSubstr;
using Outputs = std::map<std::string, Array>;

class FaceOfSession : public testing::Test {
 protected:
  FaceOfSession() { std::filesystem::copy_file("tests/fuzz/corpus/onnx_model/perceptron", path_); }

  TempFolder folder_;
  std::string path_ = (folder_ / "model.onnx").string();
  const std::vector<float> x_ = {1, 2, 3, 4, 0, -1, 0.5f, 0};
};

TEST_F(FaceOfSession, HasTheResultsOfAModelSession) {
  Tensor x({DType::kF32, {2, 4}});
  std::memcpy(x.data(), x_.data(), x.bytes());
  const NamedTensors expected = ModelSession(load_model(path_)).run({{"x", x}});
  Outputs outputs;
  {
    Session session(path_, {.bindings = 2, .programs = 1});
    EXPECT_EQ(session.inputs(), ModelSession(load_model(path_)).inputs());
    session.bind({{"N", 2}});
    Session moved = std::move(session);
    outputs = moved.run({{"x", {x_, {2, 4}}}});
  }
  ASSERT_EQ(outputs.size(), 1u);
  const Array& y = outputs.at("y");
  EXPECT_EQ(y.shape, (std::vector<int64_t>{2, 6}));
  EXPECT_EQ(y.bytes(), expected.at("y").bytes());
  EXPECT_EQ(std::memcmp(y.data.get(), expected.at("y").data(), y.bytes()), 0);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(y.data.get()) % 64, 0u);
  EXPECT_EQ(y.values<float>().size(), 12u);
  EXPECT_THAT(user_error([&] { y.values<double>(); }), HasSubstr("f32 was read as f64"));
  const ArrayView view = y;
  EXPECT_EQ(view.bytes, y.bytes());
}

TEST_F(FaceOfSession, SaysWhatCallersGetWrong) {
  Session session(path_);
  const auto error = [&](const std::string& name, const ArrayView& view) {
    return user_error([&] { session.run({{name, view}}); });
  };
  EXPECT_THAT(error("x", {x_, {2, 3}}), has("'x' has 32 bytes", "f32[2,3] takes 24"));
  EXPECT_THAT(error("x", {x_, {4, 2}}), has("got f32[4,2], expected f32[N,4]"));
  EXPECT_THAT(error("x", {x_, {0, 4}}), has("[x]", "at least 1"));
  EXPECT_THAT(error("x", {DType::kF64, {1, 4}, x_.data(), 32}), has("another dtype"));
  EXPECT_THAT(error("z", {x_, {2, 4}}), has("no input 'z'"));
  EXPECT_THAT(error("x", {DType::kF32, {2, 4}, nullptr, 32}), has("'x' is missing"));
  EXPECT_THAT(user_error([&] { session.run({}); }), has("'x' is missing"));
  EXPECT_THAT(user_error([&] { session.bind({{"M", 2}}); }), has("M"));
  EXPECT_THAT(user_error([&] { Session(path_, {.device = "cudo"}); }), has("unknown device"));
  EXPECT_THAT(user_error([&] { Session((folder_ / "no.onnx").string()); }), has("no.onnx"));
  EXPECT_EQ(session.run({{"x", {x_, {2, 4}}}}).size(), 1u);
  // Bytes that begin at any address are copied.
  std::vector<std::byte> shifted(33);
  std::memcpy(shifted.data() + 1, x_.data(), 32);
  const Outputs odd = session.run({{"x", {DType::kF32, {2, 4}, shifted.data() + 1, 32}}});
  const Outputs even = session.run({{"x", {x_, {2, 4}}}});
  EXPECT_EQ(std::memcmp(odd.at("y").data.get(), even.at("y").data.get(), 48), 0);
}

int exit_code_of(pid_t child) {
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(FaceOfSession, ServesTheChildOfAFork) {
#if defined(RIDGE_TEST_TSAN) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer ends a forked child that starts threads";
#endif
  Session session(path_);
  const Outputs expected = session.run({{"x", {x_, {2, 4}}}});
  const auto is_right = [&](Session& each) {
    const Outputs got = each.run({{"x", {x_, {2, 4}}}});
    return std::memcmp(got.at("y").data.get(), expected.at("y").data.get(), 48) == 0;
  };
  pid_t child = fork();
  if (child == 0) {
    Session other(path_);
    _exit(is_right(session) && is_right(other) && is_right(session) ? 42 : 1);
  }
  EXPECT_EQ(exit_code_of(child), 42);

  // While another thread is in a call the child gets an error, where it would wait for ever.
  std::atomic<bool> ends = false;
  std::atomic<int> runs = 0;
  std::thread thread([&] {
    while (!ends) {
      session.run({{"x", {x_, {2, 4}}}});
      ++runs;
    }
  });
  while (runs == 0) std::this_thread::yield();
  int refused = 0;
  for (int i = 0; i < 30; ++i) {
    child = fork();
    if (child == 0) {
      try {
        _exit(is_right(session) ? 42 : 1);
      } catch (const UserError& error) {
        _exit(std::strstr(error.what(), "was forked while a session") != nullptr ? 43 : 2);
      }
    }
    const int code = exit_code_of(child);
    EXPECT_TRUE(code == 42 || code == 43) << code;
    refused += code == 43;
  }
  ends = true;
  thread.join();
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace ridge::test
