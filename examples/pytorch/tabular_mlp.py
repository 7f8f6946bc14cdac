"""Trains an MLP on a table of numbers and categories, as in a Kaggle notebook.

Usage: tabular_mlp.py [--rows 200000] [--epochs 3] [--out tabular_mlp.pt]
"""

import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CATEGORIES = (12, 30, 7, 100)
NUMBERS = 24


class Table(Dataset):
    """Rows of a made-up table: the target is a noisy function of some columns."""

    def __init__(self, rows, seed):
        generator = np.random.default_rng(seed)
        self.numbers = generator.normal(size=(rows, NUMBERS)).astype(np.float32)
        self.categories = np.stack([generator.integers(0, n, rows) for n in CATEGORIES], axis=1)
        target = np.tanh(self.numbers[:, 0] * self.numbers[:, 1]) + np.sin(self.numbers[:, 2])
        target += (self.categories[:, 0] % 3 == 1) - 0.5 * (self.categories[:, 3] % 7 == 2)
        self.target = (target + generator.normal(0, 0.1, rows)).astype(np.float32)

    def __len__(self):
        return len(self.target)

    def __getitem__(self, index):
        return (torch.from_numpy(self.numbers[index]), torch.from_numpy(self.categories[index]),
                torch.tensor(self.target[index]))


class Model(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.embeddings = nn.ModuleList(nn.Embedding(n, min(16, n // 2)) for n in CATEGORIES)
        inputs = NUMBERS + sum(table.embedding_dim for table in self.embeddings)
        layers = []
        for _ in range(3):
            layers += [nn.Linear(inputs, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.1)]
            inputs = width
        self.layers = nn.Sequential(*layers, nn.Linear(inputs, 1))

    def forward(self, numbers, categories):
        columns = [table(categories[:, i]) for i, table in enumerate(self.embeddings)]
        return self.layers(torch.cat([numbers, *columns], dim=1)).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--out", default="tabular_mlp.pt")
    options = parser.parse_args()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"

    loader = DataLoader(Table(options.rows, seed=0), batch_size=options.batch, shuffle=True)
    held_out = DataLoader(Table(options.rows // 10, seed=1), batch_size=4096)
    model = Model().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.MSELoss()
    for epoch in range(options.epochs):
        model.train()
        total = 0.0
        for numbers, categories, target in loader:
            numbers, categories = numbers.to(device), categories.to(device)
            target = target.to(device)
            optimizer.zero_grad()
            loss = criterion(model(numbers, categories), target)
            loss.backward()
            optimizer.step()
            total += loss.item() * len(target)
        model.eval()
        with torch.no_grad():
            error = sum(criterion(model(n.to(device), c.to(device)), t.to(device)).item() * len(t)
                        for n, c, t in held_out)
        print(f"epoch {epoch}: loss {total / len(loader.dataset):.4f}, "
              f"held out {error / len(held_out.dataset):.4f}", flush=True)
    torch.save(model.state_dict(), options.out)


if __name__ == "__main__":
    main()
