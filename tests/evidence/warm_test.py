"""tools/warm_kernels over a stand-in for the program that compiles: what it takes for done."""

import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

# Compiles a kernel for each architecture and configuration, but for what it is told.
COMPILES = """#!/bin/sh
made=$XDG_CACHE_HOME/ridge/cuda-kernels-1
mkdir -p "$made"
echo times > "$XDG_CACHE_HOME/ridge/choices"
case "$FAKE_CUDA_MAJOR:$(basename "$1")" in
  $LAZY) exit 0 ;;
  $REFUSED) echo "error: it is not there" >&2; exit 2 ;;
esac
echo x > "$made/$FAKE_CUDA_MAJOR-$(basename "$1").cubin"
case "$(basename "$1")" in
  large.toml) echo "error: CUDA: cuMemAlloc failed (CUDA_ERROR_OUT_OF_MEMORY); see" >&2; exit 2 ;;
esac
"""


class Warm(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.build, self.kernels = (pathlib.Path(folder.name) / name for name in ("build", "kernels"))
        for name in ("fake_cuda/libcuda.so.1", "fake_cublaslt/libcublasLt.so.13"):
            path = self.build / "tests/backend/cuda" / name
            path.parent.mkdir(parents=True)
            path.touch()
        program = self.build / "bench/bench_training_step"
        program.parent.mkdir()
        program.write_text(COMPILES)
        program.chmod(0o755)

    def end_of(self, lazy="none", refused="none"):
        words = [ROOT / "tools/warm_kernels", self.build, self.kernels, "small.toml", "large.toml"]
        environment = {**os.environ, "RIDGE_NVRTC": "nvrtc", "LAZY": lazy, "REFUSED": refused}
        done = subprocess.run(words, env=environment, capture_output=True, text=True)
        return done.returncode, done.stderr

    def test_each_architecture_has_kernels_and_no_times(self):
        """A configuration that is too large for this machine has compiled by then."""
        self.assertEqual(self.end_of(), (0, ""))
        made = sorted(path.name for path in self.kernels.rglob("*") if path.is_file())
        self.assertEqual(made, [f"{major}-{size}.toml.cubin" for major in (10, 8, 9) for size in ("large", "small")])

    def test_a_configuration_that_fails_behind_others_is_named(self):
        code, says = self.end_of(refused="10:large.toml")
        self.assertEqual(code, 1)
        self.assertIn("large.toml was not compiled: it ended with 2: error: it is not there", says)
        self.assertFalse(self.kernels.exists())

    def test_an_architecture_without_kernels_is_named(self):
        code, says = self.end_of(lazy="9:*")
        self.assertEqual((code, says), (1, "warm_kernels: nothing was compiled for sm_90\n"))
        self.assertEqual(list(self.kernels.parent.iterdir()), [self.build])


if __name__ == "__main__":
    unittest.main()
