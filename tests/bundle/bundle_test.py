"""The bundle, where nothing else is: a root of its own with the system's C and C++ runtime alone."""

import hashlib
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

sys.dont_write_bytecode = True

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ["RIDGE_BUILD"])
MAKE = ROOT / "tools" / "make_bundle"

sys.path.insert(0, str(ROOT / "bench"))
import gpu_parts  # noqa: E402

# What a machine has that runs C++ programs at all.
RUNTIME = ("libc.so.6", "libm.so.6", "libgcc_s.so.1", "libstdc++.so.6")
LOADER = "/lib64/ld-linux-x86-64.so.2"

MLP = """
[model]
kind = "mlp"
hidden = [8]
outputs = 3
[data]
kind = "random"
shape = [4]
samples = 64
classes = 3
[train]
batch = 16
steps = 4
"""


# A root of its own, without a network, but with the processes that programs look themselves up in.
ENTER = 'mount --rbind /proc "$0/proc" && exec chroot "$0" "$@"'


def in_root(root):
    return ["unshare", "--map-root-user", "--net", "--mount", "sh", "-c", ENTER, root]


def can_have_a_root():
    try:
        return subprocess.run([*in_root("/"), "true"], capture_output=True).returncode == 0
    except OSError:
        return False


def contents(folder):
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


class Bundle(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.kept = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.kept.cleanup)
        cls.folder = pathlib.Path(cls.kept.name) / "bundle"
        kernels = pathlib.Path(cls.kept.name) / "kernels"
        (kernels / "ridge/cuda-kernels-1").mkdir(parents=True)
        (kernels / "ridge/cuda-kernels-1/0.cubin").write_bytes(b"compiled beforehand")
        done = subprocess.run([MAKE, BUILD, cls.folder, kernels], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        cls.before = contents(cls.folder)

    def tearDown(self):
        self.assertEqual(contents(self.folder), self.before, "something wrote into the bundle")

    def test_the_manifest_and_the_archive_hold_all_of_it(self):
        manifest = json.loads((self.folder / "MANIFEST.json").read_text())
        self.assertEqual(manifest["files"].keys() | {"MANIFEST.json"}, self.before.keys())
        self.assertLess(manifest["bytes"], 50e6)
        self.assertRegex(manifest["revision"], r"^[0-9a-f]{40}(-dirty)?$")
        self.assertIn("cache/ridge/cuda-kernels-1/0.cubin", manifest["files"])
        for name in ("gpu-evidence", "gpu-evidence-pytorch"):
            self.assertTrue(os.access(self.folder / name, os.X_OK), name)
        # Each part has its command in the table, and what the engine cannot do without is named.
        readme = (self.folder / "README").read_text()
        for part in gpu_parts.TASKS:
            self.assertIn(f"| ./gpu-evidence --part {part}", readme)
        self.assertRegex(readme, r"(?s)Required besides:.*NVRTC.*cuBLASLt")
        with tempfile.TemporaryDirectory() as place:
            archive = self.folder.with_name("bundle.tar.gz")
            subprocess.run(["tar", "-xzf", archive, "-C", place], check=True)
            self.assertEqual(contents(pathlib.Path(place) / "ridge-bundle"), self.before)

    def test_what_is_wrong_with_a_bundle_is_said(self):
        def change(path):
            path.write_bytes(path.read_bytes() + b"x")

        def other_library_path(path):
            data = path.read_bytes()
            self.assertIn(b"$ORIGIN/../lib", data)
            path.write_bytes(data.replace(b"$ORIGIN/../lib", b"$ORIGIN/../LIB"))

        broken = [
            ("lib/libfmt.so.9", pathlib.Path.unlink, "lib/libridge_internal.so needs libfmt.so.9, which is not in lib/"),
            ("bin/ridge", change, "bin/ridge is not what was put there"),
            ("bin/ridge", lambda path: path.chmod(0o644), "bin/ridge may not be run"),
            ("bin/ridge", other_library_path, "bin/ridge has the library path"),
            ("README", pathlib.Path.unlink, "README is missing"),
            ("more", lambda path: path.write_text("x"), "more is not in the manifest"),
            ("big", lambda path: path.write_bytes(bytes(50_000_000)), "MB, and 50 are allowed"),
        ]
        for name, breaks, says in broken:
            with tempfile.TemporaryDirectory() as place:
                copy = pathlib.Path(place) / "bundle"
                shutil.copytree(self.folder, copy)
                breaks(copy / name)
                done = subprocess.run([MAKE, "--check", copy], capture_output=True, text=True)
                self.assertEqual(done.returncode, 1, name)
                self.assertIn(says, done.stderr)
        done = subprocess.run([MAKE, "--check", self.folder], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_what_the_oldest_system_lacks_is_named(self):
        loader = importlib.machinery.SourceFileLoader("make_bundle", str(MAKE))
        make_bundle = importlib.util.module_from_spec(importlib.util.spec_from_loader("make_bundle", loader))
        loader.exec_module(make_bundle)
        self.assertEqual(make_bundle.problems(self.folder), [])
        make_bundle.NEWEST["GLIBC"] = (2, 31)
        found = make_bundle.problems(self.folder)
        self.assertIn("bin/ridge needs GLIBC_2.34, newer than Ubuntu 22.04 has it", found)

    def test_programs_that_are_not_built_are_named(self):
        with tempfile.TemporaryDirectory() as place:
            build = pathlib.Path(place)
            (build / "bundle_programs.txt").write_text(f"{build}/ridge\n")
            done = subprocess.run([MAKE, build, build / "out"], capture_output=True, text=True)
            self.assertEqual(done.returncode, 1)
            self.assertIn("ridge is missing; ninja -C", done.stderr)
            self.assertFalse((build / "out").exists())

    @unittest.skipUnless(can_have_a_root(), "this system gives no user a root of its own")
    def test_it_runs_where_nothing_else_is(self):
        with tempfile.TemporaryDirectory() as place:
            root = pathlib.Path(place)
            self.make_root(root)
            done = self.inside(root, "/bundle/bin/ridge", "train", "/tmp/mlp.toml", "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(json.loads(done.stdout)["steps"], 4)
            # What is missing is the driver.
            done = self.inside(root, "/bundle/bin/ridge", "train", "/tmp/mlp.toml", "--device", "cuda")
            self.assertEqual(done.returncode, 2)
            self.assertIn("no NVIDIA driver was found: cannot open 'libcuda.so.1'", done.stderr)
            for program in (
                ("bench_training_step", "/tmp/mlp.toml", "1", "/tmp", "train.device=cuda"),
                ("bench_row_ops", "cuda", "norm", "f32", "64", "64"),
            ):
                done = self.inside(root, f"/bundle/bin/{program[0]}", *program[1:])
                self.assertEqual(done.returncode, 2)
                self.assertIn("no NVIDIA driver was found", done.stderr)
            self.check_programs(root)

    def make_root(self, root):
        shutil.copytree(self.folder, root / "bundle")
        for place in ("lib", "lib64", "tmp", "proc", "dev"):
            (root / place).mkdir()
        listed = subprocess.run(["ldd", BUILD / "ridge"], capture_output=True, text=True, check=True)
        for line in listed.stdout.splitlines():
            name, _, rest = line.strip().partition(" => ")
            if name in RUNTIME:
                shutil.copy(rest.partition(" (")[0], root / "lib" / name)
        shutil.copy(LOADER, root / LOADER.lstrip("/"))
        self.assertEqual(sorted(path.name for path in (root / "lib").iterdir()), sorted(RUNTIME))
        (root / "tmp" / "mlp.toml").write_text(MLP)

    def inside(self, root, *words, says="", **environment):
        """Runs a program with this root, no network, and no environment but what is given."""
        variables = {"PATH": os.environ["PATH"], "HOME": "/tmp", **environment}
        return subprocess.run(
            [*in_root(root), *words], env=variables, input=says, capture_output=True, text=True
        )

    def check_programs(self, root):
        """The other programs do their work on the CPU."""
        words = ("/bundle/bin/test_ops", "--gtest_filter=AllOps/RegistryWalk.*/add:*/matmul")
        done = self.inside(root, *words)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("[  PASSED  ] 2 tests", done.stdout)
        done = self.inside(root, *words, RIDGE_TEST_DEVICE="cuda")
        self.assertEqual(done.returncode, 1)
        self.assertIn("no NVIDIA driver was found", done.stdout)
        done = self.inside(root, "/bundle/bin/make_jpeg_folder", "/tmp/pictures", "2")
        self.assertEqual(done.returncode, 0, done.stderr)
        words = ("/bundle/bin/bench_training_step", "/tmp/mlp.toml", "1", "/tmp")
        done = self.inside(root, *words, says="3\n")
        self.assertEqual(done.returncode, 0, done.stderr)
        about, last = map(json.loads, done.stdout.splitlines())
        self.assertGreater(about["planned"], 0)
        self.assertGreater(last["seconds"], 0)
        for chain in ("norm", "softmax", "cross_entropy"):
            words = ("/bundle/bin/bench_row_ops", "cpu", chain, "bf16", "64", "256")
            done = self.inside(root, *words, says="1\n2\n")
            self.assertEqual(done.returncode, 0, done.stderr)
            about, *runs = map(json.loads, done.stdout.splitlines())
            self.assertEqual(about["bytes"], (2 if chain == "cross_entropy" else 5) * 64 * 256 * 2)
            self.assertEqual(len(runs), 2)

    def test_the_command_without_a_gpu(self):
        with tempfile.TemporaryDirectory() as place:
            done = subprocess.run(
                [self.folder / "gpu-evidence", "--part", "right"],
                cwd=place,
                env={"PATH": os.environ["PATH"], "RIDGE_CUDA_DRIVER": "/nowhere/libcuda.so.1"},
                capture_output=True,
                text=True,
            )
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertIn("no NVIDIA driver was found", done.stderr)
            self.assertEqual(os.listdir(place), [])

    def evidence(self, place, *options, **environment):
        """(exit code, document, {name: text} of the archive) of the command on the stand-in driver,
        where no library of CUDA is but what the environment names."""
        out = pathlib.Path(place) / "out"
        done = subprocess.run(
            [self.folder / "gpu-evidence", "--out", out, *options],
            cwd=place,
            env={
                "PATH": os.environ["PATH"],
                "HOME": place,
                "RIDGE_CUDA_DRIVER": os.environ["RIDGE_FAKE_CUDA"],
                "RIDGE_NVRTC": "/nowhere/libnvrtc.so.13",
                "RIDGE_CUBLASLT": "/nowhere/libcublasLt.so.13",
                "RIDGE_CUDNN": "none",
                "RIDGE_CUPTI": "/nowhere/libcupti.so.13",
                **environment,
            },
            capture_output=True,
            text=True,
        )
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        with tarfile.open(out / "logs.tar.gz") as tar:
            logs = {each.name: tar.extractfile(each).read().decode("utf-8", "replace") for each in tar}
        document = json.loads((out / "nvidia-fake-9000.json").read_text())
        # "HOST" would stand for a name; the folder of the results is nowhere in them.
        self.assertNotIn(place, json.dumps(document))
        return document, logs

    def test_a_missing_library_is_told_and_logged(self):
        """Without NVIDIA's compiler the engine can compute nothing, and has to say so."""
        with tempfile.TemporaryDirectory() as place:
            document, logs = self.evidence(place, "--part", "smoke")
            tasks = {task["name"]: task for task in document["parts"]["smoke"]["tasks"]}
            self.assertEqual(tasks["smoke"]["state"], "failed")
            self.assertIn("0 of 8 ways ran three steps", tasks["smoke"]["says"])
            self.assertIn("cannot open the compiler", tasks["smoke"]["says"])
            self.assertIn("libnvrtc.so.13", "".join(logs[name] for name in logs if name.endswith(".err")))

    @unittest.skipUnless(os.environ.get("RIDGE_TEST_SCALE") == "full", "minutes of simulated kernels: ./dev full")
    def test_a_failing_kernel_is_told_and_logged(self):
        """With a stand-in for the compiler the engine computes, until the driver fails."""
        nvrtc = next((BUILD / "tests").rglob("libfake_nvrtc.so"))
        with tempfile.TemporaryDirectory() as place:
            document, logs = self.evidence(
                place, "--part", "smoke", "--limit", "3600", RIDGE_NVRTC=str(nvrtc),
                RIDGE_CUBLASLT="none", FAKE_CUDA_FAIL="cuLaunchKernel@30=719",
                HOME=os.environ.get("HOME", place),
            )  # fmt: skip
            smoke = document["parts"]["smoke"]["tasks"][0]
            self.assertEqual(smoke["state"], "failed")
            self.assertIn("CUDA_ERROR_LAUNCH_FAILED", json.dumps(smoke["values"]["runs"]))
            self.assertIn("CUDA_ERROR_LAUNCH_FAILED", "".join(logs.values()))

    @unittest.skipUnless(os.environ.get("RIDGE_TEST_SCALE") == "full", "minutes of a CPU's work: ./dev full")
    def test_all_parts_end_with_a_state_and_a_reason(self):
        with tempfile.TemporaryDirectory() as place:
            document, _ = self.evidence(place, "--limit", "120")
            self.assertEqual(list(document["parts"]), list(gpu_parts.TASKS))
            manifest = json.loads((self.folder / "MANIFEST.json").read_text())
            for part in document["parts"].values():
                self.assertEqual(part["revision"], manifest["revision"])
                for task in part["tasks"]:
                    self.assertIn(task["state"], ("failed", "missing"), task)

    def test_programs_in_pytorch_need_pytorch(self):
        with tempfile.TemporaryDirectory() as place:
            words = [self.folder / "gpu-evidence-pytorch", "--python", "/usr/bin/false", "--out", place]
            done = subprocess.run(words, cwd=place, capture_output=True, text=True)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("name a Python that has PyTorch by --python", done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertEqual(os.listdir(place), [])


if __name__ == "__main__":
    unittest.main()
