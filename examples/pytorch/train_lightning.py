"""Trains a CNN on made-up pictures with Lightning.

Usage: train_lightning.py [--steps 1000] [--out lightning]
"""

import argparse
import pathlib

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

CLASSES = 10


class Pictures(Dataset):
    """Waves in noise: a class has a direction of its own."""

    def __init__(self, count, size, transform):
        generator = np.random.default_rng(0)
        self.labels = generator.integers(0, CLASSES, count)
        y, x = np.mgrid[0:size, 0:size] / size
        angle = np.pi * self.labels / CLASSES
        along = x * np.cos(angle)[:, None, None] + y * np.sin(angle)[:, None, None]
        wave = 128 + 50 * np.sin(2 * np.pi * 4 * along + generator.uniform(0, 6, (count, 1, 1)))
        noise = generator.normal(0, 30, (count, size, size, 3))
        self.pictures = (wave[..., None] + noise).clip(0, 255).astype(np.uint8)
        self.transform = transform

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.transform(self.pictures[index]), int(self.labels[index])


class Classifier(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, CLASSES),
        )

    def training_step(self, batch, batch_idx):
        images, labels = batch
        loss = F.cross_entropy(self.net(images), labels)
        self.log("loss", loss)
        if self.global_step % 50 == 0:
            print(f"step {self.global_step}: loss {loss.item():.4f}", flush=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--out", type=pathlib.Path, default="lightning")
    options = parser.parse_args()
    L.seed_everything(0)

    transform = transforms.Compose([
        transforms.ToTensor(),
        transforms.Normalize((0.5, 0.5, 0.5), (0.25, 0.25, 0.25)),
    ])
    loader = DataLoader(Pictures(4000, 32, transform), batch_size=options.batch, shuffle=True)
    trainer = L.Trainer(
        max_steps=options.steps, default_root_dir=options.out, enable_progress_bar=False,
    )
    trainer.fit(Classifier(), loader)
    trainer.save_checkpoint(options.out / "model.ckpt")


if __name__ == "__main__":
    main()
