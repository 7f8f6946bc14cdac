// `ridge run --recipe FILE -- CMD` as a user gives it: the program is as it is, but for the recipe.
#include <gtest/gtest.h>

#include "ridge/base/machine/machine.h"
#include "tests/cli/ridge_process.h"
#include "tests/support/peers_python.h"
#include "tests/support/temp_folder.h"

namespace ridge {
namespace {

using test::Ended;
using test::TempFolder;

using Words = std::vector<std::string>;

class RunRecipe : public ::testing::Test {
 protected:
  RunRecipe() {
    std::filesystem::create_directory(folder_ / "user");
    std::filesystem::create_directory(folder_ / "tmp");
  }

  void write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
  }
  // The recipe lies beside the program's working folder.
  Ended run(const std::string& recipe, const Words& command, const Words& options = {}) {
    write("r.toml", recipe);
    Words words = {"run", "--recipe", "../r.toml"};
    words.insert(words.end(), options.begin(), options.end());
    words.emplace_back("--");
    words.insert(words.end(), command.begin(), command.end());
    test::RidgeProcess process(
        folder_ / "user", words, "export TMPDIR='" + (folder_ / "tmp").string() + "';");
    return process.wait();
  }
  // Nothing of ours is left, and nothing but what the harness writes was made.
  void expect_nothing_left() {
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / "user")) {
      const std::string name = entry.path().filename();
      EXPECT_TRUE(name == ".out" || name == ".err") << name;
    }
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / "tmp"))
      EXPECT_TRUE(entry.path().filename().string().starts_with("torch")) << entry.path();
  }

  TempFolder folder_;
};

TEST_F(RunRecipe, StreamsEnvironmentAndExitCodeAreTheProgramsOwn) {
  write("in", "given\n");
  const Ended ended =
      run("[environment]\nA = 'set here'\n",
          {"sh", "-c", "exec <../in; read line; echo \"$line $A\"; echo told >&2; exit 7"},
          {"--trust"});
  EXPECT_EQ(ended.code, 7);
  EXPECT_EQ(ended.out, "given set here\n");
  EXPECT_EQ(ended.err, "told\nridge: A = set here: set\n");
  expect_nothing_left();
}

TEST_F(RunRecipe, AnEmptyRecipeRunsTheProgramAsItIs) {
  for (const char* text : {"", "[recipe]\nschema = 'ridge.recipe.pytorch/1'\n[pytorch]\n"}) {
    const Ended ended =
        run(text, {"sh", "-c", "env | grep -c -e RIDGE_SHIM -e PYTHONPATH=.*ridge"});
    EXPECT_EQ(ended.code, 1);
    EXPECT_EQ(ended.out, "0\n");
    EXPECT_EQ(ended.err, "");
  }
  expect_nothing_left();
}

TEST_F(RunRecipe, ItSaysWhyNothingWasApplied) {
  const std::string recipe = "[pytorch]\nthreads = 1\n";
  const std::string nothing = "ridge: nothing within the program was changed: ";
  EXPECT_EQ(run(recipe, {"true"}).err.rfind(nothing + "no Python that it ran looks for", 0), 0u);
  EXPECT_EQ(run(recipe, {"python3", "-c", "print(1)"}).err,
            nothing + "no process of it imported torch\n");
  EXPECT_EQ(run(recipe, {"python3", "-c", "print(1)"}, {"--quiet"}).err, "");
  expect_nothing_left();
}

TEST_F(RunRecipe, ItSaysWhatTheProofDoesNotCover) {
  const auto recipe = [](const std::string& machine) {
    return "[recipe]\nschema = 'ridge.recipe.pytorch/1'\ncommand = 'sh -c {out}'\nmachine = '" +
           machine + "'\n";
  };
  const std::string here = machine_fingerprint("cpu");
  EXPECT_EQ(run(recipe(here), {"sh", "-c", "exit 0"}).err, "");
  // Which device the program takes is not known before it runs.
  EXPECT_EQ(run(recipe("cuda" + here.substr(here.find(';'))), {"sh", "-c", "exit 0"}).err, "");
  EXPECT_EQ(run(recipe("cpu; an abacus"), {"sh", "-c", "exit 0"}).err,
            "ridge: note: ../r.toml: proven on another machine: cpu; an abacus\n");
  EXPECT_EQ(run(recipe(here), {"true"}).err,
            "ridge: note: ../r.toml: proven for another command: sh -c {out}\n");
  EXPECT_EQ(run(recipe("cpu; an abacus"), {"true"}, {"--quiet"}).err, "");
}

TEST_F(RunRecipe, ASignalThatEndsTheProgramIsItsExitCode) {
  const Ended ended = run("", {"sh", "-c", "kill -TERM $$"});
  EXPECT_EQ(ended.code, 128 + SIGTERM);
  EXPECT_EQ(ended.err.rfind("ridge: the program was ended by signal 15 (Terminated) after ", 0), 0u)
      << ended.err;
}

TEST_F(RunRecipe, BadInputGetsOneError) {
  const auto says = [&](const Ended& ended, int code, const std::string& message) {
    EXPECT_EQ(ended.code, code) << message;
    EXPECT_EQ(ended.err, "error: " + message + "\n");
    EXPECT_EQ(ended.out, "");
  };
  says(run("[pytorch]\nthread = 1\n", {"true"}),
       2,
       "../r.toml:2:1: unknown key 'thread'; did you mean 'threads'?");
  says(run("[train]\nmicro = 2\n", {"true"}),
       2,
       "../r.toml:2:1: this recipe is for a configuration of ridge; apply it with 'ridge train "
       "CONFIG --recipe FILE'");
  says(run("[environment]\nLD_PRELOAD = 'evil.so'\n", {"true"}),
       2,
       "../r.toml:2:1: LD_PRELOAD is not set from a recipe as it stands, for a variable can make "
       "the program run any code; got 'evil.so', expected libjemalloc.so.2, "
       "libtcmalloc_minimal.so.4 or libmimalloc.so.2 in /usr/lib/x86_64-linux-gnu, /usr/lib64, "
       "/usr/lib or /usr/local/lib; if you trust who wrote the recipe, give --trust");
  says(run("[environment]\nLD_PRELOAD = 'libm.so.6:/no/such.so'\n", {"true"}, {"--trust"}),
       2,
       "../r.toml: there is no '/no/such.so', which LD_PRELOAD names; install it here, or take it "
       "out of the recipe");
  says(run("", {"no-such-program"}),
       127,
       "cannot start 'no-such-program': No such file or directory; put its folder into PATH, or "
       "give its path");
  says(run("", {}),
       2,
       "no command stands behind '--'; for example: ridge run --recipe ../r.toml -- python "
       "train.py");
  says(test::ridge(folder_ / "user", {"run", "--recipe", "../r.toml"}),
       2,
       "no command was given; put it behind '--': ridge run --recipe FILE -- python train.py");
  says(test::ridge(folder_ / "user", {"run", "--recipe", "none.toml", "--", "true"}),
       2,
       "cannot open 'none.toml': No such file or directory");
  says(test::ridge(folder_ / "user", {"run", "--", "true"}),
       2,
       "--recipe is required; 'ridge run --help' lists what may be given");
}

constexpr const char* kTraining =
    "import sys, torch\n"
    "from torch.utils.data import DataLoader, TensorDataset\n"
    "torch.manual_seed(0)\n"
    "loader = DataLoader(TensorDataset(torch.randn(64, 8)), batch_size=4)\n"
    "model = torch.nn.Linear(8, 8)\n"
    "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    "for x, in loader:\n"
    "    optimizer.zero_grad()\n"
    "    model(x).square().mean().backward()\n"
    "    optimizer.step()\n"
    "print(torch.get_num_threads(), loader.num_workers, model.weight.sum().item())\n"
    "sys.exit(3)\n";

TEST_F(RunRecipe, AProgramInPyTorchIsChangedAndOnlyWithThePrefix) {
  const std::string python = test::peers_python();
  if (python.empty()) GTEST_SKIP() << test::kNoPeers;
  write("train.py", kTraining);
  const Ended plain = run("", {"env", "OMP_NUM_THREADS=2", python, "../train.py"});
  const Ended changed =
      run("[pytorch]\nthreads = 1\ncudnn.benchmark = true\n", {python, "../train.py"});
  EXPECT_EQ(plain.code, 3);
  EXPECT_EQ(changed.code, 3) << changed.err;
  EXPECT_EQ(plain.err, "");
  EXPECT_EQ(plain.out.substr(0, 4), "2 0 ");
  EXPECT_EQ(changed.out, "1" + plain.out.substr(1));
  EXPECT_EQ(changed.err,
            "ridge: threads = 1: applied: operators run on 1 threads\n"
            "ridge: cudnn.benchmark = true: refused: the program does not use CUDA\n");
  expect_nothing_left();
}

}  // namespace
}  // namespace ridge
