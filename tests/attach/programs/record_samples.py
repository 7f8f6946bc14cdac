"""Trains a layer on samples that a module makes, for six steps."""
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Half(nn.Module):
    def forward(self, x):
        return x / 2


class Rows(Dataset):
    def __init__(self):
        self.rows, self.half = torch.arange(96.0).reshape(24, 4), Half()

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.half(self.rows[index])


torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
for rows in DataLoader(Rows(), batch_size=4, shuffle=True):
    optimizer.zero_grad()
    model(rows).square().mean().backward()
    optimizer.step()
