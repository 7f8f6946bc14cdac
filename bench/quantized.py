#!/usr/bin/env python3
"""INT8 on the CPU: Ridge in turn with ONNX Runtime and OpenVINO, and how much noise each adds.

The models are those of onnx_exports.py, with random weights whose norms were calibrated. The peers' own tools
quantize them on 32 drawn samples (quantized_files.py has the ways), and so does `ridge quantize`; Ridge also runs
ONNX Runtime's files. Each engine, its f32 too, has the model open in a process of its own, which is stopped while
others run. A round runs a stretch of each, beginning with another one each time; a ratio is a peer's time over that
of Ridge's INT8, the median over the rounds, with the interval that order statistics give. Signal to noise is that of
the outputs for held-out samples against ONNX Runtime in f32, in decibels.

A peer is judged by the fastest of its INT8 engines. The line is held where Ridge is at least as fast in the
geometric mean, and nowhere noisier than the engine that it is compared with.

Without VNNI, weights have 7 bits for ONNX Runtime, which is what its documentation asks for there. Files stay in
build/quantized/MODEL, and are used again. Ridge needs the package of Python: build/peers/bin/python with PYTHONPATH
naming a folder that has it.

Usage: PYTHONPATH=SITE build/peers/bin/python bench/quantized.py [--models NAME,...] [--batch 1,8] [--threads N]
           [--rounds N] [--stretch SECONDS] [--engines NAME,...] [--ridge PROGRAM] [--out FILE]
"""

import argparse
import json
import math
import os
import pathlib
import signal
import statistics
import sys

import numpy as np

import onnx_exports
from quantized_engines import (
    ENGINES, PROGRAM, ROOT, Engine, Failed, check_peers, in_turn, instruction_set, is_quantized, peer_of, quantize,
    signal_to_noise,
)
from training_step import interval

SAMPLES = 32
LENGTH = 128  # of texts
CALIBRATION_SEED, HELD_OUT_SEED = 1000, 2000
TRANSFORMERS = {"vit_b_16": "vit,12,768", "bert_base": "bert,12,768"}  # family, heads, width
MODELS = ("resnet50", "mobilenet_v2", "efficientnet_b0", "vit_b_16", "bert_base")
# The limit of `ridge quantize`, in percent of the outputs' power, so that times are compared at equal noise: over 0.9,
# the share of it that the choice of sites uses, what the quieter of the peers' fastest engines adds.
MOST_DROP = {"resnet50": 3.4, "mobilenet_v2": 4.7, "efficientnet_b0": 8.8, "vit_b_16": 0.16, "bert_base": 0.07}
OWN = ("ridge int8", "ridge on static_u8s8", "ridge on static_products", "ridge on dynamic")


def samples(name, count, seed):
    return onnx_exports.MODELS[name].data({"N": count, "T": LENGTH}, seed)


def exported(name):
    """The path of the model in f32."""
    folder = ROOT / "build" / "onnx_exports" / f"{name}.torchscript"
    if not folder.exists():
        entry = onnx_exports.MODELS[name]
        onnx_exports.export(onnx_exports.make_module(entry), entry, "torchscript", folder)
    return folder / "model.onnx"


def quantized_files(name, model, program=PROGRAM):
    """The folder with the model's files, and why some are missing."""
    folder = ROOT / "build" / "quantized" / name
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "calibration.npz"
    if not data.exists():
        np.savez(data, **samples(name, SAMPLES, CALIBRATION_SEED))
    return folder, quantize(model, data, folder, program, TRANSFORMERS.get(name, ""), MOST_DROP[name])


def opened(names, model, folder, failed, threads, inputs):
    """Engines by name, and why some are missing."""
    engines, missing = {}, {}
    for name in names:
        runtime, file = ENGINES[name]
        if file in failed:
            missing[name] = failed[file]
        elif file == "model" or (folder / file).exists():
            try:
                engines[name] = Engine(runtime, str(model if file == "model" else folder / file), threads, inputs)
            except Failed as error:
                missing[name] = str(error)
    return engines, missing


def judged(times, noise):
    """For each peer its fastest INT8 engine against ours: Ridge's own file, or without one the fastest that it runs."""
    there = [name for name in OWN if name in times]
    if not there:
        return None, {}
    own = there[0] if there[0] == OWN[0] else min(there, key=lambda name: statistics.median(times[name]))
    found = {}
    for peer in ("ort", "openvino"):
        names = [name for name in times if peer_of(name) == peer and is_quantized(name)]
        if names:
            best = min(names, key=lambda name: statistics.median(times[name]))
            found[peer] = {"engine": best, **ratio(times[best], times[own]), "quieter_by": noise[own] - noise[best]}
    if "ridge f32" in times:
        found["ridge f32"] = {"engine": "ridge f32", **ratio(times["ridge f32"], times[own])}
    return own, found


def ratio(slower, faster):
    pairs = [a / b for a, b in zip(slower, faster)]
    return {"ratio": statistics.median(pairs), "interval": list(interval(pairs))}


def study(name, batch, options):
    """The row of a model and a batch."""
    model = exported(name)
    folder, failed = quantized_files(name, model, options.ridge)
    engines, missing = opened(options.engines, model, folder, failed, options.threads,
                              samples(name, batch, HELD_OUT_SEED))
    try:
        if "ort f32" not in engines:
            raise SystemExit(f"ONNX Runtime in f32 is the reference: {missing.get('ort f32', 'it was left out')}")
        reference = engines["ort f32"].output()
        noise = {each: signal_to_noise(engine.output(), reference) for each, engine in engines.items()}
        times = in_turn(engines, options.rounds, options.stretch)
        versions = {peer_of(each): engine.version for each, engine in engines.items()}
    finally:
        for engine in engines.values():
            engine.close()
    own, against = judged(times, noise)
    return {
        "model": name, "batch": batch, "threads": options.threads, "versions": versions, "missing": missing,
        "engines": {each: {"ms": 1e3 * statistics.median(times[each]), "least_ms": 1e3 * min(times[each]),
                           "signal_to_noise": noise[each] if math.isfinite(noise[each]) else None}
                    for each in engines},
        "own": own, "against": against,
    }


def text_of(row):
    lines = [f"{row['model']}, batch {row['batch']}"]
    for name, cells in row["engines"].items():
        noise = cells["signal_to_noise"]
        lines.append(f"  {name:34}{cells['ms']:10.2f} ms ({cells['least_ms']:.2f})"
                     + (f"{noise:9.1f} dB" if noise is not None else ""))
    lines += [f"  {name:34}missing: {why}" for name, why in row["missing"].items()]
    for peer, cells in row["against"].items():
        low, high = cells["interval"]
        quieter = f", {cells['quieter_by']:+.1f} dB" if "quieter_by" in cells else ""
        lines.append(f"  {row['own']} is {cells['ratio']:.2f} ({low:.2f} to {high:.2f}) times as fast as "
                     f"{cells['engine']}{quieter}")
    return "\n".join(lines)


def summary(rows):
    """For each peer, and for both, the geometric mean and how many rows are noisier."""
    found = {}
    for peer in ("ort", "openvino", "the faster of both"):
        cells = []
        for row in rows:
            peers = [row["against"][each] for each in ("ort", "openvino") if each in row["against"]]
            if peer in row["against"]:
                cells.append(row["against"][peer])
            elif peer == "the faster of both" and peers:
                cells.append(min(peers, key=lambda each: each["ratio"]))
        if cells:
            mean = math.exp(statistics.fmean(math.log(each["ratio"]) for each in cells))
            found[peer] = {"geometric_mean": mean, "rows": len(cells),
                           "noisier": sum(each["quieter_by"] < 0 for each in cells)}
    return found


def list_of(kind, known):
    def parse(text):
        found = [kind(each) for each in text.split(",")]
        if known is not None and (unknown := [each for each in found if each not in known]):
            raise argparse.ArgumentTypeError(f"there is no {unknown[0]!r}; there are {', '.join(known)}")
        return found

    return parse


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--models", type=list_of(str, MODELS), default=list(MODELS))
    parser.add_argument("--batch", type=list_of(int, None), default=[1, 8])
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--stretch", type=float, default=0.3, help="seconds of each engine in a round, at least a run")
    parser.add_argument("--engines", type=list_of(str, ENGINES), default=list(ENGINES), help=", ".join(ENGINES))
    parser.add_argument("--ridge", default=PROGRAM, help="the program that quantizes")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    check_peers()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # engines are closed
    os.environ["HF_HUB_OFFLINE"] = "1"  # nothing is fetched
    print(f"{instruction_set()}, {options.threads} threads, {options.rounds} rounds")
    rows = []
    for name in options.models:
        for batch in options.batch:
            rows.append(study(name, batch, options))
            print(text_of(rows[-1]), flush=True)
            if options.out:
                options.out.parent.mkdir(parents=True, exist_ok=True)
                document = {"schema": "ridge.quantized/1", "instructions": instruction_set(),
                            "rounds": options.rounds, "results": rows, "summary": summary(rows)}
                options.out.write_text(json.dumps(document, indent=1) + "\n")
    found = summary(rows)
    for peer, cells in found.items():
        print(f"{peer}: {cells['geometric_mean']:.2f} times as fast in the geometric mean of {cells['rows']} rows, "
              f"{cells['noisier']} of them noisier")
    return 0 if found and all(each["geometric_mean"] >= 1 and not each["noisier"] for each in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
