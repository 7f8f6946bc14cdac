#include "ridge/io/checkpoint.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <random>
#include <thread>

#include "ridge/io/checksum.h"
#include "tests/support/case_builder.h"
#include "tests/support/errors.h"
#include "tests/support/scale.h"
#include "tests/support/temp_folder.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;
using test::TempFolder;
using test::user_error;
using Names = std::vector<std::string>;
using Steps = std::vector<int64_t>;

/// Saves a checkpoint of `step` whose tensors all hold its number.
void save(const fs::path& dir, int64_t step, int64_t elements = 5) {
  Tensor w({DType::kF32, {elements}}), n({DType::kI64, {}});
  for (int64_t i = 0; i < elements; ++i) w.set(i, static_cast<double>(step));
  n.set(0, static_cast<double>(step));
  const std::vector<TensorView> views = {{"w", w.type(), w.data()}, {"n", n.type(), n.data()}};
  Checkpoint info;
  info.step = step;
  info.texts["note"] = "step " + std::to_string(step);
  save_checkpoint(dir, info, views);
}

/// Whether all of `found` belongs to its step.
bool is_consistent(const OpenCheckpoint& found) {
  const double step = static_cast<double>(found.info().step);
  const Tensor w = found.read("w");
  for (float value : w.span<float>())
    if (value != static_cast<float>(step)) return false;
  return found.read("n").at(0) == step;
}

std::string bytes_of(const fs::path& path) { return read_file(path); }

void put(const fs::path& path, std::string_view content) {
  std::ofstream(path, std::ios::binary) << content;
}

bool has_temporaries(const fs::path& dir) {
  for (const auto& entry : fs::directory_iterator(dir))
    if (entry.path().filename().string().starts_with(".tmp")) return true;
  return false;
}

TEST(Checksum, PublishedValues) {
  EXPECT_EQ(checksum_text(checksum({})), "ef46db3751d8e999");
  EXPECT_EQ(checksum_text(checksum(as_bytes("a"))), "d24ec4f1a98c6e5b");
  EXPECT_EQ(checksum_text(checksum(as_bytes("abc"))), "44bc2cf5ad770999");
  Checksum parts;
  parts.update(as_bytes("a"));
  parts.update({});
  parts.update(as_bytes("bc"));
  EXPECT_EQ(parts.value(), checksum(as_bytes("abc")));
}

TEST(Checkpoint, EverythingComesBack) {
  const TempFolder folder;
  test::Random random(1);
  std::mt19937_64 bits(1);
  Checkpoint info;
  info.step = (int64_t{1} << 53) + 1;
  info.epoch = 3;
  info.sample = std::numeric_limits<int64_t>::max();
  info.texts = {{"a \"quoted\" key", "line\nbreak \xc3\xa9"}, {"", ""}};
  info.integers = {{"seed", std::numeric_limits<int64_t>::min()}, {"odd", (1LL << 60) + 1}};
  info.numbers = {{"inf", INFINITY}, {"-inf", -INFINITY}, {"least", 5e-324}, {"zero", -0.0}};
  for (int i = 0; i < 2000; ++i) {
    const double value = std::bit_cast<double>(uint64_t{bits()});
    if (!std::isnan(value)) info.numbers["r" + std::to_string(i)] = value;
  }
  std::vector<Tensor> tensors;
  std::vector<TensorView> views;
  for (DType dtype : kAllDTypes) {
    tensors.emplace_back(TensorType{dtype, {3, 7}});
    for (int64_t i = 0; i < 21; ++i) tensors.back().set(i, random.uniform(-9, 9));
  }
  for (const Tensor& tensor : tensors)
    views.push_back(
        {"t/" + std::string(name_of(tensor.type().dtype)), tensor.type(), tensor.data()});
  const fs::path path = save_checkpoint(folder / "new", info, views);
  EXPECT_EQ(path, folder / "new" / "step-9007199254740993");

  const OpenCheckpoint found = open_checkpoint(path);
  EXPECT_EQ(found.info(), info);
  EXPECT_TRUE(std::signbit(found.info().numbers.at("zero")));
  ASSERT_EQ(found.tensors().size(), views.size());
  for (size_t i = 0; i < views.size(); ++i) {
    EXPECT_EQ(found.tensors()[i].name, views[i].name);
    EXPECT_TRUE(found.read(views[i].name).same_bits(tensors[i]));
    Tensor into(views[i].type);
    found.read_into(views[i].name, views[i].type, into.data());
    EXPECT_TRUE(into.same_bits(tensors[i]));
  }
  EXPECT_FALSE(found.contains("none"));
  EXPECT_NE(user_error([&] { found.read("t/f23"); }).find("did you mean 't/f32'"),
            std::string::npos);
  EXPECT_NE(user_error([&] {
              found.read_into("t/f32", {DType::kF64, {3, 7}}, nullptr);
            }).find("f32[3,7], expected f64[3,7]"),
            std::string::npos);
}

TEST(Checkpoint, NanComesBackAndBadTextIsRefused) {
  const TempFolder folder;
  Checkpoint info;
  info.numbers["loss"] = NAN;
  EXPECT_TRUE(std::isnan(
      open_checkpoint(save_checkpoint(folder.path(), info, {})).info().numbers.at("loss")));
  info.step = 1;
  info.texts["k"] = "\xff";
  EXPECT_NE(user_error([&] { save_checkpoint(folder.path(), info, {}); }).find("not UTF-8"),
            std::string::npos);
  info.texts.clear();
  info.epoch = -1;
  EXPECT_NE(user_error([&] { save_checkpoint(folder.path(), info, {}); }).find("negative"),
            std::string::npos);
  EXPECT_EQ(folder.names(), Names{"step-00000000"});
}

TEST(Checkpoint, LatestIsTheHighestStep) {
  const TempFolder folder;
  Names skipped;
  EXPECT_FALSE(open_latest(folder / "none", skipped).has_value());
  EXPECT_FALSE(open_latest(folder.path(), skipped).has_value());
  for (int64_t step : {7, 100000000, 12}) save(folder.path(), step);
  // None of these is a checkpoint.
  for (const char* name : {"step-1", "step-0000012x", "step--0000001", "step-99999999999999999999"})
    fs::create_directory(folder / name);
  EXPECT_EQ(checkpoint_steps(folder.path()), (Steps{100000000, 12, 7}));
  const auto found = open_latest(folder.path(), skipped);
  EXPECT_EQ(found->info().step, 100000000);
  EXPECT_TRUE(is_consistent(*found));
  EXPECT_TRUE(skipped.empty());
}

TEST(Checkpoint, SameStepIsReplaced) {
  const TempFolder folder;
  save(folder.path(), 1, 5);
  save(folder.path(), 1, 9);
  EXPECT_EQ(folder.names(), Names{"step-00000001"});
  EXPECT_EQ(open_checkpoint(checkpoint_path(folder.path(), 1)).read("w").elements(), 9);
}

/// With steps 1 (whole) and 2 (damaged by `damage`): what open_latest says of the damaged one.
std::string refusal_after(const fs::path& dir, const std::function<void(const fs::path&)>& damage) {
  const fs::path path = checkpoint_path(dir, 2);
  fs::remove_all(path);
  save(dir, 2);
  damage(path);
  Names skipped;
  const auto found = open_latest(dir, skipped);
  EXPECT_EQ(found->info().step, 1);
  EXPECT_TRUE(is_consistent(*found));
  EXPECT_EQ(skipped.size(), 1u);
  return skipped.empty() ? "" : skipped.front();
}

TEST(Checkpoint, DamageIsNamedAndTheOlderOneUsed) {
  const TempFolder folder;
  save(folder.path(), 1);
  const auto state = [](const fs::path& p) { return p / "state.safetensors"; };
  const auto manifest = [](const fs::path& p) { return p / "manifest.json"; };
  const std::pair<std::function<void(const fs::path&)>, std::string> cases[] = {
      {[&](auto& p) { fs::remove(manifest(p)); }, "is not a checkpoint: it has no manifest.json"},
      {[&](auto& p) { fs::remove(state(p)); }, "No such file"},
      {[&](auto& p) { fs::resize_file(manifest(p), 0); }, "manifest.json: truncated"},
      {[&](auto& p) { fs::resize_file(state(p), 16); }, "' is truncated: manifest.json says"},
      {[&](auto& p) { put(state(p), bytes_of(state(p)) + "x"); }, "is corrupt: manifest.json says"},
      {[&](auto& p) {
         std::string bytes = bytes_of(state(p));
         bytes.back() ^= 1;  // the last tensor of the file is w
         put(state(p), bytes);
       },
       "is corrupt (tensor 'w'): its checksum is"},
      {[&](auto& p) {
         fs::remove_all(p);
         fs::copy(checkpoint_path(p.parent_path(), 1), p);
       },
       "its manifest says step 1"},
      {[&](auto& p) {
         fs::remove_all(p);
         put(p, "a file");
       },
       "is not a checkpoint"}};
  for (const auto& [damage, message] : cases) {
    const std::string refusal = refusal_after(folder.path(), damage);
    EXPECT_TRUE(refusal.starts_with("step-00000002: ")) << refusal;
    EXPECT_NE(refusal.find(message), std::string::npos) << refusal;
  }
}

TEST(Checkpoint, EveryTruncationAndEveryFlippedByteIsFound) {
  const TempFolder folder;
  save(folder.path(), 1);
  const fs::path path = checkpoint_path(folder.path(), 1);
  for (const char* name : {"manifest.json", "state.safetensors"}) {
    const std::string good = bytes_of(path / name);
    for (size_t i = 0; i < good.size(); ++i) {
      put(path / name, good.substr(0, i));
      EXPECT_NE(user_error([&] { open_checkpoint(path); }), "no error") << name << " cut at " << i;
      std::string bad = good;
      bad[i] ^= static_cast<char>(1 << (i % 8));
      put(path / name, bad);
      EXPECT_NE(user_error([&] { open_checkpoint(path); }), "no error") << name << " byte " << i;
    }
    put(path / name, good);
  }
  EXPECT_TRUE(is_consistent(open_checkpoint(path)));
}

TEST(Checkpoint, AllCorruptIsAnError) {
  const TempFolder folder;
  for (int64_t step : {1, 2}) {
    save(folder.path(), step);
    fs::remove(checkpoint_path(folder.path(), step) / "manifest.json");
  }
  Names skipped;
  const std::string error = user_error([&] { open_latest(folder.path(), skipped); });
  EXPECT_EQ(skipped.size(), 2u);
  EXPECT_NE(error.find("no checkpoint in"), std::string::npos);
  EXPECT_LT(error.find("step-00000002: "), error.find("step-00000001: "));
}

// A kill can leave a temporary folder with any part of its files.
TEST(Checkpoint, LeftoversOfAKilledSaveDoNotCount) {
  const TempFolder folder;
  save(folder.path(), 1);
  save(folder.path(), 2);
  const fs::path whole = checkpoint_path(folder.path(), 2),
                 left = folder / ".tmp-step-00000002-9-f";
  for (const char* kept : {"", "state.safetensors", "manifest.json", "both"}) {
    fs::remove_all(left);
    fs::create_directory(left);
    for (const char* name : {"state.safetensors", "manifest.json"})
      if (kept == std::string("both") || kept == std::string(name))
        fs::copy(checkpoint_path(folder.path(), 1) / name, left / name);
    Names skipped;
    EXPECT_EQ(open_latest(folder.path(), skipped)->info().step, 2);
    EXPECT_TRUE(skipped.empty());
  }
  put(folder / ".tmp-best-1-f", "step");
  EXPECT_EQ(prune_checkpoints(folder.path(), 5, 2), Steps{});
  EXPECT_EQ(folder.names(), (Names{"step-00000001", "step-00000002"}));
}

/// Saves, marks and prunes as a training run does.
void save_mark_prune(const fs::path& dir, int64_t step) {
  save(dir, step, 100000);
  mark_best(dir, step);
  prune_checkpoints(dir, 2, step);
}

/// Does so until it is killed, and writes a byte to `pipe` before each step.
[[noreturn]] void save_forever(const fs::path& dir, int64_t step, int pipe) {
  try {
    for (; ::write(pipe, "s", 1) == 1; ++step) save_mark_prune(dir, step);
  } catch (...) {
  }
  ::_exit(1);
}

/// Starts save_forever in a process and kills it `delay` after it has begun its step `steps`.
void kill_within_step(const fs::path& dir,
                      int64_t first,
                      int64_t steps,
                      std::chrono::microseconds delay) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) save_forever(dir, first, ends[1]);
  ::close(ends[1]);  // a child that ends early ends the reading too
  char byte = 0;
  for (int64_t i = 0; i < steps; ++i) EXPECT_EQ(::read(ends[0], &byte, 1), 1);
  std::this_thread::sleep_for(delay);
  ::kill(child, SIGKILL);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  ::close(ends[0]);
}

TEST(Checkpoint, KillLeavesAWholeCheckpoint) {
  const TempFolder folder;
  const auto start = std::chrono::steady_clock::now();
  save_mark_prune(folder.path(), 0);
  const std::chrono::duration<double, std::micro> step_time =
      std::chrono::steady_clock::now() - start;
  test::Random random(2);
  int64_t last = 0;
  for (int round = 0; round < test::cases(30); ++round) {
    const int64_t steps = random.integer(1, 3);
    const auto delay = static_cast<int64_t>(random.uniform(0.0, 1.2) * step_time.count());
    kill_within_step(folder.path(), last + 1, steps, std::chrono::microseconds(delay));
    Names skipped;
    const auto found = open_latest(folder.path(), skipped);
    ASSERT_TRUE(found.has_value());
    EXPECT_TRUE(skipped.empty()) << skipped.front();
    EXPECT_GE(found->info().step, last + steps - 1);  // those that it had finished
    EXPECT_TRUE(is_consistent(*found));
    const auto best = best_step(folder.path());
    ASSERT_TRUE(best.has_value());
    EXPECT_TRUE(is_consistent(open_checkpoint(checkpoint_path(folder.path(), *best))));
    last = found->info().step;
  }
  EXPECT_GT(last, 0);
  prune_checkpoints(folder.path(), 1, last);
  EXPECT_FALSE(has_temporaries(folder.path()));
}

// A limit on file sizes stands for a disk that fills up: at each size, in the state or the
// manifest.
TEST(Checkpoint, FullDiskLeavesTheOlderOne) {
  const TempFolder folder;
  save(folder.path(), 1);
  for (rlim_t limit : {rlim_t{0}, rlim_t{100}, rlim_t{300}, rlim_t{500}}) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      std::signal(SIGXFSZ, SIG_IGN);
      const rlimit files{limit, limit};
      ::setrlimit(RLIMIT_FSIZE, &files);
      const std::string error = user_error([&] { save(folder.path(), 2); });
      ::_exit(error.ends_with("File too large") ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << "limit " << limit;
    EXPECT_EQ(folder.names(), Names{"step-00000001"});
    Names skipped;
    EXPECT_TRUE(is_consistent(*open_latest(folder.path(), skipped)));
  }
}

TEST(Checkpoint, FailedReplacementKeepsTheOldOne) {
  const TempFolder folder;
  save(folder.path(), 1);
  const float one = 1;
  const TensorView twice[] = {{"a", {DType::kF32, {}}, &one}, {"a", {DType::kF32, {}}, &one}};
  EXPECT_NE(
      user_error([&] { save_checkpoint(folder.path(), {.step = 1}, twice); }).find("two tensors"),
      std::string::npos);
  EXPECT_TRUE(is_consistent(open_checkpoint(checkpoint_path(folder.path(), 1))));
  EXPECT_EQ(folder.names(), Names{"step-00000001"});
}

TEST(Checkpoint, PruneKeepsTheLastAndTheBest) {
  const TempFolder folder;
  for (int64_t step = 1; step <= 6; ++step) save(folder.path(), step);
  EXPECT_FALSE(best_step(folder.path()).has_value());
  mark_best(folder.path(), 2);
  EXPECT_EQ(best_step(folder.path()), 2);
  EXPECT_EQ(prune_checkpoints(folder.path(), 2, 6), (Steps{4, 3, 1}));
  EXPECT_EQ(checkpoint_steps(folder.path()), (Steps{6, 5, 2}));
  EXPECT_NE(user_error([&] { mark_best(folder.path(), 4); }).find("no such checkpoint"),
            std::string::npos);
  EXPECT_NE(user_error([&] { prune_checkpoints(folder.path(), 0, 6); }).find("at least one"),
            std::string::npos);
  put(folder / "best", "../../etc\n");
  EXPECT_NE(user_error([&] { best_step(folder.path()); }).find("does not name a checkpoint"),
            std::string::npos);
}

// Resumed from 3 after 4 and 5 turned out bad: what it saves now must outlive them.
TEST(Checkpoint, PruneCountsOnlyWholeOnesOfThisRun) {
  const TempFolder folder;
  for (int64_t step : {1, 2, 3, 5}) save(folder.path(), step);
  fs::resize_file(checkpoint_path(folder.path(), 3) / "state.safetensors", 10);
  EXPECT_EQ(prune_checkpoints(folder.path(), 1, 3), Steps{1});
  EXPECT_EQ(checkpoint_steps(folder.path()), (Steps{5, 3, 2}));
}

}  // namespace
}  // namespace ridge
