"""Trains a recommender of the DLRM kind on a made-up log of clicks: embeddings, their products, an MLP.

Usage: recommender.py [--rows 200000] [--epochs 2] [--out recommender.pt]
"""

import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

NUMBERS = 13
# Distinct values of each column: users and items, then what describes them and where they met.
CATEGORIES = (30_000, 20_000, 8_000, 3_000, 1_000, 500, 200, 100, 50, 24, 12, 7)


class ClickLog(Dataset):
    """Rows of numbers, categories and a click; a few values of a category have most of the rows."""

    def __init__(self, rows, seed):
        generator = np.random.default_rng(seed)
        self.numbers = generator.lognormal(size=(rows, NUMBERS)).astype(np.float32)
        columns = [(n * generator.random(rows) ** 3).astype(np.int64) for n in CATEGORIES]
        self.categories = np.stack(columns, axis=1)
        score = np.sin(columns[0] * 0.7) * np.cos(columns[1] * 0.3) + 0.5 * np.sin(columns[9])
        score += 0.3 * np.log1p(self.numbers[:, 0]) - 1.2
        self.clicks = (generator.random(rows) < 1 / (1 + np.exp(-2 * score))).astype(np.float32)

    def __len__(self):
        return len(self.clicks)

    def __getitem__(self, index):
        numbers = np.log1p(self.numbers[index])
        return torch.from_numpy(numbers), torch.from_numpy(self.categories[index]), self.clicks[index]


def mlp(*widths):
    layers = []
    for inputs, outputs in zip(widths, widths[1:]):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Dlrm(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(n, width) for n in CATEGORIES)
        self.bottom = mlp(NUMBERS, 128, 64, width)
        vectors = len(CATEGORIES) + 1
        self.top = mlp(width + vectors * (vectors - 1) // 2, 256, 128, 1)

    def forward(self, numbers, categories):
        dense = self.bottom(numbers)
        vectors = [dense] + [table(categories[:, i]) for i, table in enumerate(self.tables)]
        stacked = torch.stack(vectors, dim=1)
        products = torch.bmm(stacked, stacked.transpose(1, 2))
        row, column = torch.tril_indices(len(vectors), len(vectors), offset=-1)
        pairs = products[:, row, column]
        return self.top(torch.cat([dense, pairs], dim=1)).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--out", default="recommender.pt")
    options = parser.parse_args()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"

    loader = DataLoader(ClickLog(options.rows, seed=0), batch_size=options.batch, shuffle=True)
    held_out = DataLoader(ClickLog(options.rows // 10, seed=1), batch_size=4096)
    model = Dlrm().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.BCEWithLogitsLoss()
    for epoch in range(options.epochs):
        model.train()
        total = 0.0
        for numbers, categories, clicks in loader:
            numbers, categories = numbers.to(device), categories.to(device)
            clicks = clicks.to(device)
            optimizer.zero_grad()
            loss = criterion(model(numbers, categories), clicks)
            loss.backward()
            optimizer.step()
            total += loss.item() * len(clicks)
        model.eval()
        with torch.no_grad():
            error = sum(criterion(model(n.to(device), c.to(device)), y.to(device)).item() * len(y)
                        for n, c, y in held_out)
        print(f"epoch {epoch}: loss {total / len(loader.dataset):.4f}, "
              f"held out {error / len(held_out.dataset):.4f}", flush=True)
    torch.save(model.state_dict(), options.out)


if __name__ == "__main__":
    main()
