"""What is installed: files, symbols, and programs outside of the tree that use it.

The full form (RIDGE_TEST_SCALE=full) builds by clang too, and makes and unpacks the .deb.
"""

import math
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ["RIDGE_BUILD"])
HERE = BUILD / "tests" / "package"
IS_FULL = os.environ.get("RIDGE_TEST_SCALE") == "full"
MODEL = ROOT / "tests/fuzz/corpus/onnx_model/perceptron"

# All that ridge/ridge.h and ridge/api declare and do not define.
FUNCTIONS = {
    "ridge::version",
    "ridge::num_threads",
    "ridge::set_num_threads",
    "ridge::size_of",
    "ridge::name_of",
    "ridge::parse_dtype",
    "ridge::run_program",
    "ridge::Session::Session",
    "ridge::Session::~Session",
    "ridge::Session::operator=",
    "ridge::Session::inputs",
    "ridge::Session::outputs",
    "ridge::Session::bind",
    "ridge::Session::run",
    "ridge::aten_refusals",
    "ridge::draw_bernoulli",
    "ridge::AtenProgram::AtenProgram",
    "ridge::AtenProgram::~AtenProgram",
    "ridge::AtenProgram::operator=",
    "ridge::AtenProgram::orders",
    "ridge::AtenProgram::workspace_bytes",
    "ridge::AtenProgram::run",
    "ridge::AtenProgram::make_resident",
    "ridge::AtenProgram::use_team",
    "ridge::AtenProgram::is_stale",
    "ridge::AtenProgram::refresh",
    "ridge::AtenProgram::plan",
}


def run(*words, **options):
    """stdout of a program that finds no library but those of the system and of its own path."""
    environment = {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}
    done = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, env=environment, **options
    )
    assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def install(prefix):
    shutil.rmtree(prefix, ignore_errors=True)
    run("cmake", "--install", BUILD, "--prefix", prefix, "--strip")


def expected_scores():
    """softmax(gelu(x @ w.T + b)) of the corpus' perceptron, whose weights are 0, 1/8, 2/8, ..."""
    rows = []
    for x in ([1, 2, 3, 4], [0, 0, 0, 0]):
        sums = [sum(x[k] * (4 * j + k) / 8 for k in range(4)) + j / 8 for j in range(6)]
        gelus = [v * (1 + math.erf(v / math.sqrt(2))) / 2 for v in sums]
        powers = [math.exp(g - max(gelus)) for g in gelus]
        rows += [p / sum(powers) for p in powers]
    return rows


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.prefix = HERE / "prefix"
        install(cls.prefix)
        cls.kept = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.kept.cleanup)
        cls.model = pathlib.Path(cls.kept.name) / "model.onnx"
        shutil.copyfile(MODEL, cls.model)

    def check_example(self, program, model):
        lines = run(program, model).splitlines()
        self.assertEqual(lines[:2], ["in   x f32[N,4]", "out  y f32[N,6]"])
        for got, expected in zip(lines[2:], expected_scores(), strict=True):
            self.assertAlmostEqual(float(got), expected, places=5)
        done = subprocess.run([program, "none.onnx"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("none.onnx", done.stderr)

    def build_example(self, prefix, compiler):
        with tempfile.TemporaryDirectory() as folder:
            run("cmake", "-S", ROOT / "tests/package", "-B", folder, f"-DCMAKE_CXX_COMPILER={compiler}",
                f"-DCMAKE_PREFIX_PATH={prefix}", "-G", "Ninja")  # fmt: skip
            run("cmake", "--build", folder)
            self.check_example(pathlib.Path(folder) / "example", self.model)

    def test_a_project_outside_of_the_tree(self):
        self.build_example(self.prefix, "g++")

    def test_the_library_has_the_symbols_of_its_header_alone(self):
        listed = run("nm", "-DC", "--defined-only", self.prefix / "lib/libridge.so")
        names = set()
        for line in listed.splitlines():
            _, kind, name = line.split(maxsplit=2)
            self.assertEqual(kind, "T", line)
            names.add(re.sub(r"(\[abi:\w+\])?\(.*", "", name))
        self.assertEqual(names, FUNCTIONS)

    def test_what_is_installed(self):
        files = {str(path.relative_to(self.prefix)) for path in self.prefix.rglob("*") if not path.is_dir()}
        version = run(self.prefix / "bin/ridge", "--version").split()[1]
        minor = version.rpartition(".")[0]
        self.assertEqual(files, {
            "bin/ridge", "lib/libridge.so", f"lib/libridge.so.{minor}", f"lib/libridge.so.{version}",
            "lib/cmake/ridge/ridge-config.cmake", "lib/cmake/ridge/ridge-config-version.cmake",
            "lib/pkgconfig/ridge.pc", "include/ridge/ridge.h", "include/ridge/api/data_spec.h",
            "include/ridge/api/dtype.h", "include/ridge/api/error.h", "share/doc/ridge/copyright",
        })  # fmt: skip
        self.assertIn(f"SONAME               libridge.so.{minor}",
                      run("objdump", "-p", self.prefix / "lib/libridge.so"))  # fmt: skip
        # Headers include what is installed beside them, and the standard library.
        for header in (self.prefix / "include").rglob("*.h"):
            for name in re.findall(r"#include (.*)", header.read_text()):
                self.assertTrue(re.fullmatch(r"<\w+>", name) or
                                (self.prefix / "include" / name.strip('"')).exists(), name)  # fmt: skip

    def test_the_programs_of_the_page(self):
        page = (ROOT / "docs/cpp.md").read_text()
        programs = re.findall(r"```cpp\n(.*?)```", page, re.DOTALL)
        self.assertEqual(programs[0], (ROOT / "tests/package/main.cc").read_text())
        options = [f"-I{self.prefix}/include", f"-L{self.prefix}/lib", f"-Wl,-rpath,{self.prefix}/lib"]
        for text in programs[1:]:
            with tempfile.TemporaryDirectory() as folder:
                source = pathlib.Path(folder) / "program.cc"
                source.write_text(text)
                program = source.with_suffix("")
                run("g++", "-std=c++20", "-Wall", "-Wextra", "-Werror", source, *options, "-lridge", "-o", program)
                shutil.copyfile(self.model, program.with_name("model.onnx"))
                self.assertIn("right\n", run(program, cwd=folder))

    @unittest.skipUnless(IS_FULL, "in the full form")
    def test_by_clang(self):
        self.build_example(self.prefix, "clang++-19")

    @unittest.skipUnless(IS_FULL, "in the full form")
    def test_by_pkg_config_where_it_was_moved_to(self):
        with tempfile.TemporaryDirectory() as folder:
            prefix = pathlib.Path(folder) / "moved"
            shutil.copytree(self.prefix, prefix, symlinks=True)
            options = run("pkg-config", f"--with-path={prefix}/lib/pkgconfig", "--cflags", "--libs", "ridge")
            program = prefix / "example"
            run("g++", "-std=c++20", ROOT / "tests/package/main.cc", *options.split(), "-o", program,
                f"-Wl,-rpath,{prefix}/lib")  # fmt: skip
            self.check_example(program, self.model)

    @unittest.skipUnless(IS_FULL, "in the full form")
    def test_the_debian_package(self):
        with tempfile.TemporaryDirectory() as folder:
            run("cpack", "-G", "DEB", "--config", BUILD / "CPackConfig.cmake", "-B", folder)
            package = next(pathlib.Path(folder).glob("ridge_*.deb"))
            depends = run("dpkg-deb", "-f", package, "Depends")
            for library in ("libc6", "libfmt9", "libjpeg62-turbo", "libsqlite3-0", "libstdc++6"):
                self.assertIn(library, depends)
            root = pathlib.Path(folder) / "root"
            run("dpkg-deb", "-x", package, root)
            self.assertIn("Apache License", (root / "usr/share/doc/ridge/copyright").read_text())
            self.assertIn("ridge ", run(root / "usr/bin/ridge", "--version"))
            self.build_example(root / "usr", "g++")


if __name__ == "__main__":
    unittest.main()
