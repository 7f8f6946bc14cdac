"""Trains a small U-Net to find discs among drawn shapes in noise, with flips and changes of brightness.

Usage: unet_segmentation.py [--pictures 2000] [--epochs 3] [--out unet_segmentation.pt]
"""

import argparse

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Shapes(Dataset):
    """Pictures with discs and boxes, and masks of the discs."""

    def __init__(self, count, size, seed, augment=False):
        self.count, self.size, self.seed, self.augment = count, size, seed, augment

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        generator = np.random.default_rng((self.seed, index))
        picture = Image.new("RGB", (self.size, self.size), tuple(generator.integers(0, 120, 3)))
        mask = Image.new("L", (self.size, self.size))
        for kind in generator.integers(0, 2, 6):
            x, y = generator.integers(0, self.size, 2)
            radius = generator.integers(self.size // 16, self.size // 5)
            place = [x - radius, y - radius, x + radius, y + radius]
            shape = "rectangle" if kind else "ellipse"
            getattr(ImageDraw.Draw(picture), shape)(place, fill=tuple(generator.integers(80, 256, 3)))
            getattr(ImageDraw.Draw(mask), shape)(place, fill=0 if kind else 1)
        image = np.asarray(picture, np.float32) + generator.normal(0, 20, (self.size, self.size, 3))
        image = torch.from_numpy(image / 255).permute(2, 0, 1).float()
        mask = torch.from_numpy(np.array(mask)).long()
        if self.augment:
            if torch.rand(()) < 0.5:
                image, mask = image.flip(2), mask.flip(1)
            image = image * (0.8 + 0.4 * torch.rand(()))
        return image, mask


class DoubleConv(nn.Sequential):
    def __init__(self, inputs, outputs):
        super().__init__(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True),
        )


class UNet(nn.Module):
    def __init__(self, classes=2, width=16, depth=3):
        super().__init__()
        widths = [width << level for level in range(depth + 1)]
        self.first = DoubleConv(3, width)
        self.down = nn.ModuleList(DoubleConv(a, b) for a, b in zip(widths, widths[1:]))
        pairs = list(zip(widths, widths[1:]))[::-1]
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in pairs)
        self.join = nn.ModuleList(DoubleConv(2 * a, a) for a, _ in pairs)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        levels = [self.first(x)]
        for layer in self.down:
            levels.append(layer(F.max_pool2d(levels[-1], 2)))
        x = levels.pop()
        for up, join in zip(self.up, self.join):
            x = join(torch.cat([levels.pop(), up(x)], dim=1))
        return self.head(x)


def dice_loss(scores, masks):
    share = scores.softmax(1)[:, 1]
    both = (share * masks).sum((1, 2))
    return 1 - ((2 * both + 1) / (share.sum((1, 2)) + masks.sum((1, 2)) + 1)).mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pictures", type=int, default=2000)
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--out", default="unet_segmentation.pt")
    options = parser.parse_args()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"

    train = DataLoader(Shapes(options.pictures, options.size, seed=0, augment=True),
                       batch_size=options.batch, shuffle=True)
    test = DataLoader(Shapes(options.pictures // 10, options.size, seed=1), batch_size=options.batch)
    model = UNet().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(options.epochs):
        model.train()
        total = 0.0
        for images, masks in train:
            images, masks = images.to(device), masks.to(device)
            optimizer.zero_grad()
            scores = model(images)
            loss = F.cross_entropy(scores, masks) + dice_loss(scores, masks)
            loss.backward()
            optimizer.step()
            total += loss.item() * len(images)
        model.eval()
        both = either = 0
        with torch.no_grad():
            for images, masks in test:
                found = model(images.to(device)).argmax(1).cpu()
                both += ((found == 1) & (masks == 1)).sum().item()
                either += ((found == 1) | (masks == 1)).sum().item()
        print(f"epoch {epoch}: loss {total / len(train.dataset):.4f}, "
              f"intersection over union {both / max(1, either):.4f}", flush=True)
    torch.save(model.state_dict(), options.out)


if __name__ == "__main__":
    main()
