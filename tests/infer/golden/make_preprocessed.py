"""Writes NAME.CROP.f32 for pictures of tests/io/golden: torchvision's Resize and CenterCrop on a picture of
PIL, then ImageNet's mean and deviation, as f32 [3, CROP, CROP]. Made with torchvision 0.29.2, Pillow 13.0.0.

Usage: build/peers/bin/python tests/infer/golden/make_preprocessed.py
"""

import pathlib

from PIL import Image
from torchvision import transforms

FOLDER = pathlib.Path(__file__).resolve().parent
PICTURES = FOLDER.parents[1] / "io" / "golden"

for name in ("rgb.png", "chroma420.jpg"):
    for crop in (12, 24):
        prepare = transforms.Compose([
            transforms.Resize(crop * 5 // 4),
            transforms.CenterCrop(crop),
            transforms.ToTensor(),
            transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        ])
        picture = prepare(Image.open(PICTURES / name).convert("RGB"))
        (FOLDER / f"{name}.{crop}.f32").write_bytes(picture.numpy().tobytes())
