"""Names the class of every picture of a folder with a MobileNetV2, and writes them as CSV.

The model is made from its configuration, with no weights fetched; give --weights FILE for real ones.

Usage: predict_folder.py FOLDER [--out predictions.csv]
"""

import argparse
import csv
import pathlib

import torch
import torchvision
from PIL import Image
from torchvision import transforms


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--weights", help="a state_dict of torchvision's mobilenet_v2")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--out", default="predictions.csv")
    options = parser.parse_args()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"

    model = torchvision.models.mobilenet_v2(weights=None)
    if options.weights:
        model.load_state_dict(torch.load(options.weights))
    model.to(device).eval()
    transform = transforms.Compose([
        transforms.Resize(256),
        transforms.CenterCrop(224),
        transforms.ToTensor(),
        transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ])

    paths = sorted(options.folder.rglob("*.jpg"))
    with open(options.out, "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["picture", "class", "probability"])
        for start in range(0, len(paths), options.batch):
            batch = paths[start:start + options.batch]
            images = torch.stack([transform(Image.open(path).convert("RGB")) for path in batch])
            with torch.no_grad():
                scores = torch.softmax(model(images.to(device)), dim=1).cpu()
            for path, row in zip(batch, scores):
                best = row.argmax().item()
                rows.writerow([path.name, best, f"{row[best].item():.6f}"])
    print(f"{len(paths)} pictures, written to {options.out}")


if __name__ == "__main__":
    main()
