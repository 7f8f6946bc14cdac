"""Its loss is lost under bf16: distances as the small difference of large products.

A network of radial functions. The values lie far from zero, as prices or temperatures do;
|x - c|^2 = x.x - 2 x.c + c.c has four digits left in f32, and none where x.c has the eight bits of
bf16.
"""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import program

INPUTS, CENTERS, CLASSES, OFFSET = 1024, 1024, 10, 50.0


class Measured(Dataset):
    """Rows around one middle per class, calibrated one by one."""

    def __init__(self, rows):
        generator = np.random.default_rng(0)
        middles = generator.normal(0, 1, (CLASSES, INPUTS))
        self.labels = generator.integers(0, CLASSES, rows)
        noise = generator.normal(0, 1, (rows, INPUTS))
        self.rows = (OFFSET + middles[self.labels] + noise).astype(np.float32)
        self.drift = np.linspace(-0.1, 0.1, INPUTS, dtype=np.float32)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        row = self.rows[index]
        row = row - self.drift * (index % 7) / 7
        row = np.where(np.abs(row - OFFSET) > 6, OFFSET, row)
        return torch.tensor(row, dtype=torch.float32), int(self.labels[index])


class Radial(nn.Module):
    def __init__(self, centers):
        super().__init__()
        self.centers = nn.Parameter(centers.clone())
        self.log_width = nn.Parameter(torch.tensor(np.log(2.0 * INPUTS)).float())
        self.head = nn.Linear(len(centers), CLASSES)

    def forward(self, x):
        products = x @ self.centers.T
        squares = (x * x).sum(1, keepdim=True) - 2 * products + (self.centers ** 2).sum(1)
        return self.head(torch.exp(-squares.clamp(min=0) / self.log_width.exp()))


given = program.arguments(steps=700)
torch.manual_seed(22)
rows = Measured(8000)
loader = DataLoader(rows, batch_size=256, shuffle=True,
                    generator=torch.Generator().manual_seed(23))
model = Radial(torch.stack([rows[i][0] for i in range(CENTERS)]))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
criterion = nn.CrossEntropyLoss()


def batches():
    while True:
        yield from loader


for _, (values, labels) in zip(program.counted(given), batches()):
    loss = criterion(model(values), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
program.save(model, given)
program.tell(model, loss.detach())
