// docs/config.md is made from the table of keys. RIDGE_WRITE_DOCS=1 writes it anew. Runs in the
// root of the project.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "ridge/config/text.h"

namespace ridge {
namespace {

constexpr const char* kPath = "docs/config.md";

TEST(ConfigDocs, PageIsThatOfTheTable) {
  if (std::getenv("RIDGE_WRITE_DOCS") != nullptr) std::ofstream(kPath) << config_markdown();
  std::stringstream text;
  text << std::ifstream(kPath).rdbuf();
  EXPECT_EQ(text.str(), config_markdown())
      << kPath << " is stale: RIDGE_WRITE_DOCS=1 build/release/tests/test_train writes it anew";
}

// The example at the top of the page is one that works.
TEST(ConfigDocs, ExampleLoads) {
  const std::string page = config_markdown();
  const size_t begin = page.find("```toml\n") + 8;
  const std::string example = page.substr(begin, page.find("```\n", begin) - begin);
  Settings settings;
  const TrainConfig config = load_config(example, "example", {}, settings).config;
  EXPECT_EQ(config.train.epochs, 10);
}

}  // namespace
}  // namespace ridge
