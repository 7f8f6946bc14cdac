"""Parts of gpu-evidence on a clock that stands still: limits, what replaces what, what is left behind."""

import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import stand_ins  # noqa: E402

import gpu_evidence  # noqa: E402  (its place is known by stand_ins)
import gpu_logs  # noqa: E402
import gpu_parts  # noqa: E402
import gpu_record  # noqa: E402
import gpu_runs  # noqa: E402

COMMAND = 600  # seconds that a command may take where GPUs are lent


class Parts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.bundle = stand_ins.Bundle(folder.name)

    def test_limits_fit_a_command(self):
        self.assertEqual(list(gpu_parts.TASKS), list(gpu_record.PARTS))
        for name, tasks in gpu_parts.TASKS.items():
            self.assertLessEqual(sum(seconds for _, _, seconds in tasks), gpu_parts.LIMIT, name)
            self.assertEqual(tasks[0], gpu_parts.FIRST)
        self.assertLess(gpu_parts.LIMIT + 2 * gpu_runs.GRACE, COMMAND)

    def test_no_task_takes_the_time_of_the_others(self):
        """Each program hangs: every task is ended at its limit, and all within the part's."""
        told = {each: "hang" for each in ("facts", "train", "inspect", "doctor", "optimize", "ledger", "test_ops",
                                          "steps", "peer", "sanitizer", "training_step", "row_ops")}  # fmt: skip
        for part in gpu_record.PARTS:
            begun = self.bundle.clock()
            self.assertEqual(self.bundle.run("--part", part, told=told), 1)
            self.assertLess(self.bundle.clock() - begun, COMMAND - 60, part)
            document = self.bundle.document()
            self.assertEqual(gpu_record.problems(document), [])
            for (name, _, limit), task in zip(gpu_parts.TASKS[part], document["parts"][part]["tasks"], strict=True):
                self.assertEqual(task["name"], name)
                self.assertNotEqual(task["state"], "passed")
                self.assertLessEqual(task["seconds"], limit + 2 * gpu_runs.GRACE, name)
            smoke = self.bundle.tasks(part)["smoke"]
            self.assertIn("0 of 8 ways", smoke["says"])
            self.assertIn("it began", self.bundle.logs()[f"{part}/smoke/03-ridge.out"])

    def test_a_kernel_that_hangs_is_told_and_leaves_the_others_their_time(self):
        self.assertEqual(self.bundle.run("--part", "smoke", told={"train:gpt_tiny:bf16:own": "hang"}), 1)
        smoke = self.bundle.tasks("smoke")["smoke"]
        self.assertEqual(smoke["state"], "failed")
        self.assertIn("bf16.own.off: stopped after 12 s", smoke["says"])
        self.assertEqual(smoke["values"]["runs"]["bf16.own.off"]["tail"], ["it began"])
        for name in ("memcheck", "registry"):
            self.assertIn(name, self.bundle.tasks("smoke"))
        self.assertEqual(self.bundle.tasks("smoke")["registry"]["state"], "passed")

    def test_the_deadline_holds_and_says_what_was_left_out(self):
        told = {"train:fashion_mnist:cuda": "hang"}
        self.assertEqual(self.bundle.run("--part", "right", "--limit", "76", told=told), 1)
        part = self.bundle.document()["parts"]["right"]
        self.assertEqual(part["state"], "cut short")
        tasks = self.bundle.tasks("right")
        self.assertEqual(list(tasks), [task[0] for task in gpu_parts.TASKS["right"]])
        self.assertEqual(tasks["losses.mlp_table"]["state"], "passed")
        self.assertIn("out of time", tasks["losses.fashion_mnist"]["says"])
        self.assertEqual(tasks["losses.fashion_mnist"]["values"]["tail"], ["it began"])
        self.assertIn("left out: 7 s were left", tasks["losses.jpeg_folder"]["says"])

    def test_a_part_replaces_itself_alone(self):
        self.assertEqual(self.bundle.run("--part", "loop"), 0)
        loop = self.bundle.document()["parts"]["loop"]
        kept = {name: text for name, text in self.bundle.logs().items() if name.startswith("loop/")}
        self.assertIn("loop/optimize/01-ridge.out", kept)
        self.assertEqual(gpu_record.missing_parts([self.bundle.document()]), ["smoke", "fast", "right"])
        for told, state in (({"test_ops": "wrong"}, "failed"), ({}, "passed")):
            self.bundle.run("--part", "smoke", told=told)
            document = self.bundle.document()
            self.assertEqual(list(document["parts"]), ["smoke", "loop"])
            self.assertEqual(document["parts"]["loop"], loop)
            self.assertEqual(self.bundle.tasks("smoke")["registry"]["state"], state)
            logs = self.bundle.logs()
            self.assertLessEqual(kept.items(), logs.items())
            said = "".join(text for name, text in logs.items() if name.startswith("smoke/registry/"))
            self.assertEqual("FAILED" in said, state == "failed")

    def test_resume_makes_what_was_left_out(self):
        told = {"train:gpt_text:cuda": "hang", "train:fashion_mnist:cuda": "far"}
        self.bundle.run("--part", "right", told=told)
        before = self.bundle.tasks("right")
        logs = self.bundle.logs()
        self.assertEqual(self.bundle.run("--part", "right", "--resume"), 1)
        self.assertEqual(self.bundle.document()["parts"]["right"]["state"], "complete")
        after = self.bundle.tasks("right")
        # A failure is a result: it is not made again until that is asked for without --resume.
        for name in ("losses.mlp_table", "losses.fashion_mnist"):
            self.assertEqual(after[name], before[name])
        started = "\n".join(self.bundle.started)
        self.assertNotIn("mlp_table", started)
        self.assertIn("gpt_text", started)
        # Each call begins with the smoke; what was kept has its logs.
        self.assertEqual(self.bundle.started[0], "bench_device_facts cuda")
        name = "right/losses.mlp_table/02-ridge.out"
        self.assertEqual(self.bundle.logs()[name], logs[name])

    def test_another_revision_is_not_resumed(self):
        self.bundle.run("--part", "right")
        self.bundle.write_manifest("f" * 40)
        self.assertEqual(self.bundle.run("--part", "right", "--resume"), 0)
        self.assertIn("mlp_table", "\n".join(self.bundle.started))
        self.assertEqual(self.bundle.document()["parts"]["right"]["revision"], "f" * 40)

    def test_a_task_that_breaks_leaves_its_traceback(self):
        with mock.patch.object(gpu_runs, "read_text"), mock.patch.object(
            stand_ins.answers, "inspect", side_effect=ZeroDivisionError("by nothing")
        ):
            self.assertEqual(self.bundle.run("--part", "fast"), 1)
        self.assertIn("ZeroDivisionError: by nothing", self.bundle.tasks("fast")["kernels"]["says"])
        self.assertIn("Traceback", self.bundle.logs()["fast/kernels/exception.txt"])
        self.assertEqual(self.bundle.tasks("fast")["rows.f32"]["state"], "passed")

    def test_an_archive_that_cannot_be_read_is_made_anew(self):
        self.bundle.out.mkdir()
        for text in (b"", b"no archive", b"\x1f\x8b\x08"):
            self.bundle.archive.write_bytes(text)
            gpu_logs.write(self.bundle.archive, self.bundle.folder, "right", {"x"}, {"x": "why"})
            self.assertEqual(self.bundle.logs(), {"right/x/exception.txt": "why"})


class Libraries(unittest.TestCase):
    def test_of_several_versions_the_driver_s_is_taken(self):
        with tempfile.TemporaryDirectory() as wheels, mock.patch.dict(os.environ):
            for name in gpu_evidence.LIBRARIES:
                os.environ.pop(name, None)
            for place in ("cu12/lib/libnvrtc.so.12", "cu13/lib/libnvrtc.so.13", "cu13/lib/libcupti.so.13",
                          "cudnn/lib/libcudnn.so.9"):  # fmt: skip
                path = os.path.join(wheels, "nvidia", place)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                open(path, "w").close()
            found = gpu_evidence.libraries({"wheels": wheels}, "13.1")
            self.assertTrue(found["RIDGE_NVRTC"].endswith("so.13"))
            found = gpu_evidence.libraries({"wheels": wheels}, "12.4")
            self.assertTrue(found["RIDGE_NVRTC"].endswith("so.12"))
            self.assertEqual(sorted(found), ["RIDGE_CUDNN", "RIDGE_NVRTC"])
            # That of a PyTorch that is too new for the driver would be refused.
            found = gpu_evidence.libraries({"wheels": wheels, "cuda": "13.0"}, "12.4")
            self.assertEqual(sorted(found), ["RIDGE_NVRTC"])
            os.environ["RIDGE_NVRTC"] = "mine"
            self.assertNotIn("RIDGE_NVRTC", gpu_evidence.libraries({"wheels": wheels}, "12.4"))

    def test_the_cache_of_a_bundle_that_is_read_only_can_be_written_to(self):
        with tempfile.TemporaryDirectory() as place, mock.patch.object(gpu_evidence, "ROOT", pathlib.Path(place)):
            shipped = pathlib.Path(place) / "cache"
            (shipped / "ridge").mkdir(parents=True)
            (shipped / "ridge" / "kernel").write_text("compiled")
            own = [shipped / "ridge" / "kernel", shipped / "ridge", shipped]
            for path in own:
                path.chmod(path.stat().st_mode & ~0o222)
            try:
                cache = gpu_evidence.make_cache(pathlib.Path(place) / "work")
                self.assertEqual((cache / "ridge" / "kernel").read_text(), "compiled")
                for path in (cache, *cache.rglob("*")):
                    self.assertTrue(path.stat().st_mode & 0o200, path)
            finally:
                for path in reversed(own):
                    path.chmod(0o755)


if __name__ == "__main__":
    unittest.main()
