#include "ridge/io/json.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/support/errors.h"

namespace ridge {
namespace {

using test::user_error;

JsonValue parse(std::string_view text) { return parse_json(text, "t.json"); }

TEST(Json, KeepsKindsApart) {
  const JsonValue root = parse(R"({"i": -3, "u": 18446744073709551615, "f": 0.1, "w": 2.0,
    "s": "a\u00e9\n", "n": null, "t": true, "a": [1, [], {}]})");
  EXPECT_EQ(root.at("i", "t").as_integer("t"), -3);
  EXPECT_EQ(std::get<uint64_t>(root.at("u", "t").data()), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(root.at("f", "t").as_number("t"), 0.1);
  EXPECT_EQ(root.at("i", "t").as_number("t"), -3.0);
  EXPECT_EQ(root.at("s", "t").as_string("t"), "a\xc3\xa9\n");
  EXPECT_TRUE(std::holds_alternative<std::nullptr_t>(root.at("n", "t").data()));
  EXPECT_TRUE(root.at("t", "t").as_bool("t"));
  EXPECT_EQ(root.at("a", "t").as_array("t").size(), 3u);
  EXPECT_EQ(root.find("none"), nullptr);
  EXPECT_EQ(root.as_object("t").front().first, "i");
}

TEST(Json, NamesWhatIsOfTheWrongKind) {
  const JsonValue root = parse(R"({"w": 2.0, "u": 18446744073709551615, "s": "x"})");
  EXPECT_EQ(user_error([&] { root.at("w", "t").as_integer("t.w"); }),
            "t.w: expected an integer, got a number");
  EXPECT_EQ(user_error([&] { root.at("u", "t").as_integer("t.u"); }), "t.u: integer out of range");
  EXPECT_EQ(user_error([&] { root.at("s", "t").as_array("t.s"); }),
            "t.s: expected an array, got a string");
  EXPECT_EQ(user_error([&] { root.at("none", "t"); }), "t: 'none' is missing");
  EXPECT_EQ(user_error([&] { parse("[1]").at("x", "t"); }), "t: expected an object, got an array");
}

TEST(Json, RefusesWhatIsNotJson) {
  EXPECT_EQ(user_error([] { parse(R"({"a": 1,})"); }), "t.json: not valid JSON at byte 9");
  for (const char* text : {"",
                           "{",
                           "[1 2]",
                           "{\"a\" 1}",
                           "nul",
                           "1 2",
                           "\"\xff\"",
                           "\"\\ud800\"",
                           "1e999",
                           "NaN",
                           "// c\n1",
                           "[1]]"})
    EXPECT_NE(user_error([&] { parse(text); }).find("not valid JSON"), std::string::npos) << text;
  EXPECT_EQ(user_error([] { parse(R"({"a": {"b": 1, "c": 2, "b": 3}})"); }),
            "t.json: key 'b' appears twice");
  EXPECT_EQ(user_error([] { parse(R"([{"b": 1}, {"b": 1}])"); }), "no error");
}

TEST(Json, HoldsItsLimits) {
  const std::string deep = std::string(70, '[') + std::string(70, ']');
  EXPECT_EQ(user_error([&] { parse(deep); }), "t.json: more than 64 levels of JSON");
  EXPECT_EQ(user_error([&] { parse(std::string(64, '[') + std::string(64, ']')); }), "no error");
  EXPECT_EQ(user_error([] { parse_json("[1,2]", "t.json", {.values = 2}); }),
            "t.json: more than 2 JSON values");
  EXPECT_EQ(user_error([] { parse_json("[1,2]", "t.json", {.bytes = 4}); }),
            "t.json: JSON text too large; got 5 bytes, at most 4");
}

}  // namespace
}  // namespace ridge
