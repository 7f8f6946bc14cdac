// `ridge recipe show|diff|patch`: that a patch applies, changes what it says and nothing else, and
// leaves a program that runs.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/ridge_process.h"
#include "tests/support/peers_python.h"
#include "tests/support/temp_folder.h"

namespace ridge {
namespace {

using nlohmann::json;
using test::Ended;
using test::TempFolder;
using test::text_of;

using Words = std::vector<std::string>;

constexpr const char* kProven =
    "[recipe]\nschema = 'ridge.recipe.pytorch/1'\nclaim = 'twice as fast'\n"
    "command = 'python prog.py'\nmachine = 'cpu; here'\nversion = '1.2.3'\n";

class RecipeVerb : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  Ended ridge(Words words) {
    words.insert(words.begin(), "recipe");
    return test::ridge(folder_.path(), words);
  }
  /// `patch -p1` without any leeway; what it says where it fails.
  std::string apply(const std::string& diff, const std::string& options = "-s") {
    write(".diff", diff);
    const std::string command = "cd '" + folder_.path().string() +
                                "' && patch -p1 --fuzz=0 --binary " + options +
                                " <.diff >.said 2>&1";
    return std::system(command.c_str()) == 0 ? "" : "failed: " + text_of(folder_ / ".said");
  }
  Ended patch(const std::string& recipe, const Words& more = {}) {
    write("r.toml", recipe);
    Words words = {"patch", "r.toml"};
    words.insert(words.end(), more.begin(), more.end());
    return ridge(words);
  }

  TempFolder folder_;
};

TEST_F(RecipeVerb, ShowTellsEachChangeAndWhatWasProven) {
  write("r.toml",
        std::string(kProven) +
            "[pytorch]\nmodel.autocast = 'bf16'\nloader.workers = 2\n"
            "[environment]\nA = 'b c'\n[sites]\nloader.workers = 'prog.py:3'\n");
  const Ended shown = ridge({"show", "r.toml", "--trust"});
  EXPECT_EQ(shown.code, 0) << shown.err;
  EXPECT_EQ(
      shown.out,
      "proven: twice as fast\n  of: python prog.py\n  on: cpu; here\n  by: ridge 1.2.3\n"
      "loader.workers = 2\n  processes that prepare batches beside the training (same bits)\n"
      "  at prog.py:3\n"
      "model.autocast = bf16\n  the model computes in 16 bits where that is safe; weights and "
      "outputs stay f32 (another precision)\n"
      "A = b c\n  in the program's environment\n");
  const json object = json::parse(ridge({"show", "r.toml", "--json", "--trust"}).out);
  EXPECT_EQ(object.at("schema"), "ridge.recipe.show/1");
  EXPECT_EQ(object.at("proven").at("command"), "python prog.py");
  EXPECT_EQ(object.at("changes").size(), 2u);
  EXPECT_EQ(object.at("changes")[0].at("site"), "prog.py:3");
  EXPECT_EQ(object.at("changes")[1].at("class"), 2);
  EXPECT_EQ(object.at("environment").at("A"), "b c");
  write("r.toml", "");
  EXPECT_EQ(ridge({"show", "r.toml"}).out,
            "nothing is said of what was proven\nit changes nothing: the program runs as it is\n");
}

TEST_F(RecipeVerb, DiffTellsWhatOneHasAndTheOtherHasNot) {
  write("a.toml", "[pytorch]\nthreads = 1\noptimizer.fused = true\n[environment]\nA = '1'\n");
  write("b.toml", "[pytorch]\nthreads = 2\noptimizer.fused = true\n[environment]\nB = '1'\n");
  const Ended differ = ridge({"diff", "a.toml", "b.toml", "--trust"});
  EXPECT_EQ(differ.code, 1);
  EXPECT_EQ(differ.out, "- threads = 1\n- A = 1\n+ threads = 2\n+ B = 1\n");
  const Ended same = ridge({"diff", "a.toml", "a.toml", "--trust"});
  EXPECT_EQ(same.code, 0);
  EXPECT_EQ(same.out, "both change the same\n");
}

TEST_F(RecipeVerb, BadInputGetsOneError) {
  write("r.toml", "[pytorch]\nthreads = 0\n");
  const auto says = [&](const Words& words, const std::string& message) {
    const Ended ended = ridge(words);
    EXPECT_EQ(ended.code, 2);
    EXPECT_EQ(ended.err.rfind("error: " + message, 0), 0u) << ended.err;
    EXPECT_EQ(ended.out, "");
  };
  for (const char* verb : {"show", "patch"})
    says({verb, "r.toml"}, "r.toml:2:11: threads: got 0, expected an integer from 1 to 4096\n");
  write("r.toml", "");
  says({"diff", "r.toml", "none.toml"}, "cannot open 'none.toml'");
  says({"patch", "r.toml", "--root", "none"}, "'none' is no folder\n");
  says({"show", "r.toml", "--", "python"}, "a command is for 'ridge recipe patch' alone");
  says({"patch", "r.toml", "--", "python-of-nobody", "a.py"}, "cannot start 'python-of-nobody'");
  write("python-like", "#!/bin/sh\necho first >&2\necho what it said >&2\nexit 1\n");
  std::filesystem::permissions(folder_ / "python-like", std::filesystem::perms::owner_all);
  says({"patch", "r.toml", "--", "./python-like"},
       "'./python-like' cannot read the program: what it said; put the program's command");
}

// A text before and after a recipe. If `to` is null nothing may be changed, and `note` says why.
struct Case {
  const char *name, *recipe, *from, *to, *note;
};

const std::string kLoad = "from torch.utils.data import DataLoader\n";
constexpr const char* kWorkers = "loader.workers = 2\n";

constexpr Case kCases[] = {
    {"argument", kWorkers, "DataLoader(d)\n", "DataLoader(d, num_workers=2)\n", nullptr},
    {"trailing comma",
     kWorkers,
     "x = DataLoader(\n    d,  # it\n    batch_size=4,\n)\n",
     "x = DataLoader(\n    d,  # it\n    batch_size=4, num_workers=2,\n)\n",
     nullptr},
    {"comment behind the last",
     kWorkers,
     "x = DataLoader(\n    d  # all of (it\n)\n",
     "x = DataLoader(\n    d, num_workers=2  # all of (it\n)\n",
     nullptr},
    {"parentheses", kWorkers, "DataLoader((d))\n", "DataLoader((d), num_workers=2)\n", nullptr},
    {"literal that stands there",
     kWorkers,
     "DataLoader(d, num_workers=0, shuffle=True)\n",
     "DataLoader(d, num_workers=2, shuffle=True)\n",
     nullptr},
    {"place instead of name",
     kWorkers,
     "DataLoader(d, 4, True, None, None, 1)\n",
     "DataLoader(d, 4, True, None, None, 2)\n",
     nullptr},
    {"characters of several bytes",
     kWorkers,
     "ä = 'üß'; DataLoader('ö', 4)\n",
     "ä = 'üß'; DataLoader('ö', 4, num_workers=2)\n",
     nullptr},
    {"lines that end in CR LF",
     "loader.workers = 2\nthreads = 1\n",
     "import torch\r\nDataLoader(d)\r\n",
     "import torch\r\n\r\ntorch.set_num_threads(1)\r\nDataLoader(d, num_workers=2)\r\n",
     nullptr},
    {"no newline at the end", kWorkers, "DataLoader(d)", "DataLoader(d, num_workers=2)", nullptr},
    {"a value of the program's own",
     kWorkers,
     "DataLoader(d, num_workers=options.workers)\n",
     nullptr,
     "loader.workers: not as a patch: num_workers is 'options.workers' at prog.py:2: give that the "
     "value"},
    {"arguments from elsewhere",
     kWorkers,
     "DataLoader(d, **options)\n",
     nullptr,
     "loader.workers: not as a patch: not all arguments stand at prog.py:2"},
    {"a generator alone", kWorkers, "DataLoader(x for x in y)\n", nullptr, "too unusual"},
    {"two loaders",
     kWorkers,
     "DataLoader(d)\nDataLoader(e)\n",
     nullptr,
     "loader.workers: not as a patch: 2 calls of DataLoader could be meant"},
    {"two loaders, a site",
     "loader.workers = 2\n[sites]\nloader.workers = 'prog.py:3'\n",
     "DataLoader(d)\nDataLoader(e)\n",
     "DataLoader(d)\nDataLoader(e, num_workers=2)\n",
     nullptr},
    {"two loaders, a training",
     kWorkers,
     "a = DataLoader(d)\nb = DataLoader(e)\nfor i, x in enumerate(b):\n    f(x).backward()\n",
     "a = DataLoader(d)\nb = DataLoader(e, num_workers=2)\nfor i, x in enumerate(b):\n"
     "    f(x).backward()\n",
     nullptr},
    {"no call at the site",
     "loader.workers = 2\n[sites]\nloader.workers = 'prog.py:9'\n",
     "DataLoader(d)\n",
     nullptr,
     "loader.workers: not as a patch: no call of DataLoader stands at prog.py:9"},
    {"a site outside",
     "loader.workers = 2\n[sites]\nloader.workers = '../prog.py:1'\n",
     "DataLoader(d)\n",
     nullptr,
     "'../prog.py' does not lie below"},
    {"prefetch without workers",
     "loader.prefetch = 4\n",
     "DataLoader(d, num_workers=0)\n",
     nullptr,
     "loader.prefetch: not as a patch: the loader has no workers"},
    {"prefetch with workers",
     "loader.workers = 2\nloader.prefetch = 4\nloader.persistent = true\n",
     "DataLoader(d)\n",
     "DataLoader(d, num_workers=2, prefetch_factor=4, persistent_workers=True)\n",
     nullptr},
    {"an optimizer of another name",
     "optimizer.fused = true\n",
     "from torch.optim import AdamW as Best\no = Best(p, lr=1)\n",
     "from torch.optim import AdamW as Best\no = Best(p, lr=1, fused=True)\n",
     nullptr},
    {"settings behind the imports",
     "threads = 1\nmatmul.tf32 = true\ncudnn.benchmark = true\n",
     "import os\nos.environ['A'] = '1'\nimport torch as t\nimport sys\n\nx = 1\n",
     "import os\nos.environ['A'] = '1'\nimport torch as t\nimport sys\n\nt.set_num_threads(1)\n"
     "t.set_float32_matmul_precision(\"high\")\nt.backends.cudnn.benchmark = True\n\nx = 1\n",
     nullptr},
    {"settings without torch's name",
     "threads = 1\n",
     "from torch import nn\nx = 1\n",
     "from torch import nn\n\nimport torch\ntorch.set_num_threads(1)\nx = 1\n",
     nullptr},
    {"threads that are set",
     "threads = 1\n",
     "import torch\ntorch.set_num_threads(4)\n",
     "import torch\ntorch.set_num_threads(1)\n",
     nullptr},
    {"a precision that is set",
     "matmul.tf32 = true\n",
     "import torch\ntorch.set_float32_matmul_precision('medium')\n",
     nullptr,
     "matmul.tf32: not as a patch: the program sets it itself at prog.py:3"},
    {"a model",
     "model.channels_last = true\nmodel.compile = 'default'\n",
     "import torch\ndef f():\n  m = N(\n    1)  # it\n  o = g(m.parameters())\n  m(x)\n",
     "import torch\ndef f():\n"
     "  # Images that lie in memory alike, .to(memory_format=torch.channels_last), gain more.\n"
     "  m = N(\n    1).to(memory_format=torch.channels_last)  # it\n"
     "  m.compile(options={\"fallback_random\": True})\n  o = g(m.parameters())\n  m(x)\n",
     nullptr},
    {"a model for the engine",
     "model.compile = 'ridge'\n",
     "import torch\nm = N()\nm(x)\nm.eval()\n",
     "import torch\n\nimport ridge.torch\nm = N()\n"
     "m.compile(backend=\"ridge\", options={\"same_random\": True})\nm(x)\nm.eval()\n",
     nullptr},
    {"two models",
     "model.compile = 'default'\n",
     "m = N()\nn = N()\nm.eval()\nn.eval()\nm(n(x))\n",
     nullptr,
     "model.compile: not as a patch: in 'prog.py' the model seems to be 'm' and 'n'"},
    {"a model that something else stands beside",
     "model.compile = 'default'\n",
     "m = N(); m.eval()\nm(x)\n",
     nullptr,
     "model.compile: not as a patch: line 2 of 'prog.py' holds more"},
    {"what no line stands for",
     "cpus = '0-1'\nloader.cache = true\n",
     "x = 1\n",
     nullptr,
     "cpus: not as a patch: it is set where the program is started: taskset -c 0-1 COMMAND"},
    {"no Python", kWorkers, "DataLoader(\n", nullptr, "'prog.py' is no Python in UTF-8"},
    {"no UTF-8", kWorkers, "DataLoader('\xff')\n", nullptr, "'prog.py' is no Python in UTF-8"},
    {"sums in a loop",
     "",
     "import torch  # on cuda\nm = N()\no = m.parameters()\nt, c = 0.0, 0\nfor x in b:\n"
     "  y = m(x)\n  l = f(y)\n  l.backward()\n  t += l.item() * len(x)\n"
     "  c += (y > 0).sum().item()\nprint(t, c)\n",
     "import torch  # on cuda\nm = N()\no = m.parameters()\nt, c = 0.0, 0\nfor x in b:\n"
     "  y = m(x)\n  l = f(y)\n  l.backward()\n  t += l.detach().double() * len(x)\n"
     "  c += (y > 0).sum().detach()\nt = torch.as_tensor(t).item()\nc = torch.as_tensor(c).item()\n"
     "print(t, c)\n",
     "prog.py:10: '.item()' makes each step wait for the GPU; the patch reads it once"},
    {"a sum that is used in the loop",
     "",
     "# cuda\nt = 0.0\nfor x in b:\n  l = f(x)\n  l.backward()\n  t += l.item()\n  print(t)\n",
     nullptr,
     "prog.py:7: '.item()' makes each step wait for the GPU; not as a patch: 't' is used within"},
    {"a value that may be no tensor",
     "",
     "# cuda\nt = 0.0\nfor x in b:\n  f(x).backward()\n  t += g(x).item()\n",
     nullptr,
     "not as a patch: whether it is a tensor is not known"},
    {"a list of losses",
     "",
     "# cuda\nfor x in b:\n  l = f(x)\n  l.backward()\n  a.append(l.item())\n",
     nullptr,
     "not as a patch: it is no sum"},
};

TEST_F(RecipeVerb, APatchMakesOfEachTextWhatIsWanted) {
  for (const Case& one : kCases) {
    SCOPED_TRACE(one.name);
    const std::string from = kLoad + one.from;
    write("prog.py", from);
    const Ended made =
        patch(std::string(kProven) + "[pytorch]\n" + one.recipe, {"--", "python3", "prog.py"});
    ASSERT_EQ(made.code, 0) << made.err;
    EXPECT_EQ(made.err, "");
    EXPECT_EQ(text_of(folder_ / "prog.py"), from);  // it edits nothing itself
    if (one.note != nullptr) {
      EXPECT_NE(made.out.find(one.note), std::string::npos) << made.out;
    }
    if (one.to == nullptr) {
      EXPECT_EQ(made.out.rfind("# no line of the program is to be changed\n", 0), 0u) << made.out;
      EXPECT_EQ(made.out.find("\n+"), std::string::npos) << made.out;
      continue;
    }
    EXPECT_EQ(apply(made.out), "") << made.out;
    EXPECT_EQ(text_of(folder_ / "prog.py"), kLoad + one.to);
    EXPECT_EQ(apply(made.out, "-s -R"), "");
    EXPECT_EQ(text_of(folder_ / "prog.py"), from);
  }
}

TEST_F(RecipeVerb, TheProgramIsTheOneThatWasProven) {
  std::filesystem::create_directories(folder_ / "a folder/pack");
  write("a folder/pack/__main__.py", "import torch\n");
  write("r.toml",
        "[recipe]\ncommand = \"python -m pack '{out} x'\"\n[pytorch]\nthreads = 1\n"
        "[environment]\nLD_PRELOAD = '/a b.so'\n");
  const Ended made = ridge({"patch", "r.toml", "--root", "a folder", "--trust"});
  EXPECT_EQ(made.code, 0) << made.err;
  EXPECT_NE(made.out.find("--- a/pack/__main__.py\n"), std::string::npos) << made.out;
  EXPECT_NE(made.out.find("# LD_PRELOAD: not as a patch: it is set where the program is started: "
                          "LD_PRELOAD='/a b.so' COMMAND\n"),
            std::string::npos)
      << made.out;
  const Ended unknown = patch("[pytorch]\nthreads = 1\n");
  EXPECT_NE(unknown.out.find("which file is the program is not known"), std::string::npos)
      << unknown.out;
  // An interpreter that a recipe names is not run.
  write("r.toml", "[recipe]\ncommand = './python-evil prog.py'\n[pytorch]\nthreads = 1\n");
  write("python-evil", "#!/bin/sh\ntouch ran\n");
  std::filesystem::permissions(folder_ / "python-evil", std::filesystem::perms::owner_all);
  EXPECT_EQ(ridge({"patch", "r.toml"}).code, 0);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "ran"));
}

struct Example {
  const char *name, *options;
  int least;  ///< Lines that are added, all in all.
};

constexpr Example kExamples[] = {
    {"char_gpt.py", "--steps 2 --batch 2 --time 16 --text text", 5},
    {"tabular_mlp.py", "--rows 1000 --epochs 1", 7},
    {"recommender.py", "--rows 1000 --epochs 1", 7},
    {"unet_segmentation.py", "--pictures 16 --size 32 --epochs 1", 7},
    {"fashion_cnn.py", nullptr, 7},
    {"finetune.py", nullptr, 10},
    {"image_classifier.py", nullptr, 10},
    {"predict_folder.py", nullptr, 4},
};

TEST_F(RecipeVerb, PatchesOfTheExamplesApplyAndRun) {
  const std::string python = test::peers_python();
  write("text", std::string(3000, 'a') + std::string(1000, 'b'));
  for (const Example& example : kExamples) {
    SCOPED_TRACE(example.name);
    const std::string before = text_of(std::filesystem::path("examples/pytorch") / example.name);
    ASSERT_FALSE(before.empty());
    write(example.name, before);
    const Ended made = patch(
        "[pytorch]\nloader.workers = 1\nloader.persistent = true\nthreads = 1\n"
        "model.channels_last = true\noptimizer.fused = true\n",
        {"--", "python3", example.name});
    ASSERT_EQ(made.code, 0) << made.err;
    EXPECT_EQ(apply(made.out), "") << made.out;
    const std::string after = text_of(folder_ / example.name);
    for (const char* added : {".to(memory_format=torch.channels_last)", "torch.set_num_threads(1)"})
      EXPECT_NE(after.find(added), std::string::npos) << added;
    EXPECT_GE(std::count(made.out.begin(), made.out.end(), '+'), example.least) << made.out;
    if (python.empty() || example.options == nullptr) continue;
    const std::string command = "cd '" + folder_.path().string() + "' && OMP_NUM_THREADS=1 '" +
                                python + "' " + example.name + " " + example.options +
                                " --out /dev/null >.said 2>&1";
    EXPECT_EQ(std::system(command.c_str()), 0) << text_of(folder_ / ".said");
  }
  if (python.empty()) GTEST_SKIP() << test::kNoPeers;
}

}  // namespace
}  // namespace ridge
