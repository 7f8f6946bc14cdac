"""gpu-evidence as a process among processes: signals, kills, full disks, refusals."""

import os
import pathlib
import signal
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import stand_ins  # noqa: E402

import gpu_record  # noqa: E402  (its place is known by stand_ins)
import gpu_runs  # noqa: E402


def is_alive(pid):
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


class Processes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.bundle = stand_ins.Bundle(folder.name)
        self.bundle.take_few_tasks()

    def check_all_ended(self):
        self.assertTrue(self.bundle.hanging())
        for _ in range(1200):
            if not any(map(is_alive, self.bundle.hanging())):
                return
            time.sleep(0.05)
        self.fail("what was started runs on")

    def one_line(self, *options, **more):
        code, _, err = self.bundle.end_of(*options, **more)
        self.assertEqual(code, 2, err)
        self.assertEqual(err.count("\n"), 1, err)
        self.assertTrue(err.startswith("gpu-evidence: "), err)
        return err


class Ends(Processes):
    def test_what_does_not_end_is_ended(self):
        runs = gpu_runs.Runs(self.bundle.temporary, self.bundle.folder / "logs", time.monotonic() + 3600, {})
        late, early = runs.run_beside([(["/bin/sleep", "3600"], {}), (["/bin/true"], {})], 0.2)
        self.assertTrue(late.is_late)
        self.assertEqual(late.code, -signal.SIGTERM)
        missing = runs.run(["/nowhere/program"], 5)
        self.assertEqual((missing.code, missing.words()[:19]), (127, "error: cannot start"))
        self.assertIn("/nowhere/program", (self.bundle.folder / "logs/task/03-program.err").read_text())

    def test_a_signal_leaves_what_was_done(self):
        # One that does not listen, and has a child, is ended all the same.
        process = self.bundle.start_hanging("--part", "right", told={"train:gpt_text:cuda": "stubborn"})
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        self.check_all_ended()
        self.assertEqual(process.returncode, 130)
        self.assertEqual(err.count("\n"), 1, err)
        self.assertEqual(self.bundle.document()["parts"]["right"]["state"], "interrupted")
        self.assertIn("losses.mlp_table", self.bundle.tasks("right"))
        self.assertIn("right", gpu_record.missing_parts([self.bundle.document()]))
        # Of what was being done, too.
        self.assertEqual(self.bundle.logs()["right/losses.gpt_text/01-ridge.out"], "it began\n")

    def test_a_kill_leaves_a_file_that_can_be_resumed(self):
        process = self.bundle.start_hanging("--part", "right", told={"train:gpt_text:cuda": "hang"})
        process.kill()
        process.communicate()
        for pid in self.bundle.hanging():
            os.killpg(pid, signal.SIGKILL) if os.getpgid(pid) == pid else os.kill(pid, signal.SIGKILL)
        self.assertEqual(gpu_record.problems(self.bundle.document()), [])
        self.assertEqual(self.bundle.document()["parts"]["right"]["state"], "interrupted")
        self.assertTrue(any(name.startswith("right/losses.mlp_table/02-ridge") for name in self.bundle.logs()))
        self.assertEqual(self.bundle.end_of("--part", "right", "--resume")[0], 0)
        self.assertEqual(self.bundle.document()["parts"]["right"]["state"], "complete")

    def test_a_full_disk_under_the_tasks_is_told_and_logged(self):
        # Less than what mlp_table reads, and more than the results; the children see the same.
        code, out, err = self.bundle.end_of("--part", "right", limit_file=200_000)
        self.assertEqual((code, err), (1, ""), out)
        task = self.bundle.tasks("right")["losses.mlp_table"]
        self.assertEqual(task["state"], "failed")
        self.assertIn("File too large", task["says"])
        logs = self.bundle.logs()
        self.assertIn("File too large", "".join(text for name, text in logs.items() if "mlp_table" in name))
        self.assertEqual(self.bundle.tasks("right")["replay"]["state"], "passed")

    def test_a_disk_without_room_for_the_results_leaves_what_was_there(self):
        self.assertEqual(self.bundle.end_of("--part", "right")[0], 0)
        before = self.bundle.json.read_text(), self.bundle.archive.read_bytes()
        self.assertIn("File too large", self.one_line("--part", "right", limit_file=300))
        self.assertEqual((self.bundle.json.read_text(), self.bundle.archive.read_bytes()), before)


class Refusals(Processes):
    def test_without_a_gpu_one_line_says_so(self):
        err = self.one_line(RIDGE_CUDA_DRIVER="/nowhere/libcuda.so.1")
        self.assertIn("no NVIDIA driver was found: cannot open '/nowhere/libcuda.so.1'", err)
        self.assertIn("no CUDA-capable device is detected", self.one_line(FAKE_CUDA_DEVICES="0"))
        err = self.one_line("--find-gpu", FAKE_CUDA_FAIL="cuInit=803")
        self.assertIn("unsupported display driver", err)
        self.assertFalse(self.bundle.out.exists())
        code, out, _ = self.bundle.end_of("--find-gpu")
        self.assertEqual((code, out), (0, "NVIDIA Fake 9000\n"))

    def test_a_bundle_that_is_not_whole_is_refused(self):
        with open(self.bundle.root / "bin/ridge", "a") as file:
            file.write("# changed\n")
        self.assertIn("bin/ridge is not what was put there", self.one_line())
        (self.bundle.root / "bin/ridge").unlink()
        self.assertIn("it lacks ridge", self.one_line())
        (self.bundle.root / "MANIFEST.json").write_text("{}")
        self.assertIn("the bundle is damaged", self.one_line())
        (self.bundle.root / "MANIFEST.json").unlink()
        self.assertIn("this is no bundle", self.one_line())
        self.assertFalse(self.bundle.out.exists())

    def test_what_is_no_evidence_is_not_written_over(self):
        self.bundle.out.mkdir()
        for text in ("{", '{"schema": "ridge.gpu_evidence/1"}'):
            self.bundle.json.write_text(text)
            self.assertIn("move it away", self.one_line("--part", "loop"))
            self.assertEqual(self.bundle.json.read_text(), text)

    def test_a_folder_that_cannot_be_made(self):
        self.bundle.out.write_text("a file")
        self.assertIn("Not a directory", self.one_line("--part", "loop"))

    def test_words_that_are_none(self):
        for words in (("--part", "wrong"), ("--limit", "0"), ("--limit", "x"), ("more",)):
            code, _, err = self.bundle.end_of(*words)
            self.assertEqual(code, 2)
            self.assertIn("error: ", err)


if __name__ == "__main__":
    unittest.main()
