#!/usr/bin/env python3
"""Makes the golden pictures of tests/io/image_test.cc: files that Pillow writes, and what Pillow and
torchvision make of them. Run it with build/peers/bin/python; the output is checked in.

NAME.jpg or NAME.png is the file, NAME.rgb Pillow's decode of it to RGB bytes, and
NAME.crop.f32 torchvision's resized_crop (antialiased, f32) of that decode, to 24 x 24 x 3;
NAME.center.f32 is the central 24 x 24 of it once its short side has 27 pixels.
"""

import pathlib
import struct
import sys
import zlib

import numpy
import torch
from PIL import Image
from torchvision.transforms.v2 import functional

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests" / "io" / "golden"
WIDTH, HEIGHT = 51, 42  # odd against the blocks of 8 and 16


def picture(channels):
    """Smooth waves, an edge and some noise."""
    y, x = numpy.mgrid[0:HEIGHT, 0:WIDTH]
    noise = numpy.random.default_rng(7).normal(0, 6, (HEIGHT, WIDTH, channels))
    planes = [
        128 + 90 * numpy.sin(x / (5 + 3 * c) + c) * numpy.cos(y / (9 - c)) + 30 * (x > y + 10 * c)
        for c in range(channels)
    ]
    return (numpy.stack(planes, -1) + noise).clip(0, 255).astype(numpy.uint8)


def save_floats(path, tensor):
    path.write_bytes(tensor.permute(1, 2, 0).contiguous().numpy().astype("<f4").tobytes())


def write(name, image, crop=None, **options):
    path = FOLDER / name
    if isinstance(image, bytes):
        path.write_bytes(image)
    else:
        image.save(path, **options)
    decoded = numpy.asarray(Image.open(path).convert("RGB"))
    path.with_suffix(".rgb").write_bytes(decoded.tobytes())
    if crop is not None:
        tensor = torch.tensor(decoded).permute(2, 0, 1).float()
        x, y, width, height = crop
        cropped = functional.resized_crop(tensor, y, x, height, width, [24, 24], antialias=True)
        save_floats(path.with_suffix(".crop.f32"), cropped)
        resized = functional.resize(tensor, [24 * 256 // 224], antialias=True)
        save_floats(path.with_suffix(".center.f32"), functional.center_crop(resized, [24, 24]))


def chunk(name, content):
    check = zlib.crc32(name + content)
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", check)


def interlaced(pixels):
    """An Adam7 PNG, which Pillow reads but does not write."""
    height, width, _ = pixels.shape
    passes = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2),
              (0, 1, 1, 2))
    rows = b"".join(
        b"\0" + row.tobytes()
        for x, y, step_x, step_y in passes
        for row in pixels[y::step_y, x::step_x]
    )
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 1)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows))
            + chunk(b"IEND", b""))


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    rgb = Image.fromarray(picture(3))
    write("chroma420.jpg", rgb, crop=(5, 4, 43, 35), quality=85, subsampling=2)
    write("chroma422.jpg", rgb, quality=85, subsampling=1)
    write("chroma444.jpg", rgb, quality=85, subsampling=0)
    write("progressive.jpg", rgb, quality=85, progressive=True)
    write("grey.jpg", Image.fromarray(picture(1)[..., 0]), quality=85)
    write("cmyk.jpg", Image.fromarray(picture(4), "CMYK"), quality=85)
    small = rgb.crop((0, 0, 33, 21))
    write("rgb.png", small, crop=(13, 4, 15, 12))
    write("alpha.png", Image.fromarray(picture(4)[:21, :33], "RGBA"))
    write("palette.png", small.quantize(16))
    write("grey8.png", small.convert("L"))
    write("interlaced.png", interlaced(numpy.asarray(small)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
