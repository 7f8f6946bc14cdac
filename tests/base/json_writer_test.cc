#include "ridge/base/json_writer.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <ostream>
#include <random>
#include <sstream>

#include "ridge/base/error.h"
#include "ridge/base/utf8.h"

namespace ridge {
namespace {

using Json = nlohmann::json;

template <typename... Values>
std::string array_of(const Values&... values) {
  std::string text;
  JsonWriter json(text);
  json.begin_array();
  (json.value(values), ...);
  json.end_array().finish();
  return text;
}

TEST(JsonWriter, SingleLineForm) {
  std::string text;
  JsonWriter json(text);
  json.begin_object().field("name", "a").field("none", nullptr).key("list").begin_array();
  json.value(1).value(true).begin_object().end_object().begin_array().end_array().end_array();
  json.field("share", 0.25).end_object().finish();
  EXPECT_EQ(text, R"({"name":"a","none":null,"list":[1,true,{},[]],"share":0.25})");
}

TEST(JsonWriter, IndentedForm) {
  std::string text;
  JsonWriter json(text, 2);
  json.begin_object().field("a", 1).key("b").begin_array().value(2).value(3).end_array();
  json.key("c").begin_object().end_object().end_object().finish();
  EXPECT_EQ(text, "{\n  \"a\": 1,\n  \"b\": [\n    2,\n    3\n  ],\n  \"c\": {}\n}");
}

TEST(JsonWriter, IntegersAreExact) {
  EXPECT_EQ(array_of(std::numeric_limits<int64_t>::min(),
                     std::numeric_limits<uint64_t>::max(),
                     int8_t{-5},
                     uint8_t{200},
                     (int64_t{1} << 53) + 1),
            "[-9223372036854775808,18446744073709551615,-5,200,9007199254740993]");
}

TEST(JsonWriter, SpecialFloats) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(array_of(kInfinity, -kInfinity, std::nan(""), std::nanf("")), "[null,null,null,null]");
  EXPECT_EQ(array_of(1.0, -0.0, 0.1f, 0.1), "[1.0,-0.0,0.1,0.1]");
}

TEST(JsonWriter, DoublesReadBackToTheSameBits) {
  std::mt19937_64 random(5);
  std::vector<double> values = {5e-324,
                                2.2250738585072014e-308,
                                1.7976931348623157e308,
                                1e22,
                                1e23,
                                9007199254740993.0,
                                -0.0,
                                123456789012345680.0,
                                1e-7};
  while (values.size() < 20'000) {
    const double x = std::bit_cast<double>(random());
    if (std::isfinite(x)) values.push_back(x);
  }
  std::string text;
  JsonWriter json(text);
  json.begin_array();
  for (double x : values) json.value(x);
  json.end_array().finish();
  const Json parsed = Json::parse(text);
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_TRUE(parsed[i].is_number_float()) << values[i];
    ASSERT_EQ(std::bit_cast<uint64_t>(parsed[i].get<double>()), std::bit_cast<uint64_t>(values[i]));
  }
}

TEST(JsonWriter, FloatsReadBackToTheSameBits) {
  std::mt19937 random(6);
  for (int i = 0; i < 5000; ++i) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (!std::isfinite(x)) continue;
    const std::string text = array_of(x);
    ASSERT_EQ(std::strtof(text.c_str() + 1, nullptr), x) << text;
    std::string digits = text.substr(0, text.find('e'));
    std::erase_if(digits, [](char c) { return c < '0' || c > '9'; });
    digits.erase(0, digits.find_first_not_of('0'));
    digits.erase(digits.find_last_not_of('0') + 1);
    ASSERT_LE(digits.size(), 9u) << text;  // 9 identify an f32; its f64 would take up to 17
  }
}

TEST(JsonWriter, StringsSurviveAnyContent) {
  std::string all;
  for (int c = 0; c < 0x80; ++c) all.push_back(static_cast<char>(c));
  all += "\u00e9\u20ac\U0001f600\u2028</script>";
  const std::string text = array_of(all);
  EXPECT_EQ(Json::parse(text)[0].get<std::string>(), all);
  EXPECT_EQ(text.find('\n'), std::string::npos);
  EXPECT_EQ(array_of("\"\\\n\t\x01/"), R"(["\"\\\n\t\u0001/"])");
}

TEST(JsonWriter, KeysAreEscapedToo) {
  std::string text;
  JsonWriter json(text);
  json.begin_object().field("a\"\xff", 1).end_object().finish();
  EXPECT_EQ(Json::parse(text), (Json{{"a\"\ufffd", 1}}));
}

TEST(Utf8, IllFormedBytesAreReplaced) {
  const std::pair<std::string, std::string> cases[] = {
      {"a\xffz", "a\ufffdz"},
      {"\x80", "\ufffd"},                                // stray continuation
      {"\xc0\xaf", "\ufffd\ufffd"},                      // overlong '/'
      {"\xe0\x80\xaf", "\ufffd\ufffd\ufffd"},            // overlong
      {"\xed\xa0\x80", "\ufffd\ufffd\ufffd"},            // surrogate
      {"\xf4\x90\x80\x80", "\ufffd\ufffd\ufffd\ufffd"},  // above U+10FFFF
      {"\xf5\x80\x80\x80", "\ufffd\ufffd\ufffd\ufffd"},
      {"\xe2\x82", "\ufffd\ufffd"},  // cut off
      {"\xe2\x82x", "\ufffd\ufffdx"},
      {"\xf4\x8f\xbf\xbf", "\U0010ffff"},
      {"\xed\x9f\xbf", "\ud7ff"},
      {"\xee\x80\x80", "\ue000"},
      {"\xc2\x80", "\u0080"}};
  for (const auto& [bytes, expected] : cases) {
    EXPECT_EQ(valid_utf8(bytes), expected);
    EXPECT_EQ(Json::parse(array_of(bytes))[0].get<std::string>(), expected);
  }
}

// nlohmann refuses text that is not UTF-8, so it is the judge of what we let through.
TEST(Utf8, RandomBytesAlwaysBecomeValid) {
  std::mt19937 random(7);
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes(random() % 12, '\0');
    for (char& c : bytes)  // mostly bytes that begin or continue characters
      c = static_cast<char>(random() % 4 ? 0x80 + random() % 0x80 : random() % 0x80);
    const std::string text = Json::parse(array_of(bytes))[0].get<std::string>();
    ASSERT_EQ(text, valid_utf8(bytes));
    bool was_valid = true;
    try {
      Json(bytes).dump();
    } catch (const Json::exception&) {
      was_valid = false;
    }
    ASSERT_EQ(text == bytes, was_valid);
  }
}

TEST(JsonWriter, Decimals) {
  const auto written = [](int64_t scaled, int digits) {
    std::string text;
    JsonWriter json(text);
    json.decimal(scaled, digits).finish();
    return text;
  };
  EXPECT_EQ(written(1234567, 3), "1234.567");
  EXPECT_EQ(written(5, 3), "0.005");
  EXPECT_EQ(written(-5, 3), "-0.005");
  EXPECT_EQ(written(-1000, 3), "-1.000");
  EXPECT_EQ(written(INT64_MIN, 3), "-9223372036854775.808");
}

TEST(JsonWriter, StreamsInPieces) {
  std::ostringstream out;
  JsonWriter json(out);
  json.begin_array();
  for (int i = 0; i < 30'000; ++i) json.begin_object().field("i", i).end_object();
  EXPECT_GT(out.str().size(), 200'000u);  // most is out before the end
  json.end_array().finish();
  const Json parsed = Json::parse(out.str());
  EXPECT_EQ(parsed.size(), 30'000u);
  EXPECT_EQ(parsed.back()["i"], 29'999);
}

TEST(JsonWriter, FailedStreamIsAUserError) {
  std::ostringstream out;
  JsonWriter json(out);
  json.begin_array().end_array();
  out.setstate(std::ios::badbit);
  EXPECT_THROW(json.finish(), UserError);
}

TEST(JsonWriter, MisuseIsAnInternalError) {
  using Use = std::function<void(JsonWriter&)>;
  const std::pair<const char*, Use> uses[] = {
      {"value without key", [](JsonWriter& j) { j.begin_object().value(1); }},
      {"container without key", [](JsonWriter& j) { j.begin_object().begin_array(); }},
      {"two keys", [](JsonWriter& j) { j.begin_object().key("a").key("b"); }},
      {"key without value", [](JsonWriter& j) { j.begin_object().key("a").end_object(); }},
      {"key in an array", [](JsonWriter& j) { j.begin_array().key("a"); }},
      {"key at the root", [](JsonWriter& j) { j.key("a"); }},
      {"wrong end", [](JsonWriter& j) { j.begin_array().end_object(); }},
      {"end of nothing", [](JsonWriter& j) { j.end_array(); }},
      {"two roots", [](JsonWriter& j) { j.value(1).value(2); }},
      {"unclosed", [](JsonWriter& j) { j.begin_array().finish(); }},
      {"nothing", [](JsonWriter& j) { j.finish(); }}};
  for (const auto& [name, use] : uses) {
    std::string text;
    JsonWriter json(text);
    EXPECT_THROW(use(json), InternalError) << name;
  }
}

}  // namespace
}  // namespace ridge
