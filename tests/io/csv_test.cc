#include "ridge/io/csv.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "ridge/io/file.h"
#include "ridge/io/json.h"
#include "tests/support/case_builder.h"
#include "tests/support/errors.h"
#include "tests/support/scale.h"

namespace ridge {
namespace {

using test::user_error;
using Texts = std::vector<std::string>;
using Ids = std::vector<int32_t>;
using Numbers = std::vector<double>;

CsvTable parse(std::string_view text, const CsvOptions& options = {}) {
  return parse_csv(text, "t.csv", options);
}

std::string error_of(std::string_view text, const CsvOptions& options = {}) {
  return user_error([&] { parse(text, options); });
}

// tools/make_io_fixtures.py wrote the file, and what pandas read from it.
TEST(Csv, AgreesWithPandas) {
  const CsvTable table = read_csv("tests/data/io/mixed.csv");
  const JsonValue golden = parse_json(read_file("tests/data/io/mixed.csv.json"), "golden");
  const auto& columns = golden.as_array("golden");
  EXPECT_EQ(table.rows, 9);
  ASSERT_EQ(table.columns.size(), columns.size());
  for (size_t c = 0; c < columns.size(); ++c) {
    const CsvColumn& column = table.columns[c];
    EXPECT_EQ(column.name, columns[c].at("name", "c").as_string("c"));
    const JsonValue* numbers = columns[c].find("numbers");
    ASSERT_EQ(column.is_text, numbers == nullptr) << column.name << " " << column.why_text;
    if (numbers != nullptr) {
      ASSERT_EQ(column.numbers.size(), numbers->as_array("c").size());
      for (size_t r = 0; r < column.numbers.size(); ++r) {
        const double want = std::strtod(numbers->as_array("c")[r].as_string("c").c_str(), nullptr);
        EXPECT_TRUE(column.numbers[r] == want ||
                    (std::isnan(want) && std::isnan(column.numbers[r])))
            << column.name << " row " << r << ": " << column.numbers[r] << " " << want;
      }
      continue;
    }
    Texts categories;
    Ids ids;
    for (const JsonValue& value : columns[c].at("categories", "c").as_array("c"))
      categories.push_back(value.as_string("c"));
    for (const JsonValue& value : columns[c].at("ids", "c").as_array("c"))
      ids.push_back(static_cast<int32_t>(value.as_integer("c")));
    // Quotes keep a line end as it is, and pandas was given LF.
    for (std::string& name : categories)
      if (const size_t at = name.find('\n'); at != name.npos) name.insert(at, "\r");
    EXPECT_EQ(column.categories, categories) << column.name;
    EXPECT_EQ(column.ids, ids) << column.name;
  }
}

TEST(Csv, LineEndsAndEmptyLines) {
  for (const char* text : {"a,b\n1,2\n3,4\n",
                           "a,b\r\n1,2\r\n3,4",
                           "a,b\r1,2\r3,4\r",
                           "\xef\xbb\xbf\"a\",b\n\n1,2\n\r\n3,4\n\n"}) {
    const CsvTable table = parse(text);
    EXPECT_EQ(table.rows, 2);
    EXPECT_EQ(table.column("a").numbers, (Numbers{1, 3}));
    EXPECT_EQ(table.column("b").numbers, (Numbers{2, 4}));
  }
  EXPECT_EQ(parse("a,b\n").rows, 0);
}

TEST(Csv, WithoutHeaderAndOtherSeparators) {
  const CsvTable table = parse("1;x\n2;y", {.separator = ';', .header = false});
  EXPECT_EQ(table.column("column_1").numbers, (Numbers{1, 2}));
  EXPECT_EQ(table.column("column_2").categories, (Texts{"x", "y"}));
  EXPECT_EQ(parse(",b\n1,2").columns[0].name, "column_1");
  EXPECT_NE(error_of("1", {.separator = '"'}).find("separator"), std::string::npos);
}

TEST(Csv, QuotedFields) {
  const CsvTable table = parse("a,b\n\"x,\"\"y\"\"\n\",\"7\"\n\"\"\"\",8\n");
  EXPECT_EQ(table.column("a").categories, (Texts{"\"", "x,\"y\"\n"}));
  EXPECT_EQ(table.column("a").ids, (Ids{1, 0}));
  EXPECT_EQ(table.column("b").numbers, (Numbers{7, 8}));
}

TEST(Csv, TextSaysWhy) {
  const CsvTable table = parse("a,b\n1,2\n3,4 5\n6,7\n");
  EXPECT_EQ(table.column("b").why_text, "t.csv:3:3: '4 5' is not a number");
  EXPECT_EQ(table.column("b").categories, (Texts{"2", "4 5", "7"}));
  for (const char* text : {"+-1", "1e", "0x10", "--1", "1,", "1.2.3", ".", "e5", "+", "- 1"})
    EXPECT_TRUE(parse(std::string("a\n\"") + text + "\"\n").columns[0].is_text) << text;
  for (const char* text : {"+1", " 1\t", ".5", "5.", "1E+05", "-inf", "Infinity"})
    EXPECT_FALSE(parse(std::string("a\n") + text + "\n").columns[0].is_text) << text;
}

TEST(Csv, NumbersOutOfRangeSaturate) {
  const CsvTable table = parse(
      "a\n1e309\n-1e309\n1e-400\n-1e-400\n0.00001e320\n100000e-400\n1e99999999999999999999\n"
      "1e-99999999999999999999\n0e99999999999\n" +
      std::string(400, '9') + "\n0." + std::string(400, '0') + "1\n");
  const Numbers want = {
      INFINITY, -INFINITY, 0.0, -0.0, INFINITY, 0.0, INFINITY, 0.0, 0.0, INFINITY, 0.0};
  EXPECT_EQ(table.columns[0].numbers, want);
}

TEST(Csv, ErrorsCarryThePlace) {
  EXPECT_EQ(error_of(""), "t.csv: no rows");
  EXPECT_EQ(error_of("a,b\n1,2\n3\n"), "t.csv:3:1: expected 2 fields, got 1");
  EXPECT_EQ(error_of("a,b\n\"1\n\n2\",2\n3,4,5\n"), "t.csv:5:5: expected 2 fields, got 3");
  EXPECT_EQ(error_of("a,b\n1,\"2\n3,4\n"), "t.csv:2:3: this quote is never closed");
  EXPECT_EQ(error_of("a,b\n1,\"2\"x\n"),
            "t.csv:2:6: expected a separator or line end after the closing quote");
  EXPECT_EQ(error_of("a,b\n1,2\"\n"),
            "t.csv:2:4: a quote within a field; quote the whole field and double it");
  EXPECT_EQ(error_of("a,b,a\n"), "t.csv:1:5: two columns are called 'a'");
  EXPECT_EQ(error_of(std::string(70000, ',')), "t.csv: more than 65536 columns");
  EXPECT_NE(user_error([] { parse("price\n1\n").column("prise"); }).find("did you mean 'price'"),
            std::string::npos);
}

/// `field` as RFC 4180 writes it, in quotes where it must and sometimes where it may.
std::string written(const std::string& field, test::Random& random) {
  if (field.find_first_of(",\"\r\n") == field.npos && random.chance(0.7)) return field;
  std::string text = "\"";
  for (char c : field) text += c == '"' ? std::string("\"\"") : std::string(1, c);
  return text + '"';
}

TEST(Csv, RandomTablesComeBack) {
  constexpr std::string_view kLetters = "ab,\"\r\n ;\xc3\xa9";
  for (int seed = 0; seed < test::cases(200); ++seed) {
    test::Random random(static_cast<uint64_t>(seed));
    const int64_t columns = random.integer(1, 4), rows = random.integer(1, 20);
    std::vector<Texts> cells(static_cast<size_t>(columns));
    std::string text;
    for (int64_t c = 0; c < columns; ++c) text += fmt::format("{}c{}", c ? "," : "", c);
    for (int64_t r = 0; r < rows; ++r) {
      text += random.chance(0.5) ? "\n" : "\r\n";
      for (int64_t c = 0; c < columns; ++c) {
        std::string field = "x";
        for (int64_t n = random.integer(0, 5); n > 0; --n)
          field += kLetters[static_cast<size_t>(random.integer(0, kLetters.size() - 1))];
        text += (c ? "," : "") + written(field, random);
        cells[static_cast<size_t>(c)].push_back(field);
      }
    }
    const CsvTable table = parse(text);
    ASSERT_EQ(table.rows, rows);
    for (size_t c = 0; c < cells.size(); ++c) {
      const CsvColumn& column = table.columns[c];
      for (size_t r = 0; r < cells[c].size(); ++r)
        EXPECT_EQ(column.categories[static_cast<size_t>(column.ids[r])], cells[c][r]);
      EXPECT_TRUE(std::is_sorted(column.categories.begin(), column.categories.end()));
    }
  }
}

}  // namespace
}  // namespace ridge
