"""gpu-evidence against stand-ins: merging, deadlines, resuming, and everything that may go wrong."""

import os
import pathlib
import signal
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import stand_ins  # noqa: E402

sys.path.insert(0, str(stand_ins.ROOT / "bench"))
import gpu_parts  # noqa: E402
import gpu_record  # noqa: E402


def is_alive(pid):
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


class Evidence(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.bundle = stand_ins.Bundle(folder.name)

    def check_files(self):
        """The document is one, its table is its own, and nothing else lies there."""
        document = self.bundle.document()
        self.assertEqual(gpu_record.problems(document), [])
        table = self.bundle.json.with_suffix(".md")
        self.assertEqual(table.read_text(), gpu_record.markdown(document))
        self.assertEqual(sorted(self.bundle.out.iterdir()), sorted([self.bundle.json, table]))
        self.assertEqual(list(self.bundle.temporary.iterdir()), [])
        return document

    def check_all_ended(self):
        self.assertTrue(self.bundle.hanging())
        for _ in range(100):
            if not any(map(is_alive, self.bundle.hanging())):
                return
            time.sleep(0.05)
        self.fail("what was started runs on")


class Parts(Evidence):
    def test_all_parts_pass(self):
        code, out, err = self.bundle.run()
        self.assertEqual((code, err), (0, ""), out)
        document = self.check_files()
        self.assertEqual(list(document["parts"]), list(gpu_record.PARTS))
        for name, part in document["parts"].items():
            self.assertEqual(part["state"], "complete")
            self.assertEqual(part["revision"], stand_ins.REVISION)
            names = [task["name"] for task in part["tasks"]]
            self.assertEqual(names, [task[0] for task in gpu_parts.TASKS[name]])
            self.assertEqual({task["state"] for task in part["tasks"]}, {"passed"})
            self.assertEqual(part["device"]["name"], "NVIDIA Fake 9000")
            self.assertEqual(part["device"]["capability"], "9.0")
            self.assertEqual(part["device"]["cuda"], "13.2")
            self.assertGreater(part["machine"]["cpus"], 0)
        self.assertEqual(document["gpu"], "NVIDIA Fake 9000")
        # Raw samples, and no number that JSON has no word for.
        values = self.bundle.tasks("fast")["step.gpt2_124m"]["values"]
        self.assertEqual(values["samples_ms"]["ridge"], [100.0, 101.0])
        kinds = self.bundle.tasks("fast")["kernels"]["values"]["kinds"]
        self.assertEqual([(kind["op"], kind["launches"]) for kind in kinds], [("matmul", 2)])
        rates = {name: each["tflops_per_s"] for name, each in kinds[0]["kernels"].items()}
        self.assertEqual(rates, {"library": 4.0, "printed": 2.0})
        rows = self.bundle.tasks("fast")["norm.bf16"]["values"]
        self.assertEqual(rows["bytes_per_s"]["ridge"], [1.0, None])
        losses = self.bundle.tasks("right")["losses.gpt_text"]["values"]["losses"]
        self.assertEqual([len(losses[name]) for name in ("cuda", "cpu", "cpu_f64")], [20, 20, 20])
        self.assertEqual(gpu_record.missing_parts([document]), [])

    def test_a_part_replaces_itself_alone(self):
        self.assertEqual(self.bundle.run("--part", "loop")[0], 0)
        loop = self.bundle.document()["parts"]["loop"]
        self.assertEqual(gpu_record.missing_parts([self.bundle.document()]), ["right", "fast"])
        self.assertEqual(self.bundle.run("--part", "right", told={"test_ops": "wrong"})[0], 1)
        document = self.check_files()
        self.assertEqual(list(document["parts"]), ["right", "loop"])
        self.assertEqual(document["parts"]["loop"], loop)
        self.assertEqual(self.bundle.tasks("right")["registry"]["state"], "failed")
        self.assertEqual(self.bundle.run("--part", "right")[0], 0)
        document = self.check_files()
        self.assertEqual(document["parts"]["loop"], loop)
        self.assertEqual(self.bundle.tasks("right")["registry"]["state"], "passed")

    def test_bounds_that_are_missed_fail(self):
        told = {
            "train:mlp_table:cuda": "far", "train:gpt_tiny:cuda": "other", "steps": "more",
            "doctor": "idle", "test_ops": "wrong", "training_step": "slower", "optimize": "slow",
        }  # fmt: skip
        self.assertEqual(self.bundle.run(told=told)[0], 1)
        self.check_files()
        missed = {
            "right": {"losses.mlp_table", "replay", "memory", "idle", "registry"},
            "fast": {"step.gpt2_124m"},
            "loop": {"optimize"},
        }
        for part, names in missed.items():
            failed = {n for n, task in self.bundle.tasks(part).items() if task["state"] == "failed"}
            self.assertEqual(failed, names)
        registry = self.bundle.tasks("right")["registry"]
        self.assertIn("2 of 3 ops", registry["says"])
        self.assertEqual(
            registry["values"]["reasons"], {"matmul": "op 'matmul', sample 'x': no kernel on 'cuda'"}
        )

    def test_what_nvidia_s_sanitizer_says(self):
        told = {"memcheck": "finds", "racecheck": "blind"}
        self.assertEqual(self.bundle.run("--part", "right", told=told)[0], 1)
        self.check_files()
        tasks = self.bundle.tasks("right")
        self.assertEqual(tasks["memcheck"]["state"], "failed")
        self.assertIn("1 errors", tasks["memcheck"]["says"])
        # It could not watch: that is no fault of the engine's.
        self.assertEqual(tasks["racecheck"]["state"], "missing")
        self.assertIn("Device not supported", tasks["racecheck"]["says"])
        self.assertEqual(self.bundle.run("--part", "right", told={"sanitizer": "quiet"})[0], 1)
        self.assertIn("no summary", self.bundle.tasks("right")["memcheck"]["says"])

    def test_what_the_engine_refuses_is_missing_in_its_own_words(self):
        told = {
            "train:cuda": "refuse", "peer": "refused", "optimize": "refuse", "doctor": "cpu only",
            "inspect": "alone",
        }  # fmt: skip
        self.assertEqual(self.bundle.run(told=told)[0], 1)
        document = self.check_files()
        tasks = {**self.bundle.tasks("right"), **self.bundle.tasks("fast"), **self.bundle.tasks("loop")}
        for name in ("losses.mlp_table", "replay", "idle", "optimize"):
            self.assertEqual(tasks[name]["state"], "missing")
            self.assertIn("error: cuda:0 cannot multiply in bf16; take f32", tasks[name]["says"])
        self.assertIn("bf16 is not there yet", tasks["step.gpt2_124m"]["says"])
        self.assertEqual(tasks["memory.gpt2_124m"]["state"], "missing")
        self.assertIn("no node of GPT-2 has two kernels", tasks["kernels"]["says"])
        self.assertEqual(tasks["ledger_replay"]["state"], "missing")
        self.assertEqual(tasks["registry"]["state"], "passed")
        # Each came to its end: that is what there is to know at this revision.
        self.assertEqual({part["state"] for part in document["parts"].values()}, {"complete"})

    def test_what_the_driver_refuses_is_a_failure(self):
        told = {"train:mlp_table:cuda": "driver", "training_step": "broke"}
        self.assertEqual(self.bundle.run(told=told)[0], 1)
        self.check_files()
        task = self.bundle.tasks("right")["losses.mlp_table"]
        self.assertEqual(task["state"], "failed")
        self.assertIn("CUDA_ERROR_OUT_OF_MEMORY", task["says"])
        task = self.bundle.tasks("fast")["step.gpt2_124m"]
        self.assertEqual(task["state"], "failed")
        self.assertIn("CUDA_ERROR_LAUNCH_FAILED", task["says"])

    def test_without_pytorch_only_what_needs_it_is_missing(self):
        for told, says in (("none", "no PyTorch: ModuleNotFoundError"), ("blind", "sees no GPU")):
            self.assertEqual(self.bundle.run("--part", "fast", told={"torch": told})[0], 1)
            self.check_files()
            for name, task in self.bundle.tasks("fast").items():
                self.assertEqual(task["state"], "passed" if name == "kernels" else "missing")
            self.assertIn(says, self.bundle.tasks("fast")["norm.f32"]["says"])
            self.assertIn("--python", self.bundle.tasks("fast")["norm.f32"]["says"])

    def test_a_crash_and_bad_output_fail_alone(self):
        told = {"train:mlp_table:cuda": "crash", "train:gpt_text:cuda": "garbage", "steps": "garbage",
                "train:gpt_tiny:cuda": "odd", "doctor": "odd", "test_ops": "crash"}  # fmt: skip
        self.assertEqual(self.bundle.run("--part", "right", told=told)[0], 1)
        self.check_files()
        tasks = self.bundle.tasks("right")
        said = {
            "losses.mlp_table": "ridge ended with -9: all of it is lost",
            "losses.gpt_text": "ridge printed no JSON",
            "memory": "bench_training_step printed something else",
            "replay": "captured None",
            "idle": "ridge doctor printed something else",
            "registry": "ended with -9",
        }
        for name, text in said.items():
            self.assertEqual(tasks[name]["state"], "failed", name)
            self.assertIn(text, tasks[name]["says"])
        for name in ("losses.fashion_mnist", "losses.jpeg_folder"):
            self.assertEqual(tasks[name]["state"], "passed")

    def test_no_name_of_the_machine_is_in_it(self):
        told = {"train": "refuse with a place"}
        self.assertEqual(self.bundle.run("--part", "right", told=told)[0], 1)
        self.check_files()
        text = self.bundle.json.read_text() + self.bundle.json.with_suffix(".md").read_text()
        for part in (os.uname().nodename, "someone", str(self.bundle.folder), "/home"):
            self.assertNotIn(part, text)
        self.assertIn("HOST: cannot read 'x.bin' (HOST)", text)


class Ends(Evidence):
    def test_the_deadline_holds_and_says_what_was_left_out(self):
        begun = time.monotonic()
        told = {"train:fashion_mnist:cuda": "hang"}
        code, _, _ = self.bundle.run("--part", "right", "--limit", "8", "--least", "1", told=told)
        self.assertEqual(code, 1)
        self.assertLess(time.monotonic() - begun, 60)
        part = self.check_files()["parts"]["right"]
        self.assertEqual(part["state"], "cut short")
        tasks = self.bundle.tasks("right")
        self.assertEqual(list(tasks), [task[0] for task in gpu_parts.RIGHT])
        self.assertEqual(tasks["losses.mlp_table"]["state"], "passed")
        self.assertIn("out of time", tasks["losses.fashion_mnist"]["says"])
        self.assertIn("left out: 0 s were left", tasks["registry"]["says"])
        self.check_all_ended()

    def test_a_registry_that_is_cut_keeps_what_was_walked(self):
        environment = self.bundle.environment({"test_ops": "slow"})
        context = gpu_parts.Context(
            self.bundle.root, self.bundle.temporary, time.monotonic() + 5, environment, "python3", ""
        )
        with self.assertRaises(gpu_parts.Outcome) as raised:
            gpu_parts.registry(context)
        self.assertEqual(raised.exception.state, "missing")
        self.assertIn("by then 3 of 3 ops were right", raised.exception.says)
        self.assertEqual(raised.exception.values["ops"], {"add": True, "matmul": True, "gather": True})

    def test_resume_makes_what_was_left_out(self):
        told = {"train:gpt_text:cuda": "hang", "test_ops": "wrong"}
        self.bundle.run("--part", "right", "--limit", "10", "--least", "1", told=told)
        before = self.bundle.tasks("right")
        self.bundle.started()
        self.assertEqual(self.bundle.run("--part", "right", "--resume")[0], 0)
        self.assertEqual(self.check_files()["parts"]["right"]["state"], "complete")
        after = self.bundle.tasks("right")
        for name in ("losses.mlp_table", "losses.fashion_mnist"):
            self.assertEqual(after[name], before[name])
        started = "\n".join(self.bundle.started())
        self.assertNotIn("mlp_table", started)
        self.assertIn("gpt_text", started)
        # A failure is a result: it is not made again until that is asked for without --resume.
        self.bundle.run("--part", "right", told={"test_ops": "wrong"})
        self.assertEqual(self.bundle.run("--part", "right", "--resume")[0], 1)
        self.assertEqual(self.bundle.tasks("right")["registry"]["state"], "failed")

    def test_another_revision_is_not_resumed(self):
        self.bundle.run("--part", "right")
        self.bundle.started()
        self.bundle.write_manifest("f" * 40)
        self.assertEqual(self.bundle.run("--part", "right", "--resume")[0], 0)
        self.assertIn("mlp_table", "\n".join(self.bundle.started()))
        self.assertEqual(self.check_files()["parts"]["right"]["revision"], "f" * 40)

    def stopped_by(self, number, how):
        process = self.bundle.start_hanging("--part", "right", told={"train:gpt_text:cuda": how})
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
        self.check_all_ended()
        return process.returncode, err

    def test_a_signal_leaves_what_was_done(self):
        # One that does not listen is ended all the same.
        for number, code, how in ((signal.SIGINT, 130, "hang"), (signal.SIGTERM, 143, "stubborn")):
            found, err = self.stopped_by(number, how)
            self.assertEqual(found, code)
            self.assertEqual(err.count("\n"), 1, err)
            part = self.check_files()["parts"]["right"]
            self.assertEqual(part["state"], "interrupted")
            self.assertIn("losses.mlp_table", self.bundle.tasks("right"))
            self.assertEqual(gpu_record.missing_parts([self.bundle.document()]), ["right", "fast", "loop"])
        self.assertEqual(self.bundle.run("--part", "right", "--resume")[0], 0)
        self.assertEqual(self.check_files()["parts"]["right"]["state"], "complete")

    def test_a_kill_leaves_a_file_that_can_be_resumed(self):
        process = self.bundle.start_hanging("--part", "right", told={"train:gpt_text:cuda": "hang"})
        process.kill()
        process.communicate()
        for pid in self.bundle.hanging():
            os.kill(pid, signal.SIGKILL)
        self.assertEqual(gpu_record.problems(self.bundle.document()), [])
        self.assertEqual(self.bundle.document()["parts"]["right"]["state"], "interrupted")
        self.assertEqual(self.bundle.run("--part", "right", "--resume")[0], 0)


class Refusals(Evidence):
    def one_line(self, *options, **more):
        code, _, err = self.bundle.run(*options, **more)
        self.assertEqual(code, 2, err)
        self.assertEqual(err.count("\n"), 1, err)
        self.assertTrue(err.startswith("gpu-evidence: "), err)
        return err

    def test_without_a_gpu_one_line_says_so(self):
        err = self.one_line(RIDGE_CUDA_DRIVER="/nowhere/libcuda.so.1")
        self.assertIn("no NVIDIA driver was found: cannot open '/nowhere/libcuda.so.1'", err)
        self.assertIn("no CUDA-capable device is detected", self.one_line(FAKE_CUDA_DEVICES="0"))
        err = self.one_line("--find-gpu", FAKE_CUDA_FAIL="cuInit=803")
        self.assertIn("unsupported display driver", err)
        self.assertFalse(self.bundle.out.exists())
        code, out, _ = self.bundle.run("--find-gpu")
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
        for text in ("{", "[]", '{"schema": "ridge.evidence/1"}', '{"schema": "ridge.gpu_evidence/1"}'):
            self.bundle.json.write_text(text)
            self.assertIn("move it away", self.one_line("--part", "loop"))
            self.assertEqual(self.bundle.json.read_text(), text)

    def test_a_full_disk_leaves_the_file_that_was_there(self):
        self.assertEqual(self.bundle.run("--part", "right")[0], 0)
        before = self.bundle.json.read_text()
        err = self.one_line("--part", "loop", limit_file=len(before))
        self.assertIn("File too large", err)
        self.assertEqual(self.bundle.json.read_text(), before)
        self.check_files()

    def test_a_full_disk_under_the_tasks_ends_it(self):
        # Less than a table of losses needs; the children see the same.
        err = self.one_line("--part", "right", limit_file=100)
        self.assertIn("File too large", err)
        self.assertFalse(self.bundle.json.exists())

    def test_a_folder_that_cannot_be_made(self):
        self.bundle.out.write_text("a file")
        self.assertIn("Not a directory", self.one_line("--part", "loop"))
        self.assertEqual(self.bundle.started(), [])

    def test_words_that_are_none(self):
        for words in (("--part", "wrong"), ("--limit", "0"), ("--limit", "x"), ("more",)):
            code, _, err = self.bundle.run(*words)
            self.assertEqual(code, 2)
            self.assertIn("error: ", err)


class Record(unittest.TestCase):
    def test_paths_and_hosts(self):
        cases = {
            "cannot read '/home/a/b.txt' (x)": "cannot read 'b.txt' (x)",
            "12.5 GB/s, 1/2, and/or": "12.5 GB/s, 1/2, and/or",
            "//a/b and ~/x/y and ../x/z": "b and y and z",
            "path:/a/b:/c/d": "path:b:d",
            "file:///home/a/b": "file:b",
            "at box-7, box-70 and box-7.": "at HOST, box-70 and HOST.",
        }
        for text, wanted in cases.items():
            self.assertEqual(gpu_record.clean(text, {"box-7"}), wanted)
            self.assertEqual(gpu_record.clean(wanted, {"box-7"}), wanted)
        value = {"a": [float("inf"), 1.5, pathlib.Path("/x/y")], "b": (None, True)}
        self.assertEqual(gpu_record.clean(value), {"a": [None, 1.5, "y"], "b": [None, True]})

    def test_each_field_that_is_missing_is_a_problem(self):
        task = {"name": "memory", "state": "passed", "says": "so", "seconds": 1.0, "values": {}}
        part = {"revision": "0" * 40, "date": "2026-01-01T00:00:00Z", "seconds": 1.0, "limit_s": 470,
                "device": {}, "machine": {}, "state": "complete", "tasks": [task]}  # fmt: skip
        document = {"schema": gpu_record.SCHEMA, "gpu": "X", "parts": {"right": part}}
        self.assertEqual(gpu_record.problems(document), [])
        for table in (document, part, task):
            for key, value in list(table.items()):
                del table[key]
                self.assertTrue(gpu_record.problems(document), key)
                table[key] = 7
                self.assertTrue(key in ("seconds", "limit_s") or gpu_record.problems(document), key)
                table[key] = value
        part["tasks"] = [task, dict(task)]
        self.assertIn("two tasks of one name", gpu_record.problems(document)[0])
        part["tasks"] = [task]
        document["parts"]["more"] = part
        self.assertIn("none of right, fast, loop", gpu_record.problems(document)[0])

    def test_names_of_files(self):
        self.assertEqual(gpu_record.file_stem("NVIDIA H200"), "nvidia-h200")
        self.assertEqual(gpu_record.file_stem("../../x"), "x")
        self.assertEqual(gpu_record.file_stem("//"), "gpu")


if __name__ == "__main__":
    unittest.main()
