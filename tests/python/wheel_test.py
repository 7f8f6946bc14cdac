"""The package brings libraries, licences and types along; the programs of docs/python.md run."""

import importlib.metadata
import os
import pathlib
import re
import subprocess
import sys
import unittest

import ridge
from case import IS_SHORT, ROOT, Case

MOST_BYTES = 30_000_000
PACKAGE = pathlib.Path(ridge.__file__).parent
MYPY = ROOT / "build" / "wheel-tools" / "bin" / "mypy"
PAGE = ROOT / "docs" / "python.md"


def programs_of_page():
    """Name and text of each."""
    programs = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return {f"program_{number}.py": program for number, program in enumerate(programs)}


class Wheel(Case):
    def test_is_for_any_python_of_this_system(self):
        tags = importlib.metadata.distribution("ridge-engine").read_text("WHEEL")
        self.assertIn("Tag: cp310-abi3-manylinux_2_36_x86_64", tags)

    def test_is_small(self):
        wheels = list((ROOT / "build" / "wheels").glob("ridge_engine-*.whl"))
        self.assertEqual(len(wheels), 1)
        self.assertLess(wheels[0].stat().st_size, MOST_BYTES)

    def test_has_the_licenses_of_what_it_brings(self):
        files = importlib.metadata.files("ridge-engine")
        licenses = {file.name: file.read_text() for file in files if "licenses" in file.parts}
        self.assertIn("Apache License", licenses["LICENSE"])
        libraries = [file.name for file in files if file.parts[0] == "ridge_engine.libs"]
        self.assertTrue(libraries)
        for library in libraries:
            # "libfmt-1f2e3d4c.so.9.1.0" is of the package libfmt9.
            stem = library.partition("-")[0].partition(".")[0]
            self.assertTrue([name for name in licenses if name.startswith(stem)], library)
        for name in ("nanobind", "nlohmann-json3-dev", "libtomlplusplus-dev"):
            self.assertIn("MIT" if name != "nanobind" else "Redistribution and use", licenses[name])

    def test_needs_nothing_else_of_the_system(self):
        allowed = re.compile(r"lib(c|m|dl|pthread|rt|gcc_s|stdc\+\+|z)\.so\.\d+|ld-linux-x86-64\.so\.2|linux-vdso\.so\.1")
        for file in ("ridge", "libridge.so"):
            done = subprocess.run(["ldd", PACKAGE / file], capture_output=True, text=True)
            for line in done.stdout.splitlines():
                name, _, path = line.strip().partition(" => ")
                self.assertNotIn("not found", path, line)
                if not allowed.fullmatch(name.split()[0].rpartition("/")[2]):
                    self.assertIn(str(PACKAGE.parent), os.path.realpath(path.split()[0]), line)


class Page(Case):
    def setUp(self):
        (self.folder / "model.onnx").write_bytes(pathlib.Path(self.perceptron()).read_bytes())

    def test_programs_run(self):
        programs = programs_of_page()
        self.assertEqual(len(programs), 3)
        for name, program in programs.items():
            done = self.python(program)
            self.assertEqual((done.returncode, done.stderr), (0, ""), name)
            for comment in re.findall(r"print\(.*\)  # (.+)", program):
                self.assertIn(comment, done.stdout)

    @unittest.skipIf(IS_SHORT, "mypy takes seconds")
    @unittest.skipUnless(MYPY.exists(), "no build/wheel-tools/bin/mypy: ./dev wheel installs it")
    def test_has_types(self):
        programs = programs_of_page()
        for name, program in programs.items():
            (self.folder / name).write_text(program)
        for what in (["-p", "ridge"], programs):
            words = [MYPY, "--strict", "--python-executable", sys.executable, "--cache-dir", self.folder / "types", *what]
            done = subprocess.run(words, capture_output=True, text=True, cwd=self.folder)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
