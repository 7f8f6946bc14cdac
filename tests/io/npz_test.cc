// NPZ files: those of numpy, those that Python's zipfile reads, and hostile ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "ridge/io/npy.h"
#include "tests/support/errors.h"
#include "tests/support/has.h"
#include "tests/support/temp_folder.h"

namespace ridge {
namespace {

using test::has;
using test::user_error;

// tools/make_io_fixtures.py
const std::filesystem::path kStored = "tests/data/io/stored.npz";
const std::filesystem::path kDeflated = "tests/data/io/deflated.npz";

template <typename T>
void put(std::string& bytes, size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

// The array 1, 2, 3 of u8 as an NPY file.
std::string small_npy() {
  const std::string header = "{'descr': '|u1', 'fortran_order': False, 'shape': (3,)}";
  std::string file = "\x93NUMPY\x01";
  file += '\0';
  file += static_cast<char>(header.size());
  file += '\0';
  return file + header + "\1\2\3";
}

// The archive of small_npy() under each name.
std::string archive_of(const std::vector<std::string>& names) {
  const std::string content = small_npy();
  std::vector<ZipFile> files;
  for (const std::string& name : names) files.push_back({name, {as_bytes(content)}});
  std::string bytes;
  write_zip([&](Bytes piece) { bytes += as_text(piece); }, files);
  return bytes;
}

// The error of reading every array, or "no error".
std::string error_of(std::string_view bytes) {
  return user_error([&] {
    const NpzView arrays(as_bytes(bytes), "f.npz");
    for (const std::string& name : arrays.names()) arrays.read(name);
  });
}

// Places in an archive of one file of ours.
size_t central_at(const std::string& bytes) { return bytes.rfind("PK\1\2"); }
size_t sizes_at(const std::string& bytes) { return central_at(bytes) + 46 + 5 + 4; }  // a.npy
size_t end64_at(const std::string& bytes) { return bytes.rfind("PK\6\6"); }

TEST(Npz, ReadsWhatNumpyWrites) {
  for (const auto& path : {kStored, kDeflated}) {
    const std::string bytes = read_file(path);
    const NpzView arrays(as_bytes(bytes), path.string());
    EXPECT_EQ(arrays.names(), (std::vector<std::string>{"x", "long name"}));
    const Tensor x = arrays.read("x"), sevens = arrays.read("long name");
    ASSERT_EQ(to_string(x.type()), "f32[2,3]");
    for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(x.at(i), static_cast<double>(i - 2));
    ASSERT_EQ(to_string(sevens.type()), "i64[1000]");
    for (int64_t i = 0; i < 1000; ++i) EXPECT_EQ(sevens.at(i), 7);
    EXPECT_EQ(user_error([&] { arrays.read("long nam"); }),
              path.string() + ": there is no array 'long nam'; did you mean 'long name'?");
  }
  EXPECT_LT(std::filesystem::file_size(kDeflated), std::filesystem::file_size(kStored) / 4);
}

TEST(Npz, WritesWhatItReads) {
  const test::TempFolder folder;
  NamedTensors tensors;
  for (const DType dtype : kAllDTypes) {
    Tensor& tensor = tensors[std::string(name_of(dtype))] = Tensor({dtype, {2, 3}});
    for (int64_t i = 0; i < 6; ++i) tensor.set(i, static_cast<double>(i % 2));
  }
  write_npz(folder / "all.npz", tensors);
  EXPECT_EQ(folder.names(), std::vector<std::string>{"all.npz"});
  const std::string bytes = read_file(folder / "all.npz");
  const NpzView arrays(as_bytes(bytes), "all.npz");
  EXPECT_EQ(arrays.names().size(), std::size(kAllDTypes));
  for (const auto& [name, tensor] : tensors) {
    const Tensor read = arrays.read(name);
    if (name != "bf16") {
      EXPECT_TRUE(read.same_bits(tensor)) << name;
      continue;
    }
    EXPECT_EQ(to_string(read.type()), "f32[2,3]");
    for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(read.at(i), tensor.at(i));
  }
}

TEST(Npz, PythonReadsIt) {
  const test::TempFolder folder;
  const std::string path = folder / "x.npz";
  write_file_atomically(path, archive_of({"a.npy", "b/\xc3\xbc.npy"}));
  const std::string command =
      "python3 -c \"import zipfile; f = zipfile.ZipFile('" + path +
      "'); print(f.testzip(), [(i.filename.encode(), i.file_size, f.read(i)[-3:]) for i in "
      "f.infolist()])\"";
  std::FILE* const output = ::popen(command.c_str(), "r");
  ASSERT_NE(output, nullptr);
  char text[1000] = {};
  const size_t got = std::fread(text, 1, sizeof text - 1, output);
  EXPECT_EQ(::pclose(output), 0);
  EXPECT_EQ(std::string(text, got),
            fmt::format("None [(b'a.npy', {0}, b'\\x01\\x02\\x03'), (b'b/\\xc3\\xbc.npy', {0}, "
                        "b'\\x01\\x02\\x03')]\n",
                        small_npy().size()));
}

TEST(Npz, EveryTruncationIsRefused) {
  for (const std::string& whole : {read_file(kDeflated), archive_of({"a.npy"})})
    for (size_t size = 0; size < whole.size(); ++size)
      EXPECT_THAT(error_of(std::string_view(whole).substr(0, size)),
                  has("f.npz: not a ZIP archive"))
          << size;
  EXPECT_THAT(error_of(archive_of({"a.npy"}) + "x"), has("not a ZIP archive"));
}

// A byte that no reader needs (a date, say) may change; an array may not.
TEST(Npz, DamageIsFound) {
  for (const std::string& whole : {read_file(kDeflated), archive_of({"a.npy"})}) {
    const NpzView good(as_bytes(whole), "f.npz");
    for (size_t at = 0; at < whole.size(); ++at)
      for (const int bit : {0, 7}) {
        std::string damaged = whole;
        damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
        user_error([&] {
          const NpzView arrays(as_bytes(damaged), "f.npz");
          EXPECT_EQ(arrays.names().size(), good.names().size()) << at;
          for (size_t i = 0; i < arrays.names().size(); ++i)
            EXPECT_TRUE(arrays.read(arrays.names()[i]).same_bits(good.read(good.names()[i]))) << at;
        });
      }
  }
}

TEST(Npz, DirectoriesThatLieAreRefused) {
  const std::string good = archive_of({"a.npy"});
  ASSERT_EQ(error_of(good), "no error");
  const uint64_t size = small_npy().size();
  const auto with = [&](size_t at, auto value) {
    std::string bytes = good;
    put(bytes, at, value);
    return error_of(bytes);
  };
  const size_t sizes = sizes_at(good), end = end64_at(good), central = central_at(good);
  EXPECT_THAT(with(sizes, uint64_t{1} << 60), has("'a.npy' cannot have 1152921504606846976 bytes"));
  EXPECT_THAT(with(sizes + 8, uint64_t{1} << 60), has("ends beyond the directory's begin"));
  EXPECT_THAT(with(sizes + 8, ~uint64_t{0}), has("ends beyond the directory's begin"));
  EXPECT_THAT(with(sizes + 16, ~uint64_t{0}), has("'a.npy' is not where the directory says"));
  EXPECT_THAT(with(sizes + 16, uint64_t{1}), has("'a.npy' is not where the directory says"));
  EXPECT_THAT(with(sizes - 2, uint16_t{23}), has("a size in 64 bits is missing"));
  EXPECT_THAT(with(sizes - 2, uint16_t{25}), has("an extra field ends early"));
  EXPECT_THAT(with(central + 28, uint16_t{6000}), has("its directory ends early"));
  EXPECT_THAT(with(central + 10, uint16_t{12}), has("packed by method 12", "numpy.savez"));
  EXPECT_THAT(with(central + 8, uint16_t{1}), has("'a.npy' is encrypted"));
  EXPECT_THAT(with(central + 46, 'b'), has("has another name before its bytes"));
  EXPECT_THAT(with(end + 32, uint64_t{1} << 40), has("has no room for 1099511627776 files"));
  EXPECT_THAT(with(end + 40, ~uint64_t{0}), has("its directory lies outside of the file"));
  EXPECT_THAT(with(end + 48, ~uint64_t{0}), has("its directory lies outside of the file"));
  EXPECT_THAT(with(end + 16, uint32_t{1}), has("one of several parts"));
  EXPECT_THAT(with(good.size() - 22 - 12, ~uint64_t{0}), has("sizes in 64 bits is not there"));
  // It says that it is deflated, and so small that zlib would have to make more of a byte than can
  // be.
  std::string bomb = good;
  put(bomb, central + 10, uint16_t{8});
  put(bomb, sizes, size * 1033 + 1032);
  EXPECT_THAT(error_of(bomb), has("'a.npy' cannot have"));
  put(bomb, sizes, size);
  EXPECT_THAT(error_of(bomb), has("'a.npy' is damaged"));
}

TEST(Npz, FilesThatAreNoArraysOrShareBytesAreRefused) {
  EXPECT_THAT(error_of(archive_of({"a.npy", "b.txt"})), has("'b.txt' in it is no NPY file"));
  EXPECT_THAT(error_of(archive_of({"a.npy", "a.npy"})), has("two files are called 'a.npy'"));
  EXPECT_EQ(error_of(archive_of({})), "no error");
  // The second file lies in what the first one holds.
  std::string inner = archive_of({"b.npy"}), shared;
  inner.resize(central_at(inner));
  const std::string content = small_npy();
  const ZipFile files[] = {{"a.npy", {as_bytes(inner)}}, {"b.npy", {as_bytes(content)}}};
  write_zip([&](Bytes piece) { shared += as_text(piece); }, files);
  put(shared, sizes_at(shared) + 16, uint64_t{shared.find(inner)});
  EXPECT_THAT(error_of(shared), has("two of its files overlap"));
}

// Blocks of deflated data that hold their bytes as they are.
TEST(Npz, InflatesExactlyWhatTheDirectorySays) {
  const auto deflated = [](const std::string& content, const std::string& behind) {
    const auto size = static_cast<uint16_t>(content.size());
    std::string block = "\1....";
    put(block, 1, size);
    put(block, 3, static_cast<uint16_t>(~size));
    block += content + behind;
    std::string bytes;
    const ZipFile file{"a.npy", {as_bytes(block)}};
    write_zip([&](Bytes piece) { bytes += as_text(piece); }, std::span(&file, 1));
    const std::string plain = archive_of({"a.npy"});  // for its checksum
    put(bytes, central_at(bytes) + 10, uint16_t{8});
    bytes.replace(central_at(bytes) + 16, 4, plain, central_at(plain) + 16, 4);
    put(bytes, sizes_at(bytes), uint64_t{small_npy().size()});
    return error_of(bytes);
  };
  const std::string content = small_npy();
  EXPECT_EQ(deflated(content, ""), "no error");
  EXPECT_THAT(deflated(content, "x"), has("'a.npy' is damaged"));
  EXPECT_THAT(deflated(content + "x", ""), has("'a.npy' is damaged"));
  EXPECT_THAT(deflated(content.substr(1), ""), has("'a.npy' is damaged"));
  std::string other = content;
  other.back() = '\7';
  EXPECT_THAT(deflated(other, ""), has("'a.npy' is damaged"));
}

}  // namespace
}  // namespace ridge
