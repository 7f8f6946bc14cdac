"""The tasks of gpu-evidence against stand-ins: what each asks, and what it makes of the answers."""

import os
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import stand_ins  # noqa: E402

import gpu_parts  # noqa: E402  (its place is known by stand_ins)
import gpu_record  # noqa: E402


class Tasks(unittest.TestCase):
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
        places = [self.bundle.json, table, self.bundle.archive]
        self.assertEqual(sorted(self.bundle.out.iterdir()), sorted(places))
        self.assertEqual(list(self.bundle.temporary.iterdir()), [])
        return document

    def test_all_parts_pass(self):
        self.assertEqual(self.bundle.run(), 0)
        document = self.check_files()
        self.assertEqual(list(document["parts"]), list(gpu_record.PARTS))
        names = []
        for name, part in document["parts"].items():
            self.assertEqual(part["state"], "complete")
            self.assertEqual(part["revision"], stand_ins.REVISION)
            names += [task["name"] for task in part["tasks"]]
            self.assertEqual({task["state"] for task in part["tasks"]}, {"passed"}, part["tasks"])
            self.assertEqual(part["device"]["name"], "NVIDIA Fake 9000")
            self.assertEqual(part["device"]["capability"], "9.0")
            self.assertGreater(part["machine"]["cpus"], 0)
        # One call has one smoke, and begins with it; what is worth most comes first.
        wanted = [task[0] for part in gpu_record.PARTS for task in gpu_parts.TASKS[part]]
        self.assertEqual(names, ["smoke"] + [name for name in wanted if name != "smoke"])
        self.assertEqual(names.index("kernels"), len(gpu_parts.TASKS["smoke"]))
        # Raw samples, and no number that JSON has no word for.
        fast = self.bundle.tasks("fast")
        self.assertEqual(fast["step.gpt2_124m"]["values"]["samples_ms"]["ridge"], [100.0, 101.0])
        self.assertIn("1.05 of max-autotune; by the CPU's bits 120.00 ms", fast["step.gpt2_124m"]["says"])
        kinds = fast["kernels"]["values"]["kinds"]
        self.assertEqual([(kind["op"], kind["launches"]) for kind in kinds], [("matmul", 2)])
        rates = {name: each["tflops_per_s"] for name, each in kinds[0]["kernels"].items()}
        self.assertEqual(rates, {"library": 4.0, "printed": 2.0})
        self.assertEqual(fast["rows.bf16"]["values"]["rows"][0]["bytes_per_s"]["ridge"], [1.0, None])
        losses = self.bundle.tasks("right")["losses.gpt_text"]["values"]["losses"]
        self.assertEqual([len(losses[name]) for name in ("cuda", "cpu", "cpu_f64")], [20, 20, 20])
        self.assertEqual(gpu_record.missing_parts([document]), [])

    def test_smoke_runs_each_way_and_tells_what_there_is(self):
        self.assertEqual(self.bundle.run("--part", "smoke"), 0)
        values = self.bundle.tasks("smoke")["smoke"]["values"]
        self.assertEqual(len(values["runs"]), 8)
        facts = values["facts"]
        self.assertEqual((facts["hardware"], facts["notes"]), ("Fake 9000, sm_90", ["no cuDNN"]))
        nvrtc = {"name": "NVRTC", "version": "13.0", "path": "libnvrtc.so.13"}
        self.assertEqual(facts["libraries"], [nvrtc, {"name": "cuDNN", "path": None}])
        # The archive has the whole path.
        self.assertIn("/usr/lib/libnvrtc.so.13", self.bundle.logs()["smoke/smoke/01-bench_device_facts.out"])
        self.assertIn(["a", "matmul", "library"], values["picks"]["bf16.own"])
        # NVIDIA's tools see kernels of 16 bits that are Ridge's own.
        watched = [line for line in self.bundle.started if line.startswith("compute-sanitizer")]
        self.assertEqual([line.split()[2] for line in watched], ["memcheck", "racecheck", "synccheck", "initcheck"])
        self.assertTrue(all("train.precision=bf16" in line for line in watched))
        # They watch the kernels that were timed before, and a head with columns of padding.
        runs = [line for line in self.bundle.started if "train.precision=bf16" in line and "inspect" not in line]
        self.assertTrue(all("model.vocab=4099" in line and "tune=false" not in line for line in runs))
        self.assertEqual(sorted(values["picks"]), ["bf16.libraries", "bf16.own"])
        # What was compiled beforehand lies where it can be added to.
        self.assertEqual((self.bundle.root / "cache/ridge/kernel").read_text(), "compiled")

    def test_a_failing_kernel_is_told_with_its_name_and_logged(self):
        self.assertEqual(self.bundle.run("--part", "smoke", told={"train:gpt_tiny:bf16:own": "kernel"}), 1)
        self.check_files()
        smoke = self.bundle.tasks("smoke")["smoke"]
        self.assertEqual(smoke["state"], "failed")
        self.assertIn("6 of 8 ways ran three steps on Fake 9000, sm_90; bf16.own.off: error: CUDA", smoke["says"])
        run = smoke["values"]["runs"]["bf16.own.on"]
        self.assertIn("CUDA_ERROR_LAUNCH_FAILED", run["says"])
        # Once more with launches that wait: that names the kernel.
        self.assertIn("kernel 'mul' failed", " ".join(run["blocking_tail"]))
        logs = self.bundle.logs()
        self.assertEqual(smoke["logs"], "smoke/smoke")
        texts = [text for name, text in logs.items() if name.startswith("smoke/smoke/")]
        self.assertEqual(sum("kernel 'mul' failed" in text for text in texts), 2)
        self.assertEqual(self.bundle.tasks("smoke")["registry"]["state"], "passed")

    def test_a_missing_library_is_told_and_logged(self):
        told = {"train": "no compiler", "inspect": "no compiler", "facts": "no compiler"}
        self.assertEqual(self.bundle.run("--part", "smoke", told=told), 1)
        smoke = self.bundle.tasks("smoke")["smoke"]
        self.assertEqual(smoke["state"], "failed")
        self.assertIn("0 of 8 ways ran three steps; facts: error: [nvrtc]", smoke["says"])
        self.assertIn("libnvrtc.so.13 is not there", self.bundle.logs()["smoke/smoke/02-ridge.err"])

    def test_bounds_that_are_missed_fail(self):
        told = {
            "train:mlp_table:cuda": "far", "train:gpt_tiny:f32:libraries": "other", "steps": "more",
            "doctor": "idle", "test_ops": "wrong", "training_step": "slower", "optimize": "slow",
        }  # fmt: skip
        self.assertEqual(self.bundle.run(told=told), 1)
        self.check_files()
        missed = {
            "smoke": {"smoke", "registry"},
            "fast": {"step.gpt2_124m"},
            "right": {"losses.mlp_table", "replay", "memory", "idle"},
            "loop": {"optimize"},
        }
        for part, names in missed.items():
            failed = {n for n, task in self.bundle.tasks(part).items() if task["state"] == "failed"}
            self.assertEqual(failed, names)
        self.assertIn("f32.libraries: captured bbbb", self.bundle.tasks("smoke")["smoke"]["says"])
        registry = self.bundle.tasks("smoke")["registry"]
        self.assertIn("2 of 3 ops", registry["says"])
        reasons = {"matmul": "op 'matmul', sample 'x': no kernel on 'cuda'"}
        self.assertEqual(registry["values"]["reasons"], reasons)

    def test_what_nvidia_s_sanitizer_says(self):
        told = {"memcheck": "finds", "racecheck": "blind", "synccheck": "quiet"}
        self.assertEqual(self.bundle.run("--part", "smoke", told=told), 1)
        self.check_files()
        tasks = self.bundle.tasks("smoke")
        self.assertEqual(tasks["memcheck"]["state"], "failed")
        self.assertIn("1 errors", tasks["memcheck"]["says"])
        # Which kernel it was, not only how often.
        self.assertIn("at mul_mma+0x1f0", tasks["memcheck"]["values"]["report"])
        self.assertIn("at mul_mma+0x1f0", self.bundle.logs()["smoke/memcheck/01-compute-sanitizer.out"])
        # It could not watch: that is no fault of the engine's.
        self.assertEqual(tasks["racecheck"]["state"], "missing")
        self.assertIn("Device not supported", tasks["racecheck"]["says"])
        self.assertIn("no summary", tasks["synccheck"]["says"])

    def test_what_the_engine_refuses_is_missing_in_its_own_words(self):
        told = {
            "train:cuda": "refuse", "peer": "refused", "optimize": "refuse", "inspect": "alone",
        }  # fmt: skip
        self.assertEqual(self.bundle.run(told=told), 1)
        document = self.check_files()
        tasks = {name: task for part in gpu_record.PARTS for name, task in self.bundle.tasks(part).items()}
        for name in ("losses.mlp_table", "replay", "idle", "optimize"):
            self.assertEqual(tasks[name]["state"], "missing")
            self.assertIn("error: cuda:0 cannot multiply in bf16; take f32", tasks[name]["says"])
        self.assertIn("bf16 is not there yet", tasks["step.gpt2_124m"]["says"])
        self.assertIn("bf16 is not there yet", tasks["rows.f32"]["says"])
        self.assertEqual(tasks["memory.gpt2_124m"]["state"], "missing")
        self.assertIn("no node of GPT-2 has two kernels", tasks["kernels"]["says"])
        self.assertEqual(tasks["ledger_replay"]["state"], "missing")
        self.assertEqual(tasks["registry"]["state"], "passed")
        # Each came to its end: that is what there is to know at this revision.
        self.assertEqual({part["state"] for part in document["parts"].values()}, {"complete"})

    def test_what_the_machine_refuses_is_a_failure(self):
        told = {"train:mlp_table:cuda": "driver", "train:gpt_text:cuda": "full", "training_step": "broke"}
        self.assertEqual(self.bundle.run(told=told), 1)
        self.check_files()
        right, fast = self.bundle.tasks("right"), self.bundle.tasks("fast")
        for task, says in (
            (right["losses.mlp_table"], "CUDA_ERROR_OUT_OF_MEMORY"),
            (right["losses.gpt_text"], "No space left on device"),
            (fast["step.gpt2_124m"], "CUDA_ERROR_LAUNCH_FAILED"),
        ):
            self.assertEqual(task["state"], "failed")
            self.assertIn(says, task["says"])

    def test_without_pytorch_only_what_needs_it_is_missing(self):
        cases = (({"problem": "ModuleNotFoundError: torch"}, "no PyTorch: ModuleNotFoundError"),
                 ({"sees_gpu": False}, "sees no GPU"), ({"python": "3.10.1"}, "3.11 is needed"))  # fmt: skip
        for self.bundle.facts, says in cases:
            self.assertEqual(self.bundle.run("--part", "fast"), 1)
            for name, task in self.bundle.tasks("fast").items():
                self.assertEqual(task["state"], "passed" if name in ("smoke", "kernels") else "missing")
            self.assertIn(says, self.bundle.tasks("fast")["rows.f32"]["says"])
            self.assertIn("--python", self.bundle.tasks("fast")["rows.f32"]["says"])

    def test_rows_that_were_measured_count_though_the_script_was_cut(self):
        told = {"training_step": "cut", "row_ops": "cut"}
        self.assertEqual(self.bundle.run("--part", "fast", told=told), 1)
        tasks = self.bundle.tasks("fast")
        self.assertEqual(tasks["step.gpt2_124m"]["state"], "passed")
        self.assertIn("1.10 (1.05 to 1.15) times as fast as compile", tasks["step.gpt2_124m"]["says"])
        self.assertIn("then out of time: python was stopped after 240 s", tasks["step.gpt2_124m"]["says"])
        self.assertEqual(tasks["memory.gpt2_124m"]["state"], "passed")
        self.assertEqual(len(tasks["rows.bf16"]["values"]["rows"]), 1)
        self.assertEqual(tasks["rows.bf16"]["state"], "failed")

    def test_a_registry_that_is_cut_keeps_what_was_walked(self):
        self.assertEqual(self.bundle.run("--part", "smoke", told={"test_ops": "slow"}), 1)
        registry = self.bundle.tasks("smoke")["registry"]
        self.assertEqual(registry["state"], "missing")
        self.assertIn("3 of 3 ops agree with `ref`; out of time", registry["says"])
        self.assertEqual(registry["values"]["ops"], {"add": True, "matmul": True, "gather": True})

    def test_a_registry_that_is_cut_fails_where_an_op_was_wrong(self):
        self.assertEqual(self.bundle.run("--part", "smoke", told={"test_ops": "wrong and slow"}), 1)
        registry = self.bundle.tasks("smoke")["registry"]
        self.assertEqual(registry["state"], "failed")
        self.assertIn("2 of 3 ops agree with `ref`; not matmul; out of time", registry["says"])

    def test_a_crash_and_bad_output_fail_alone(self):
        told = {"train:mlp_table:cuda": "crash", "train:gpt_text:cuda": "garbage", "steps": "garbage",
                "train:gpt_tiny:cuda": "odd", "doctor": "odd", "test_ops": "crash"}  # fmt: skip
        self.assertEqual(self.bundle.run(told=told), 1)
        self.check_files()
        tasks = {**self.bundle.tasks("smoke"), **self.bundle.tasks("right")}
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
        self.assertEqual(self.bundle.run("--part", "right", told={"train": "refuse with a place"}), 1)
        self.check_files()
        text = self.bundle.json.read_text() + self.bundle.json.with_suffix(".md").read_text()
        for part in (os.uname().nodename, "someone", str(self.bundle.folder), "/home"):
            self.assertNotIn(part, text)
        self.assertIn("HOST: cannot read 'x.bin' (HOST)", text)

    def test_a_step_that_was_not_captured_is_told(self):
        self.bundle.run("--part", "right", told={"train:gpt2_124m:cuda": "launched"})
        idle = self.bundle.tasks("right")["idle"]
        self.assertIn("launched one by one", idle["says"])
        self.assertFalse(idle["values"]["is_replayed"])


class Record(unittest.TestCase):
    def test_paths_and_hosts(self):
        cases = {
            "cannot read '/home/a/b.txt' (x)": "cannot read 'b.txt' (x)",
            "12.5 GB/s, 1/2, and/or": "12.5 GB/s, 1/2, and/or",
            "//a/b and ~/x/y and ../x/z": "b and y and z",
            "path:/a/b:/c/d": "path:b:d",
            "file:///home/a/b": "file:b",
            "at box-7, box-70 and box-7.": "at HOST, box-70 and HOST.",
            "smoke/losses.mlp_table": "smoke/losses.mlp_table",
        }
        for text, wanted in cases.items():
            self.assertEqual(gpu_record.clean(text, {"box-7"}), wanted)
            self.assertEqual(gpu_record.clean(wanted, {"box-7"}), wanted)
        value = {"a": [float("inf"), 1.5, pathlib.Path("/x/y")], "b": (None, True)}
        self.assertEqual(gpu_record.clean(value), {"a": [None, 1.5, "y"], "b": [None, True]})

    def test_each_field_that_is_missing_is_a_problem(self):
        task = {"name": "memory", "state": "passed", "says": "so", "seconds": 1.0, "values": {}, "logs": "a/b"}
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
        self.assertIn("none of smoke, fast, right, loop", gpu_record.problems(document)[0])

    def test_names_of_files(self):
        self.assertEqual(gpu_record.file_stem("NVIDIA H200"), "nvidia-h200")
        self.assertEqual(gpu_record.file_stem("../../x"), "x")
        self.assertEqual(gpu_record.file_stem("//"), "gpu")


if __name__ == "__main__":
    unittest.main()
