#include "ridge/io/gzip.h"

#include <gtest/gtest.h>

#include "tests/support/case_builder.h"
#include "tests/support/errors.h"

namespace ridge {
namespace {

using test::user_error;

// `printf 'hello hello hello\n' | gzip -n9`, in octets.
const std::string kHello(
    "\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xcb\x48\xcd\xc9\xc9\x57\xc8\x40\x90\x5c\x00\x3b\x7c"
    "\x8a\xdf\x12\x00\x00\x00",
    29);
constexpr std::string_view kText = "hello hello hello\n";

std::string inflated(std::string_view bytes, size_t limit = 1000) {
  return gunzip(as_bytes(bytes), limit, "f.gz");
}

TEST(Gzip, Inflates) { EXPECT_EQ(inflated(kHello), kText); }

TEST(Gzip, SeveralMembersAreOneFile) {
  EXPECT_EQ(inflated(kHello + kHello + kHello),
            std::string(kText) + std::string(kText) + std::string(kText));
  EXPECT_EQ(inflated(kHello + std::string(100, '\0')), kText);
}

TEST(Gzip, ReadsInAnyPieces) {
  const std::string two = kHello + kHello;
  for (size_t piece = 1; piece < 40; ++piece) {
    GzipReader reader(as_bytes(two), "f.gz");
    std::string content(40, '?');
    size_t done = 0;
    while (true) {
      const size_t got = reader.read(
          std::as_writable_bytes(std::span(content.data() + done, std::min(piece, 40 - done))));
      done += got;
      if (got < piece) break;
    }
    EXPECT_EQ(content.substr(0, done), std::string(kText) + std::string(kText));
  }
}

TEST(Gzip, EveryTruncationIsRefused) {
  for (size_t size = 0; size < kHello.size(); ++size) {
    const std::string error = user_error([&] { inflated(kHello.substr(0, size)); });
    EXPECT_EQ(error,
              size < 2 ? "f.gz: not gzip data" : "f.gz: truncated: the gzip data ends early");
    if (size > 1) {
      EXPECT_NE(user_error([&] { inflated(kHello + kHello.substr(0, size)); }).find("truncated"),
                std::string::npos);
    }
  }
}

TEST(Gzip, DamageIsFound) {
  for (size_t i : {2, 10, 15, 23, 27}) {
    std::string bad = kHello;
    bad[i] ^= 0x41;
    EXPECT_NE(user_error([&] { inflated(bad); }).find("corrupt gzip data"), std::string::npos) << i;
  }
  EXPECT_EQ(user_error([] { inflated(kHello + "rest"); }),
            "f.gz: corrupt: other bytes follow the gzip data");
}

TEST(Gzip, HoldsItsLimit) {
  EXPECT_EQ(inflated(kHello, kText.size()), kText);
  EXPECT_EQ(user_error([] { inflated(kHello, kText.size() - 1); }),
            "f.gz: inflates to more than 17 bytes");
  EXPECT_EQ(user_error([] { inflated(kHello, 0); }), "f.gz: inflates to more than 0 bytes");
}

}  // namespace
}  // namespace ridge
