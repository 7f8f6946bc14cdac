#!/usr/bin/env python3
"""How often the guard of `ridge optimize -- python train.py` refuses what is harmless, and lets a defect pass.

The guard runs alone, with no trial before it (bench_guard_alone), on eight small programs
(guard_programs/): of each

  harmless  four changes that move nothing but the order of sums, as class 1 declares it, with three
            seeds: 96 cases
  defects   twelve defects that act from the first step on (guard_programs/defects.py), each as if a
            change of class 1 and one of class 2 had brought it: 96 cases in either class
  coarse    bf16 within the model, as class 2 declares it: 8 cases, where this CPU has bf16

One case is a line of JSON in FILE. A case that stands there is not run again, so a run that was ended
goes on where it stopped; a case that did not end within its time is begun again with the records of its
runs that are there. At the end the rates are printed, and each case that went wrong.

Usage: build/peers/bin/python bench/guard_rates.py --keep FOLDER [--out FILE] [--only KIND,...]
         [--classes N,...] [--programs NAME,...] [--build FOLDER] [--seconds S] [--summary]
This Python runs the programs: it needs torch and, for model.compile and optimizer.compile, the package
ridge. The folder of records belongs to one build and one Python.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "guard_programs"))
STEPS = 20  # three epochs and a little more: the last batch of each is a smaller one
SEEDS = 3
PICTURES = ("convnet", "resnet", "vit", "unet")
OTHERS = ("mlp", "gpt", "lstm", "recommender")
FUSED = ("optimizer.fused", "true")
THREADS = ("threads", "2")
CONTROL_THREADS = "3"  # not the candidate's own
COMPILED = ("model.compile", '"ridge"')


def changes_of(program):
    """What has no pictures has no format of them: there the optimizer's step is compiled instead."""
    own = ("model.channels_last", "true")
    if program in OTHERS:
        own = ("optimizer.compile", '"ridge"')
    return (own, FUSED, THREADS, COMPILED)


def recipe_text(change=None, defect=None):
    lines = ["[pytorch]", "%s = %s" % change] if change else []
    if defect:
        lines += ["[environment]", 'GUARD_DEFECT = "%s"' % defect]
    return "\n".join(lines) + "\n"


def cases(kinds, programs, classes):
    """In an order in which those of one program follow one another, which share runs."""
    from defects import defects_of

    for program in programs:
        if "harmless" in kinds:
            for seed in range(SEEDS):
                for change in changes_of(program):
                    yield case("harmless", program, seed, change[0], 1, recipe_text(change))
        if "defects" in kinds:
            for defect in defects_of(program):
                for semantic_class in classes:
                    text = recipe_text(defect=defect)
                    yield case("defects", program, 0, defect, semantic_class, text)
        if "coarse" in kinds:
            change = ("model.autocast", '"bf16"')
            yield case("coarse", program, 0, change[0], 2, recipe_text(change))


def case(kind, program, seed, change, semantic_class, recipe):
    return {
        "kind": kind,
        "program": program,
        "seed": seed,
        "change": change,
        "class": semantic_class,
        "recipe": recipe,
    }


def name_of(entry):
    return "%(kind)s %(program)s %(change)s class %(class)d seed %(seed)d" % entry


def run(entry, options):
    """The verdict, or None where there is none yet."""
    keep = options.keep / ("%s-%d" % (entry["program"], entry["seed"]))
    keep.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(entry["recipe"])
        file.flush()
        command = [options.build / "bench" / "bench_guard_alone", keep, str(STEPS)]
        command += [str(entry["class"]), CONTROL_THREADS, file.name, "--"]
        command += [sys.executable, HERE / "guard_programs" / "train.py", entry["program"]]
        command += ["--seed", str(entry["seed"]), "--steps", "{steps}"]
        environment = dict(os.environ, OMP_NUM_THREADS="1")
        try:
            done = subprocess.run(
                [str(word) for word in command],
                env=environment,
                capture_output=True,
                text=True,
                timeout=options.seconds,
            )
        except subprocess.TimeoutExpired:
            print("%s: no verdict within %g s" % (name_of(entry), options.seconds), flush=True)
            return None
    if done.returncode:
        print("%s: %s" % (name_of(entry), done.stderr.strip()[-600:]), flush=True)
        return None
    return json.loads(done.stdout)


def summary(found):
    right = {"harmless": lambda e: e["passed"], "coarse": lambda e: e["passed"]}
    right["defects"] = lambda e: not e["passed"]
    words = {"harmless": "passed", "coarse": "passed", "defects": "not passed"}
    for kind in ("harmless", "coarse", "defects"):
        for semantic_class in (1, 2):
            group = [e for e in found if e["kind"] == kind and e["class"] == semantic_class]
            if not group:
                continue
            good = [e for e in group if right[kind](e)]
            print(
                "%s, class %d: %d of %d %s"
                % (kind, semantic_class, len(good), len(group), words[kind])
            )
            for entry in group:
                if not right[kind](entry):
                    print("  %s: %s" % (name_of(entry), entry["text"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=pathlib.Path, default=pathlib.Path("guard_records"))
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("guard_rates.jsonl"))
    parser.add_argument("--only", default="harmless,defects,coarse")
    parser.add_argument("--classes", default="1,2", help="of the defects")
    parser.add_argument("--programs", default=",".join(PICTURES + OTHERS))
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent / "build" / "release")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--summary", action="store_true", help="of what FILE has, with no run")
    options = parser.parse_args()
    found = []
    if options.out.exists():
        found = [json.loads(line) for line in options.out.read_text().splitlines()]
    done = {name_of(entry) for entry in found}
    classes = [int(word) for word in options.classes.split(",")]
    for entry in cases(options.only.split(","), options.programs.split(","), classes):
        if options.summary or name_of(entry) in done:
            continue
        verdict = run(entry, options)
        if verdict is None:
            continue
        entry = dict(entry, **verdict)
        found.append(entry)
        with options.out.open("a") as file:
            file.write(json.dumps(entry) + "\n")
        word = "passed" if entry["passed"] else "refused" if entry["can_tell"] else "open"
        print("%s: %s, %s" % (name_of(entry), word, entry["text"]), flush=True)
    summary(found)


if __name__ == "__main__":
    main()
