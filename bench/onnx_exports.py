#!/usr/bin/env python3
"""How far Ridge and ONNX Runtime are from PyTorch on models that PyTorch's two exporters wrote.

Each model has weights of a seed, at a scale at which numbers neither vanish nor grow: batch norms have the
statistics of random pictures, and parameters that begin as a constant (heads of zeros, scales of layers)
are drawn. Its module runs in f64, the same weights as ONNX in f32 by ONNX Runtime and by `ridge predict`,
for several sizes of each dimension that the export leaves open. A distance is the largest |y - y64| over
the largest |y64|, and the root of the mean square over that of y64; over all sizes the worst. The line is
held where Ridge's are at most twice ONNX Runtime's, or below one rounding of f32 (2^-23).

What an exporter refuses is told, and breaks the line only where both refuse the model. Exports that lie in
FOLDER are used again. Exit code 1 where the line is not held.

Usage: build/peers/bin/python bench/onnx_exports.py [--out FOLDER] [--json FILE] [--ridge PROGRAM]
           [--exporter torchscript|dynamo] [MODEL...]
"""

import argparse
import contextlib
import dataclasses
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import warnings

import numpy as np
import onnxruntime
import torch
import torchvision
from torch import nn

ROOT = pathlib.Path(__file__).resolve().parent.parent
SEED = 20261127
ROUNDING = 2.0**-23
MOST_RATIO = 2.0
EXPORTERS = ("torchscript", "dynamo")


class UNet(nn.Module):
    """Four levels with skips, as Ronneberger's: convolutions down, transposed ones up, one bilinear."""

    def __init__(self, widths=(16, 32, 64, 128)):
        super().__init__()
        self.down, before = nn.ModuleList(), 3
        for width in widths:
            self.down.append(self.block(before, width))
            before = width
        self.up, self.join = nn.ModuleList(), nn.ModuleList()
        for number, width in enumerate(reversed(widths[:-1])):
            self.up.append(
                nn.ConvTranspose2d(before, width, 2, stride=2) if number < 2 else
                nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(before, width, 1)))
            self.join.append(self.block(2 * width, width))
            before = width
        self.head = nn.Conv2d(before, 4, 1)

    @staticmethod
    def block(before, width):
        return nn.Sequential(
            nn.Conv2d(before, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())

    def forward(self, x):
        skips = []
        for block in self.down[:-1]:
            x = block(x)
            skips.append(x)
            x = nn.functional.max_pool2d(x, 2)
        x = self.down[-1](x)
        for up, join, skip in zip(self.up, self.join, reversed(skips)):
            x = join(torch.cat([skip, up(x)], 1))
        return self.head(x)


class Bert(nn.Module):
    """BERT-base: the last hidden states of tokens, some of which are padding."""

    def __init__(self):
        super().__init__()
        from transformers import BertConfig, BertModel
        self.model = BertModel(BertConfig(), add_pooling_layer=False)

    def forward(self, ids, mask):
        return self.model(input_ids=ids, attention_mask=mask).last_hidden_state


class Gpt2(nn.Module):
    """GPT-2 of 124 M parameters: the logits of all tokens."""

    def __init__(self):
        super().__init__()
        from transformers import GPT2Config, GPT2LMHeadModel
        self.model = GPT2LMHeadModel(GPT2Config())

    def forward(self, ids):
        return self.model(input_ids=ids, use_cache=False).logits


@dataclasses.dataclass
class Entry:
    build: object       # makes the module
    inputs: dict        # by name: the sizes and names of dimensions, and what the data are
    exported: dict      # the sizes with which it is exported
    sizes: list         # those with which it is compared

    def data(self, binding, seed):
        random = np.random.default_rng(seed)
        data = {}
        for name, (dims, kind) in self.inputs.items():
            shape = [binding.get(dim, dim) for dim in dims]
            if kind == "picture":
                data[name] = random.standard_normal(shape).astype(np.float32)
            elif kind == "tokens":
                data[name] = random.integers(0, 30000, shape)
            else:  # tokens of which the last row's end is padding
                data[name] = np.ones(shape, np.int64)
                data[name][-1, (shape[1] + 1) // 2 + 1:] = 0
        return data


def pictures(name, size=224, dims=("N", 3)):
    build = name if callable(name) else lambda: getattr(torchvision.models, name)(weights=None)
    return Entry(build, {"x": ((*dims, size, size), "picture")}, {"N": 2}, [{"N": 1}, {"N": 3}])


def texts(build, **inputs):
    sizes = [{"N": 1, "T": 7}, {"N": 2, "T": 24}, {"N": 3, "T": 33}]
    return Entry(build, {name: (("N", "T"), kind) for name, kind in inputs.items()}, {"N": 2, "T": 16}, sizes)


MODELS = {
    "resnet50": pictures("resnet50"),
    "mobilenet_v2": pictures("mobilenet_v2"),
    "mobilenet_v3_large": pictures("mobilenet_v3_large"),
    "efficientnet_b0": pictures("efficientnet_b0"),
    "densenet121": pictures("densenet121"),
    "convnext_tiny": pictures("convnext_tiny"),
    "shufflenet_v2_x1_0": pictures("shufflenet_v2_x1_0"),
    "vit_b_16": pictures("vit_b_16"),
    "swin_t": pictures("swin_t"),
    "bert_base": texts(Bert, ids="tokens", mask="mask"),
    "gpt2": texts(Gpt2, ids="tokens"),
    "unet": pictures(UNet, 96),
}


def draw_constants(module):
    """Parameters that begin as one number would hide what multiplies them."""
    with torch.no_grad():
        for parameter in module.parameters():
            first = parameter.flatten()[0].item()
            if parameter.numel() == 1 or not torch.all(parameter == first):
                continue
            if first == 0:
                parameter.normal_(0, 0.02)
            elif first == 1:
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
            else:  # ConvNeXt's scales of 1e-6
                parameter.uniform_(0.2, 1)


def calibrate_norms(module, entry):
    """Batch norms take the statistics of the layer before them, as training would have it."""
    norms = [each for each in module.modules() if isinstance(each, nn.BatchNorm2d)]
    if not norms:
        return
    for norm in norms:
        norm.momentum = 1.0
        norm.train()
    data = entry.data({**entry.exported, "N": 4}, SEED)
    with torch.no_grad():
        module(*(torch.from_numpy(each) for each in data.values()))
    module.eval()


def make_module(entry):
    torch.manual_seed(SEED)
    module = entry.build().eval()
    draw_constants(module)
    calibrate_norms(module, entry)
    return module


def export(module, entry, exporter, path):
    """Raises whatever the exporter does."""
    arguments = tuple(torch.from_numpy(each) for each in entry.data(entry.exported, SEED).values())
    names = list(entry.inputs)
    axes = {name: {axis: dim for axis, dim in enumerate(dims) if isinstance(dim, str)}
            for name, (dims, _) in entry.inputs.items()}
    scratch = path.with_suffix(".part")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    file = scratch / "model.onnx"
    with contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if exporter == "dynamo":
            torch.onnx.export(module, arguments, str(file), input_names=names, output_names=["y"],
                              dynamo=True, dynamic_shapes=tuple(axes.values()), verbose=False)
        else:
            torch.onnx.export(module, arguments, str(file), input_names=names, output_names=["y"],
                              dynamo=False, dynamic_axes=axes, opset_version=17)
    scratch.rename(path)


def run_onnxruntime(path, inputs):
    """The outputs for each of `inputs`."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    taken = {each.name for each in session.get_inputs()}
    return [session.run(None, {name: each for name, each in data.items() if name in taken})[0]
            for data in inputs]


def run_ridge(program, path, inputs):
    """The outputs for each of `inputs`. RuntimeError with what Ridge says where it does not run."""
    outputs = []
    for data in inputs:
        with tempfile.TemporaryDirectory() as folder:
            command = [program, "predict", str(path), "--output", f"{folder}/y.npz", "--json"]
            for name, each in data.items():
                np.save(f"{folder}/{name}.npy", each)
                command += ["--input", f"{name}={folder}/{name}.npy"]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                raise RuntimeError(done.stderr.strip())
            with np.load(f"{folder}/y.npz") as arrays:
                outputs.append(arrays[arrays.files[0]])
    return outputs


def distance(outputs, references):
    """The worst over all sizes: of the largest element, and of the root of the mean square."""
    largest, root = 0.0, 0.0
    for output, reference in zip(outputs, references, strict=True):
        if output.shape != reference.shape:
            raise RuntimeError(f"the output is {output.shape}, and PyTorch's {reference.shape}")
        error = output.astype(np.float64) - reference
        if not np.isfinite(error).all():
            return {"max": math.inf, "rms": math.inf}
        largest = max(largest, float(np.abs(error).max() / np.abs(reference).max()))
        root = max(root, float(np.sqrt(np.mean(error**2) / np.mean(reference**2))))
    return {"max": largest, "rms": root}


def ratio(ours, theirs):
    return {key: ours[key] / max(theirs[key], ROUNDING / 16) for key in ours}


def is_held(ours, theirs):
    return all(ours[key] <= max(MOST_RATIO * theirs[key], ROUNDING) for key in ours)


def compare(path, inputs, references, program):
    """A row of the table: distances, or why there are none."""
    row = {"bytes": sum(each.stat().st_size for each in path.parent.iterdir())}
    try:
        row["onnxruntime"] = distance(run_onnxruntime(path, inputs), references)
    except Exception as error:  # noqa: BLE001: of whatever kind, it is told
        row["onnxruntime_error"] = str(error)[:500]
    start = time.monotonic()
    try:
        row["ridge"] = distance(run_ridge(program, path, inputs), references)
        row["ridge_seconds"] = time.monotonic() - start
    except RuntimeError as error:
        row["ridge_error"] = str(error)[:2000]
    if "ridge" in row and "onnxruntime" in row:
        row["ratio"] = ratio(row["ridge"], row["onnxruntime"])
        row["held"] = is_held(row["ridge"], row["onnxruntime"])
    else:
        # What ONNX Runtime does not run says nothing of Ridge, unless it refuses, too.
        row["held"] = "ridge" in row
    return row


def study(name, exporters, options):
    """The rows of one model, an exporter each."""
    entry = MODELS[name]
    module = make_module(entry)
    rows = []
    for exporter in exporters:
        row = {"model": name, "exporter": exporter}
        path = options.out / f"{name}.{exporter}"
        start = time.monotonic()
        try:
            if not path.exists():
                export(module, entry, exporter, path)
            row["export_seconds"] = time.monotonic() - start
        except Exception as error:  # noqa: BLE001: exporters raise what they like
            row["export_error"] = f"{type(error).__name__}: {error}"[:500]
        rows.append(row)
    inputs = [entry.data(binding, SEED + 1 + number) for number, binding in enumerate(entry.sizes)]
    module = module.double()
    references = []
    with torch.no_grad():
        for data in inputs:
            tensors = (torch.from_numpy(each) for each in data.values())
            y = module(*(each.double() if each.is_floating_point() else each for each in tensors))
            references.append(y.numpy())
    del module
    for row in rows:
        if "export_error" not in row:
            path = options.out / f"{name}.{row['exporter']}" / "model.onnx"
            row.update(sizes=entry.sizes, **compare(path, inputs, references, options.ridge))
        print(text_of(row), flush=True)
    if all("export_error" in row for row in rows):
        for row in rows:
            row["held"] = False
    return rows


def text_of(row):
    head = f"{row['model']:20} {row['exporter']:12}"
    for key, who in (("export_error", "not exported"), ("ridge_error", "ridge"),
                     ("onnxruntime_error", "onnxruntime")):
        if key in row:
            return f"{head} {who}: {' '.join(row[key].split())[:300]}"
    cells = [f"{row[who][key]:9.2e}" for key in ("max", "rms") for who in ("ridge", "onnxruntime")]
    ratios = "  ".join(f"{row['ratio'][key]:5.2f}" for key in ("max", "rms"))
    return f"{head} {'  '.join(cells)}  {ratios}  {'held' if row['held'] else 'NOT HELD'}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "onnx_exports")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--ridge", default=str(ROOT / "build" / "release" / "ridge"))
    parser.add_argument("--exporter", choices=EXPORTERS)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(MODELS))
    options = parser.parse_args()
    if unknown := set(options.models) - set(MODELS):
        parser.error(f"no model {sorted(unknown)}; there are {', '.join(MODELS)}")
    os.environ["HF_HUB_OFFLINE"] = "1"  # nothing is fetched
    exporters = [options.exporter] if options.exporter else EXPORTERS
    print(f"{'model':20} {'exporter':12} {'max: ridge':>9}  {'ORT':>9}  {'rms: ridge':>9}  {'ORT':>9}  ratios")
    rows = []
    for name in options.models or MODELS:
        rows += study(name, exporters, options)
        if options.json:
            document = {"schema": "ridge.onnx_exports/1", "torch": torch.__version__,
                        "onnxruntime": onnxruntime.__version__, "most_ratio": MOST_RATIO,
                        "least": ROUNDING, "results": rows}
            options.json.parent.mkdir(parents=True, exist_ok=True)
            options.json.write_text(json.dumps(document, indent=2) + "\n")
    broken = [f"{row['model']} ({row['exporter']})" for row in rows if not row.get("held", True)]
    compared = sum("ratio" in row for row in rows)
    print(f"onnx_exports: {compared} exports compared, {len(broken)} not held"
          + (f": {', '.join(broken)}" if broken else ""))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
