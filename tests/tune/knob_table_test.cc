// Each row of knobs.json, the one table of the knobs of a program in PyTorch, has all that a knob
// needs: values, a place in the order of trials, a class in the shim, a patch or the reason why
// there is none, and a row of docs/recipes_pytorch.md. That page's table is made from it:
// RIDGE_WRITE_DOCS=1 writes it anew. Runs in the root of the project.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "ridge/attach/shim.h"
#include "ridge/tune/pytorch/prescription.h"
#include "ridge/tune/pytorch/recipe_patch.h"
#include "ridge/tune/pytorch/technique.h"
#include "tests/support/temp_folder.h"

namespace ridge {
namespace {

using Json = nlohmann::ordered_json;
using Words = std::vector<std::string>;

const Json& table() {
  static const Json made = Json::parse(attach::shim_file("knobs.json"));
  return made;
}

std::string text_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

TEST(KnobTable, RowsHaveTheirFieldsAndNoOthers) {
  std::set<std::string> keys;
  for (const Json& row : table()["knobs"]) {
    const std::string key = row.at("key");
    SCOPED_TRACE(key);
    EXPECT_TRUE(keys.insert(key).second) << "it stands there twice";
    for (const auto& [field, value] : row.items()) EXPECT_TRUE(table()["about"].contains(field));
    const std::string type = row.at("type");
    for (const char* field : {"least", "most"}) EXPECT_EQ(row.contains(field), type == "number");
    EXPECT_EQ(row.contains("words"), type == "word");
    for (const char* field : {"excludes", "again_beside"})
      for (const Json& other : row.value(field, Json::array())) {
        EXPECT_NE(find_knob(other.get<std::string>()), nullptr) << other;
        EXPECT_NE(other, key);
      }
    if (row.contains("tried_with")) {
      EXPECT_NE(find_knob(row["tried_with"].get<std::string>()), nullptr);
    }
  }
  EXPECT_EQ(keys.size(), knobs().size());
  for (const auto& [field, text] : table()["about"].items()) EXPECT_NE(text, "") << field;
}

TEST(KnobTable, CuresOfFindingsAreTechniques) {
  std::set<std::string> rules;
  for (int number = 0; number < 40; ++number) {
    const std::string rule = fmt::format("R{:02}", number);
    for (const char* advice : {"", "write checkpoints", "let the loader run", "or pin threads"})
      for (std::string_view cure : cures_of(rule, advice)) {
        EXPECT_EQ(std::ranges::count(trial_order(), cure), 1) << rule << ": " << cure;
        rules.insert(rule);
      }
  }
  EXPECT_GE(rules.size(), 14u);
  EXPECT_EQ(cures_of("R29", "write checkpoints from a thread").front(), "save.background");
  EXPECT_TRUE(cures_of("R29", "log less often").empty());
  EXPECT_TRUE(cures_of("R00", "").empty());
}

// A technique that is neither a knob nor one that sets variables throws.
TEST(KnobTable, EachHasAPlaceInTheOrderOfTrials) {
  Words proposed;
  for (const ForeignProposal& proposal :
       foreign_proposals({}, {}, [](const std::string&) { return std::string(); }))
    proposed.push_back(proposal.technique);
  EXPECT_EQ(proposed, table()["trials"].get<Words>());
  for (const Knob& knob : knobs()) {
    const auto places = std::ranges::count(proposed, knob.key);
    EXPECT_EQ(places, knob.tried_with.empty() ? 1 : 0) << knob.key;
  }
}

// ---- Python ----

// Prints the names of the semantic classes, and for each class of a knob whether it makes offers
// and whether a hook of it can apply it.
constexpr const char* kWalk = R"(
import importlib, sys
sys.path.insert(0, sys.argv[1])
import ridge_knobs
class Shim:
    folder = sys.argv[1]
    load = staticmethod(importlib.import_module)
print(*ridge_knobs.CLASSES)
HOOKS = 'before_torch', 'hook_torch', 'hook_optimizer', 'hook_loader'
for file in ridge_knobs.knob_files(Shim):
    for knob in file.KNOBS:
        own = [name for name in HOOKS if getattr(knob, name) is not getattr(ridge_knobs.Knob, name)]
        offers = knob.offers.__func__ is not ridge_knobs.Knob.offers.__func__
        print(knob.key, 'offers' if offers else 'offers-none', 'applies' if own else 'no-hook')
)";

TEST(KnobTable, EachHasAClassInTheShim) {
  if (std::system("command -v python3 > /dev/null") != 0) GTEST_SKIP() << "no python3 on PATH";
  const attach::ShimFolder shim({});
  const test::TempFolder folder;
  std::ofstream(folder / "walk.py") << kWalk;
  const std::string command = fmt::format(
      "python3 -B '{0}/walk.py' '{1}' > '{0}/out' 2>&1", folder.path().string(), shim.path());
  ASSERT_EQ(std::system(command.c_str()), 0) << text_of(folder / "out");
  std::istringstream lines(text_of(folder / "out"));
  std::string line;
  std::getline(lines, line);
  std::string classes;
  for (int i = 0; i < 4; ++i)
    classes += (i == 0 ? "" : " ") + std::string(name_of(static_cast<SemanticClass>(i)));
  EXPECT_EQ(line, classes);
  std::multiset<std::string> found, expected;
  while (std::getline(lines, line)) found.insert(line);
  for (const Knob& knob : knobs()) expected.insert(knob.key + " offers applies");
  EXPECT_EQ(found, expected);
}

// ---- patches ----

// Every change can be made to this text.
constexpr const char* kProgram =
    "import torch\nfrom torch.utils.data import DataLoader\n\nmodel = Model()\n"
    "optimizer = torch.optim.AdamW(model.parameters())\nloader = DataLoader(data, num_workers=1)\n"
    "for x in loader:\n    model(x).backward()\n";

TEST(KnobTable, EachHasAPatchOrTheReasonWhyNone) {
  if (std::system("command -v python3 > /dev/null") != 0) GTEST_SKIP() << "no python3 on PATH";
  const test::TempFolder folder;
  std::ofstream(folder / "train.py") << kProgram;
  for (const Json& row : table()["knobs"]) {
    const std::string key = row["key"];
    SCOPED_TRACE(key);
    const Knob& knob = *find_knob(key);
    const std::map<KnobType, std::string> values = {
        {KnobType::kFlag, "true"}, {KnobType::kNumber, "2"}, {KnobType::kCpus, "0-1"}};
    const std::string value =
        knob.type == KnobType::kWord ? knob.words.back() : values.at(knob.type);
    ForeignRecipe recipe;
    recipe.set(key, value);
    const RecipePatch patch = make_recipe_patch(recipe,
                                                {.command = {"python3", "train.py"},
                                                 .root = folder.path().string(),
                                                 .supervisor = RIDGE_PROGRAM});
    const std::string notes = fmt::format("{}", fmt::join(patch.notes, "\n"));
    const bool is_patched = notes.find("not as a patch") == std::string::npos;
    EXPECT_EQ(is_patched, !row["patch"].contains("why_not")) << notes;
    EXPECT_EQ(patch.diff.empty(), !is_patched);
    if (is_patched) continue;
    std::string why = row["patch"]["why_not"];
    if (const size_t at = why.find("%s"); at != std::string::npos) why.replace(at, 2, value);
    EXPECT_EQ(notes, key + ": not as a patch: " + why);
  }
}

// ---- the page ----

constexpr const char* kPage = "docs/recipes_pytorch.md";
constexpr std::string_view kHead = "| key | what it does | class | refused |\n|---|---|---|---|\n";

std::string page_rows() {
  std::string rows;
  for (const Json& row : table()["knobs"]) {
    const Json& page = row.at("page");
    std::string semantic_class = fmt::format(
        "{}", static_cast<int>(find_knob(row["key"].get<std::string>())->semantic_class));
    if (page.contains("class")) semantic_class += "; " + page["class"].get<std::string>();
    rows += fmt::format("| `{}` | {} | {} | {} |\n",
                        row["key"].get<std::string>(),
                        page.at("text").get<std::string>(),
                        semantic_class,
                        page.at("refused").get<std::string>());
  }
  return rows;
}

TEST(KnobTable, PageHasItsRows) {
  const std::string text = text_of(kPage);
  const size_t head = text.find(kHead);
  ASSERT_NE(head, std::string::npos) << kPage << " has no table of keys";
  const size_t begin = head + kHead.size(), end = text.find("\n\n", begin) + 1;
  const std::string rows = page_rows();
  if (std::getenv("RIDGE_WRITE_DOCS") != nullptr)
    std::ofstream(kPage, std::ios::binary) << text.substr(0, begin) + rows + text.substr(end);
  EXPECT_EQ(text_of(kPage).substr(begin, rows.size() + 1), rows + "\n")
      << kPage << " is stale: RIDGE_WRITE_DOCS=1 build/release/tests/test_tune "
      << "--gtest_filter='KnobTable.*' writes it anew";
}

}  // namespace
}  // namespace ridge
