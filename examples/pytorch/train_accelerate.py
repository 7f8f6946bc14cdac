"""Trains a transformer to classify made-up sequences, with Hugging Face Accelerate.

Usage: train_accelerate.py [--steps 1000] [--out accelerate]
"""

import argparse

import numpy as np
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset

WORDS, LENGTH, CLASSES = 500, 48, 4


class Sentences(Dataset):
    """The class is which of four words comes most often."""

    def __init__(self, count):
        generator = np.random.default_rng(0)
        self.words = generator.integers(CLASSES, WORDS, (count, LENGTH))
        self.labels = generator.integers(0, CLASSES, count)
        places = generator.random((count, LENGTH)) < 0.05
        self.words = np.where(places, self.labels[:, None], self.words)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        words = [int(word) for word in self.words[index]]
        return {"words": torch.tensor(words), "label": int(self.labels[index])}


class Classifier(nn.Module):
    def __init__(self, width=96, layers=2):
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.places = nn.Parameter(0.02 * torch.randn(LENGTH, width))
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, words):
        return self.head(self.encoder(self.words(words) + self.places).mean(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--out", default="accelerate")
    options = parser.parse_args()
    set_seed(0)

    accelerator = Accelerator()
    loader = DataLoader(Sentences(8000), batch_size=options.batch, shuffle=True)
    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, 1.0, total_iters=100)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)

    step = 0
    while step < options.steps:
        for batch in loader:
            loss = F.cross_entropy(model(batch["words"]), batch["label"])
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            if step % 50 == 0:
                accelerator.print(f"step {step}: loss {loss.item():.4f}", flush=True)
            step += 1
            if step == options.steps:
                break
    accelerator.save_model(model, options.out)


if __name__ == "__main__":
    main()
