"""The tasks of gpu-evidence with Ridge's own programs, on the CPU in place of a GPU: that each is
asked for what it knows, and that its answers are understood."""

import os
import pathlib
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ["RIDGE_BUILD"])
IS_FULL = os.environ.get("RIDGE_TEST_SCALE") == "full"

sys.path.insert(0, str(ROOT / "bench"))
import gpu_loop  # noqa: E402
import gpu_parts  # noqa: E402
import gpu_runs  # noqa: E402
import gpu_smoke  # noqa: E402
import gpu_tasks  # noqa: E402

# Of the same kind as bench/gpu/gpt_naive.toml, and so small that a step takes milliseconds.
SMALL = """
[model]
kind = "gpt"
context = 32
layers = 1
heads = 2
width = 32
[data]
kind = "text"
path = "ridge"
extensions = [".h", ".cc"]
context = 32
eval_fraction = 0.05
[loader]
workers = 0
[optimizer]
kind = "adamw"
lr = 3e-4
[train]
batch = 8
epochs = 100
"""

# Of the same kind as bench/gpu/gpt2_124m.toml, and as bench/configs/gpt_small.toml but for the precision.
RANDOM = """
[model]
kind = "gpt"
vocab = 64
context = 32
layers = 1
heads = 2
width = 32
[data]
kind = "random"
tokens = true
shape = [32]
classes = 64
samples = 64
eval_fraction = 0.0
[train]
batch = 8
precision = "bf16"
steps = 4
"""


class Tasks(unittest.TestCase):
    def setUp(self):
        kept = tempfile.TemporaryDirectory()
        self.addCleanup(kept.cleanup)
        self.root, self.work = (pathlib.Path(kept.name) / name for name in ("root", "work"))
        self.work.mkdir()
        (self.root / "bin").mkdir(parents=True)
        for program in (BUILD / "bundle_programs.txt").read_text().split():
            (self.root / "bin" / pathlib.Path(program).name).symlink_to(program)
        for place in ("ridge", "examples", "tools"):
            (self.root / place).symlink_to(ROOT / place)
        (self.root / "bench" / "gpu").mkdir(parents=True)
        (self.root / "bench" / "configs").mkdir()
        for config in (ROOT / "bench" / "configs").glob("*.toml"):
            (self.root / "bench" / "configs" / config.name).symlink_to(config)
        if not IS_FULL:
            small = self.root / "bench" / "configs" / "gpt_small.toml"
            small.unlink()
            small.write_text(RANDOM.replace("bf16", "f32"))
        (self.root / "bench" / "gpu" / "gpt_naive.toml").write_text(SMALL)
        (self.root / "data").mkdir()
        (self.root / "data" / "fashion-mnist").symlink_to("/usr/share/datasets/fashion-mnist")
        environment = {**os.environ, "XDG_CACHE_HOME": str(self.work / "cache")}
        deadline = time.monotonic() + 600
        runs = gpu_runs.Runs(self.work, self.work / "logs", deadline, environment)
        self.context = gpu_tasks.Context(self.root, runs, "python3", "", "cpu")
        self.addCleanup(self.restore, (gpu_loop.OPTIMIZE_BUDGET, gpu_loop.REPLAY_BUDGET))
        gpu_loop.OPTIMIZE_BUDGET, gpu_loop.REPLAY_BUDGET = (15, 20) if IS_FULL else (6, 20)

    @staticmethod
    def restore(before):
        gpu_loop.OPTIMIZE_BUDGET, gpu_loop.REPLAY_BUDGET = before

    def end_of(self, name):
        task = next(task for part in gpu_parts.TASKS.values() for n, task, _ in part if n == name)
        self.context.begin(name, 600)
        try:
            end = task(self.context)
        except gpu_tasks.Outcome as early:
            end = early
        self.context.done[name] = {"state": end.state, "values": end.values}
        return end

    def test_losses(self):
        names = [name for name, _, _ in gpu_parts.TASKS["right"] if name.startswith("losses.")]
        # Convolutions and text take seconds of the CPU's time each.
        for name in names if IS_FULL else ["losses.mlp_table"]:
            if "fashion" in name and not (self.root / "data/fashion-mnist").exists():
                continue
            end = self.end_of(name)
            self.assertEqual(end.state, "passed", f"{name}: {end.says}")
            # The CPU against itself, and f64 is something else.
            self.assertIn("; 0.00e+00 from the CPU", end.says)
            losses = end.values["losses"]
            self.assertNotEqual(losses["cpu"], losses["cpu_f64"])
            self.assertAlmostEqual(losses["cpu"][0], losses["cpu_f64"][0], places=2)

    def test_smoke(self):
        """No launches are captured on the CPU: the other half runs, and each plan is told."""
        end = self.end_of("smoke")
        self.assertEqual(end.state, "failed")
        runs = end.values["runs"]
        self.assertEqual(len(runs), 8)
        for name, run in runs.items():
            self.assertEqual("state_hash" in run, name.endswith(".off"), run)
        self.assertIn("train.capture", runs["f32.own.on"]["says"])
        self.assertEqual(end.values["facts"]["device"], "cpu")
        self.assertEqual(sorted(end.values["picks"]), ["bf16.libraries", "bf16.own"])
        self.assertTrue(all(len(pick) == 3 for pick in end.values["picks"]["bf16.own"]))
        self.assertGreater(len(list((self.work / "logs/smoke").glob("*.out"))), 12)

    def test_the_picks_of_smoke_are_those_that_run(self):
        """A run behind them would keep what it picks itself."""
        self.context.begin("smoke", 600)
        smoke = gpu_smoke.Smoke(self.context)
        smoke.inspect("picks", "bf16", gpu_smoke.OWN)
        self.assertEqual((list(smoke.picks), smoke.wrong), (["picks"], []))
        kept = self.choices()
        self.assertEqual(smoke.train("bf16", "off", gpu_smoke.OWN).code, 0)
        self.assertEqual(self.choices(), kept)

    def choices(self):
        return {path.name: path.read_bytes() for path in (self.work / "cache/ridge").glob("choices*")}

    def test_memory_and_idle(self):
        (self.root / "bench" / "gpu" / "gpt2_124m.toml").write_text(RANDOM)
        end = self.end_of("memory")
        self.assertEqual(end.state, "passed", end.says)
        end = self.end_of("idle")
        self.assertEqual(end.state, "missing")
        self.assertIn("no kernels of the GPU", end.says)

    def test_replay(self):
        end = self.end_of("replay")
        self.assertIn(end.state, ("passed", "missing"), end.says)
        if end.state == "missing":
            self.assertIn("train.capture", end.says)

    def test_registry(self):
        end = self.end_of("registry")
        self.assertEqual(end.state, "passed", end.says)
        self.assertGreater(len(end.values["ops"]), 50)

    def test_kernels(self):
        config = self.root / "bench" / "gpu" / "gpt2_124m.toml"
        config.write_text(RANDOM)
        end = self.end_of("kernels")
        if end.state == "missing":  # a CPU without products of bf16 has one kernel for each node
            self.assertIn("has two kernels", end.says)
            return
        self.assertEqual(end.state, "passed", end.says)
        for kind in end.values["kinds"]:
            self.assertIn(kind["pick"], kind["kernels"])
            self.assertGreater(kind["launches"], 0)
            for each in kind["kernels"].values():
                self.assertGreater(each["seconds"], 0)
                self.assertAlmostEqual(each["tflops_per_s"] * each["seconds"] * 1e12, kind["flops"], delta=1)

    def test_loop(self):
        """Whether a tiny model gains on a machine that others use is no matter here."""
        end = self.end_of("optimize")
        self.assertIn(end.state, ("passed", "failed"), end.says)
        self.assertIn("claim", end.values, end.says)
        self.assertTrue(end.values["trials"])
        again = self.end_of("ledger_replay")
        self.assertIn(again.state, ("passed", "failed", "missing"), again.says)
        self.assertTrue("speedup" in again.values or "nothing was gained" in again.says, again.says)


if __name__ == "__main__":
    unittest.main()
