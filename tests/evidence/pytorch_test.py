"""bench/optimize_pytorch.py, where nothing has PyTorch: the Python that runs it, and verbs that fail."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import stand_ins  # noqa: E402

SCRIPT = stand_ins.ROOT / "bench" / "optimize_pytorch.py"

# As a Python of that version would run it.
AS_OLD = """
import runpy, sys
sys.version_info = (3, 10)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


class OldPython(unittest.TestCase):
    def end_of(self, *words, **variables):
        done = subprocess.run(
            [sys.executable, "-c", AS_OLD, SCRIPT, *words], env={**os.environ, **variables},
            capture_output=True, text=True,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    def test_the_named_python_takes_over(self):
        with tempfile.TemporaryDirectory() as place:
            python = pathlib.Path(place) / "python"
            python.write_text('#!/bin/sh\necho "$@"\nexit 7\n')
            python.chmod(0o755)
            for words in (["--python", python], [f"--python={python}"]):
                code, out, err = self.end_of(*words, "char_gpt")
                self.assertEqual((code, err), (7, ""))
                self.assertEqual(out.split(), [str(SCRIPT), *map(str, words), "char_gpt"])

    def test_what_is_needed_is_said_in_one_line(self):
        for words, variables, says in (
            (["char_gpt"], {}, "this is Python 3.10, and 3.11 is needed; name another by --python"),
            # One that is too old itself is not asked for ever.
            (["--python", "python3"], {"RIDGE_PYTHON_WAS_NAMED": "1"}, "3.11 is needed"),
            (["--python", "/nowhere/python"], {}, "cannot start '/nowhere/python': No such file"),
        ):
            code, out, err = self.end_of(*words, **variables)
            self.assertEqual((code, out, err.count("\n")), (2, "", 1), err)
            self.assertIn(says, err)


@unittest.skipIf(sys.version_info < (3, 11), "it needs Python 3.11")
class Verbs(unittest.TestCase):
    """Runs of ridge that say nothing are told from each other, and none is without an end."""

    def setUp(self):
        import optimize_pytorch

        self.module = optimize_pytorch
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.bundle = stand_ins.Bundle(folder.name)
        self.programs = optimize_pytorch.Programs(pathlib.Path(folder.name), "python")
        self.programs.runs = stand_ins.Scripted(
            self.bundle, folder.name, pathlib.Path(folder.name) / "logs", float("inf"), {}, self.bundle.clock
        )

    def end_of(self, how):
        self.bundle.told = {"optimize": how}
        words = [self.bundle.root / "bin" / "ridge", "optimize", "--out", self.bundle.folder / how.replace(" ", "-")]
        return self.programs.run_json(words, 300)

    def test_each_end_is_told(self):
        found, problem = self.end_of("fine")
        self.assertEqual((found["claim"]["speedup"], problem), (3.5, ""))
        begun = self.bundle.clock()
        self.assertEqual(self.end_of("hang"), (None, "ridge optimize was stopped after 900 s"))
        self.assertLess(self.bundle.clock() - begun, 1000)
        self.assertEqual(self.end_of("crash"), (None, "ridge optimize ended with -9: all of it is lost"))
        self.assertEqual(self.end_of("garbage")[0], None)

    def test_torchvision_is_asked_of_programs_with_pictures_alone(self):
        python = self.bundle.folder / "blind"
        python.write_text('#!/bin/sh\necho \'{"torch": "2.15", "torchvision": null}\'\n')
        python.chmod(0o755)
        facts = self.module.facts_of(str(python), ["char_gpt", "tabular_mlp"])
        self.assertEqual(facts["torch"], "2.15")
        with self.assertRaises(SystemExit) as refusal, open(os.devnull, "w") as nothing:
            saved, sys.stderr = sys.stderr, nothing
            try:
                self.module.facts_of(str(python), ["char_gpt", "finetune"])
            finally:
                sys.stderr = saved
        self.assertEqual(refusal.exception.code, 2)


if __name__ == "__main__":
    unittest.main()
