"""Makes a folder of JPEG pictures in ten classes, for the programs here that read such folders.

Usage: make_pictures.py FOLDER [--count 2000] [--size 256]
"""

import argparse
import pathlib

import numpy as np
from PIL import Image


def picture(generator, label, size):
    """Waves of a class's own direction and colour, in noise."""
    y, x = np.mgrid[0:size, 0:size] / size
    angle = np.pi * label / 10 + generator.normal(0, 0.05)
    phase, waves = generator.uniform(0, 2 * np.pi), 4 + label % 5
    wave = np.sin(2 * np.pi * waves * (x * np.cos(angle) + y * np.sin(angle)) + phase)
    tint = np.array([np.cos(label), np.cos(label + 2), np.cos(label + 4)])
    values = 128 + 60 * wave[..., None] * (1 + tint) / 2
    return Image.fromarray((values + generator.normal(0, 20, values.shape)).clip(0, 255).astype("uint8"))


def make(folder, count, size):
    generator = np.random.default_rng(0)
    for i in range(count):
        label = i % 10
        path = folder / f"class{label}" / f"{i:05}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        picture(generator, label, size).save(path, quality=90)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--size", type=int, default=256)
    options = parser.parse_args()
    make(options.folder, options.count, options.size)
