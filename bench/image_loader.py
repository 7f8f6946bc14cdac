#!/usr/bin/env python3
"""Ridge's image loader against torchvision v2 in a PyTorch DataLoader: the same files, the same
work (decode, random resized crop to 224, mirror, normalise to f32, batches of 64).

The peer's best of several worker counts and of two decoders (Pillow, torchvision.io) is found first.
Then both run alternately, and the ratio of each pair is reported with the median and the range.
Run it with build/peers/bin/python after ./dev build and
`ninja -C build/release bench_image_loader make_jpeg_folder`.

Usage: image_loader.py FOLDER [--pairs N] [--seconds S] [--workers N] [--json FILE]
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

warnings.filterwarnings("ignore")

import torch  # noqa: E402
import torchvision  # noqa: E402
from torchvision.transforms import v2  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "build" / "release" / "bench" / "bench_image_loader"
BATCH = 64


def decode_tensor(path):
    return torchvision.io.decode_jpeg(torchvision.io.read_file(path))


def decode_pillow(path):
    from PIL import Image

    return Image.open(path).convert("RGB")


def transforms(decoder):
    steps = [v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip()]
    if decoder is decode_pillow:
        steps.append(v2.ToImage())
    return v2.Compose(
        steps
        + [
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        ]
    )


class Peer:
    """A DataLoader over the folder, its workers kept between measurements."""

    def __init__(self, folder, workers, decoder):
        self.name = f"{decoder.__name__.removeprefix('decode_')}, {workers} workers"
        data = torchvision.datasets.ImageFolder(folder, transforms(decoder), loader=decoder)
        self.loader = torch.utils.data.DataLoader(
            data, BATCH, shuffle=True, num_workers=workers, persistent_workers=workers > 0,
            drop_last=True, prefetch_factor=4 if workers else None,
        )
        self.batches = self.endless()

    def endless(self):
        while True:
            yield from self.loader

    def close(self):
        if self.loader._iterator is not None:  # there is no public way to end kept workers
            self.loader._iterator._shutdown_workers()

    def rate(self, seconds):
        for _ in range(6):
            next(self.batches)
        images, start = 0, time.perf_counter()
        while (passed := time.perf_counter() - start) < seconds:
            images += len(next(self.batches)[1])
        return images / passed


def own_rate(folder, workers, seconds):
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        subprocess.run(
            [PROGRAM, "--folder", folder, "--workers", str(workers), "--batch", str(BATCH),
             "--seconds", str(seconds), "--json", file.name],
            check=True, stdout=subprocess.DEVNULL,
        )
        return json.load(open(file.name))["images_per_second"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json")
    arguments = parser.parse_args()
    tried = {}
    for decoder in (decode_tensor, decode_pillow):
        for workers in sorted({1, arguments.workers, arguments.workers + 1}):
            peer = Peer(arguments.folder, workers, decoder)
            tried[peer.name] = (peer.rate(arguments.seconds), workers, decoder)
            print(f"torchvision, {peer.name}: {tried[peer.name][0]:.0f} images/s", file=sys.stderr)
            peer.close()
    name = max(tried, key=lambda key: tried[key][0])
    best = Peer(arguments.folder, *tried[name][1:])
    pairs = []
    for _ in range(arguments.pairs):
        theirs = best.rate(arguments.seconds)
        # The peer's idle workers have filled their queues by now and sleep.
        time.sleep(0.5)
        ours = own_rate(arguments.folder, arguments.workers, arguments.seconds)
        pairs.append((ours, theirs))
    ratios = [ours / theirs for ours, theirs in pairs]
    result = {
        "schema": "ridge.bench.image_loader_pairs/1",
        "peer": f"torchvision {torchvision.__version__}, {name}",
        "workers": arguments.workers,
        "ours": [ours for ours, _ in pairs],
        "theirs": [theirs for _, theirs in pairs],
        "ratio_median": statistics.median(ratios),
        "ratio_low": min(ratios),
        "ratio_high": max(ratios),
    }
    print(f"ours {statistics.median(result['ours']):.0f} images/s, "
          f"{result['peer']} {statistics.median(result['theirs']):.0f} images/s")
    print(f"ratio {result['ratio_median']:.2f} ({result['ratio_low']:.2f} to "
          f"{result['ratio_high']:.2f} over {len(pairs)} pairs)")
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
