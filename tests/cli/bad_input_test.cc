// The program against what users get wrong: one error on stderr, nothing on stdout, exit code 2.
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <limits>

#include "ridge/io/jpeg.h"
#include "tests/cli/ridge_process.h"
#include "tests/support/temp_folder.h"

namespace ridge {
namespace {

using test::Ended;
using test::ridge;
using test::TempFolder;

void write(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string big_endian(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 255);
  return bytes;
}

std::string idx_images(uint32_t count, uint32_t size = 4) {
  std::string bytes = big_endian(0x803) + big_endian(count) + big_endian(size) + big_endian(size);
  for (uint32_t i = 0; i < count * size * size; ++i) bytes += static_cast<char>(i * 7);
  return bytes;
}

std::string idx_labels(uint32_t count, uint32_t classes = 10) {
  std::string bytes = big_endian(0x801) + big_endian(count);
  for (uint32_t i = 0; i < count; ++i) bytes += static_cast<char>(i % classes);
  return bytes;
}

std::string gzipped(const std::filesystem::path& scratch, const std::string& bytes) {
  gzFile file = gzopen(scratch.c_str(), "wb");
  gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
  gzclose(file);
  return test::text_of(scratch);
}

// A folder with a good configuration of each kind, and files that are wrong in one way each.
class BadInput : public testing::Test {
 protected:
  BadInput() {
    const std::string run = "[train]\nbatch = 16\nsteps = 4\n";
    write(folder_ / "mlp.toml",
          "[model]\nkind = 'mlp'\nhidden = [8]\noutputs = 3\n[data]\nkind = 'random'\nshape = [4]\n"
          "samples = 64\nclasses = 3\n" +
              run);
    write(folder_ / "idx.toml",
          "[model]\nkind = 'mlp'\nhidden = [8]\noutputs = 10\n[data]\nkind = 'idx'\n"
          "path = 'x.idx'\nlabels = 'y.idx'\n" +
              run);
    write(folder_ / "cnn.toml",
          "[model]\nkind = 'cnn'\nwidths = [4]\noutputs = 10\n[data]\nkind = 'idx'\n"
          "path = 'dots.idx'\nlabels = 'y17.idx'\neval_path = 'dots.idx'\n"
          "eval_labels = 'y17.idx'\n" +
              run);
    write(folder_ / "gpt.toml",
          "[model]\nkind = 'gpt'\nlayers = 1\nheads = 2\nwidth = 8\ncontext = 8\n[data]\n"
          "kind = 'text'\npath = 'text'\ncontext = 8\n" +
              run);
    write_data();
  }

  void write_data() {
    const std::string images = idx_images(64);
    write(folder_ / "x.idx", images);
    write(folder_ / "y.idx", idx_labels(64));
    write(folder_ / "short.idx", images.substr(0, 500));
    write(folder_ / "header.idx", images.substr(0, 7));
    write(folder_ / "huge.idx", std::string("\0\0\10\3", 4) + std::string(12, '\xff') + "123");
    write(folder_ / "y63.idx", idx_labels(63));
    write(folder_ / "y20.idx", idx_labels(64, 20));
    write(folder_ / "none.idx", idx_images(0));
    write(folder_ / "ynone.idx", idx_labels(0));
    write(folder_ / "dots.idx", idx_images(17, 1));
    write(folder_ / "y17.idx", idx_labels(17));
    const std::string zipped = gzipped(folder_ / "x.idx.gz", images);
    write(folder_ / "short.idx.gz", zipped.substr(0, zipped.size() / 2));
    std::string broken = zipped;
    broken[broken.size() - 6] ^= 1;  // in the sum at the end
    write(folder_ / "broken.idx.gz", broken);
    write(folder_ / "text", std::string(400, 'a'));
    write(folder_ / "empty.toml", "");
    std::string noise;
    for (uint32_t i = 0, x = 1; i < 1 << 20; ++i)
      noise += static_cast<char>((x = x * 69069 + 1) >> 24);
    write(folder_ / "noise.toml", noise);
  }

  TempFolder folder_;
};

struct BadCase {
  std::string words;               // split at blanks
  std::vector<std::string> parts;  // of the message
};

std::vector<std::string> split(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

TEST_F(BadInput, IsAnErrorOfOneLine) {
  const BadCase cases[] = {
      {"trian mlp.toml", {"unknown verb 'trian'", "did you mean 'train'?"}},
      {"train", {"config is required", "'ridge train --help'"}},
      {"train mlp.toml mlp.toml", {"not expected", "'ridge train --help'"}},
      {"train mlp.toml --stepps 3", {"unknown option '--stepps' of 'train'", "'--steps'"}},
      {"train mlp.toml --set data.sampels=3",
       {"--set: unknown key 'data.sampels'", "'data.samples'"}},
      {"train nothing.toml", {"cannot open 'nothing.toml'", "No such file"}},
      {"train .", {"cannot read '.'", "directory"}},
      {"train empty.toml", {"train.epochs and train.steps are both 0", "give one of them"}},
      {"train noise.toml", {"noise.toml:1:", "not TOML", "docs/config.md"}},
      {"train mlp.toml --set train.batch=100", {"train.batch is 100", "64 samples", "64 or less"}},
      {"train mlp.toml --set train.micro=17", {"train.micro (17)", "train.batch (16)", "raise"}},
      {"train mlp.toml --seed -1", {"--seed: train.seed: got -1", "an integer from 0 to"}},
      {"train mlp.toml --seed 9223372036854775808", {"--seed: train.seed", "9223372036854775807"}},
      {"train mlp.toml --set threads=1025", {"'threads'", "got '1025'", "0 to 1024"}},
      {"train mlp.toml --set model.dropout=1", {"model.dropout", "below 1"}},
      {"train mlp.toml --set loader.workers=257", {"loader.workers: got 257", "0 to 256"}},
      {"train mlp.toml --device tpu", {"unknown device 'tpu'", "'cpu'"}},
      {"train mlp.toml --set model.hidden=1048576,1048576", {"no memory for", "bytes"}},
      {"train mlp.toml --trace no/where.json", {"trace", "no/where.json", "No such file"}},
      {"train mlp.toml --init nothing", {"cannot open 'nothing'"}},
      {"train mlp.toml --init x.idx", {"x.idx: not a safetensors file"}},
      {"train mlp.toml --resume nothing", {"no checkpoint in 'nothing'", "give --resume"}},
      {"train mlp.toml --resume auto", {"train.out", "give --out"}},
      {"train mlp.toml --out text/run", {"'text/run'", "Not a directory", "--out"}},
      {"train mlp.toml --out /proc/run", {"cannot make the folder '/proc/run'", "--out"}},
      {"train idx.toml --set data.path=nothing", {"cannot open 'nothing'"}},
      {"train idx.toml --set data.path=short.idx", {"short.idx: truncated", "1040", "500"}},
      {"train idx.toml --set data.path=header.idx", {"header.idx: truncated", "header"}},
      {"train idx.toml --set data.path=huge.idx", {"huge.idx", "too large"}},
      {"train idx.toml --set data.path=short.idx.gz", {"short.idx.gz: truncated", "gzip"}},
      {"train idx.toml --set data.path=broken.idx.gz", {"broken.idx.gz: corrupt gzip"}},
      {"train idx.toml --set data.labels=y63.idx", {"64 images", "63 labels", "belong together"}},
      {"train idx.toml --set data.labels=y20.idx", {"model.outputs is 10", "20 classes"}},
      {"train idx.toml --set data.labels=x.idx", {"'x.idx' holds u8[64,4,4]", "labels"}},
      {"train idx.toml --set data.eval_path=none.idx --set data.eval_labels=ynone.idx",
       {"none.idx", "at least 1"}},
      {"train cnn.toml --set train.batch=1",
       {"batch norm needs more than one value", "larger batch"}},
      {"train cnn.toml --set train.drop_last=false", {"batch norm needs more than one value"}},
      {"train gpt.toml --set model.vocab=64", {"model.vocab is 64", "256 tokens"}},
      {"train gpt.toml --set data.context=9", {"9 tokens", "model.context (8)", "raise"}},
      {"eval mlp.toml", {"there are no weights", "--weights"}},
      {"eval mlp.toml --weights nothing", {"no checkpoint in 'nothing'", "give --weights a file"}},
      {"eval mlp.toml --weights no", {"no checkpoint in 'no'"}},
      {"eval mlp.toml --weights auto", {"no checkpoint in 'auto'"}},
      {"eval mlp.toml --weights nothing --set data.eval_fraction=0",
       {"no samples to evaluate on", "data.eval_fraction"}},
      {"generate mlp.toml", {"model of kind gpt", "'mlp'"}},
      {"generate gpt.toml --tokens 0", {"--tokens must be at least 1"}},
      {"generate gpt.toml --temperature nan", {"--temperature must be a number"}},
      {"generate gpt.toml --top-k -1", {"--top-k must be at least 0"}},
      {"inspect /dev/zero", {"cannot read '/dev/zero'", "regular file"}},
      {"calibrate --device tpu", {"unknown device 'tpu'"}},
  };
  for (const BadCase& bad : cases) {
    const Ended ended = ridge(folder_.path(), split(bad.words));
    SCOPED_TRACE(bad.words + "\n" + ended.err);
    EXPECT_EQ(ended.code, 2);
    EXPECT_EQ(ended.out, "");
    EXPECT_TRUE(ended.err.starts_with("error: "));
    EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1);
    for (const std::string& part : bad.parts)
      EXPECT_NE(ended.err.find(part), std::string::npos) << part;
  }
}

TEST_F(BadInput, LimitsOfWhatIsAllowedWork) {
  for (const char* words : {"train mlp.toml --set threads=0",
                            "train mlp.toml --set threads=1",
                            "train mlp.toml --set threads=1024",
                            "train mlp.toml --seed 9223372036854775807",
                            "train mlp.toml --set train.batch=1",
                            "train mlp.toml --set train.batch=64",
                            "train mlp.toml --set train.micro=16",
                            "train mlp.toml --set train.eval_batch=100000",
                            "train mlp.toml --set model.dropout=0.99",
                            "train mlp.toml --set loader.workers=256 --set loader.prefetch=1",
                            "train mlp.toml --set data.eval_fraction=0.000001",
                            "train cnn.toml --set train.drop_last=true",
                            "train idx.toml --set data.path=x.idx.gz",
                            "train gpt.toml"}) {
    const Ended ended = ridge(folder_.path(), split(words));
    EXPECT_EQ(ended.code, 0) << words << "\n" << ended.err;
    EXPECT_TRUE(ended.out.starts_with("trained ")) << words;
  }
}

TEST_F(BadInput, WrongEnvironmentIsNamed) {
  const std::pair<const char*, const char*> cases[] = {{"RIDGE_THREADS=many", "'many'"},
                                                       {"RIDGE_CPU_ISA=sse", "'sse'"},
                                                       {"RIDGE_TUNE=maybe", "'maybe'"}};
  for (const auto& [setting, part] : cases) {
    const Ended ended =
        ridge(folder_.path(), {"train", "mlp.toml"}, std::string("export ") + setting + ";");
    EXPECT_EQ(ended.code, 2) << setting;
    EXPECT_TRUE(ended.err.starts_with("error: ")) << ended.err;
    EXPECT_NE(ended.err.find(part), std::string::npos) << ended.err;
  }
}

TEST_F(BadInput, PathsWithBlanksAndLettersOfAnyKind) {
  const Ended ended =
      ridge(folder_.path(), {"train", "mlp.toml", "--out", "a b/\xc3\xbc/\xe6\x97\xa5"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_TRUE(std::filesystem::exists(folder_ / "a b/\xc3\xbc/\xe6\x97\xa5/model.safetensors"));
}

TEST_F(BadInput, LossThatIsNotFiniteNamesStepAndNode) {
  const Ended ended = ridge(folder_.path(),
                            split("train mlp.toml --steps 100 --set optimizer.kind=sgd --set "
                                  "optimizer.lr=1000 --set train.eval_every=1000"));
  EXPECT_EQ(ended.code, 2);
  EXPECT_EQ(ended.out, "");
  for (const char* part :
       {"error: step ", "not finite is in ", "(inf at element", "lower optimizer.lr"})
    EXPECT_NE(ended.err.find(part), std::string::npos) << ended.err;
}

TEST_F(BadInput, UnreadablePicturesAreCountedOrEndTheRun) {
  write(folder_ / "img.toml",
        "[model]\nkind = 'cnn'\nwidths = [4]\noutputs = 2\n[data]\nkind = 'images'\n"
        "path = 'pictures'\nsize = 16\n[train]\nbatch = 6\nsteps = 4\n");
  for (int64_t i = 0; i < 16; ++i) {
    const auto place = folder_ / (i % 2 == 0 ? "pictures/a" : "pictures/b");
    std::filesystem::create_directories(place);
    const std::vector<uint8_t> pixels(40 * 30 * 3, static_cast<uint8_t>(10 * i));
    const auto bytes = encode_jpeg(pixels, {40, 30});
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    // All of one class but the first are cut off, so that some are met in training.
    write(place / (std::to_string(i) + ".jpg"),
          std::string(i % 2 == 0 && i > 0 ? text.substr(0, text.size() / 2) : text));
  }
  const Ended skip = ridge(folder_.path(), split("train img.toml --json"));
  EXPECT_EQ(skip.code, 0) << skip.err;
  EXPECT_EQ(skip.out.find("\"skipped\":0,"), std::string::npos) << skip.out;
  EXPECT_NE(skip.err.find("could not be read, and others took their place"), std::string::npos)
      << skip.err;
  const Ended fail = ridge(folder_.path(), split("train img.toml --set data.on_error=fail"));
  EXPECT_EQ(fail.code, 2);
  EXPECT_EQ(fail.out, "");
  EXPECT_NE(fail.err.find("error: cannot use picture 'pictures/a/"), std::string::npos) << fail.err;
}

TEST_F(BadInput, CalibrationGoesOnWithoutAPlaceToKeepIt) {
  const std::string quick = "RIDGE_THREADS=1; export RIDGE_THREADS;";
  const Ended none = ridge(folder_.path(), {"calibrate"}, quick + "unset HOME XDG_CACHE_HOME;");
  EXPECT_EQ(none.code, 0);
  EXPECT_NE(none.err.find("nothing is kept"), std::string::npos) << none.err;
  const Ended closed = ridge(
      folder_.path(), {"calibrate"}, quick + "XDG_CACHE_HOME=/proc/self; export XDG_CACHE_HOME;");
  EXPECT_EQ(closed.code, 0);
  EXPECT_NE(closed.err.find("is not kept"), std::string::npos) << closed.err;
}

}  // namespace
}  // namespace ridge
