"""A small CNN whose loader costs next to nothing."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import program

given = program.arguments(steps=80)
torch.manual_seed(2)
dataset = TensorDataset(torch.randn(1024, 3, 32, 32), torch.randint(0, 10, (1024,)))
loader = DataLoader(dataset, batch_size=128, shuffle=True,
                    generator=torch.Generator().manual_seed(3))
model = nn.Sequential(
    nn.Conv2d(3, 24, 3, padding=1), nn.ReLU(),
    nn.Conv2d(24, 48, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(48, 48, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(),
    nn.Linear(768, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
criterion = nn.CrossEntropyLoss()


def batches():
    while True:
        yield from loader


for _, (images, labels) in zip(program.counted(given), batches()):
    loss = criterion(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
program.tell(model, loss.detach())
