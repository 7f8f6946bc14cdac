#!/usr/bin/env python3
"""What `ridge optimize` starts from, beside PyTorch: training as each does it by default, loader
included, on the configurations in bench/optimize/.

PyTorch runs eager with the same model, batch and optimizer (torch.optim.AdamW as it comes), the
default DataLoader, and data sets as their users write them; image models in whichever layout is the
faster. Ridge runs what `ridge optimize` calls the baseline. Both run stretches of steps in
turn; the ratio is PyTorch's time over Ridge's: the median over the rounds with about 95 %
confidence.

With --optimize, `ridge optimize` then looks for a faster way, and `ridge ledger replay` proves what
it claims again three times.

Usage: build/peers/bin/python bench/optimize.py [--threads N] [--rounds N] [--stretch SECONDS]
           [--optimize] [--budget SECONDS] [--json FILE] [CONFIG...]
"""

import argparse
import gzip
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
import tomllib

import numpy
import torch
import torch.nn.functional as F
import torchvision
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset
from torchvision import transforms

from training_step import ROOT, Gpt, interval, make_image_model, make_mlp

PROGRAM = ROOT / "build" / "release" / "ridge"
FOLDER = ROOT / "build" / "optimize"
REPLAYS = 3


# ---- data sets, as users of PyTorch write them ----


class IdxImages(Dataset):
    """Images of an IDX file; `flip` mirrors one in two."""

    def __init__(self, data):
        self.images = read_idx(data["path"]).unsqueeze(1)
        self.labels = read_idx(data["labels"]).long()
        steps = [transforms.RandomHorizontalFlip()] if data.get("flip") else []
        steps += [
            transforms.ConvertImageDtype(torch.float32),
            transforms.Normalize(data["mean"], data["deviation"]),
        ]
        self.transform = transforms.Compose(steps)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, at):
        return self.transform(self.images[at]), self.labels[at]


class Text(Dataset):
    """Tokens, which are bytes, and the ones after them."""

    def __init__(self, data):
        text = b"\0".join(p.read_bytes() for p in text_files(data))
        kept = FOLDER / "tokens.bin"
        kept.write_bytes(text)
        self.tokens = numpy.memmap(kept, dtype=numpy.uint8, mode="r")
        self.context = data["context"]
        samples = (len(text) - 1) // self.context
        self.samples = samples - round(samples * data["eval_fraction"])

    def __len__(self):
        return self.samples

    def __getitem__(self, at):
        begin = at * self.context
        tokens = torch.from_numpy(
            self.tokens[begin : begin + self.context + 1].astype(numpy.int64)
        )
        return tokens[:-1], tokens[1:]


class Lines(Dataset):
    """A line a sample, padded to the context."""

    def __init__(self, data):
        lines = [
            line for p in text_files(data) for line in p.read_bytes().split(b"\n") if line
        ]
        self.lines = lines[: len(lines) - round(len(lines) * data["eval_fraction"])]
        self.context = data["context"]

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, at):
        tokens = torch.tensor(list((self.lines[at] + b"\n")[: self.context + 1]))
        padding = self.context + 1 - len(tokens)
        # What F.cross_entropy ignores.
        return F.pad(tokens[:-1], (0, padding)), F.pad(tokens[1:], (0, padding), value=-100)


def text_files(data):
    files = (p for p in (ROOT / data["path"]).rglob("*") if p.suffix in data["extensions"])
    return sorted(files, key=lambda p: p.as_posix())


def read_idx(path):
    raw = gzip.open(path).read()
    rank = raw[3]
    shape = [int.from_bytes(raw[4 + 4 * i : 8 + 4 * i], "big") for i in range(rank)]
    return torch.frombuffer(bytearray(raw[4 + 4 * rank :]), dtype=torch.uint8).reshape(shape)


def idx(data):
    images = IdxImages(data)
    return images, int(images.labels.max()) + 1


def text(data):
    return (Lines if data.get("samples") == "lines" else Text)(data), 256


def table(data):
    path = ROOT / data["path"]
    columns = path.open().readline().split(",")[:-1]
    rows = torch.from_numpy(numpy.loadtxt(path, delimiter=",", skiprows=1, dtype=numpy.float32))
    x, y = rows[:, : len(columns)], rows[:, -1].long()
    held = round(len(rows) * data["eval_fraction"])
    x, y = x[held:], y[held:]
    return TensorDataset((x - x.mean(0)) / x.std(0), y), int(y.max()) + 1


def pictures(data):
    steps = [transforms.RandomResizedCrop(data["size"])]
    if data.get("flip"):
        steps.append(transforms.RandomHorizontalFlip())
    steps += [transforms.ToTensor(), transforms.Normalize(data["mean"], data["deviation"])]
    folder = torchvision.datasets.ImageFolder(ROOT / data["path"], transforms.Compose(steps))
    held = round(len(folder) * data["eval_fraction"])
    samples = torch.utils.data.random_split(folder, [len(folder) - held, held])[0]
    return samples, len(folder.classes)


# A data set to train on and how many classes it has.
DATA_SETS = {"idx": idx, "text": text, "table": table, "images": pictures}


def make_inputs():
    """The table; pictures are made by another program, whose absence is said by who reads them."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / "table.csv"
    if path.exists():
        return
    rows, columns, classes = 50_000, 100, 10
    rng = numpy.random.default_rng(1)
    x = rng.normal(size=(rows, columns))
    hidden = numpy.tanh(x @ rng.normal(size=(columns, 16)) / 4)
    scores = hidden @ rng.normal(size=(16, classes)) + 0.3 * rng.normal(size=(rows, classes))
    header = ",".join(f"f{i}" for i in range(columns)) + ",label"
    whole = numpy.column_stack([x, scores.argmax(1)])
    part = path.with_suffix(".part")
    numpy.savetxt(
        part, whole, fmt=["%.4f"] * columns + ["%d"], delimiter=",", header=header, comments=""
    )
    part.rename(path)


# ---- PyTorch ----


class ConvNorm(nn.Sequential):
    def __init__(self, inputs, channels, stride=1, kernel=3):
        convolution = nn.Conv2d(inputs, channels, kernel, stride, kernel // 2, bias=False)
        super().__init__(convolution, nn.BatchNorm2d(channels))


class Residual(nn.Module):
    def __init__(self, inputs, channels, stride):
        super().__init__()
        self.first = ConvNorm(inputs, channels, stride)
        self.second = ConvNorm(channels, channels)
        self.shortcut = nn.Identity()
        if inputs != channels or stride != 1:
            self.shortcut = ConvNorm(inputs, channels, stride, kernel=1)

    def forward(self, x):
        return F.relu(self.second(F.relu(self.first(x))) + self.shortcut(x))


def make_cnn(m, channels, outputs):
    widths = m["widths"]
    layers = [ConvNorm(channels, widths[0], m.get("stem_stride", 1)), nn.ReLU()]
    before = widths[0]
    for stage, width in enumerate(widths):
        for block in range(m.get("blocks", 1)):
            layers.append(Residual(before, width, 2 if stage > 0 and block == 0 else 1))
            before = width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, outputs)]
    return nn.Sequential(*layers)


def make_model(m, x, classes):
    """For samples like x, (channels, height, width) where they are images."""
    if m["kind"] == "gpt":
        return Gpt({"vocab": 256, **m})
    if m["kind"] == "mlp":
        return make_mlp({"outputs": classes, **m}, x.numel())
    if m["kind"] == "cnn":
        return make_cnn(m, x.shape[0], classes)
    return make_image_model({"outputs": classes, **m})


class Peer:
    """The training loop of a PyTorch user."""

    def __init__(self, config):
        samples, classes = DATA_SETS[config["data"]["kind"]](config["data"])
        self.loader = DataLoader(samples, batch_size=config["train"]["batch"], shuffle=True)
        self.model = make_model(config["model"], samples[0][0], classes)
        self.layout = torch.contiguous_format
        o = config["optimizer"]
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=float(o["lr"]))
        self.batches = self.endless()

    def endless(self):
        while True:
            yield from self.loader

    def pick_layout(self, steps):
        """Channels last where that is faster."""
        times = {}
        for layout in (torch.channels_last, torch.contiguous_format):
            self.set_layout(layout)
            self.steps(steps)
            times[layout] = self.steps(steps)
        self.set_layout(min(times, key=times.get))

    def set_layout(self, layout):
        self.layout = layout
        self.model.to(memory_format=layout)

    def steps(self, count):
        start = time.perf_counter()
        running = 0.0
        for _ in range(count):
            x, y = next(self.batches)
            if x.dim() == 4:
                x = x.to(memory_format=self.layout)
            loss = F.cross_entropy(self.model(x).flatten(0, -2), y.flatten())
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            running += loss.item()
        self.loss = running / count
        return time.perf_counter() - start


# ---- Ridge ----


class Ridge:
    """The baseline as `ridge optimize` times it: a process that is told how many steps to run."""

    def __init__(self, path, threads):
        self.process = subprocess.Popen(
            [str(PROGRAM), "trial-worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        # A setting stands before the first table.
        self.facts = self.ask({"open": f"threads = {threads}\n{path.read_text()}", "epoch": 0})[
            "facts"
        ]

    def ask(self, request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        answer = json.loads(line) if line else {"error": "ridge trial-worker ended"}
        if "error" in answer:
            sys.exit(f"optimize.py: {answer['error']}")
        return answer

    def steps(self, count):
        return self.ask({"run": count, "kind": "train"})["block"]["seconds"]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def check_same_model(ridge, peer):
    """AdamW keeps two moments a parameter in both; Ridge's state has statistics of norms too."""
    tensors = [*peer.model.parameters(), *peer.model.parameters(), *peer.model.parameters()]
    tensors += [b for b in peer.model.buffers() if b.is_floating_point()]
    theirs, own = sum(t.numel() * 4 for t in tensors), ridge.facts["state_bytes"]
    # Buffers are aligned, and a few hold scalars.
    if not theirs <= own <= theirs * 1.01 + 65536:
        sys.exit(f"optimize.py: the models differ: Ridge has {own} bytes of state, PyTorch {theirs}")


def default_threads():
    return len(os.sched_getaffinity(0))


def compare(path, config, arguments):
    """Baseline and PyTorch in turn."""
    ridge = Ridge(path, arguments.threads)
    peer = Peer(config)
    check_same_model(ridge, peer)
    peer.steps(2)
    if config["model"]["kind"] not in ("gpt", "mlp"):
        peer.pick_layout(5)
    runs = {"ridge": ridge, "eager": peer}
    counts, times = {}, {name: [] for name in runs}
    for name, run in runs.items():
        run.steps(3)
        counts[name] = max(1, round(arguments.stretch / (run.steps(5) / 5)))
    for _ in range(arguments.rounds):
        for name, run in runs.items():
            times[name].append(run.steps(counts[name]) / counts[name])
    ridge.close()
    ratios = [theirs / own for theirs, own in zip(times["eager"], times["ridge"])]
    low, high = interval(ratios)
    return {
        "config": path.stem,
        "step_ms": {name: 1e3 * statistics.median(values) for name, values in times.items()},
        "ratio": statistics.median(ratios),
        "interval": [low, high],
        "rounds": arguments.rounds,
        "channels_last": peer.layout == torch.channels_last,
    }


def run_json(words):
    """What a verb of ridge says on stdout with --json. Its table goes to where ours goes."""
    done = subprocess.run(
        [str(PROGRAM), *map(str, words), "--json"], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    if not done.stdout:
        sys.exit(f"optimize.py: ridge {words[0]} ended with {done.returncode} and said nothing")
    return json.loads(done.stdout)


def optimize(path, arguments):
    """The claim, and what proving it again in fresh processes says."""
    out = FOLDER / path.stem
    started = time.perf_counter()
    words = ["optimize", path, "--budget", arguments.budget, "--out", out]
    # A setting on the command line is none that optimize may change.
    if arguments.threads != default_threads():
        words += ["--set", f"threads={arguments.threads}"]
    found = run_json(words)
    seconds = time.perf_counter() - started
    claim, replays = found["claim"], []
    if claim["speedup"] > 1:
        replays = [run_json(["ledger", "replay", out / "ledger.jsonl"]) for _ in range(REPLAYS)]
    # A replay with too few pairs has no interval: null.
    agree = [
        r["lo"] is not None and 1 < r["lo"] <= claim["hi"] and r["hi"] >= claim["lo"]
        for r in replays
    ]
    return {
        "claim": claim,
        "seconds": seconds,
        "guard": found["guard"],
        "recipe": found["recipe"],
        "replays": replays,
        "replays_agree": sum(agree),
    }


def range_text(claim):
    if claim["lo"] is None:
        return f"{claim['speedup']:.2f} (no interval)"
    return f"{claim['speedup']:.2f} ({claim['lo']:.2f} to {claim['hi']:.2f})"


def print_optimized(found):
    print(
        f"  optimize: {range_text(found['claim'])} in {found['seconds']:.0f} s,"
        f" guard {found['guard']['verdict']}"
    )
    for replay in found["replays"]:
        print(f"  replay:   {range_text(replay)}")
    if found["replays"]:
        print(f"  {found['replays_agree']} of {REPLAYS} above 1 and overlapping the claim")
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=default_threads())
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--stretch", type=float, default=0.5, help="seconds of steps at a time")
    parser.add_argument("--optimize", action="store_true")
    parser.add_argument("--budget", type=float, default=120)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("configs", nargs="*", type=pathlib.Path)
    arguments = parser.parse_args()
    if not PROGRAM.exists():
        sys.exit("optimize.py: build/release/ridge is missing; ./dev build makes it")
    torch.set_num_threads(arguments.threads)
    make_inputs()
    configs = arguments.configs or [
        ROOT / "examples" / "fashion_mnist.toml",
        *sorted((ROOT / "bench" / "optimize").glob("*.toml")),
    ]
    results = []
    print(f"torch {torch.__version__}, {arguments.threads} threads; ms a step, loader included")
    print(f"{'workload':14} {'ridge':>9} {'eager':>9} {'ratio':>7}  interval")
    for path in configs:
        path = path.resolve()
        config = tomllib.loads(path.read_text())
        r = compare(path, config, arguments)
        ms, (low, high) = r["step_ms"], r["interval"]
        print(
            f"{r['config']:14} {ms['ridge']:9.2f} {ms['eager']:9.2f} {r['ratio']:7.2f}"
            f"  {low:.2f} to {high:.2f}",
            flush=True,
        )
        if arguments.optimize:
            r["optimized"] = optimize(path, arguments)
            print_optimized(r["optimized"])
        results.append(r)
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(
            json.dumps({"torch": torch.__version__, "results": results}, indent=1)
        )


if __name__ == "__main__":
    main()
